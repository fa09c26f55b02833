"""A reader that never pauses: looks at artifacts as the consumer does, and writes down what it is told.

    python -I -S reader.py HEARTBEAT UNIT=PATH ...

A process of its own, so that nothing that the harness does slows it down. One line to standard output for each
change, `<monotonic ns> <unit> <told> <detail>`; what is told is one of

    missing   no such file              (healthy)
    empty     a file of zero bytes      (healthy)
    ignored   any other failure, or no regular file: fail open (healthy); the detail is the error's name
    excluded  a file with content
    torn      content that is not one whole JSON object on one line: nobody may ever see that

A line `<ns> * pass -` follows each change of the heartbeat's time: a complete pass was made. SIGTERM ends it, with
`<ns> * looks <count>,<longest gap between two looks in ns>`.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import sys
import time

Known = tuple[tuple[int, int, int], str]
"""What identifies a content, and what it told."""


def look(path: str, known: Known | None) -> tuple[str, str, Known | None]:
    """Return what a look tells, a detail, and what is then known; read only what is not `known`."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return "missing", "-", None
    except OSError as error:
        return "ignored", errno.errorcode.get(error.errno or 0, "?"), None
    if not stat.S_ISREG(found.st_mode):
        return "ignored", "not_regular", None
    if found.st_size == 0:
        return "empty", "-", None
    identity = (found.st_ino, found.st_mtime_ns, found.st_size)
    if known is None or known[0] != identity:
        known = identity, "excluded" if is_whole(path) else "torn"
    return known[1], "-", known


def is_whole(path: str) -> bool:
    """Whether a file, replaced since the look perhaps, holds nothing or one JSON object on one line."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return True  # gone again, or not readable: the next look tells
    if not content:
        return True
    try:
        return content.endswith(b"\n") and content.count(b"\n") == 1 and isinstance(json.loads(content), dict)
    except ValueError:
        return False


def heartbeat_time(path: str) -> int | None:
    """Return when the heartbeat was written; None while there is none to be seen."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def watch(heartbeat: str, paths: dict[str, str]) -> None:
    """Look at each path in turn until SIGTERM."""
    told: dict[str, tuple[str, str]] = {}
    known: dict[str, Known | None] = dict.fromkeys(paths)
    beat = heartbeat_time(heartbeat)
    looks = longest = 0
    last = time.monotonic_ns()
    try:
        while True:
            for unit, path in paths.items():
                word, detail, known[unit] = look(path, known[unit])
                if told.get(unit) != (word, detail):
                    told[unit] = word, detail
                    write(f"{time.monotonic_ns()} {unit} {word} {detail}")
            newer = heartbeat_time(heartbeat)
            if newer != beat and newer is not None:
                beat = newer
                write(f"{time.monotonic_ns()} * pass -")
            now = time.monotonic_ns()
            looks, longest, last = looks + 1, max(longest, now - last), now
    finally:
        write(f"{time.monotonic_ns()} * looks {looks},{longest}")


def write(line: str) -> None:
    """Write a line at once."""
    os.write(1, f"{line}\n".encode())


def end(*_: object) -> None:
    """End through every `finally`."""
    raise SystemExit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    watch(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))

"""The whole program of the child that asks Slurm through pyslurm; slurm.pyslurm.reader runs this file.

It stands alone: the standard library and pyslurm. Arguments: the parent's pid. A request is a line of JSON,
`["Nodes", ["name", ...]]`: what to load, and which attributes of each. What goes back is lines of JSON too, a word
and what belongs to it:

    ["missing", text]  ["broken", text]     pyslurm is not installed, cannot be imported; the end
    ["hello", version]                      it is imported
    ["rows", [{"name": "n1", ...}, ...]]    a part of an answer; an attribute that this version lacks is left out
    ["end", ["Nodes", 10000]]               that was all of it
    ["error", text]                         pyslurm raised this instead
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pwd
import signal
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ROWS = 500
"""Rows of one line: enough to cost nothing, few enough to pass on early."""


def main(parent: int) -> None:
    """Import pyslurm, then answer until there are no more requests."""
    answers = _own_answers()
    # A request that hangs inside libslurm would not see that nobody waits for it any more.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be told
        return
    # pyslurm looks the name of each user up for each job and node: as many questions to an LDAP server.
    pwd.getpwuid = functools.lru_cache(maxsize=None)(pwd.getpwuid)
    try:
        import pyslurm  # noqa: PLC0415 - it begins to use Slurm here, and may end this process

        _say(answers, "hello", pyslurm.__version__)
    except BaseException as error:  # noqa: BLE001 - SystemExit too: whatever it was, the parent wants its words
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "pyslurm"
        _say(answers, "missing" if is_missing else "broken", _told(error))
        return
    for line in sys.stdin.buffer:
        what, names = json.loads(line)
        try:
            for word, value in answer(getattr(pyslurm, what).load().values(), what, names):
                _say(answers, word, value)
        except BrokenPipeError:
            return
        except Exception as error:  # noqa: BLE001 - RPCError, and what a version that we do not know may raise
            _say(answers, "error", _told(error))


def answer(items: Iterable[object], what: str, names: list[str]) -> Iterator[tuple[str, object]]:
    """Make the lines of one answer out of what pyslurm loaded."""
    rows = [_row(item, names) for item in items]
    for start in range(0, len(rows), _ROWS):
        yield "rows", rows[start : start + _ROWS]
    yield "end", [what, len(rows)]


def _row(item: object, names: list[str]) -> dict[str, object]:
    row = {}
    for name in names:
        try:
            row[name] = getattr(item, name)
        except AttributeError:
            continue
        except UnicodeDecodeError as error:  # somebody's reason: it must not spoil its node
            row[name] = error.object.decode("utf-8", "backslashreplace")
    return row


def _own_answers() -> TextIO:
    """Take standard output away from whoever prints: libslurm's words go to stderr from here on."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, word: str, value: object) -> None:
    answers.write(json.dumps([word, value]) + "\n")
    answers.flush()


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(int(sys.argv[-1]))

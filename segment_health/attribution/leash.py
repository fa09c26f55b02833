"""`python -I -S leash.py`: becomes a program that dies with the process that started it. Standard library only.

Before that it does what touches storage, which may hang: it looks whether the API key's file can be read (and does
not read it), finds out what the logs' directory really is, and opens the program's log. So whoever started it
waits for a child that can be killed, and the program begins only where all of this is there.

Standard input: a line of JSON (see Order). Standard output: a line of JSON, {"log": path, "root": path} or
{"refused": sentence}; then it is closed, or another line says why the program could not be started.

Environment of the program: ours, with LLM_API_KEY_FILE and NVRX_ATTRSVC_ALLOWED_ROOT as they really are.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import stat
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1

# Order: {"parent": process id, "argv": [...], "key_file": path as it was told or "", "prefix": absolute path,
#         "log": absolute path}


class RefusedError(Exception):
    """Why the program is not started; a sentence."""


def main() -> None:
    """Do what standard input orders."""
    order = json.loads(sys.stdin.readline())
    report = os.dup(1)  # closed as the program begins
    try:
        _die_with(order["parent"])
        key = readable_key(order["key_file"]) if order["key_file"] else ""
        root = directory_of(order["prefix"])
        log, path = opened(order["log"])
        _tell(report, {"log": path, "root": root})
        environ = os.environ | {"NVRX_ATTRSVC_ALLOWED_ROOT": root}
        if key:
            environ["LLM_API_KEY_FILE"] = key
        _become(order["argv"], environ, log)
    except RefusedError as error:
        _tell(report, {"refused": str(error)})
    except OSError as error:
        _tell(report, {"refused": f"{order['argv'][0]}: cannot be started: {error.strerror}"})
    sys.exit(1)


def _die_with(parent: int) -> None:
    """Be killed as soon as the parent's thread that started this is gone (prctl(2)); a program keeps that."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it was quicker
        sys.exit(1)


def readable_key(told: str) -> str:
    """Return where the API key really is, once the file could be opened.

    What was told is quoted only where it can be nothing but a path: some write the key itself there.
    """
    shown = told if told.startswith(("/", "~/")) else "what was named as the API key's file, relative to here"
    path = os.path.realpath(os.path.expanduser(told))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        os.close(descriptor)
    except OSError as error:
        raise RefusedError(f"{shown}: the API key cannot be read: {error.strerror}") from error
    if not is_file:
        raise RefusedError(f"{shown}: the API key cannot be read: not a regular file")
    return path


def directory_of(prefix: str) -> str:
    """Return the real directory of the application logs, which is made if need be (seed 001)."""
    root = os.path.dirname(os.path.realpath(prefix))
    try:
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"{root}: the directory of the application logs: {error.strerror}") from error
    if not os.access(root, os.R_OK | os.X_OK):
        raise RefusedError(f"{root}: the directory of the application logs: {os.strerror(errno.EACCES)}")
    return root


def opened(told: str) -> tuple[int, str]:
    """Open the log to append to it: what an earlier service wrote stays."""
    path = os.path.realpath(told)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # O_NONBLOCK: a fifo without a reader is no log, and nothing to wait for.
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        raise RefusedError(f"{path}: the service's log: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(log).st_mode):
        raise RefusedError(f"{path}: the service's log: not a regular file")
    return log, path


def _become(argv: list[str], environ: dict[str, str], log: int) -> NoReturn:
    """Become the program, with nothing on standard input and the signals of a program that was just started."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):  # those of libc's own
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execve(argv[0], argv, environ)  # noqa: S606 - a shell is what nobody wants here


def _tell(report: int, what: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(report, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()

"""How a launcher is started from a command: it finds all as the command was given it."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NoReturn

from .failure import Failure

_NOT_EXECUTABLE = 126
_NOT_FOUND = 127


def become(command: tuple[str, ...], inherited: frozenset[str]) -> NoReturn:
    """Become the command: this process, with all that it came with. Raises Failure, 126 or 127, where that fails."""
    undo(inherited)
    try:
        os.execvpe(command[0], command, environment())  # noqa: S606 - this is what we are for
    except (OSError, ValueError) as error:  # ValueError: of a name without a letter
        raise cannot(command[0], error) from error


def cannot(name: str, error: OSError | ValueError) -> Failure:
    """Return what to end with where a command cannot be run: 127 for one that is not there, else 126."""
    if isinstance(error, FileNotFoundError | ValueError):
        return Failure(f"{name or repr('')}: command not found", _NOT_FOUND)
    return Failure(f"{name}: cannot be run: {error.strerror}", _NOT_EXECUTABLE)


def undo(inherited: frozenset[str]) -> None:
    """Take back what Python did to this process as it started, and leave open what was open then and no more."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and who is executed inherits that
        signal.signal(ignored, signal.SIG_DFL)
    for number in descriptors() - inherited:
        with contextlib.suppress(OSError):  # that of the listing itself
            os.set_inheritable(int(number), False)


def descriptors() -> frozenset[str]:
    """Name the descriptors that are open; to be asked before anything is opened."""
    with contextlib.suppress(OSError):  # no /proc
        return frozenset(os.listdir("/proc/self/fd"))
    return frozenset()


def environment() -> dict[bytes, bytes]:
    """Return the environment as it came: in the C locale Python adds LC_CTYPE to it, or changes it (PEP 538)."""
    came: dict[bytes, bytes] = {}
    try:
        with open("/proc/self/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                name, found, value = entry.partition(b"=")
                if found:
                    came.setdefault(name, value)  # of two of one name the first counts, as getenv(3) has it
    except OSError:  # no /proc: as it is now
        return dict(os.environb)
    return came

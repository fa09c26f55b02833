"""How a command ends: the exit codes of the contract, one line on stderr, and what signals do."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

DONE = 0
ATTENTION = 1
"""An excluded unit, a check that failed, something that could not be written."""
USAGE = 2
"""A usage or configuration error; nothing was done."""
UNKNOWN = 3
"""Slurm's state is unknown; nothing was changed."""


class Failure(click.ClickException):
    """Ends the command with `exit_code` after one line."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self._exit_code = exit_code

    def __reduce__(self) -> tuple[type[Failure], tuple[str, int]]:
        """Pickle it: it may be raised in a child process (see segment_health.bounded)."""
        return type(self), (self.message, self._exit_code)

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click's is one number for a class
        """The status to end with."""
        return self._exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line; what it quotes from outside cannot move the cursor."""
        from segment_health.record import printable  # noqa: PLC0415 - for who fails

        click.echo(f"segment-health: {printable(self.message)}", file=file, err=True)


def say(line: str, *, err: bool = False) -> bool:
    """Print a line; where nobody can read it this returns False, and the exit status stands."""
    if (sys.stderr if err else sys.stdout) is None:  # closed before we began
        return False
    try:
        click.echo(line, err=err)
    except (OSError, UnicodeError):
        # What is left in the buffer would fail once more when Python ends, and change the status to 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)
        return False
    return True


def deliver(text: str) -> None:
    """Print what somebody will use, such as a script. Raises Failure where not all of it was written."""
    if not say(text.removesuffix("\n")):
        raise Failure("standard output: not all of it could be written", ATTENTION)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person sees what is printed there; None was closed before we began."""
    return stream is not None and stream.isatty()


def reserve_streams() -> None:
    """Open what of standard input, output and error is closed, to nothing.

    Else the next file that is opened takes the number, and what is told to people is written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):  # in order: each takes the lowest number that is free
                os.open(os.devnull, os.O_RDWR)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a signal end what runs inside through every `finally`."""
    import signal  # noqa: PLC0415 - its enums cost more than a short command's own work

    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: None)  # a pass is on its way already
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End by a signal through every `finally`: Slurm's commands must not outlive us."""
    raise SystemExit(128 + number)

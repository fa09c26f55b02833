"""How a command ends that could not do its work: one line on stderr, and the exit code of the contract."""

from __future__ import annotations

import os
from typing import IO, Any

import click

from segment_health.record import printable

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
        click.echo(f"segment-health: {printable(self.message)}", file=file, err=True)


def say(line: str, *, err: bool = False) -> None:
    """Print a line; where nobody can read it, the command goes on and its exit status stands."""
    try:
        click.echo(line, err=err)
    except (OSError, UnicodeError):
        # What is left in the buffer would fail once more when Python ends, and change the status to 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)

"""Readers: where a Snapshot comes from, and which door is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ._command import Commands
from ._text import TextReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .snapshot import Snapshot


class Reader(Protocol):
    """Gives a whole Snapshot, or raises SlurmError: there is no half answer."""

    remarks: list[str]
    """What came with the last answer that is worth a log line, and is no failure."""

    def read(self) -> Snapshot:
        """Ask once. Raises SlurmUnavailable or SlurmProtocolError."""

    def close(self) -> None:
        """Let go of what it keeps between two answers: a child process, a connection."""


@dataclass(frozen=True, slots=True)
class Access:
    """How this site's Slurm is reached.

    `timeout` is in seconds, for what a pass asks side by side. `cluster` is the one that is wanted, None for
    whoever answers; `commands_directory` is where Slurm's commands are, None for PATH. The last two are
    slurmrestd's: `http://host:6820` or `unix:/path`, and a file with a JSON web token (else SLURM_JWT).
    """

    timeout: float
    environ: Mapping[str, str]
    cluster: str | None = None
    slurm_conf: str | None = None
    commands_directory: str | None = None
    rest_url: str | None = None
    rest_token_file: str | None = None

    def environment(self) -> dict[str, str]:
        """Return the environment for whatever uses libslurm."""
        return {**self.environ, **({"SLURM_CONF": self.slurm_conf} if self.slurm_conf else {})}

    def commands(self) -> Commands:
        """Return Slurm's commands."""
        return Commands(
            timeout=self.timeout,
            environ=self.environment(),
            directory=self.commands_directory,
            cluster=self.cluster,
        )


@dataclass(frozen=True, slots=True)
class Door:
    """A reader, the name of its door, and why it was taken."""

    reader: Reader
    name: str
    why: str


def open_reader(prefer: str, access: Access) -> Door:
    """Open a door: "text", "json", "rest", "pyslurm", or "auto", which is pyslurm where it fits, else text.

    Each loads what it needs only when it is taken. Never fails: what is missing shows in the first answer.
    """
    if prefer == "json":
        from ._json import JsonReader  # noqa: PLC0415 - pydantic: 70 ms that the text door does not pay

        return Door(JsonReader(access.commands()), "json", "asked for")
    why = "asked for" if prefer == "text" else "pyslurm is not installed"
    return Door(TextReader(access.commands()), "text", why)

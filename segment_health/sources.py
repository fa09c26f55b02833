"""Where snapshots come from: the one door between this package and `slurm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from slurm.errors import SlurmError
    from slurm.reader import CommandReader, SavedReader
except ImportError as error:  # a distribution on PyPI owns the name too, and its files may lie over ours
    import slurm

    raise ImportError(
        f"the package `slurm` in {getattr(slurm, '__path__', [])!r} is not segment-health's; "
        "install segment-health where no other `slurm` is, or start it with `python -P`"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.reader import Reader
    from slurm.snapshot import Snapshot


class SourceUnknown(Exception):  # noqa: N818 - a state of the world, not a bug
    """Slurm's state is unknown: nothing may be concluded from it. The message says why."""


class Source:
    """A Reader whose failures are SourceUnknown, whatever the door."""

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self.name = name
        """What is asked, for people and for `publish --format json`."""

    @property
    def remarks(self) -> list[str]:
        """What the last answer came with that is worth a log line, and is no failure."""
        return self._reader.remarks

    def observe(self) -> Snapshot:
        """Return a whole snapshot. Raises SourceUnknown."""
        try:
            return self._reader.read()
        except SlurmError as error:
            raise SourceUnknown(str(error)) from error


def ask_slurm(*, timeout: float, environ: Mapping[str, str]) -> Source:
    """Observe through Slurm's commands; `timeout` is in seconds, for a pass's queries together."""
    return Source(CommandReader(timeout=timeout, environ=environ), "scontrol, squeue")


def replay(nodes: str, jobs: str, *, cluster: str) -> Source:
    """Observe what `scontrol show nodes -o` and `scontrol show jobs` said when they were saved to two files."""
    return Source(SavedReader(nodes, jobs, cluster=cluster), f"{nodes}, {jobs}")

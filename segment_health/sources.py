"""Where snapshots come from: the one door between this package and `slurm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

try:
    from slurm.errors import SlurmError
    from slurm.reader import Access, open_reader, open_recording, open_saved
except ImportError as error:  # a distribution on PyPI owns the name too, and its files may lie over ours
    import slurm

    raise ImportError(
        f"the package `slurm` in {getattr(slurm, '__path__', [])!r} is not segment-health's; "
        "install segment-health where no other `slurm` is, or start it with `python -P`"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from slurm.commands.job import JobOptions
    from slurm.node import Node
    from slurm.reader import Reader
    from slurm.snapshot import Snapshot
    from slurm.traffic import Traffic

__all__ = [
    "Access",
    "Configuration",
    "Source",
    "SourceUnknown",
    "ask_job",
    "ask_node",
    "ask_slurm",
    "fold",
    "node_names",
    "read_saved",
    "recording",
    "replay",
]


class SourceUnknown(Exception):  # noqa: N818 - a state of the world, not a bug
    """Slurm's state is unknown: nothing may be concluded from it. The message says why."""


class Configuration(NamedTuple):
    """Slurm's settings, by their names in slurm.conf(5); and slurmctld's clock as it told them.

    `as_of` is in whole seconds since the epoch, None where it did not say.
    """

    settings: Mapping[str, str]
    as_of: int | None


class Source:
    """A Reader whose failures are SourceUnknown, whatever the door."""

    def __init__(self, reader: Reader, name: str, why: str) -> None:
        self._reader = reader
        self.name = name
        """What is asked, for people and for `publish --format json`: "text", "rest", "saved" ..."""
        self.why = why
        """Why that and nothing else."""

    @property
    def remarks(self) -> list[str]:
        """What the last answer came with that is worth a log line, and is no failure."""
        return self._reader.remarks

    @property
    def traffic(self) -> Mapping[str, Traffic]:
        """How much was asked since this was opened, by the name of the door."""
        return self._reader.traffic

    def configuration(self) -> Configuration | None:
        """Return what Slurm said of itself in the last answer; None where that door does not tell."""
        config = self._reader.config
        return None if config is None else Configuration(config.settings, config.as_of)

    def observe(self) -> Snapshot:
        """Return a whole snapshot. Raises SourceUnknown."""
        try:
            return self._reader.read()
        except SlurmError as error:
            raise SourceUnknown(str(error)) from error

    def close(self) -> None:
        """Let go of what is kept between two passes."""
        self._reader.close()


def ask_slurm(prefer: str, access: Access) -> Source:
    """Observe a living Slurm by the door that is preferred (see slurm.reader.open_reader)."""
    door = open_reader(prefer, access)
    return Source(door.reader, door.name, door.why)


def ask_job(job_id: str, access: Access) -> JobOptions:
    """Ask Slurm's commands how one job was submitted. Raises SourceUnknown."""
    from slurm.commands.job import options_of  # noqa: PLC0415 - no pass needs it

    try:
        return options_of(job_id, access.commands())
    except SlurmError as error:
        raise SourceUnknown(str(error)) from error


def ask_node(name: str, access: Access) -> Node:
    """Ask Slurm's commands for one node, and slurmctld for no more than that. Raises SourceUnknown."""
    from slurm.commands.node import node_of  # noqa: PLC0415 - no pass needs it

    try:
        return node_of(name, access.commands())
    except SlurmError as error:
        raise SourceUnknown(str(error)) from error


def read_saved(nodes: str, jobs: str, *, cluster: str | None) -> Source:
    """Observe what any door said when it was saved to two files."""
    return Source(open_saved(nodes, jobs, cluster), "saved", f"{nodes}, {jobs}")


def replay(path: str, *, cluster: str | None) -> Source:
    """Observe what was recorded, of this cluster if one is named."""
    return Source(open_recording(path, cluster), "replay", path)


def recording(snapshot: Snapshot, source: Source, *, now: datetime, scrubbed: bool) -> str:
    """Return the text of a recording; `scrubbed` puts words in place of users and reasons."""
    from slurm.recording import dump, scrub  # noqa: PLC0415 - no pass needs it

    told = scrub(snapshot) if scrubbed else snapshot
    return dump(told, source=source.name, recorded=now.isoformat(timespec="seconds"), scrubbed=scrubbed)


def fold(names: Iterable[str]) -> str:
    """Write names of nodes as one hostlist."""
    from slurm.hostlist import fold  # noqa: PLC0415 - no healthy pass needs it

    return fold(names)


def node_names(hostlist: str) -> tuple[str, ...]:
    """Name the nodes of a hostlist that a person wrote. Raises ValueError."""
    from slurm.hostlist import expand  # noqa: PLC0415 - no pass needs it

    try:
        return expand(hostlist)
    except SlurmError as error:
        raise ValueError(str(error)) from error

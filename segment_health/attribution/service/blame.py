"""Leaves what an analysis says against nodes where a publisher finds it (see attribution.blame).

Few findings do. A cause that is in the hardware of a node is named in its log by the driver or by Slurm; a network
time-out, a full file system or a mistake in a program is no word against the node whose line it stands in.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from segment_health.atomic import open_directory, replace_file, sweep, sync_directory
from segment_health.attribution.blame.record import MARKER, MAX_EVIDENCE, Blame, Evidence, encode, node_of
from segment_health.record import brief
from segment_health.trust import stranger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segment_health.attribution.analysers.finding import Finding

HARDWARE = frozenset({"cuda-ecc", "xid-hardware"})
"""The categories that are a word against a node."""
BELIEVED = "rules"
"""Whose findings are: a language model is not believed against a node, whatever its evidence."""
MAX_NODES = 4
"""Nodes that one log may blame. One that names more has seen what they share: a switch, a driver."""
MAX_FILES = 8192
"""Blames in the directory; a publisher reads twice as many."""
MAX_FILES_OF_A_NODE = 32
KEEP_SECONDS = 30 * 86400
"""Older ones are removed: no publisher wants them any more, and a person has had a month."""
_MODE = 0o644
_SHOWN = 100


class Failed(NamedTuple):
    """What was analysed: a log, what the service was told of it, and the owner's uid; None is not known."""

    log: str
    job_id: str | None = None
    cycle: int | None = None
    owner: int | None = None


def blames_of(finding: Finding, failed: Failed, now: int) -> tuple[list[Blame], str]:
    """Return what a finding says against nodes, and why it says nothing although it names some. Pure."""
    nodes = sorted(set(finding.nodes))
    if not nodes or finding.category not in HARDWARE:
        return [], ""
    if finding.source.partition("+")[0] != BELIEVED:  # `rules+llm` is the rules' finding, with a model's remark
        return [], f"{brief(finding.source, _SHOWN)} is not believed against a node"
    if len(nodes) > MAX_NODES:
        return [], f"{len(nodes)} nodes at once are no fault of each: {MAX_NODES} at most are blamed"
    evidence = tuple(Evidence(line.number, line.text) for line in finding.evidence[:MAX_EVIDENCE])
    log, job, cycle = os.path.basename(failed.log), failed.job_id or "", failed.cycle
    try:
        return [
            Blame(node, finding.category, job, now, cycle, log, failed.owner, evidence=evidence) for node in nodes
        ], ""
    except ValueError as error:
        return [], str(error)


class BlameDirectory:
    """Writes into the directory `path`, which is there and belongs to this user or root alone."""

    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, now: int) -> None:
        """Mark the directory as the one, and remove what is old. Raises OSError, with a sentence."""
        told = stranger(self.path)
        if told is not None:
            raise PermissionError(errno.EPERM, f"{told}. Whoever can write there blames whichever node they like")
        with open_directory(self.path, links=False) as directory:
            names = os.listdir(directory)
            if MARKER not in names:
                replace_file(directory, MARKER, b"", mode=_MODE)
                sync_directory(directory)
            sweep(directory, names)
            _remove_old(directory, names, now)

    def record(self, finding: Finding, failed: Failed, now: int) -> str:
        """Write down what a finding says against nodes; return a sentence for the log, empty if it says nothing.

        The same failure, analysed twice, is written once. Raises OSError.
        """
        blames, why = blames_of(finding, failed, now)
        if not blames:
            return f"no node is blamed for {finding.category}: {why}" if why else ""
        with open_directory(self.path, links=False) as directory:
            names = os.listdir(directory)
            if len(names) > MAX_FILES // 2:
                names = _remove_old(directory, names, now)
            if len(names) > MAX_FILES:
                raise OSError(errno.ENOSPC, f"{self.path} has {len(names)} files: no further blame is written")
            for blame in blames:
                replace_file(directory, blame.name, encode(blame), mode=_MODE)
                others = {name for name in names if node_of(name) == blame.node} - {blame.name}
                _thin_out(directory, sorted(others))
            sync_directory(directory)
        return f"blamed for {finding.category} by job {failed.job_id}: {', '.join(blame.node for blame in blames)}"


def _thin_out(directory: int, names: list[str]) -> None:
    """Leave the newest of a node's blames, of which these are all but the one that has just come."""
    if len(names) >= MAX_FILES_OF_A_NODE:
        by_age = sorted(names, key=lambda name: _time(directory, name))
        _remove(directory, by_age[: len(names) - MAX_FILES_OF_A_NODE + 1])


def _remove_old(directory: int, names: list[str], now: int) -> list[str]:
    """Remove blames that are too old for anybody; return the names that are left."""
    old = {name for name in names if node_of(name) and _time(directory, name) < now - KEEP_SECONDS}
    _remove(directory, old)
    return [name for name in names if name not in old]


def _time(directory: int, name: str) -> float:
    """Return when a file was written, in seconds since the epoch; of one that is gone, as if it were new."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return float("inf")


def _remove(directory: int, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):  # another process was faster
            os.unlink(name, dir_fd=directory)

"""Saved answers, of whatever door: told apart by what stands in them, never by the file's name."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from slurm.commands import process
from slurm.commands.job_rows import FIELDS, JobRows
from slurm.commands.node_rows import NodeRows

from .commands.config import CLUSTER_NAME
from .commands.records import parse_saved_jobs
from .errors import SlurmProtocolError, SlurmUnavailable
from .fields import shown
from .nodes import existing
from .snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .commands.config import Config
    from .job import Allocation
    from .node import Node
    from .traffic import Traffic

_CHUNK = 1 << 20


class SavedReader:
    """Reads saved nodes and saved jobs, which need not be of one door; `-` is standard input.

    The times of saved text are in the zone of this process (set TZ to say otherwise). `cluster` is what the
    answers themselves do not tell.
    """

    def __init__(self, nodes: str, jobs: str, *, cluster: str | None) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._cluster = cluster
        self.config: Config | None = None  # nodes and jobs do not tell it
        self.traffic: dict[str, Traffic] = {}  # nobody is asked
        self.remarks: list[str] = []

    def read(self) -> Snapshot:
        """Read both files."""
        nodes, jobs = _read(self._nodes, "nodes"), _read(self._jobs, "jobs")
        named = {name for name in (self._cluster, nodes.cluster, jobs.cluster) if name is not None}
        if len(named) > 1:
            raise SlurmProtocolError(f"saved answers are of more than one cluster: {', '.join(sorted(named))}")
        return Snapshot(
            cluster=named.pop() if named else "saved",
            slurm_version=nodes.version or jobs.version,
            nodes=existing(nodes.nodes, jobs.allocations),
            allocations=jobs.allocations,
        )

    def close(self) -> None:
        """Keep nothing open."""


@dataclass(slots=True)
class _Answer:
    """What one file holds, and whose it says that it is."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    allocations: tuple[Allocation, ...] = ()
    cluster: str | None = None
    version: str | None = None


def _read(path: str, wanted: str) -> _Answer:
    chunks = contents(path)
    head = next(chunks, b"")
    if head.lstrip()[:1] == b"{":
        return _read_json(chain([head], chunks), path, wanted)
    try:
        return _read_text(head, chunks, wanted)
    except SlurmProtocolError as error:
        raise SlurmProtocolError(f"{path}: {error}") from error


def _read_text(head: bytes, chunks: Iterable[bytes], wanted: str) -> _Answer:
    first = head.partition(b"\n")[0]
    if wanted == "nodes":
        if head.startswith(b"NodeName=") and b"\n   " in head and b" State=" not in first:
            raise SlurmProtocolError("a node has more than one line: save it with `scontrol show nodes -o`")
        nodes = NodeRows(zone=None)
        for chunk in chain([head], chunks):
            nodes.feed(chunk)
        return _Answer(nodes=nodes.close())
    if first.count(b"|") != len(FIELDS):
        return _Answer(allocations=parse_saved_jobs(head + b"".join(chunks)))
    jobs = JobRows(zone=None)
    for chunk in chain([head], chunks):
        jobs.feed(chunk)
    return _Answer(allocations=jobs.close())


def _read_json(chunks: Iterable[bytes], path: str, wanted: str) -> _Answer:
    from .json.answer import JsonAnswer  # noqa: PLC0415 - pydantic: 70 ms that text does not pay

    answer = JsonAnswer(path)
    for chunk in chunks:
        answer.feed(chunk)
    members = answer.end()
    if "schema" in members:
        raise SlurmProtocolError(f"{path}: a recording holds nodes and jobs: play it with --replay")
    if wanted not in answer.counts and members and all(map(_is_of_pyslurm, members.values())):
        return _of_pyslurm(members, path, wanted)
    answer.close(wanted)
    cluster = _cluster_of(answer.cluster, path)
    return _Answer(answer.nodes, tuple(answer.allocations.values()), cluster, answer.version)


def _is_of_pyslurm(member: object) -> bool:
    """Tell a row of pyslurm's own dump (of Nodes or Jobs, by name or id) from what Slurm puts beside its rows."""
    return isinstance(member, dict) and "cluster" in member and "state" in member


def _cluster_of(told: object, path: str) -> str | None:
    """Return the name of a cluster, which becomes a part of file names; None where none is told."""
    if not told:
        return None
    if not isinstance(told, str) or CLUSTER_NAME.fullmatch(told) is None:
        raise SlurmProtocolError(f"{path}: not the name of a cluster: {shown(str(told))}")
    return told


def _of_pyslurm(rows: dict[str, object], path: str, wanted: str) -> _Answer:
    from .pyslurm.rows import parse_jobs, parse_nodes  # noqa: PLC0415 - pydantic

    (first, *_) = rows.values()
    cluster = _cluster_of(first["cluster"] if isinstance(first, dict) else None, path)
    if wanted == "nodes":
        return _Answer(nodes=parse_nodes(rows, cluster), cluster=cluster)
    return _Answer(allocations=parse_jobs(rows, cluster), cluster=cluster)


def contents(path: str) -> Iterator[bytes]:
    """Read a regular file, a pipe (`<(ssh head scontrol show nodes -o)`) or `-`, bit by bit, within bounds.

    Raises SlurmUnavailable or SlurmProtocolError.
    """
    if path == "-":
        path = "/dev/stdin"
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise SlurmUnavailable(f"{path}: neither a file nor a pipe")
            os.set_blocking(file.fileno(), True)
            size = 0
            while chunk := file.read(_CHUNK):  # not all at once: read(n) would ask for n bytes of memory first
                size += len(chunk)
                if size > process.MAX_OUTPUT:
                    raise SlurmProtocolError(f"{path}: more than {process.MAX_OUTPUT} bytes")
                yield chunk
    except OSError as error:
        raise SlurmUnavailable(f"{path}: {error.strerror}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting: a fifo that nobody writes to would hold us for ever."""
    return os.open(path, flags | os.O_NONBLOCK)

"""Fakes for those who test against us: a clock, and a cluster that can be drained, requeued and made to fail.

They obey what the real things obey: a snapshot is whole or there is none, a requeue changes the generation and
keeps the ids, an allocation that ended is no longer listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm import hostlist
from slurm.job import Allocation
from slurm.node import Node, parse_state
from slurm.nodes import existing
from slurm.snapshot import Snapshot

from .sources import Source, SourceUnknown

if TYPE_CHECKING:
    from slurm.traffic import Traffic


@dataclass
class FakeClock:
    """Time that passes only when told; seconds since the epoch."""

    now: float = 1_796_000_000.0

    def __call__(self) -> float:
        """Return the time, as time.time does."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass
class FakeCluster:
    """A cluster of idle nodes; hand `cluster.source` to whatever observes Slurm.

    `unknown` makes every query fail with that text until it is None again. `visible_user` is the uid of the only
    user whose jobs are shown, None for everybody's (PrivateData of slurm.conf(5)).
    """

    nodelist: str = "n[1-9]"
    name: str = "fake"
    unknown: str | None = None
    visible_user: str | None = None
    _nodes: dict[str, Node] = field(default_factory=dict)
    _allocations: dict[str, Allocation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._nodes = {name: Node(name, "IDLE") for name in hostlist.expand(self.nodelist)}

    @property
    def source(self) -> Source:
        """A source that observes this cluster as it is at each call."""
        return _FakeSource(self)

    def set_node(self, name: str, state: str, reason: str | None = None, *, since: int = 0) -> None:
        """Put a node into a state as scontrol(1) prints it, `ALLOCATED+DRAIN`; the reason is of `since`."""
        base, flags = parse_state(state)
        stamp = (reason, "root", since) if reason else (None, None, None)
        self._nodes[name] = Node(name, base, flags, *stamp)

    def forget_node(self, name: str) -> None:
        """Take a node out of the node table, though allocations may still name it."""
        del self._nodes[name]

    def run(self, unit: str, nodelist: str, *, start_time: int = 1_795_000_000, **facts: str) -> None:
        """Let a unit run: `123_7` for an array task, `123` for a job; `facts` are further fields of Allocation."""
        job_id, _, task_id = unit.partition("_")
        self._allocations[unit] = Allocation(
            job_id=f"9{job_id}{task_id}" if task_id else job_id,
            state="RUNNING",
            restart_count=0,
            start_time=start_time,
            nodelist=nodelist,
            nodes=hostlist.expand(nodelist),
            array_job_id=job_id if task_id else None,
            array_task_id=task_id or None,
            **{"user": "alice", "user_id": "1001", "partition": "main", **facts},
        )

    def requeue(self, unit: str, nodelist: str) -> None:
        """Let a unit run anew, on these nodes."""
        before = self._allocations[unit]
        self._allocations[unit] = before._replace(
            restart_count=before.restart_count + 1,
            start_time=before.start_time + 600,
            nodelist=nodelist,
            nodes=hostlist.expand(nodelist),
        )

    def shrink(self, unit: str, nodelist: str) -> None:
        """Leave a `--no-kill` job with these of its nodes."""
        self.change(unit, nodelist=nodelist, nodes=hostlist.expand(nodelist))

    def change(self, unit: str, **facts: object) -> None:
        """Change fields of a unit's allocation."""
        self._allocations[unit] = self._allocations[unit]._replace(**facts)  # type: ignore[arg-type]  # by name

    def end(self, unit: str) -> None:
        """Let a unit end."""
        del self._allocations[unit]

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is. Raises SourceUnknown while `unknown` is set."""
        if self.unknown is not None:
            raise SourceUnknown(self.unknown)
        allocations = tuple(
            a for a in self._allocations.values() if self.visible_user is None or a.user_id == self.visible_user
        )
        return Snapshot(
            cluster=self.name,
            slurm_version="0.0.0",
            nodes=existing(self._nodes, allocations),
            allocations=allocations,
            visible_user=self.visible_user,
        )


class _FakeSource(Source):
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.name = "fake"
        self.why = "a test"

    @property
    def remarks(self) -> list[str]:
        return []

    @property
    def traffic(self) -> dict[str, Traffic]:
        return {}

    def configuration(self) -> None:
        return None

    def observe(self) -> Snapshot:
        return self._cluster.snapshot()

    def close(self) -> None:
        pass

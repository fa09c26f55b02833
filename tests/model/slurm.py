"""A small model of Slurm: what can happen to nodes and jobs, and what a whole answer of it means for each unit.

Written from the contract alone (docs/contract.md, "What a node's state means" and "The producer"); it shares no
line with what decides. A FakeCluster is kept in step, which is what the publishers see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segment_health.level import FaultLevel
from segment_health.testing import FakeCluster
from slurm import hostlist

if TYPE_CHECKING:
    from collections.abc import Mapping

OK, PRE, SEPARATE = FaultLevel
NODES = ("n1", "n2", "n3")
UNITS = ("7_0", "7_1", "8", "9")
"""Two tasks of an array, a job, and a heterogeneous job whose second component is job 10."""
USERS = {"alice": "1001", "bob": "1002"}

STATES: Mapping[str, tuple[FaultLevel, bool]] = {
    # as scontrol prints it: the least that the node is worth, and whether nothing about it is unclear
    "ALLOCATED": (OK, True),
    "MIXED+PLANNED": (OK, True),
    "IDLE+COMPLETING": (OK, True),
    "ALLOCATED+REBOOT_REQUESTED": (OK, True),
    "ALLOCATED+DRAIN+UNDRAIN": (OK, True),
    "ALLOCATED+NOT_RESPONDING+POWERING_UP": (OK, True),
    "ALLOCATED+BANANA": (OK, True),
    "MIXED+DRAIN": (PRE, True),
    "ALLOCATED+DRAIN+BANANA": (PRE, True),
    "MIXED+NOT_RESPONDING": (PRE, True),
    "DOWN+DRAIN": (SEPARATE, True),
    "ALLOCATED+FAIL": (SEPARATE, True),
    "ALLOCATED+REBOOT_ISSUED": (SEPARATE, True),
    "IDLE+POWERED_DOWN": (SEPARATE, True),
    "FUTURE": (SEPARATE, True),
    "UNKNOWN": (OK, False),
    "UNKNOWN+NOT_RESPONDING": (OK, False),
    "BANANA": (OK, False),
    "": (OK, False),
    "UNKNOWN+DRAIN": (PRE, False),
    "BANANA+FAIL": (SEPARATE, False),
}
"""States of a node under a running allocation."""
NO_ROW = "the node table lacks it"
JOB_STATES = {"RUNNING": True, "SUSPENDED": True, "CONFIGURING": True, "HIBERNATING": False}
"""States in which a job holds nodes, and whether we understand them."""


@dataclass(frozen=True)
class Unit:
    """A unit as one whole answer shows it.

    `run` is its generation: restarts, and when it began. `had` are all nodes that it ever had in this run.
    `faults` are its bad nodes, and `unclear` those of which something is not known; a node can be both.
    """

    run: tuple[int, int]
    nodes: frozenset[str]
    had: frozenset[str]
    faults: Mapping[str, FaultLevel]
    unclear: frozenset[str] = frozenset()
    understood: bool = True
    owner: str = "alice"

    @property
    def level(self) -> FaultLevel:
        """The level that its known faults have."""
        return max(self.faults.values(), default=OK)


@dataclass
class _Job:
    run: tuple[int, int]
    nodes: frozenset[str]
    had: frozenset[str]
    owner: str
    word: str = "RUNNING"


@dataclass
class Slurm:
    """Slurm, and what is so. `owners` tells whose a unit is, or was."""

    cluster: FakeCluster = field(default_factory=lambda: FakeCluster(hostlist.fold(NODES)))
    owners: dict[str, str] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NODES, "ALLOCATED"))
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _restarts: dict[str, int] = field(default_factory=dict)
    _clock: int = 1_795_000_000

    def change_nodes(self, changes: Mapping[str, str]) -> None:
        """Put nodes into some of STATES, or take them from the node table (NO_ROW)."""
        for name, state in changes.items():
            if state != NO_ROW:
                self.cluster.set_node(name, state, "some reason")
            elif self._states[name] != NO_ROW:
                self.cluster.forget_node(name)
            self._states[name] = state

    def begin(self, unit: str, nodes: frozenset[str], owner: str) -> None:
        """Let a unit run: for the first time, anew after a requeue, or as a new job with an old id."""
        if unit in self._jobs:
            self.end(unit, requeued=True)
        self._clock += 600
        run = (self._restarts.pop(unit, 0), self._clock)
        self._jobs[unit] = _Job(run, nodes, nodes, owner)
        self.owners[unit] = owner
        self._tell(unit)

    def end(self, unit: str, *, requeued: bool) -> None:
        """Let a unit end; one that is requeued keeps its ids and counts one restart more when it runs again."""
        job = self._jobs.pop(unit, None)
        if job is None:
            return
        if requeued:
            self._restarts[unit] = job.run[0] + 1
        for part in _parts(unit, job.nodes):
            self.cluster.end(part)

    def lose(self, unit: str, node: str) -> None:
        """Take a node from a unit (`--no-kill`)."""
        job = self._jobs.get(unit)
        if job is not None and job.nodes > {node}:
            for part in _parts(unit, job.nodes):
                self.cluster.end(part)
            job.nodes -= {node}
            self._tell(unit)

    def put(self, unit: str, word: str) -> None:
        """Put a job into one of JOB_STATES."""
        if unit in self._jobs:
            self._jobs[unit].word = word
            self._tell(unit)

    def answer(self, user: str | None = None) -> dict[str, Unit]:
        """Return what a whole answer shows now, of everybody's jobs or of one user's alone (PrivateData)."""
        self.cluster.visible_user = None if user is None else USERS[user]
        return {name: self._unit(job) for name, job in self._jobs.items() if user in {None, job.owner}}

    def _unit(self, job: _Job) -> Unit:
        verdicts = {name: STATES.get(self._states[name], (OK, False)) for name in job.nodes}
        return Unit(
            job.run,
            job.nodes,
            job.had,
            {name: level for name, (level, _) in verdicts.items() if level},
            frozenset(name for name, (_, is_clear) in verdicts.items() if not is_clear),
            JOB_STATES[job.word],
            job.owner,
        )

    def _tell(self, unit: str) -> None:
        """Keep the FakeCluster in step."""
        job = self._jobs[unit]
        for part, nodes in _parts(unit, job.nodes).items():
            facts = {"user": job.owner, "user_id": USERS[job.owner]}
            leader = {"het_job_id": unit} if unit == "9" else {}
            self.cluster.run(part, hostlist.fold(nodes), start_time=job.run[1], **facts, **leader)
            self.cluster.change(part, restart_count=job.run[0], state=job.word)


def _parts(unit: str, nodes: frozenset[str]) -> dict[str, frozenset[str]]:
    """Split a heterogeneous job into its components, each with its nodes."""
    first = frozenset(sorted(nodes)[:1])
    return {"9": first, "10": nodes - first} if unit == "9" and nodes > first else {unit: nodes}

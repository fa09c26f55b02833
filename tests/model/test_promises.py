"""Whatever happens, in whatever order, the contract's promises hold after every step.

On one side a small model of Slurm (slurm.py), on the other the real decider, store and ledger, with three
publishers over one directory (publishers.py). What is promised stands in promises.py; here stands what can happen.
hypothesis looks for a history that breaks a promise, and prints the shortest.

SEGMENT_HEALTH_EXAMPLES=5000 says how many histories of 40 steps are tried.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from segment_health import lift
from segment_health.contract import Publisher
from segment_health.observe import observe
from segment_health.sources import SourceUnknown
from segment_health.testing import FakeClock
from slurm import hostlist

from .promises import PROMISES, Directory, Step, look, run_of
from .publishers import INTERVAL, SCOPES, Fault, covers, make_pass, path_of, under
from .slurm import JOB_STATES, NO_ROW, NODES, OK, SEPARATE, STATES, UNITS, USERS, Slurm, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from segment_health.observe import Observation

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where fsync(2) costs nothing."""

scopes, units, nodes, users = map(st.sampled_from, (tuple(SCOPES), UNITS, NODES, tuple(USERS)))
orders = st.lists(scopes, max_size=4)
some_nodes = st.frozensets(nodes, min_size=1)
good = st.sampled_from([state for state, told in STATES.items() if told == (OK, True)])
unclear = st.sampled_from([NO_ROW, *(state for state, told in STATES.items() if told == (OK, False))])
bad = st.sampled_from([state for state, (level, _) in STATES.items() if level])
states = good | bad | bad | unclear
errors = st.sampled_from([None, None, errno.ENOSPC, errno.EIO])
faults = st.builds(Fault, st.integers(1, 8) | st.integers(1, 24), errors, st.booleans())


def event(**arguments: Any) -> Callable[[Callable[..., None]], Any]:
    """Make a rule of something that happens; then some publishers make passes."""

    def decorate(happens: Callable[..., None]) -> Any:
        def step(world: World, then: list[str], **facts: Any) -> None:
            happens(world, **facts)
            world.passes(then)

        step.__name__ = happens.__name__
        as_rule: Any = rule(then=orders, **arguments)
        return as_rule(step)

    return decorate


@dataclass
class Mind:
    """What a scope knows from its passes: `nodes` what it must know, `missed` what it may.

    `nodes` holds the run and the nodes of each unit that clean passes saw; `missed` counts whole answers in a row
    without a unit.
    """

    nodes: dict[str, tuple[tuple[int, int], frozenset[str]]] = field(default_factory=dict)
    missed: Counter[str] = field(default_factory=Counter)

    def sees(self, name: str, unit: Unit) -> Unit:
        """Add the nodes that a unit lost: faults if the scope must know of them, else unclear."""
        run, nodes = self.nodes.get(name, (unit.run, unit.nodes))
        lost = nodes - unit.nodes if run == unit.run else frozenset()
        faults = {**unit.faults, **dict.fromkeys(lost, SEPARATE)}
        return replace(unit, faults=faults, unclear=unit.unclear | (unit.had - unit.nodes - lost))

    def learns(self, watched: Mapping[str, Unit]) -> None:
        """Remember what a clean pass saw."""
        for name, unit in watched.items():
            run, nodes = self.nodes.get(name, (unit.run, unit.nodes))
            self.nodes[name] = (unit.run, nodes | unit.nodes if run == unit.run else unit.nodes)
            self.missed[name] = 0


@dataclass(frozen=True)
class Seen:
    """What a publisher had from Slurm at a time, and what we know to be so."""

    scope: str
    host: str
    observation: Observation
    view: Mapping[str, Unit]
    missed: frozenset[str]


class World(RuleBasedStateMachine):
    """Slurm, three publishers of which each may also run on another host, people, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="segment-health-model-", dir=MEMORY))
        self.slurm = Slurm()
        self.clock = FakeClock(int(time.time()))
        self.minds = {scope: Mind() for scope in SCOPES}
        self.slow: dict[str, Seen] = {}
        self.overrides: dict[str, tuple[tuple[int, int], frozenset[str], str]] = {}
        self.strangers: dict[str, bytes] = {}
        self.lies = Directory()
        self.said: set[bytes] = set()
        self.untidy = False

    # ── what happens in Slurm, and to time ────────────────────────────────────────────────────────────────────

    @initialize(
        jobs=st.fixed_dictionaries(dict.fromkeys(UNITS, some_nodes)), states=st.dictionaries(nodes, states)
    )
    def jobs_begin(self, jobs: dict[str, frozenset[str]], states: dict[str, str]) -> None:
        """Every unit runs, on nodes of which some are bad; every publisher makes a pass."""
        self.slurm.change_nodes(states)
        for unit, nodes in jobs.items():
            self.slurm.begin(unit, nodes, "bob" if unit == "8" else "alice")
        self.passes([*SCOPES])

    @event(changes=st.dictionaries(nodes, states, min_size=1))
    def nodes_change(self, changes: dict[str, str]) -> None:
        """Nodes are drained, resumed, lost, not understood, or gone from the node table."""
        self.slurm.change_nodes(changes)

    @event(unit=units, nodes=some_nodes, owner=users)
    def a_job_begins(self, unit: str, nodes: frozenset[str], owner: str) -> None:
        """A unit is requeued, or a new job begins with an old id."""
        self.slurm.begin(unit, nodes, owner)

    @event(unit=units, requeued=st.booleans())
    def a_job_ends(self, unit: str, *, requeued: bool) -> None:
        """A unit ends; if it was requeued it will run once more."""
        self.slurm.end(unit, requeued=requeued)

    @event(unit=units, node=nodes, word=st.sampled_from([None, *JOB_STATES]))
    def a_job_changes(self, unit: str, node: str, word: str | None) -> None:
        """A unit is suspended, resumed, in a state of a newer Slurm, or loses a node."""
        self.slurm.lose(unit, node) if word is None else self.slurm.put(unit, word)

    @rule(seconds=st.sampled_from([100, 400, 2000, 5000, -30, -5000]))
    def time_passes(self, seconds: int) -> None:
        """The clock steps forward, or back."""
        self.clock.advance(seconds)

    # ── passes ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(order=orders)
    def passes(self, order: list[str]) -> None:
        """Publishers make passes, one after the other."""
        for scope in order:
            self.publish(self.ask(scope))

    @rule(scope=scopes, fault=faults, changes=st.dictionaries(nodes, states))
    def a_pass_under_a_fault(self, scope: str, fault: Fault, changes: dict[str, str]) -> None:
        """The disk fails, or the publisher is killed, while there is something to write."""
        self.slurm.change_nodes(changes)
        self.publish(self.ask(scope), fault)

    @rule(scope=scopes, user=users)
    def a_pass_of_one_users_jobs(self, scope: str, user: str) -> None:
        """Slurm shows one user's jobs alone (PrivateData)."""
        self.publish(self.ask(scope, user=user))

    @event(scope=scopes)
    def another_host_asks(self, scope: str) -> None:
        """The same publisher runs on a second host too, where a pass has its answer, and is slow to write."""
        self.slow[scope] = self.ask(scope, "b")

    @event(scope=scopes)
    def another_host_writes(self, scope: str) -> None:
        """It goes on."""
        if scope in self.slow:
            self.publish(self.slow.pop(scope))

    @rule(scope=scopes)
    def a_pass_without_an_answer(self, scope: str) -> None:
        """Slurm does not answer."""
        self.slurm.cluster.unknown = "slurmctld does not answer"
        try:
            self.publish(self.ask(scope))
        except SourceUnknown:
            self.judge(self.lies, outdated=True)
        self.slurm.cluster.unknown = None

    def ask(self, scope: str, host: str = "a", user: str | None = None) -> Seen:
        """Let a publisher ask Slurm."""
        self.clock.advance(1)
        view = self.slurm.answer(user)
        missed = frozenset(name for name in {*UNITS} - view.keys() if user in {None, self.slurm.owners[name]})
        publication = SCOPES[scope]._replace(directory=str(self.path), host=host)
        return Seen(scope, host, observe(publication, self.slurm.cluster.source, self.clock), view, missed)

    def publish(self, seen: Seen, fault: Fault | None = None) -> None:
        """Let it write, and note what would justify that."""
        scope, at = seen.scope, seen.observation.now
        before, dead, beat = self.lies, frozenset(SCOPES) - self.living(), self.beat(scope)
        elsewhere = beat.get("host") != seen.host and at <= seconds(beat.get("asked")) <= at + 120
        publication = SCOPES[scope]._replace(directory=str(self.path), host=seen.host)
        if elsewhere or self.clock.now - at > publication.storage_timeout:
            with contextlib.suppress(TimeoutError):
                make_pass(publication, seen.observation, self.clock, fault)
            self.judge(before, outdated=True)
            return
        said = make_pass(publication, seen.observation, self.clock, fault)
        assert said.wrote_everything or fault, "something could not be written"
        self.untidy |= fault is not None
        mind = self.minds[scope]
        mind.missed.update(seen.missed)
        watched = {
            name: mind.sees(name, unit) for name, unit in seen.view.items() if covers(scope, name, unit.owner)
        }
        newer = {
            name
            for name, artifact in self.ours(before).items()
            if artifact["publisher"]["scope"] == scope and artifact["publisher"]["host"] != seen.host
            if at <= seconds(artifact["updated"]) <= at + 120
            if name not in seen.view or run_of(artifact) == seen.view[name].run
        }
        self.judge(
            before,
            scope=scope,
            publish_at=publication.policy.publish_at,
            view=seen.view,
            units=watched,
            finished=said.finished,
            clean=fault is None,
            failed=said.failed,
            newer=frozenset(newer),
            gone=frozenset(name for name, times in mind.missed.items() if times >= 2),
            dead=dead,
            overridden=frozenset(name for name, unit in watched.items() if self.is_overridden(name, unit, scope)),
        )
        if fault is None:
            mind.learns(watched)
        for name, unit in watched.items():
            void = unit.understood and not self.is_overridden(name, unit, scope)
            if void and (fault is None or not self.word_on(name).exists()):
                self.overrides.pop(name, None)

    def is_overridden(self, name: str, unit: Unit, scope: str) -> bool:
        """Tell whether a person's word holds: "until the unit's generation or its set of bad nodes changes".

        That a node is no longer bad is for the scope to say whose exclusion it was.
        """
        run, nodes, writer = self.overrides.get(name, (None, frozenset(), ""))
        fewer = scope == writer and not nodes <= unit.faults.keys() | unit.unclear
        return run == unit.run and unit.faults.keys() <= nodes and not fewer

    def word_on(self, name: str) -> Path:
        """Return where a person's word on a unit is kept."""
        return path_of(self.path, name, ".segment-health/override/", ".json")

    def living(self) -> set[str]:
        """Name the scopes whose heartbeat is younger than twice its interval."""
        ages = {scope: self.clock.now - seconds(self.beat(scope).get("last_complete_pass")) for scope in SCOPES}
        return {scope for scope, age in ages.items() if -INTERVAL <= age < 2 * INTERVAL}

    def beat(self, scope: str) -> dict[str, Any]:
        """Read a scope's heartbeat; nothing where there is none, or half of one."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            told: dict[str, Any] = json.loads(
                (self.path / f".segment-health/heartbeat/{scope}@fake.json").read_text()
            )
            return told
        return {}

    def ours(self, directory: Directory) -> dict[str, dict[str, Any]]:
        """Return the exclusions that publishers of this project wrote."""
        return Step(directory, directory, strangers=self.strangers).ours(directory)

    def judge(self, before: Directory, **facts: Any) -> None:
        """Hold every promise against what has just happened."""
        self.lies = look(self.path)
        step = Step(before, self.lies, strangers=self.strangers, said=frozenset(self.said), **facts)
        for promise in PROMISES:
            promise(step)
        self.said.update(self.lies.artifacts.values())

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────

    @event(unit=units, fault=st.none() | faults)
    def a_person_clears(self, unit: str, fault: Fault | None) -> None:
        """`segment-health clear UNIT --reason ...`, which may be killed too."""
        before = self.lies

        def clear() -> None:
            lift.override(str(self.path), "0.1.0", lambda other: str(other) == unit, "I know better", self.now())

        under(fault, clear) if fault else clear()
        said = {name: artifact for name, artifact in self.ours(before).items() if name == unit}
        for name, artifact in said.items():
            if self.word_on(name).exists():
                nodes = frozenset(hostlist.expand(artifact["unavailable"]))
                self.overrides[name] = (run_of(artifact), nodes, artifact["publisher"]["scope"])
            else:
                self.overrides.pop(name, None)
        self.untidy |= fault is not None
        self.judge(before, told=frozenset() if fault else said.keys(), allowed=said.keys())

    @rule(scope=scopes)
    def a_scope_goes_stale(self, scope: str) -> None:
        """No pass was complete for too long: the loop lets go, and hands back what it had raised."""
        before, dead = self.lies, frozenset(SCOPES) - self.living()
        lift.lift_stale(str(self.path), Publisher("a", 1, "0.1.0", "fake", scope), self.now())
        told = {name for name, artifact in self.ours(before).items() if artifact["publisher"]["scope"] == scope}
        self.judge(before, scope=scope, dead=dead, told=told, allowed=told)

    @rule()
    def cron_prunes(self) -> None:
        """`segment-health prune --max-age 1800`: what nobody confirms goes, but for what others watch."""
        before, living = self.lies, self.living()
        lift.prune(str(self.path), "0.1.0", 1800, self.now())
        old = set()
        for name, artifact in self.ours(before).items():
            writer = artifact["publisher"]["scope"]
            confirmed = max(seconds(self.beat(writer).get("last_complete_pass")), seconds(artifact["updated"]))
            if writer not in living and self.now() - confirmed > 1800:
                old.add(name)
        self.judge(before, told=frozenset() if living else old, allowed=old)

    @rule(unit=units, content=st.sampled_from([None, b"", b"n1,n2", b"{}"]))
    def a_stranger_writes(self, unit: str, content: bytes | None) -> None:
        """Somebody else puts something under a unit's name, empties or removes it."""
        path, self.untidy = path_of(self.path, unit), True
        path.unlink(missing_ok=True)
        self.strangers.pop(unit, None)
        if content is not None:
            path.write_bytes(content)
            path.chmod(0o644)
        if content:
            self.strangers[unit] = content
        self.lies = look(self.path)

    @rule(scope=scopes, part=st.sampled_from(["state", "heartbeat"]), keep=st.integers(0, 200))
    def a_ledger_file_is_cut(self, scope: str, part: str, keep: int) -> None:
        """What a scope remembers is lost."""
        file, self.untidy = self.path / f".segment-health/{part}/{scope}@fake.json", True
        if file.exists():
            file.write_bytes(file.read_bytes()[:keep])
        if part == "state":
            self.minds[scope].nodes.clear()
        self.lies = look(self.path)

    # ── in the end ────────────────────────────────────────────────────────────────────────────────────────────

    @rule()
    def everything_settles(self) -> None:
        """Passes of overlapping scopes converge and do not flap; then what a launcher is told is true."""
        self.clock.advance(121)  # nobody's view is newer
        quiet = rounds = 0
        while quiet < 2:  # what is gone is retired by the second
            before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in self.artifacts()}
            self.passes([*SCOPES])
            after = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in self.artifacts()}
            quiet, rounds = (quiet + 1 if after == before else 0), rounds + 1
            assert rounds < 6, "passes that see nothing new change something"
        view = self.slurm.answer()
        assert self.ours(self.lies).keys() <= view.keys(), "what is gone is excluded"
        for name in view.keys() - self.strangers.keys():
            if not view[name].understood:
                continue
            seen = {s: self.minds[s].sees(name, view[name]) for s in SCOPES if covers(s, name, view[name].owner)}
            wanted = [
                s
                for s, unit in seen.items()
                if unit.level >= SCOPES[s].policy.publish_at and not self.is_overridden(name, unit, s)
            ]
            assert self.lies.excludes(name) or not wanted, f"{name} is not excluded"
            if not any(unit.unclear for unit in seen.values()):
                assert wanted or not self.lies.excludes(name), f"{name} is excluded"

    def teardown(self) -> None:
        """When every unit has ended the directory holds no artifact."""
        try:
            for unit in UNITS:
                self.slurm.end(unit, requeued=False)
            for unit in [*self.strangers]:
                self.a_stranger_writes(unit, None)
            self.everything_settles()
            assert self.untidy or not self.lies.artifacts, "what is gone was cleared, and is not retired"
        finally:
            shutil.rmtree(self.path)

    def artifacts(self) -> list[Path]:
        """Return the artifacts that lie there."""
        return [*self.path.glob("segment_health_check.*")]

    def now(self) -> int:
        """Return the time in whole seconds."""
        return int(self.clock.now)


def seconds(text: str | None) -> float:
    """Read a time of ours, in seconds since the epoch; long ago where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


World.TestCase.settings = settings(
    deadline=None,
    max_examples=int(os.environ.get("SEGMENT_HEALTH_EXAMPLES", "100")),
    stateful_step_count=40,
    suppress_health_check=[*HealthCheck],
)
TestPromises = pytest.mark.timeout(1800)(World.TestCase)  # hypothesis takes its time over the shortest history

"""Kills at random instants: what a dead publisher leaves is whole, and the next pass goes on from it."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segment_health.lock import AlreadyRunning
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.scope import EVERYTHING
from segment_health.service import Plan, Service
from segment_health.store import open_decisions
from segment_health.testing import FakeCluster

from .fault import EVERYONE, ROLES
from .laboratory import looks, transitions
from .promise import Bound, Health, Span, Step, Violation, violations
from .scenario import SETTLE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from .laboratory import Laboratory, Process

_SECONDS = 0.1
"""The longest life of a forked publisher, which is that of some passes."""
_LET_LIVE = 10
"""After so many kills a pass is let live, and must leave nothing over."""


@dataclass(slots=True)
class Kills:
    """How many publishers were killed, how many of them left a temporary file, and what was found."""

    forked: int = 0
    whole: int = 0
    left: int = 0
    looks: int = 0
    violations: list[Violation] = field(default_factory=list)


def kill_forked(lab: Laboratory, count: int, dice: random.Random) -> Kills:
    """Kill publishers that were forked from this process, so have everything imported, on a cluster of no Slurm.

    Each makes pass after pass, in which one unit stays bad and its nodes change, one stays fit, and another turns
    bad and fit. Half of the kills are of the publisher alone, whose writing child ends by itself.
    """
    kills = Kills()
    with lab.open("fuse"):  # whose operations take a millisecond: most instants of a pass are those of a write
        cluster, service = _pretended(lab)
        service.attempt()
        truth = {"steady": [Step(0, Health.BAD)], "fit": [Step(0, Health.FIT)]}
        with lab.reading() as reader:
            for number in range(count):
                _kill_a_fork(lambda: _flicker(cluster, service), dice)
                kills.forked += 1
                kills.left += bool(temporaries(lab.storage))
                _must_be_whole(lab.storage)
                if number % _LET_LIVE == 0 or number == count - 1:
                    service.attempt()
                    assert not temporaries(lab.storage), temporaries(lab.storage)
        _judge(kills, reader, truth, [])
    return kills


def kill_whole(lab: Laboratory, count: int, dice: random.Random) -> Kills:
    """Kill `segment-health publish --once` on the real slurmctld, while nodes are drained and resumed."""
    kills = Kills()
    with lab.open("fuse"):
        lab.arrange()
        longest = max(_pass_once(lab) for _ in range(3))
        begin = time.monotonic_ns()
        with lab.reading() as reader:
            for number in range(count):
                if number % _LET_LIVE == 0:
                    _toggle(lab, "worsening")
                process = lab.start("--once", "--quiet")
                time.sleep(dice.uniform(0, longest))  # the instant of its death
                process.kill()
                kills.whole += 1
                kills.left += bool(temporaries(lab.storage))
                _must_be_whole(lab.storage)
                if number % _LET_LIVE == _LET_LIVE - 1 or number == count - 1:
                    _pass_once(lab)
                    assert not temporaries(lab.storage), temporaries(lab.storage)
                    assert lab.is_excluded("worsening") is (lab.truth.of("worsening") is Health.BAD)
        spans = [Span("killed", begin, time.monotonic_ns(), holds=EVERYONE)]
        _judge(kills, reader, lab.truth.steps, spans)
    return kills


def temporaries(directory: Path) -> list[str]:
    """Name what writers have left, in every folder."""
    return [str(path) for path in directory.rglob(".segment-health.tmp.*")]


def _pretended(lab: Laboratory) -> tuple[FakeCluster, Service]:
    """Return a cluster on which the laboratory's units run, and its publisher."""
    cluster = FakeCluster(nodelist="n[1-9]", name="sandbox")
    for number, role in enumerate(ROLES):
        job, _, task = lab.artifact(role).name.partition(".")[2].partition(".")
        nodes = "n[1-2]" if role == "steady" else f"n{3 + number}"
        cluster.run(job if job == task else f"{job}_{task}", nodes)
    cluster.set_node("n1", "ALLOCATED+DRAIN", "bad")
    publication = Publication(str(lab.directory), EVERYTHING, Policy(), "0", interval=5.0, loop=True)
    return cluster, Service(Plan(publication, cluster.source, None, standby=False, on_separate=None), time.time)


def _flicker(cluster: FakeCluster, service: Service) -> None:
    """Make passes over a cluster that is another one each time."""
    worsening = f"n{3 + ROLES.index('worsening')}"
    while True:
        for state in ("ALLOCATED+DRAIN", "ALLOCATED"):
            cluster.set_node("n2", state)
            cluster.set_node(worsening, state)
            with contextlib.suppress(AlreadyRunning, OSError):  # what the last one left still writes
                service.attempt()


def _kill_a_fork(work: Callable[[], None], dice: random.Random) -> None:
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            gc.freeze()
            work()
        finally:
            os._exit(1)
    with contextlib.suppress(PermissionError):  # it has done so itself
        os.setpgid(child, child)
    time.sleep(dice.uniform(0, _SECONDS))  # the instant of its death
    if dice.random() < 0.5:
        os.kill(child, signal.SIGKILL)
    else:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it ended by itself"


def _must_be_whole(directory: Path) -> None:
    """Assert that everything that a publisher keeps can be read as it is."""
    for path in directory.glob("segment_health_check.*"):
        content = path.read_bytes()
        assert not content or json.loads(content)["schema"] == 1, (path, content)
    with open_decisions(str(directory)) as opened:
        _, remark = opened.ledger("sandbox", "all").recall()
        assert remark is None, remark
    for path in (directory / ".segment-health" / "heartbeat").glob("*.json"):
        json.loads(path.read_bytes())


def _pass_once(lab: Laboratory) -> float:
    """Let a pass live; return how many seconds it took."""
    began = time.monotonic()
    process = lab.start("--once", "--wait", "--quiet")
    assert process.wait() == 0, lab.log()
    return time.monotonic() - began


def _toggle(lab: Laboratory, role: str) -> None:
    if lab.truth.of(role) is Health.FIT:
        lab.drain(role)
    else:
        lab.resume(role)


def _judge(kills: Kills, reader: Process, truth: dict[str, list[Step]], spans: list[Span]) -> None:
    told, passes = transitions(reader)
    bound = Bound(int(SETTLE * 1e9))
    kills.violations = violations(told, truth, passes, bound, spans=spans, until=time.monotonic_ns())
    kills.looks = looks(reader)[0]

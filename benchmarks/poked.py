"""From a drain to the artifact that excludes the unit, when the loop is poked as users and hooks do it.

A publisher with a long interval runs; a healthy node of a running task is drained, and `segment-health poke` is
called. `seconds` are from the moment scontrol has returned, so they hold the start of poke, Slurm's answers and
the publishing; `with_scontrol` are the same rounds from before scontrol was called. The artifact is looked at each
millisecond. Nothing is compared: the goal is a time.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.fleet import SEGMENT_HEALTH, Fleet, fleet
from benchmarks.publisher import PATIENCE, publishing
from segment_health.contract import UnitId
from segment_health.signals import QUIET_SECONDS
from slurm.hostlist import expand

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.publisher import Publisher

MARGIN = 0.5
"""Seconds beyond those for which a publisher lets the next poke wait, so that no round holds any of these."""


class Healthy(NamedTuple):
    """A node of a running task that is not excluded, and where the task's artifact will be."""

    node: str
    artifact: Path


def measure(short: bool) -> dict[str, Any]:
    """Return the seconds of each round, their median and the worst."""
    nodes, tasks, nodes_per_task, drained, rounds = (1000, 55, 18, 15, 5) if short else (10_000, 550, 18, 150, 11)
    seconds, with_scontrol = [], []
    with fleet(nodes, tasks, nodes_per_task, drained=drained) as found, publishing(found) as publisher:
        for healthy in _healthy(found, rounds):
            began = time.perf_counter()
            found.drain(healthy.node)
            drained_at = time.perf_counter()
            there = _poke(found, publisher, healthy.artifact, excluded=True)
            seconds.append(round(there - drained_at, 5))
            with_scontrol.append(round(there - began, 5))
            found.resume(healthy.node)
            _poke(found, publisher, healthy.artifact, excluded=False)
            time.sleep(QUIET_SECONDS + MARGIN)
    return {
        "nodes": nodes,
        "tasks": tasks,
        "rounds": rounds,
        "median": round(statistics.median(seconds), 5),
        "worst": max(seconds),
        "seconds": seconds,
        "with_scontrol": with_scontrol,
    }


def _healthy(found: Fleet, count: int) -> list[Healthy]:
    """Find tasks that are not excluded after the first pass, and a node of each."""
    running = ["squeue", "-h", "-r", "-t", "R", "-o", "%F %K %N"]
    told = subprocess.run(running, env=found.environ, check=True, capture_output=True, text=True).stdout
    healthy = []
    for line in told.splitlines():
        job, task, hostlist = line.split()
        artifact = found.directory / UnitId(job, task).artifact_name
        if not _excludes(artifact):
            healthy.append(Healthy(expand(hostlist)[-1], artifact))
    if len(healthy) < count:
        raise RuntimeError(f"{len(healthy)} tasks are not excluded, and {count} are needed")
    return healthy[:: len(healthy) // count][:count]  # from all over the fleet


def _poke(found: Fleet, publisher: Publisher, artifact: Path, *, excluded: bool) -> float:
    """Ask for a pass; return when, by perf_counter(), the artifact excluded its unit, or did so no longer."""
    command = [SEGMENT_HEALTH, "poke", "-q", "--dir", str(found.directory)]
    with subprocess.Popen(command, env=found.environ) as poke:  # it may end after the pass that it asked for
        publisher.until(lambda: _excludes(artifact) == excluded, f"change of {artifact.name}")
        there = time.perf_counter()
        if poke.wait(PATIENCE):
            raise RuntimeError(f"poke ended with {poke.returncode}")
    return there


def _excludes(artifact: Path) -> bool:
    try:
        return artifact.stat().st_size > 0
    except FileNotFoundError:
        return False

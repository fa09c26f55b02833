"""What slurmctld counts of a steady pass, by door: on a cluster with one task, with many, and with units excluded.

Its own count, by type of message, which grows with neither tasks nor exclusions where a pass asks for everything
at once. What sdiag asks to tell it is left out, and so is what the simulated nodes send.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

from benchmarks.fleet import fleet
from benchmarks.steady import UNCOUNTED, service
from segment_health.contract import unit_of_artifact

if TYPE_CHECKING:
    from benchmarks.fleet import Fleet
    from segment_health.service import Service

DOORS = ("text", "json")
PASSES = 5
NODES_PER_TASK = 18
EXCLUDED = 9
"""Units of which nodes are drained: the first, since tasks are placed from the first node on."""
OF_OTHERS = re.compile(r"REQUEST_(STATS_\w+|PING|NODE_REGISTRATION_STATUS)")
"""What sdiag asks, and what slurmctld and the simulated nodes send each other (else MESSAGE_*)."""


def measure(short: bool) -> dict[str, Any]:
    """Return the RPCs of a pass, a mean over some passes, for each door and shape."""
    nodes, tasks = (1000, (1, 55)) if short else (10_000, (1, 550))
    doors: list[dict[str, Any]] = []
    for count in tasks:
        with fleet(nodes, count, NODES_PER_TASK, drained=0) as found:
            doors += [_measured(found, door, 0) for door in DOORS]
            if count > EXCLUDED:
                found.drain(f"c[00001-{NODES_PER_TASK * EXCLUDED:05}]")
                doors += [_measured(found, door, EXCLUDED) for door in DOORS]
    return {"doors": doors}


def per_pass(found: Fleet, publisher: Service, passes: int) -> dict[str, float]:
    """Make passes, and return what slurmctld counts of each, by type."""
    _sdiag(found, "-r")
    for _ in range(passes):
        publisher.attempt()
    by_type = _sdiag(found).partition("statistics by message type")[2].partition("statistics by user")[0]
    counts = {name: int(count) for name, count in re.findall(r"(REQUEST_\w+).*?count:(\d+)", by_type)}
    return {
        name: counts[name] / passes for name in sorted(counts) if counts[name] and not OF_OTHERS.fullmatch(name)
    }


def _measured(found: Fleet, door: str, excluded: int) -> dict[str, Any]:
    with service(found, door) as publisher:
        for _ in range(UNCOUNTED):
            publisher.attempt()
        asked = per_pass(found, publisher, PASSES)
    there = sum(entry.stat().st_size > 0 for entry in os.scandir(found.directory) if unit_of_artifact(entry.name))
    if there != excluded or not asked:
        raise RuntimeError(f"{door}: {there} units are excluded and not {excluded}, or nothing was asked: {asked}")
    return {"door": door, "tasks": found.tasks, "excluded": excluded, "passes": PASSES, "per_pass": asked}


def _sdiag(found: Fleet, *options: str) -> str:
    return subprocess.run(
        ["sdiag", *options], env=found.environ, check=True, capture_output=True, text=True
    ).stdout

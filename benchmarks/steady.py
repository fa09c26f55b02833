"""A steady pass of the loop, in a process that has made some already, against the bare queries.

It is made as the loop makes it, from asking to the heartbeat, the child that touches the directory included; what
the loop does between passes, such as to log, is left out. Nothing changes from pass to pass.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from benchmarks.fleet import Fleet, bare_queries, fleet
from benchmarks.timing import call, medians
from segment_health.cli.plan import plan
from segment_health.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UNCOUNTED = 2
"""Passes before the first that counts: one publishes and asks who the cluster is, the next finds that done."""


def measure(short: bool) -> dict[str, Any]:
    """Return medians in seconds and their ratio."""
    nodes, tasks, nodes_per_task, drained, rounds = (1000, 55, 18, 15, 9) if short else (10_000, 550, 18, 150, 31)
    with fleet(nodes, tasks, nodes_per_task, drained=drained) as found, service(found) as publisher:
        for _ in range(UNCOUNTED):
            publisher.attempt()

        def attempt() -> None:
            done = publisher.attempt()
            assert not done.changes
            assert done.wrote_everything

        cases = {"bare": bare_queries(found.environ), "steady": call(attempt)}
        took = medians(cases, rounds)
    return {
        "nodes": nodes,
        "tasks": tasks,
        "nodes_per_task": nodes_per_task,
        "rounds": rounds,
        **{name: round(seconds, 5) for name, seconds in took.items()},
        "over_bare": round(took["steady"] / took["bare"], 3),
    }


@contextlib.contextmanager
def service(found: Fleet, door: str = "text") -> Iterator[Service]:
    """Put the publisher of a loop together as `publish` does, in this process."""
    with _environment(found.environ):
        todo, _ = plan({"dir": str(found.directory), "all": True, "source": door}, None, loop=True)
        publisher = Service(todo, time.time)
        try:
            yield publisher
        finally:
            publisher.close()


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Have this process's environment be another one, in which settings and locks are looked up.

    By hand, since unittest.mock loads asyncio, and each pass forks all that is loaded.
    """
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

"""One pass as a whole process, start of Python included, against the bare queries and the shell loop users write.

Two fleets, one of large tasks and one of many small ones. What is timed is the pass that changes nothing, since
the first one, which does not count, has published. The shell loop writes into a directory of its own, and must
have found the same units. It reads states as sinfo groups them and writes in place: it does less than a pass.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.fleet import bare_queries, fleet
from benchmarks.timing import medians, process
from segment_health.contract import unit_of_artifact

if TYPE_CHECKING:
    from pathlib import Path

SHELL_LOOP = r"""
bad=$(sinfo -h -N -t drain,down,fail,no_respond -o %N | sort -u)
squeue -h -r -t R -o '%F|%K|%N' | while IFS='|' read -r job task nodes; do
    hit=$(scontrol show hostnames "$nodes" | grep -Fxf <(printf '%s\n' "$bad"))
    [ -z "$hit" ] || printf '%s\n' "$hit" > "$DIR/segment_health_check.$job.$task"
done
"""


class Shape(NamedTuple):
    """A fleet, and in how many rounds the shell loop, which starts a process or two for each task, takes part."""

    nodes: int
    tasks: int
    nodes_per_task: int
    drained: int
    loop_rounds: int


FULL = (Shape(10_000, 550, 18, 150, 3), Shape(10_000, 5500, 1, 150, 1))
SHORT = (Shape(1000, 55, 18, 15, 3), Shape(1000, 500, 1, 15, 1))


def measure(short: bool) -> dict[str, Any]:
    """Return medians in seconds and their ratios, for each shape."""
    shapes, rounds = (SHORT, 5) if short else (FULL, 15)
    return {"shapes": [_measured(shape, rounds) for shape in shapes]}


def _measured(shape: Shape, rounds: int) -> dict[str, Any]:
    with fleet(shape.nodes, shape.tasks, shape.nodes_per_task, drained=shape.drained) as found:
        by_loop = found.directory.with_name("by-loop")
        by_loop.mkdir()
        cases = {
            "bare": bare_queries(found.environ),
            "publish": process(found.publish("--source", "text"), found.environ),
            "shell_loop": process(["bash", "-c", SHELL_LOOP], found.environ | {"DIR": str(by_loop)}),
        }
        took = medians(cases, rounds, fewer={"shell_loop": shape.loop_rounds})
        ours, theirs = _excluded(found.directory), _excluded(by_loop)
    if not ours or ours != theirs:
        raise RuntimeError(f"a pass excludes {len(ours)} units and the shell loop {len(theirs)}, or other ones")
    return {
        "nodes": shape.nodes,
        "tasks": shape.tasks,
        "nodes_per_task": shape.nodes_per_task,
        "drained": shape.drained,
        "rounds": rounds,
        **{name: round(seconds, 5) for name, seconds in took.items()},
        "over_bare": round(took["publish"] / took["bare"], 3),
        "shell_loop_over_publish": round(took["shell_loop"] / took["publish"], 3),
    }


def _excluded(directory: Path) -> set[str]:
    """Name the artifacts that exclude a unit."""
    return {entry.name for entry in os.scandir(directory) if unit_of_artifact(entry.name) and entry.stat().st_size}

"""How one pass grows with nodes and with tasks: on fleets, and with saved answers up to 100,000 nodes.

On a fleet a pass as a process is measured beside the bare queries of its door, so that what it adds can be told
from what Slurm itself takes. Saved answers are rows as scontrol and squeue print them, numbered; with them nothing
is asked: the whole of it is the pass. The first pass, which publishes, does not count: the others change nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fleet import SEGMENT_HEALTH, bare_queries, fleet
from benchmarks.timing import medians, process
from slurm.commands import json as by_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.fleet import Fleet

NODE_ROW = Path(__file__).parents[1] / "tests/data/samples/22.05/scontrol_show_nodes_oneline.txt"
JOB_ROW = "{job}|1|{task}|N/A|RUNNING|0|2026-11-29T20:23:50|root|0|fleet|{node}|"
"""As squeue prints the fields that a pass asks for."""
DRAINED = 10
"""Nodes that are drained, each of which holds a task: so a first pass excludes, whatever the size."""
FULL = (
    (1000, 100, ("text", "json")),
    (2000, 100, ("text", "json")),
    (5000, 100, ("text",)),
    (10_000, 100, ("text",)),
    (10_000, 10, ("text",)),
    (10_000, 550, ("text",)),
    (10_000, 2000, ("text",)),
    (10_000, 5500, ("text",)),
)
"""Nodes, tasks of one node each, and doors: text alone where json takes long."""
SHORT = ((500, 100, ("text", "json")), (1000, 100, ("text", "json")), (1000, 400, ("text",)))
SAVED = (10_000, 20_000, 50_000, 100_000)
SAVED_SHORT = (6000, 12_000)
SAVED_TASKS = 5500
ROUNDS_OF_SAVED = 3


def measure(short: bool) -> dict[str, Any]:
    """Return medians in seconds, for each size."""
    return {"fleet": of_fleets(short), "saved": of_saved(short)}


def of_fleets(short: bool) -> list[dict[str, Any]]:
    """Measure a pass, and the bare queries of its door, on fleets of several sizes."""
    shapes, rounds = (SHORT, 3) if short else (FULL, 7)
    return [row for nodes, tasks, doors in shapes for row in _fleet_rows(nodes, tasks, doors, rounds)]


def _fleet_rows(nodes: int, tasks: int, doors: tuple[str, ...], rounds: int) -> Iterator[dict[str, Any]]:
    with fleet(nodes, tasks, 1, drained=DRAINED) as found:
        for door in doors:
            asked = (_nodes_by_json(found), by_json.SHOW_JOBS) if door == "json" else ()
            cases = {
                "bare": bare_queries(found.environ, *asked),
                "publish": process(found.publish("--source", door), found.environ),
            }
            yield {"door": door, "nodes": nodes, "tasks": tasks, **_rounded(medians(cases, rounds))}


def of_saved(short: bool) -> list[dict[str, Any]]:
    """Measure a pass over saved answers of several sizes."""
    return [_saved_row(nodes, SAVED_TASKS) for nodes in (SAVED_SHORT if short else SAVED)]


def _saved_row(nodes: int, tasks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="saved-") as temporary:
        place = Path(temporary)
        directory = place / "decisions"
        directory.mkdir()
        saved_nodes, saved_jobs = place / "nodes.txt", place / "jobs.txt"
        saved_nodes.write_text("".join(_node_rows(nodes, tasks)))
        saved_jobs.write_text("".join(_job_rows(tasks)))
        command = [SEGMENT_HEALTH, "publish", "--once", "--all", "--dir", str(directory), "--cluster", "fleet"]
        command += ["--nodes-from", str(saved_nodes), "--jobs-from", str(saved_jobs)]
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SLURM_"))}
        took = medians({"publish": process(command, environ)}, ROUNDS_OF_SAVED)
        excluded = sum(path.stat().st_size > 0 for path in directory.glob("segment_health_check.*"))
    if excluded != DRAINED:
        raise RuntimeError(f"a pass over {nodes} saved nodes excludes {excluded} units and not {DRAINED}")
    return {"nodes": nodes, "tasks": tasks, **_rounded(took)}


def _node_rows(nodes: int, tasks: int) -> Iterator[str]:
    """Number a row that a real scontrol printed: a node for each task is allocated, and the first are drained."""
    row = NODE_ROW.read_text().partition("\n")[0]
    for name in ("NodeName", "NodeAddr", "NodeHostName"):
        row = _with(row, name, "{node}")
    row = _with(row, "State", "{state}")
    row = _with(_with(row, "CPULoad", "{load:.2f}"), "FreeMem", "{free}")  # as in life no two rows are alike
    for number in range(1, nodes + 1):
        state = "ALLOCATED+DRAIN" if number <= DRAINED else "ALLOCATED" if number <= tasks else "IDLE"
        yield row.format(node=_node(number), state=state, load=number % 997 / 100, free=number % 3989) + "\n"


def _with(row: str, name: str, value: str) -> str:
    """Give a field of a row another value."""
    changed, times = re.subn(rf"(?<!\S){name}=\S*", f"{name}={value}", row)
    if times != 1:
        raise RuntimeError(f"a node's row has {times} fields {name}")
    return changed


def _job_rows(tasks: int) -> Iterator[str]:
    for task in range(tasks):
        yield JOB_ROW.format(job=task + 1, task=task, node=_node(task + 1)) + "\n"


def _node(number: int) -> str:
    return f"c{number:06}"


def _nodes_by_json(found: Fleet) -> tuple[str, ...]:
    """Return the query for nodes of the door that the Slurm here has: 22.05 has it of sinfo alone."""
    told = subprocess.run(["scontrol", "-V"], env=found.environ, capture_output=True, text=True, check=True)
    return by_json.SINFO if " 22." in told.stdout else by_json.SHOW_NODES


def _rounded(took: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds, 5) for name, seconds in took.items()}

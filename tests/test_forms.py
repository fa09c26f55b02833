"""Every form of Slurm's JSON, against the text that the same cluster gave at the same instant.

`record_forms.py` beside the samples made one scenario on several versions, and asked each for everything that its
data_parsers have, with `+complex` too. All of it must say what the two queries of the text door say; what does not
is listed here with its reason, and one that is no longer so fails the test too.
"""

from __future__ import annotations

import json
from datetime import timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.unit import units_of
from slurm.commands import job_rows as _job_rows
from slurm.commands import node_rows as _node_rows
from slurm.commands.records import parse_saved_jobs
from slurm.errors import SlurmUnavailable
from slurm.json.answer import JsonAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.job import Allocation
    from slurm.node import Node

FORMS = Path(__file__).parent / "data/samples/forms"

RECORDED = {
    "22.05": ("v0.0.38",),
    "23.02": ("v0.0.39",),
    "23.11": ("v0.0.40",),
    "24.11": ("v0.0.40", "v0.0.41", "v0.0.42"),
    "25.11": ("v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44"),
    "26.05": ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"),
}
"""The data_parsers of each version; that of 22.05 is none."""
SIMPLE = frozenset({"v0.0.38", "v0.0.39"})
"""Those that know no +complex, in any version."""

NODES = [
    (version, f"{form}{flag}")
    for version, forms in RECORDED.items()
    for form in forms
    for flag in ("", *(["+complex"] if form not in SIMPLE else []))
]
BROKEN = "v0.0.39.without_slurmdbd"
JOBS = [
    (version, form, asked)
    for version, form in NODES
    for asked in ("squeue", "jobs")
    if (form, asked) != ("v0.0.38", "jobs")  # scontrol of 22.05 writes no JSON
    and (version, form)
    != ("23.11", "v0.0.40+complex")  # squeue and scontrol of 23.11 die of it (SIGSEGV), without slurmdbd
]


@cache
def told(version: str) -> tuple[Mapping[str, Node], dict[str, Allocation]]:
    """Return what the text door said of nodes and jobs."""
    folder = FORMS / version
    allocations = _job_rows.parse_jobs((folder / "squeue.txt").read_bytes())
    nodes = _node_rows.parse_nodes((folder / "nodes.txt").read_bytes())
    return nodes, {allocation.job_id: allocation for allocation in allocations}


def read(version: str, asked: str, form: str) -> JsonAnswer:
    """Read one answer, in pieces as they come from a pipe, up to its end."""
    path = FORMS / version / f"{asked}.{form}.json"
    answer = JsonAnswer(path.name)
    data = path.read_bytes()
    for start in range(0, len(data), 4096):
        answer.feed(data[start : start + 4096])
    answer.close("nodes" if asked == "nodes" else "jobs")
    return answer


# --- the scenario ------------------------------------------------------------------------------------------

STATES = {
    "f1": ("FUTURE",),
    "n1": ("ALLOCATED",),
    "n2": ("MIXED", "DRAIN"),
    "n3": ("ALLOCATED",),
    "n4": ("MIXED", "FAIL"),
    "n5": ("MIXED",),
    "n6": ("IDLE", "DRAIN"),  # under a suspended job
    "n7": ("IDLE", "DRAIN"),
    "n8": ("DOWN",),
}
REASONS = {
    "n2": 'a "quoted" fan NodeName=n3 State=IDLE [x] {"y": [root@2020-01-01T00:00:00]} \\ / end',
    "n4": "Größe ∞ 温度 ü\u2028\t|'s",
    "n6": "ECC",
    "n7": "",  # blanks
    "n8": "key=value Reason=none Comment=none",
}
UNITS = {
    ("2", "0"): ({"n1"}, 0),
    ("2", "1"): ({"n1"}, 0),  # the last task, whose job has the array's own id
    ("3", "3"): ({"n2", "n3"}, 0),  # two components
    ("5", "5"): ({"n3", "n4"}, 0),
    ("6", "6"): ({"n5"}, 1),  # requeued
    ("7", "7"): ({"n6"}, 0),  # suspended
}


@pytest.mark.parametrize("version", RECORDED)
def test_text(version: str) -> None:
    """Text says of every version what was set up, live and as saved `scontrol show jobs`."""
    nodes, allocations = told(version)
    assert {name: node.state for name, node in nodes.items()} == STATES
    assert {name: node.reason for name, node in nodes.items() if node.reason is not None} == REASONS
    assert {node.reason_user for node in nodes.values() if node.reason is not None} == {"root"}
    units = units_of(allocations.values())
    found = {(unit.job_id, unit.task_id): units[unit] for unit in units}
    assert {key: ({*unit.nodes}, unit.generation.restart_count) for key, unit in found.items()} == UNITS
    assert {job.user for job in allocations.values()} == {"root", "nobody"}
    saved = parse_saved_jobs((FORMS / version / "jobs.txt").read_bytes(), timezone.utc)
    assert {allocation.job_id: allocation for allocation in saved} == allocations


# --- JSON --------------------------------------------------------------------------------------------------

NOT_LISTED = "sinfo, which 22.05 has in place of scontrol --json, does not list FUTURE nodes"
NOT_MIXED = "23.02 makes MIXED where it prints text, and not where it writes JSON"
DIFFERENCES: dict[tuple[str, str], dict[str, tuple[tuple[str, ...] | None, str]]] = {
    ("22.05", "v0.0.38"): {"f1": (None, NOT_LISTED)},
    ("23.02", "v0.0.39"): {
        "n2": (("ALLOCATED", "DRAIN"), NOT_MIXED),
        "n4": (("ALLOCATED", "FAIL"), NOT_MIXED),
        "n5": (("ALLOCATED",), NOT_MIXED),
    },
}
"""By version and form: the state that a node has there, or None if it has no row."""


@pytest.mark.parametrize(("version", "form"), NODES)
def test_nodes(version: str, form: str) -> None:
    """Nodes, their states, reasons, and who set those when are the text door's, but for what is listed."""
    expected, _ = told(version)
    nodes = read(version, "nodes", form).nodes
    listed = DIFFERENCES.get((version, form), {})
    differs = {
        name: nodes[name].state if name in nodes else None
        for name in expected.keys() | nodes.keys()
        if nodes.get(name) != expected.get(name)
    }
    assert differs == {name: state for name, (state, _) in listed.items()}
    for name in differs.keys() & nodes.keys():
        for field in ("reason", "reason_user", "reason_since"):
            assert getattr(nodes[name], field) == getattr(expected[name], field)


@pytest.mark.parametrize(("version", "form", "asked"), JOBS)
def test_jobs(version: str, form: str, asked: str) -> None:
    """Allocations, with everything in them, and so units and generations, are the text door's."""
    _, expected = told(version)
    answer = read(version, asked, form)
    assert answer.allocations == expected
    assert len(answer.remarks) == (1 if version == "23.11" else 0), answer.remarks  # once, not once a job


def test_an_answer_that_broke_off() -> None:
    """23.02 without slurmdbd ends amid its first job, with exit 0: what is told is Slurm's own error behind it."""
    with pytest.raises(SlurmUnavailable, match="slurmdb_qos_get: Query empty"):
        read("23.02", "squeue", BROKEN)


# --- the recordings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "form"), NODES)
def test_the_form_is_the_answers_own(version: str, form: str) -> None:
    """What a recording is called stands in it."""
    for path in (FORMS / version).glob(f"*.{form}.json"):
        meta = json.loads(path.read_bytes())["meta"]
        plugin = meta.get("plugin") or meta["plugins"]
        assert plugin.get("data_parser", plugin.get("type")).rpartition("/")[2] == form


def test_every_recording_is_read() -> None:
    """No recording lies there without a test."""
    read_here = {
        *(f"{version}/{name}.txt" for version in RECORDED for name in ("version", "nodes", "squeue", "jobs")),
        *(f"{version}/nodes.{form}.json" for version, form in NODES),
        *(f"{version}/{asked}.{form}.json" for version, form, asked in JOBS),
        f"23.02/squeue.{BROKEN}.json",
    }
    assert {str(path.relative_to(FORMS)) for path in FORMS.rglob("*.*") if path.is_file()} == read_here

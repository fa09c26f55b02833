"""Saved `scontrol show jobs`: replayed as it was, and refused wherever a job's free text may have forged it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.policy.assess import Policy
from segment_health.unit import unit_id_of
from slurm.commands import job_rows as _job_rows
from slurm.commands.records import parse_saved_jobs
from slurm.errors import SlurmProtocolError
from slurm.node import Node

if TYPE_CHECKING:
    from slurm.job import Allocation

DATA = Path(__file__).parent / "data"
SAMPLES = DATA / "samples"
HOSTILE = SAMPLES / "22.05-hostile"
CASES = json.loads((DATA / "cases/scontrol_job_lines.json").read_text())


def arrays(throttled: str, multi: str, step: str) -> dict[tuple[str, str], set[str]]:
    """Return the array tasks that ran, with their nodes, when the samples of 24.11 and later were made."""
    return {
        **{(throttled, task): {"n1"} for task in "02345"},
        (throttled, "6"): {"n3"},
        **{(multi, task): {"n2", "n3"} for task in "123"},
        **{
            (step, task): {node}
            for task, node in (("1", "n1"), ("5", "n1"), ("9", "n2"), ("13", "n2"), ("17", "n3"))
        },
    }


# The units that hold nodes in each version's sample, with their nodes.
UNITS = {
    "22.05": {
        **{("1", task): {"n2"} for task in "023456"},
        ("2", "1"): {"n2", "n3"},
        **{("3", task): {"n4"} for task in ("1", "5", "9", "13", "17")},
        ("9", "9"): {"n3", "n4"},  # both components of the heterogeneous job
    },
    "24.11": arrays("1", "2", "3"),
    "25.11": arrays("1", "2", "3"),
    "26.05": arrays("1", "8", "9"),
}
RECORD = (
    "JobId=5 JobName={name} UserId=u(1000) GroupId=u(1000) MCS_label=N/A Priority=1 Nice=0 Account=(null)"
    " QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=2 BatchFlag=1"
    " StartTime=2026-11-29T19:50:05 EndTime=Unknown Partition=main ReqNodeList=(null) ExcNodeList=(null)"
    " NodeList=x[1-2] BatchHost=x1 NumNodes=2"
    " Comment={comment}\n"
)
FORGED = RECORD.format(name="ghost", comment="c").replace("JobId=5", "JobId=99").strip()


def record(*, name: str = "nm", comment: str = "c") -> bytes:
    """Print job 5, which runs on x1 and x2, with that free text."""
    return RECORD.format(name=name, comment=comment).encode("utf-8", "surrogateescape")


def saved(version: str, file: str = "scontrol_show_jobs.txt") -> bytes:
    """Return what a real Slurm of that version printed."""
    return (SAMPLES / version / file).read_bytes()


def one_line_each(answer: bytes) -> bytes:
    """Print what `-o` would have: a record a line, its fields joined by spaces (scontrol(1))."""
    records = re.split(rb"\n\s*\n", answer.strip())
    return b"".join(b" ".join(line.strip() for line in text.split(b"\n")) + b"\n" for text in records)


def refused(answer: bytes) -> str:
    """Return what is said against an answer."""
    with pytest.raises(SlurmProtocolError) as caught:
        parse_saved_jobs(answer)
    return str(caught.value)


def units_of(allocations: tuple[Allocation, ...]) -> dict[tuple[str, str], set[str]]:
    """Return every unit's nodes, those of all its parts together."""
    units: dict[tuple[str, str], set[str]] = {}
    for allocation in allocations:
        unit = unit_id_of(allocation)
        units.setdefault((unit.job_id, unit.task_id), set()).update(allocation.nodes)
    return units


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    """Every saved job of the cases is excluded for its drained node, or unknown: never taken for healthy."""
    try:
        allocations = parse_saved_jobs("".join(f"{line}\n" for line in case["lines"]).encode())
    except SlurmProtocolError:
        outcome = "unknown"
    else:
        drained = {name: Node(name, "ALLOCATED", frozenset({"DRAIN"})) for name in case["drained"]}
        held = {name for allocation in allocations for name in allocation.nodes}
        levels = [Policy().assess(drained[name]).level for name in held if name in drained]
        outcome = "excluded" if any(levels) else "healthy"
    assert outcome in case["accept"]


@pytest.mark.parametrize("version", UNITS)
def test_jobs_of_every_version(version: str) -> None:
    """Each version's answer gives every unit that holds nodes, with its nodes, and nothing that waits or ended."""
    allocations = parse_saved_jobs(saved(version))
    assert units_of(allocations) == UNITS[version]
    assert {(job.state, job.user, job.user_id, job.partition) for job in allocations} == {
        ("RUNNING", "root", "0", "main")
    }
    assert {job.restart_count for job in allocations} == {0}
    assert all(job.is_understood for job in allocations)


@pytest.mark.parametrize("version", UNITS)
def test_one_line_each_is_the_same(version: str) -> None:
    """With `-o` or without, the same jobs."""
    for file in ("scontrol_show_jobs.txt", "scontrol_show_job_array.txt"):
        answer = saved(version, file)
        assert parse_saved_jobs(one_line_each(answer)) == parse_saved_jobs(answer)


@pytest.mark.parametrize(("version", "running"), [("22.05", 0), ("24.11", 6), ("25.11", 6), ("26.05", 6)])
def test_one_array(version: str, running: int) -> None:
    """`scontrol show job ID` of an array gives its running tasks; one that waits as a whole gives none."""
    allocations = parse_saved_jobs(saved(version, "scontrol_show_job_array.txt"))
    assert len({unit_id_of(allocation) for allocation in allocations}) == running


@pytest.mark.parametrize("file", ["scontrol_show_jobs.txt", "scontrol_show_jobs_oneline.txt"])
def test_says_what_the_live_query_says(file: str) -> None:
    """The saved answer of a real Slurm, hostile job names and all, has the jobs of the live one."""
    live = _job_rows.parse_jobs((HOSTILE / "squeue.txt").read_bytes())
    replayed = parse_saved_jobs((HOSTILE / file).read_bytes(), timezone.utc)
    assert sorted(replayed, key=lambda job: job.job_id) == sorted(live, key=lambda job: job.job_id)


def test_no_jobs() -> None:
    """What a real Slurm says of a cluster without a job is an answer: none."""
    assert parse_saved_jobs((HOSTILE / "scontrol_show_jobs.none.txt").read_bytes()) == ()


# --- time -------------------------------------------------------------------------------------------------

# New York in POSIX's own words: a machine without tzdata would take the name for UTC, and say nothing.
NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"
READ = """
import json, sys
from slurm.commands.records import parse_saved_jobs
from slurm.commands.node_rows import parse_nodes
nodes, jobs = (open(path, "rb").read() for path in sys.argv[1:])
print(json.dumps([
    sorted([job.job_id, job.start_time] for job in parse_saved_jobs(jobs)),
    sorted([node.name, node.reason_since] for node in parse_nodes(nodes, None).values()),
]))
"""


def read_in(zone: str, suffix: str) -> Any:
    """Read saved answers in a process whose zone is `zone`; return the times of jobs and nodes."""
    files = [str(HOSTILE / f"scontrol_show_{what}{suffix}.txt") for what in ("nodes_oneline", "jobs")]
    command = [sys.executable, "-c", READ, *files]
    environ = {**os.environ, "TZ": zone}
    root = Path(__file__).parent.parent
    return json.loads(subprocess.run(command, env=environ, cwd=root, check=True, capture_output=True).stdout)


def test_times_are_local() -> None:
    """Answers of the same jobs, saved in New York and in UTC, are the same instants where they were saved."""
    assert read_in(NEW_YORK, ".new_york") == read_in("UTC", "")
    assert read_in("UTC", ".new_york") != read_in("UTC", "")


def test_times_of_a_given_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone that is given wins over the process's own, and time.tzset is heeded when none is."""
    monkeypatch.setenv("TZ", NEW_YORK)
    time.tzset()
    try:
        (local,) = parse_saved_jobs(record())
        (universal,) = parse_saved_jobs(record(), timezone.utc)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert local.start_time - universal.start_time == 5 * 3600


# --- forgery ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "_oneline"])
def test_forged_name_of_a_real_slurm(suffix: str) -> None:
    """A job that a real Slurm let be named a line break and a whole record makes the answer unusable."""
    answer = (HOSTILE / f"scontrol_show_jobs{suffix}.forged_name.txt").read_bytes()
    assert "malformed record" in refused(answer)


def test_what_is_not_recognised() -> None:
    """A whole record behind a line break in a comment is taken for a job; the others stay as they are."""
    jobs = {job.job_id: job for job in parse_saved_jobs((HOSTILE / "scontrol_show_jobs.txt").read_bytes())}
    forged = parse_saved_jobs((HOSTILE / "scontrol_show_jobs.forged_comment.txt").read_bytes())
    assert {job.job_id: job for job in forged if job.job_id != "99"} == jobs
    assert len(forged) == len(jobs) + 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("x JobState=PENDING NodeList=q1", id="fields"),
        pytest.param("x ArrayJobId=7 ArrayTaskId=0", id="array-ids"),
        pytest.param("x\ty", id="tab"),
        pytest.param("x\n   y", id="line-break"),
        pytest.param("", id="empty"),
        pytest.param("JobName=JobName=", id="its-own-key"),
        pytest.param("\udcff\x1b[2J\x0c\u2028", id="bytes"),
        pytest.param("x UserId=evil GroupId=evil", id="half-an-owner"),
        pytest.param("x" * 100_000, id="long"),
    ],
)
def test_harmless_names(name: str) -> None:
    """Whatever a job is called, as long as it forges no owner, its own fields count."""
    (job,) = parse_saved_jobs(record(name=name))
    assert (job.job_id, job.array_job_id, job.state, job.restart_count) == ("5", None, "RUNNING", 2)
    assert job.nodes == ("x1", "x2")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(record(name="x UserId=u(1) GroupId=u(1) MCS_label=N/A"), id="two-owners"),
        pytest.param(record(name=FORGED.partition(" JobName=")[2]), id="all-fields-in-the-name"),
        pytest.param(record(name=f"x\n{FORGED}"), id="record-in-the-name"),
        pytest.param(record(name="x\nJobId=99"), id="beginning-in-the-name"),
        pytest.param(record(comment="x\nJobId=99 JobName=y"), id="beginning-in-the-comment"),
        pytest.param(record(comment=f"x\n{FORGED.replace('JobId=99', 'JobId=5')}"), id="twin-in-the-comment"),
        pytest.param(record(comment=FORGED), id="owner-in-the-comment"),
        pytest.param(record() + record(), id="twice"),
    ],
)
def test_forgeries_are_refused(answer: bytes) -> None:
    """Two owners in a record, half a record, or a job described twice make the answer unusable."""
    assert refused(answer).isprintable()


FIELDS = re.findall(r" (?=[A-Z]\w+=)([^ ]+)", RECORD.format(name="nm", comment="c"))[:-1]


@pytest.mark.parametrize("field", [f for f in FIELDS if not f.startswith(("EndTime", "BatchHost"))])
def test_every_field_is_needed(field: str) -> None:
    """A record that lacks a field of Slurm's, or has it at its end, is malformed."""
    without = record().replace(f" {field}".encode(), b"")
    refused(without)
    refused(without.replace(b"\n", f" {field}\n".encode()) if not field.startswith("NumNodes") else without)


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=80))
@settings(deadline=None, max_examples=400)
def test_no_name_changes_a_job(name: str) -> None:
    """Whatever a job is called, the answer is its own fields or none."""
    try:
        (job,) = parse_saved_jobs(record(name=name))
    except SlurmProtocolError:
        return
    assert (job.job_id, job.state, job.nodes) == ("5", "RUNNING", ("x1", "x2"))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"JobId=1 JobName=" + b" UserId=" * 100_000 + b"\n", id="owners-begun"),
        pytest.param(b"JobId=1 JobName=" + b" UserId=a(1) GroupId=" * 40_000 + b"\n", id="owners-half-done"),
        pytest.param(b"JobId=1 JobName=" + b"\n " * 400_000 + b"\n", id="line-breaks"),
        pytest.param(record().replace(b"NumNodes=2", b"StartTime=x Partition=y " * 30_000), id="times"),
        pytest.param(
            record().replace(b"NumNodes=2", b"Partition=y ReqNodeList= ExcNodeList= NodeList= " * 20_000),
            id="lists",
        ),
        pytest.param(record().replace(b" Requeue=0", b" Dependency= " * 50_000), id="dependencies"),
    ],
)
def test_a_megabyte_of_garbage_costs_its_length(answer: bytes) -> None:
    """A malformed record is refused in time linear in it."""
    start = time.process_time()
    refused(answer)
    assert time.process_time() - start < 1.5


# --- cut short --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param(b"", "empty answer", id="nothing"),
        pytest.param(b"\n \n", "empty answer", id="blank"),
        pytest.param(record()[:-1], "cut short", id="no-newline"),
        pytest.param(record()[:200] + b"\n", "malformed record", id="half-a-record"),
        pytest.param(b"slurm_load_jobs error: Unable to contact slurm controller\n", "not begin", id="error"),
        pytest.param(b"No jobs in the system\n" + record(), "not begin", id="none-and-one"),
        pytest.param(b"JobId=5\n", "malformed record", id="only-an-id"),
        pytest.param(record().replace(b"JobId=5", "JobId=５".encode()), "not a number", id="wide-digits"),
        pytest.param(record().replace(b"2026-11-29T19:50:05", b"Unknown"), "not a time", id="running-since-never"),
        pytest.param(record().replace(b"x[1-2]", b"x[1-2"), "not a hostlist", id="half-a-hostlist"),
    ],
)
def test_unusable(answer: bytes, complaint: str) -> None:
    """What is empty, cut short or an error message is no answer, and the refusal says which."""
    assert complaint in refused(answer)


def test_unknown_state_is_there_and_not_understood() -> None:
    """A state of a newer Slurm is a job that nobody may judge."""
    (job,) = parse_saved_jobs(record().replace(b"=RUNNING", b"=TELEPORTING"))
    assert not job.is_understood

"""What `scontrol` and `squeue` print, read: recorded answers of real Slurm, public bug reports, hostile text."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.unit import unit_id_of
from slurm.commands import config as _config
from slurm.commands import job_rows as _job_rows
from slurm.commands import node_rows as _node_rows
from slurm.commands import printed as _printed
from slurm.commands import records as _records
from slurm.commands import text as _text
from slurm.errors import SlurmProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parent / "data"
HOSTILE = DATA / "samples/22.05-hostile"
NODE_LINES = json.loads((DATA / "cases/scontrol_node_lines.json").read_text())
JOB_RECORDS = json.loads((DATA / "cases/job_records.json").read_text())

# Drained, failed and down nodes of each version's sample, and when (of 2026-11-29, UTC) root said why.
SAMPLES = {
    "22.05": ("IDLE", "n1", "20:25:09", "20:21:37"),
    "24.11": ("MIXED", "n1", "20:06:02", "20:06:02"),
    "25.11": ("MIXED", "n1", "20:10:20", "20:10:20"),
    "26.05": ("MIXED", "n1", "20:06:09", "20:06:09"),
}
ROW = "5|5|N/A|N/A|RUNNING|0|2026-11-29T19:50:05|u|1000|main|n[1-2]|\n"
NODE = "NodeName=n1 Arch=x86_64 Sockets=2 Boards=1 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=main"


def utc(clock: str) -> int:
    """Return the seconds since the epoch of a time of 2026-11-29."""
    return int(datetime.fromisoformat(f"2026-11-29T{clock}").replace(tzinfo=timezone.utc).timestamp())


def nodes_of(version: str) -> bytes:
    """Return what a real Slurm of that version said of its nodes."""
    return (DATA / "samples" / version / "scontrol_show_nodes_oneline.txt").read_bytes()


def refused(parse: Callable[[bytes], object], output: bytes) -> str:
    """Return what `parse` says against `output`."""
    with pytest.raises(SlurmProtocolError) as caught:
        parse(output)
    return str(caught.value)


# --- nodes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", NODE_LINES, ids=lambda case: case["id"])
def test_node_line(case: dict[str, Any]) -> None:
    """Every node line of the cases has its state, and its reason where the case is sure of it."""
    (node,) = _node_rows.parse_nodes((case["line"] + "\n").encode()).values()
    assert (node.name, node.base, sorted(node.flags)) == (case["name"], case["base"], case["flags"])
    if "reason" in case:
        assert node.reason == case["reason"]
        assert node.reason_user == case.get("reason_user")
        stamped = case.get("reason_user") is not None
        assert node.reason_since == (utc("19:50:07") if stamped else None)


@pytest.mark.parametrize("version", SAMPLES)
def test_nodes_of_every_version(version: str) -> None:
    """Each version's answer has its 16 nodes, and says which are bad, why, since when and by whom."""
    base, drained, clock, others = SAMPLES[version]
    nodes = _node_rows.parse_nodes(nodes_of(version))
    assert sorted(nodes) == [*(f"d{number:03}" for number in range(1, 13)), "n1", "n2", "n3", "n4"]
    because = {
        name: (node.reason, node.reason_user, node.reason_since) for name, node in nodes.items() if node.reason
    }
    assert because == {
        drained: ("test: draining busy node", "root", utc(clock)),
        "d003": ("test: never registered", "root", utc(others)),
        "d004": ("manual down", "root", utc(others)),
        "d005": ("failing hw", "root", utc(others)),
        "d006": ("down and drain", "root", utc(others)),
    }
    assert nodes[drained].state == (base, "DRAIN")
    assert {name for name, node in nodes.items() if "DRAIN" in node.flags} == {drained, "d003", "d006"}
    assert {name for name, node in nodes.items() if "FAIL" in node.flags} == {"d005"}
    assert {name for name, node in nodes.items() if node.base == "DOWN"} == {"d004", "d006"}
    assert nodes["n2"].state == ("ALLOCATED",)


def test_free_text_of_a_real_slurm() -> None:
    """Forged fields, line breaks and control bytes that Slurm 22.05 let through leave every state as it is."""
    nodes = _node_rows.parse_nodes((HOSTILE / "scontrol_show_nodes_oneline.txt").read_bytes())
    assert {name: node.state for name, node in nodes.items()} == {
        "f1": ("FUTURE",),
        "f2": ("FUTURE",),
        "n1": ("ALLOCATED", "DRAIN"),
        "n2": ("MIXED", "DRAIN"),
        "n3": ("MIXED", "FAIL"),
        "n4": ("MIXED", "DRAIN"),  # features: x State=IDLE Reason=forged
        "n5": ("DOWN",),
        "n6": ("IDLE", "DRAIN"),  # gres: gpu: State=IDLE
        "n7": ("MIXED",),  # comment: ... State=DOWN
        "n8": ("IDLE", "DRAIN", "REBOOT_REQUESTED"),
    }
    assert {name: node.reason for name, node in nodes.items() if node.reason} == {
        "n1": "bad fan NodeName=n2 State=IDLE third line",
        "n2": "a [b] [me@2020-01-01T00:00:00] c",
        "n3": "\\xff\\xfe\x1b[31mred\x07\x01\x0c\x85\u2028é State=IDLE",
        "n4": "ECC",
        "n5": "key=value a=b Reason=none Comment=none",
        "n6": "plain",
        "n8": "kernel",
    }
    assert {node.reason_user for node in nodes.values()} == {"root", None}
    assert len({node.reason_since for node in nodes.values() if node.reason}) <= 2  # recorded within a second


@pytest.mark.parametrize(
    ("recording", "complaint"),
    [("forged_node", "n8 is described twice"), ("broken_features", "malformed row")],
)
def test_a_line_break_that_forges_makes_the_answer_unusable(recording: str, complaint: str) -> None:
    """Where a real Slurm's answer cannot be told from a forgery, none of it is used."""
    answer = (HOSTILE / f"scontrol_show_nodes_oneline.{recording}.txt").read_bytes()
    assert complaint in refused(_node_rows.parse_nodes, answer)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(f"{NODE}\n{NODE}\n", id="twice"),
        pytest.param("\n", id="blank"),
        pytest.param("NodeName=n1 Boards=1 ThreadsPerCore=1\n", id="no-state"),
        pytest.param("NodeName=n1 State=IDLE Boards=1\n", id="state-too-early"),
        pytest.param(f"{NODE.replace('+', ' ')}\n", id="flag-torn-off"),
        pytest.param(NODE.replace("DRAIN", "DR\0IN") + "\n", id="nul-in-a-flag"),
        pytest.param(f"{NODE.replace('IDLE+DRAIN', 'IDLE+')}\n", id="half-a-state"),
        pytest.param("NodeName= Boards=1 State=IDLE\n", id="no-name"),
        pytest.param("NodeName=n[1-2] Boards=1 State=IDLE\n", id="hostlist-for-a-name"),
        pytest.param("NodeName=n\x001 Boards=1 State=IDLE\n", id="nul-in-a-name"),
        pytest.param("NodeName=n\u20281 Boards=1 State=IDLE\n", id="separator-in-a-name"),
        pytest.param(f" {NODE}\n", id="indented"),
        pytest.param(f"garbage\n{NODE}\n", id="garbage-first"),
        pytest.param(f"{NODE}\ngarbage\n", id="garbage-behind-a-node-without-free-text"),
        pytest.param(f"{NODE}\nslurm_load_node error: Unable to contact slurm controller\n", id="error"),
        pytest.param(f"{NODE} Reason=x Boards=1 State=IDLE\n", id="two-states-one-forged-in-the-reason"),
        pytest.param(f"{NODE} Comment=x\n Boards=1 State=IDLE\n", id="forged-state-behind-a-line-break"),
        pytest.param(
            "NodeName=n1 AvailableFeatures=x State=IDLE Reason=y\nNodeName=z Boards=1 State=DOWN\n",
            id="state-carried-off-by-a-line-break",
        ),
    ],
)
def test_malformed_nodes(rows: str) -> None:
    """One row that cannot be read makes the whole node table unusable, with a printable sentence."""
    assert refused(_node_rows.parse_nodes, rows.encode()).isprintable()


@pytest.mark.parametrize(("output", "complaint"), [(b"", "empty"), (NODE.encode(), "cut short")])
def test_no_nodes_is_no_answer(output: bytes, complaint: str) -> None:
    """An empty node table is a failed query, never "no bad nodes"."""
    assert complaint in refused(_node_rows.parse_nodes, output)


def test_a_comment_of_many_lines_costs_its_length() -> None:
    """A comment of a million lines, behind a long field, is passed over in the time that reading it takes."""
    before = time.process_time()
    nodes = _node_rows.parse_nodes(f"{NODE}{'x' * (1 << 20)} Comment=c\n{'x' * 9}\n".encode() + b"x\n" * (1 << 19))
    assert [*nodes] == ["n1"]
    assert time.process_time() - before < 10


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r"])
def test_only_newlines_end_rows(separator: str) -> None:
    """What str.splitlines takes for a line break is a character of a reason."""
    rows = f"{NODE} Reason=a{separator}NodeName=n2 b [root@2026-11-29T19:50:07]\n"
    (node,) = _node_rows.parse_nodes(rows.encode()).values()
    assert node.reason == f"a{separator}NodeName=n2 b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(null)", (None, None, None)),
        ("", (None, None, None)),
        ("no stamp", ("no stamp", None, None)),
        ("no stamp Comment=c", ("no stamp", None, None)),
        ("x [root@2026-11-29T19:50:07]", ("x", "root", utc("19:50:07"))),
        ("x [root@2026-11-29T19:50:07] Comment=c Extra=e", ("x", "root", utc("19:50:07"))),
        ("x [root@2026-11-29T19:50:07] ReservationName=mnt", ("x", "root", utc("19:50:07"))),
        ("x [root@2026-11-29T19:50:07]        more", ("x more", "root", utc("19:50:07"))),
        ("x [a@b@2026-11-29T19:50:07]", ("x", "a@b", utc("19:50:07"))),
        ("x [me@2020-01-01T00:00:00] y [root@2026-11-29T19:50:07]",
         ("x [me@2020-01-01T00:00:00] y", "root", utc("19:50:07"))),
        ("x [root@2026-11-29T19:50:07] Comment=[me@2020-01-01T00:00:00]", ("x", "root", utc("19:50:07"))),
        ("[root@2026-11-29T19:50:07]", ("", "root", utc("19:50:07"))),
        ("x [root@9999-99-99T99:99:99]", ("x", "root", None)),
        ("x [root@Unknown]", ("x [root@Unknown]", None, None)),
    ],
)  # fmt: skip
def test_reason(text: str, expected: tuple[str | None, str | None, int | None]) -> None:
    """A reason is split from the stamp that Slurm put behind its first line, and from what follows."""
    (node,) = _node_rows.parse_nodes(f"{NODE} Reason={text}\n".encode()).values()
    assert (node.reason, node.reason_user, node.reason_since) == expected


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param("[a@2026-11-29T19:50:07]x" * 120_000, id="stamps"),
        pytest.param("[" * 1_000_000, id="brackets"),
        pytest.param("[a@" * 300_000, id="stamp-beginnings"),
        pytest.param("[" + "@" * 1_000_000, id="at-signs"),
        pytest.param(" Reason=" * 100_000, id="reasons"),
    ],
)
def test_a_megabyte_of_reason_costs_its_length(reason: str) -> None:
    """No reason, however it is made, costs the square of its length."""
    costs = []
    for _ in range(3):  # what else runs on a machine can only add to it
        start = time.process_time()
        _node_rows.parse_nodes(f"{NODE} Reason={reason}\n".encode())
        costs.append(time.process_time() - start)
    assert min(costs) < 1.0


# --- jobs -------------------------------------------------------------------------------------------------


def number(value: object) -> int | None:
    """Return the number that a version of Slurm's JSON means: a plain one, or one that is set."""
    if isinstance(value, dict):
        return value["number"] if value["set"] else None
    assert value is None or isinstance(value, int)
    return value


def row_of(job: dict[str, Any]) -> str:
    """Print a job as SHOW_JOBS would: a job outside an array is its own array, and a flag hides the base."""
    task = number(job["array_task_id"])
    states = job["job_state"] if isinstance(job["job_state"], list) else [job["job_state"]]
    columns = {
        "JobID": job["job_id"],
        "ArrayJobID": number(job["array_job_id"]) or job["job_id"],
        "ArrayTaskID": job.get("array_task_string", "N/A") if task is None else task,
        "HetJobID": number(job.get("het_job_id")) or "N/A",
        "State": states[-1],
        "RestartCnt": job["restart_cnt"],
        "StartTime": "N/A" if states == ["PENDING"] else "2026-11-29T19:50:05",
        "UserName": "u",
        "UserID": 1000,
        "Partition": "main",
        "NodeList": job["nodes"],
    }
    query = _text.SHOW_JOBS[-1].removeprefix("--Format=")
    return "".join(f"{columns[field.removesuffix(':|')]}|" for field in query.split(",")) + "\n"


@pytest.mark.parametrize("case", JOB_RECORDS, ids=lambda case: case["id"])
def test_job_record(case: dict[str, Any]) -> None:
    """Every job of the cases is its unit with its nodes, or no unit at all."""
    allocations = _job_rows.parse_jobs(row_of(case["job"]).encode())
    if case["unit"] is None:
        assert allocations == ()
        return
    (allocation,) = allocations
    unit = unit_id_of(allocation)
    assert [unit.job_id, unit.task_id] == case["unit"]
    assert list(allocation.nodes) == case["nodes"]
    assert allocation.restart_count == case["job"]["restart_cnt"]
    assert allocation.is_understood


def test_jobs_of_a_real_slurm() -> None:
    """A real answer names each unit, its nodes and its generation, and leaves out what is pending."""
    allocations = _job_rows.parse_jobs((HOSTILE / "squeue.txt").read_bytes())
    units = {a.job_id: unit_id_of(a) for a in allocations}
    assert {job: (unit.job_id, unit.task_id) for job, unit in units.items()} == {
        "1": ("1", "1"),  # the last task of an array keeps the array's own job id
        "9": ("1", "0"),
        "2": ("2", "2"),
        "3": ("2", "2"),  # the second component of a heterogeneous job
        "4": ("4", "4"),
        "5": ("5", "5"),
        "6": ("6", "6"),
    }
    facts = {a.job_id: (a.state, a.restart_count, a.nodes) for a in allocations}
    assert facts["4"] == ("RUNNING", 0, ("n4",))  # --no-kill: it had n[4-5] until n5 went down
    assert facts["5"] == ("SUSPENDED", 0, ("n6",))
    assert facts["6"] == ("RUNNING", 1, ("n7",))
    assert {a.user for a in allocations} == {"root"}
    assert {a.user_id for a in allocations} == {"0"}
    assert {a.partition for a in allocations} == {"main"}
    assert all(a.is_understood for a in allocations)


def test_no_job_is_an_answer() -> None:
    """An empty `squeue --noheader` says that there is no job."""
    assert _job_rows.parse_jobs(b"") == ()


@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED"])
def test_states_that_hold_nodes(state: str) -> None:
    """A job in such a state is a unit, also when other words stand beside it."""
    for printed in (state, f"POWER_UP_NODE,{state}"):
        (allocation,) = _job_rows.parse_jobs(ROW.replace("RUNNING", printed).encode())
        assert allocation.is_understood


@pytest.mark.parametrize(
    "state",
    [
        "PENDING", "COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
        "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED",
        "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REVOKED", "STAGE_OUT",
    ],
)  # fmt: skip
def test_states_that_hold_nothing(state: str) -> None:
    """A job in such a state is no unit, whatever else its row says: times and nodes may be missing."""
    row = f"5|5|0-9%2|N/A|{state}||N/A|u|1000|main|(null)|\n"
    assert _job_rows.parse_jobs(row.encode()) == ()
    assert _job_rows.parse_jobs(ROW.replace("RUNNING", f"RUNNING,{state}").encode()) == ()


def test_unknown_state_is_there_and_not_understood() -> None:
    """A state of a newer Slurm is an allocation that nobody may judge: neither absent nor fit."""
    (allocation,) = _job_rows.parse_jobs(ROW.replace("RUNNING", "TELEPORTING").encode())
    assert (allocation.state, allocation.nodes) == ("TELEPORTING", ("n1", "n2"))
    assert not allocation.is_understood


def test_running_without_nodes_is_not_understood() -> None:
    """A job that runs on no node is there and not judged."""
    (allocation,) = _job_rows.parse_jobs(ROW.replace("n[1-2]", "").encode())
    assert not allocation.is_understood


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROW[:-1], id="no-newline"),
        pytest.param(ROW.replace("main|", ""), id="a-column-less"),
        pytest.param(ROW.replace("main|", "main|x|"), id="a-column-more"),
        pytest.param(ROW[:-2] + "\n", id="no-last-delimiter"),
        pytest.param(ROW[:-1] + "x\n", id="text-behind-the-last-delimiter"),
        pytest.param(ROW + "slurm_load_jobs error: Unable to contact slurm controller\n", id="error"),
        pytest.param(
            "JOBID|ARRAY_JOB_ID|ARRAY_TASK_ID|HET|STATE|R|START|USER|UID|PARTITION|NODELIST|\n", id="header"
        ),
        pytest.param(ROW + ROW, id="twice"),
        pytest.param(ROW.replace("RUNNING", ""), id="no-state"),
        pytest.param(ROW.replace("5|5|", "|5|"), id="no-id"),
        pytest.param(ROW.replace("5|5|", "five|5|"), id="id-of-letters"),
        pytest.param(ROW.replace("5|5|", "../../etc|5|"), id="id-is-a-path"),
        pytest.param(ROW.replace("5|5|", "５|5|"), id="id-in-wide-digits"),
        pytest.param(ROW.replace("5|5|", "-5|5|"), id="negative-id"),
        pytest.param(ROW.replace("5|5|", "5" * 30 + "|5|"), id="id-of-thirty-digits"),
        pytest.param(ROW.replace("5|5|N/A", "5|5|0-9"), id="running-array-of-many-tasks"),
        pytest.param(ROW.replace("5|5|N/A", "5|5|"), id="blank-task"),
        pytest.param(ROW.replace("5|5|N/A", "5|5|4294967294"), id="task-that-is-not-set"),
        pytest.param(ROW.replace("5|5|N/A", "5|N/A|3"), id="task-of-no-array"),
        pytest.param(ROW.replace("N/A|RUNNING", "|RUNNING"), id="blank-het-id"),
        pytest.param(ROW.replace("5|5|N/A", "5|x|0"), id="array-id-of-letters"),
        pytest.param(ROW.replace("N/A|RUNNING", "x|RUNNING"), id="het-id-of-letters"),
        pytest.param(ROW.replace("RUNNING|0", "RUNNING|"), id="no-restart-count"),
        pytest.param(ROW.replace("2026-11-29T19:50:05", "N/A"), id="no-start"),
        pytest.param(ROW.replace("2026-11-29T19:50:05", "19:50:05"), id="start-without-a-date"),
        pytest.param(ROW.replace("2026-11-29", "2026-02-30"), id="start-on-no-day"),
        pytest.param(ROW.replace("n[1-2]", "n[1-2"), id="half-a-hostlist"),
        pytest.param(ROW.replace("n[1-2]", "@all"), id="group"),
        pytest.param(ROW.replace("n[1-2]", "n1\0"), id="nul"),
        pytest.param(ROW.replace("n[1-2]", "n1 "), id="name-that-lost-its-last-digit"),
        pytest.param(ROW.replace("n[1-2]", "n1\x1b[1m"), id="escape"),
        pytest.param("|" * 100_000 + "\n", id="delimiters"),
    ],
)
def test_malformed_jobs(rows: str) -> None:
    """One row that cannot be read makes the whole job table unusable, with a printable sentence."""
    assert refused(_job_rows.parse_jobs, rows.encode()).isprintable()


def test_no_task() -> None:
    """A job outside an array has its own id for the array's, and no task."""
    (allocation,) = _job_rows.parse_jobs(ROW.encode())
    assert (allocation.array_job_id, allocation.array_task_id) == (None, None)


# --- configuration ----------------------------------------------------------------------------------------


def test_configuration_of_a_real_slurm() -> None:
    """The cluster's name, its version and who may see jobs are read as they are printed."""
    config = _config.parse_config((HOSTILE / "scontrol_show_config.txt").read_bytes())
    assert (config["ClusterName"], config["SLURM_VERSION"]) == ("sandbox", "22.05.8")
    assert (config["PrivateData"], config["SlurmUser"]) == ("none", "root(0)")


def test_the_clock_of_a_real_slurm() -> None:
    """The heading tells slurmctld's clock, in UTC as our commands are run; every setting stays as printed."""
    config = _config.config_of((HOSTILE / "scontrol_show_config.txt").read_bytes())
    assert config.as_of is not None
    assert datetime.fromtimestamp(config.as_of, timezone.utc).year == 2026
    assert config.settings["JobRequeue"] == "1"


@pytest.mark.parametrize(
    "heading", [b"", b"Configuration data as of Unknown\n", b"Configuration data as of 2026-99-99T00:00:00\n"]
)
def test_a_clock_that_is_not_told(heading: bytes) -> None:
    """A heading that is no time tells none, and spoils nothing."""
    assert _config.config_of(heading + b"ClusterName = x\nPrivateData = none\nSlurmUser = root(0)\n").as_of is None


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"garbage\n",
        b"ClusterName = \nPrivateData = none\nSlurmUser = root(0)\n",
        b"ClusterName = ../x\nPrivateData = none\nSlurmUser = root(0)\n",
        b"ClusterName = x\nPrivateData = none\n",
        b"ClusterName = x\nSlurmUser = root(0)\n",
        b"ClusterName = x\nPrivateData = none\nSlurmUser = root(0)",
    ],
)
def test_unusable_configuration(output: bytes) -> None:
    """A configuration that names no cluster, or ends before it says who sees jobs, is refused."""
    assert refused(_config.parse_config, output).isprintable()


# --- times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["N/A", "Unknown", "None", "", "2026-11-29", "2026-11-29T19:50:05Z", "2026-11-29T19:50:05\n",
     "２０26-11-29T19:50:05", "2026-13-01T00:00:00", "2026-11-29T25:00:00", "0000-01-01T00:00:00"],
)  # fmt: skip
def test_is_no_time(text: str) -> None:
    """Only a whole date and time is one; Slurm's words for none are not."""
    with pytest.raises(ValueError, match=r"."):
        _printed.parse_time(text, timezone.utc)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_the_ends_of_time(text: str) -> None:
    """A year at either end of the calendar is a time or a ValueError, in every zone."""
    for zone in (timezone.utc, None):
        try:
            assert isinstance(_printed.parse_time(text, zone), int)
        except ValueError:
            assert zone is None


# --- cut short --------------------------------------------------------------------------------------------


ANSWERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "nodes": (_node_rows.parse_nodes, nodes_of("26.05")),
    "hostile-nodes": (_node_rows.parse_nodes, (HOSTILE / "scontrol_show_nodes_oneline.txt").read_bytes()),
    "jobs": (_job_rows.parse_jobs, (HOSTILE / "squeue.txt").read_bytes()),
    "config": (_config.parse_config, (HOSTILE / "scontrol_show_config.txt").read_bytes()),
    "saved-jobs": (_records.parse_saved_jobs, (HOSTILE / "scontrol_show_jobs.txt").read_bytes()),
    "saved-jobs-oneline": (_records.parse_saved_jobs, (HOSTILE / "scontrol_show_jobs_oneline.txt").read_bytes()),
}


def rows_of(table: Any) -> list[Any]:
    """Return a parsed table's rows in their order."""
    return list(table.items()) if isinstance(table, dict) else list(table)


@pytest.mark.parametrize(("parse", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
def test_cut_short(parse: Callable[[bytes], Any], answer: bytes) -> None:
    """An answer cut inside a line is refused; cut at the end of one it is refused, or is the whole's first rows.

    The latter no parser can know: a command that was cut short there ended by a signal or non-zero, which
    slurm/commands/run.py tells. No cut changes a row or drops one before it.
    """
    whole = rows_of(parse(answer))
    for offset in range(len(answer)):
        cut = answer[:offset]
        if cut.endswith(b"\n") or (not cut and parse is _job_rows.parse_jobs):
            try:
                part = rows_of(parse(cut))
            except SlurmProtocolError:
                continue
            assert part == whole[: len(part)]
        else:
            refused(parse, cut)


def test_cut_short_while_writing_its_last_row() -> None:
    """The last row of each real answer is there whole or not at all: half of it never counts."""
    for parse, answer in (ANSWERS["nodes"], ANSWERS["jobs"]):
        last = answer.rstrip(b"\n").rindex(b"\n") + 1
        assert rows_of(parse(answer[:last])) == rows_of(parse(answer))[:-1]
        refused(parse, answer[:-1])


# --- anything at all --------------------------------------------------------------------------------------

TOKENS = st.sampled_from(
    [
        b"\n", b"\n\n", b"|", b" ", b"\0", b"\xff", b"\x1b[2J", "\u2028".encode(), b"=", b"[", b"]", b"(", b")",
        b"@", b",", b"NodeName=n2 Boards=1 State=IDLE ", b" State=", b" Boards=", b" Reason=", b" Comment=",
        b"\nJobId=", b"JobId=1 ",
        b" UserId=u(1) GroupId=u(1) ", b" StartTime=", b"0000-00-00T00:00:00", b"0001-01-01T00:00:00", b"RUNNING",
        b"9" * 30, b"n[0-9999999]", b"@all", b"N/A", b"ClusterName = x\n",
    ]
)  # fmt: skip
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), TOKENS | st.binary(max_size=8)), max_size=6)
PARSERS: tuple[Callable[[bytes], object], ...] = (
    _node_rows.parse_nodes,
    _job_rows.parse_jobs,
    _config.parse_config,
    _records.parse_saved_jobs,
)


def edited(answer: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Replace some bytes of an answer; where is a fraction of its length."""
    for where, length, replacement in edits:
        at = int(where * len(answer))
        answer = answer[:at] + replacement + answer[at + length :]
    return answer


@given(st.binary(max_size=200) | st.lists(TOKENS | st.binary(max_size=6), max_size=30).map(b"".join))
@settings(deadline=None, max_examples=400)
def test_random_bytes(output: bytes) -> None:
    """Whatever bytes arrive, a parser returns or raises SlurmProtocolError, whose text is printable."""
    for parse in PARSERS:
        for answer in (output, output + b"\n"):
            try:
                parse(answer)
            except SlurmProtocolError as error:
                assert str(error).isprintable()  # noqa: PT017 - it is not known whether it raises


@pytest.mark.parametrize(("parse", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
@given(edits=EDITS)
@settings(deadline=None, max_examples=150)
def test_mutated_answers(
    parse: Callable[[bytes], object], answer: bytes, edits: list[tuple[float, int, bytes]]
) -> None:
    """A real answer with some bytes replaced is read or refused, and nothing else happens."""
    try:
        parse(edited(answer, edits))
    except SlurmProtocolError as error:
        assert str(error).isprintable()  # noqa: PT017 - it is not known whether it raises


@given(st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), max_size=80))
@settings(deadline=None, max_examples=400)
def test_no_reason_changes_a_state(text: str) -> None:
    """Whatever stands in a reason, its node stays drained, unless the whole answer is refused."""
    rows = f"{NODE} Reason={text} [root@2026-11-29T19:50:07]\n{NODE.replace('n1', 'n2')}\n"
    try:
        nodes = _node_rows.parse_nodes(rows.encode())
    except SlurmProtocolError:
        assert " Boards=" in text
        return
    assert [(node.name, node.state) for node in nodes.values()] == [
        ("n1", ("IDLE", "DRAIN")),
        ("n2", ("IDLE", "DRAIN")),
    ]
    assert nodes["n1"].reason_user == "root"


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=60) | st.sampled_from(
    ["x State=IDLE", "x State=IDLE Reason=y", "x\nNodeName=z State=IDLE", "x State=IDLE Comment=\n",
     " Boards=1 State=IDLE"],
))  # fmt: skip
@settings(deadline=None, max_examples=400)
def test_no_feature_hides_a_drain(text: str) -> None:
    """Whatever stands in a node's features, twice before its state, the node is drained or all is refused."""
    features = f"AvailableFeatures={text} ActiveFeatures={text}"
    rows = f"NodeName=n1 {features} Sockets=2 Boards=1 State=IDLE+DRAIN Owner=N/A\n"
    try:
        nodes = _node_rows.parse_nodes(rows.encode())
    except SlurmProtocolError:
        return
    assert nodes["n1"].state == ("IDLE", "DRAIN")

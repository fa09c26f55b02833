"""Slurm's JSON: every form in which a version writes a field is read, and what would be a guess is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.policy.assess import Policy
from segment_health.unit import unit_id_of
from slurm.commands.json import JsonReader
from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.json.answer import JsonAnswer
from slurm.pyslurm.rows import parse_jobs, parse_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.job import Allocation
    from slurm.node import Node

    from .conftest import FakeSlurm

DATA = Path(__file__).parent / "data"
SAMPLES = DATA / "samples"
NODE_STATES = json.loads((DATA / "cases/node_states.json").read_text())
JOB_RECORDS = json.loads((DATA / "cases/job_records.json").read_text())
CONFIG = (SAMPLES / "22.05-hostile/scontrol_show_config.txt").read_bytes()
NO_VAL = 4294967294

# What is asked, word for word: a change here is a change of what Slurm is burdened with.
ASK_NODES = ["scontrol", "--all", "--future", "--local", "show", "nodes", "--json"]
ASK_SINFO = ["sinfo", "--all", "--local", "--json"]
ASK_JOBS = ["squeue", "--all", "--local", "--json"]
ASK_CONFIG = ["scontrol", "--local", "show", "config"]
ASK_VERSION = ["scontrol", "--version"]


def sample(version: str, file: str) -> dict[str, Any]:
    """Return what a real Slurm of that version answered."""
    answer: dict[str, Any] = json.loads((SAMPLES / version / file).read_text())
    return answer


NODE = next(row for row in sample("24.11", "nodes.v42.json")["nodes"] if row["name"] == "n1")
OLD_NODE = next(row for row in sample("22.05", "sinfo.json")["nodes"] if row["name"] == "n1")
JOB = next(row for row in sample("24.11", "squeue.v42.json")["jobs"] if row["job_id"] == 11)  # task 0 of array 1
OLD_JOB = next(row for row in sample("22.05", "squeue.json")["jobs"] if row["job_id"] == 11)
HET = [row for row in sample("22.05", "squeue.json")["jobs"] if row["het_job_id"] == 9]


def struct(number: int | None) -> dict[str, object]:
    """Write a number as data_parsers since v0.0.39 do."""
    return {"set": number is not None, "infinite": False, "number": number or 0}


def read(wanted: str, rows: object, **members: object) -> JsonAnswer:
    """Read an answer with these rows of nodes or jobs, and other members."""
    answer = JsonAnswer("it")
    answer.feed(json.dumps({wanted: rows, **members}).encode())
    answer.close(wanted)
    return answer


def node_in(row: dict[str, Any]) -> Node:
    """Read one node."""
    (node,) = read("nodes", [row]).nodes.values()
    return node


def job_in(row: dict[str, Any]) -> Allocation:
    """Read one job that holds nodes."""
    (allocation,) = read("jobs", [row]).allocations.values()
    return allocation


def refused(wanted: str, rows: object, **members: object) -> str:
    """Return what is said against an answer."""
    with pytest.raises(SlurmProtocolError) as caught:
        read(wanted, rows, **members)
    assert str(caught.value).isprintable()
    return str(caught.value)


# --- the cases, in every form ------------------------------------------------------------------------------


def number(value: object) -> int | None:
    """Return the number that a case means: a plain one, or one that is set."""
    if isinstance(value, dict):
        return value["number"] if value["set"] else None
    assert value is None or isinstance(value, int)
    return value


def words(job: dict[str, Any]) -> list[str]:
    """Return the state of a case's job as words."""
    return job["job_state"] if isinstance(job["job_state"], list) else [job["job_state"]]


def as_it_stands(job: dict[str, Any]) -> Allocation | None:
    """Read a case's job with the fields that it does not name from a real job of the same version."""
    is_old = isinstance(job["array_job_id"], int)
    row = {**(OLD_JOB if is_old else JOB), "het_job_id": 0, **job}
    return next(iter(read("jobs", [row]).allocations.values()), None)


def by_old_json(job: dict[str, Any]) -> Allocation | None:
    """Read it as 22.05 would write it: plain numbers, one word, of several the last."""
    row = OLD_JOB | job
    row |= {name: number(job[name]) for name in ("array_job_id", "array_task_id")}
    row |= {"het_job_id": number(job.get("het_job_id")) or 0, "job_state": words(job)[-1]}
    return next(iter(read("jobs", [row]).allocations.values()), None)


def by_new_json(job: dict[str, Any]) -> Allocation | None:
    """Read it as data_parsers since v0.0.40 write it: structures and a list."""
    row = JOB | job | {"job_state": words(job)}
    row |= {name: struct(number(job[name])) for name in ("array_job_id", "array_task_id")}
    row |= {"het_job_id": struct(number(job.get("het_job_id")) or 0)}
    return next(iter(read("jobs", [row]).allocations.values()), None)


def by_pyslurm(job: dict[str, Any]) -> Allocation | None:
    """Read it as pyslurm would give it: no 0 anywhere, not even for task 0, and one word."""
    rows = json.loads((SAMPLES / "24.11/pyslurm_jobs.json").read_text())
    row = rows["11"] | {
        "id": job["job_id"],
        "array_id": number(job["array_job_id"]) or None,
        "array_task_id": number(job["array_task_id"]) or None,
        "array_tasks_waiting": job.get("array_task_string"),
        "heterogeneous_id": number(job.get("het_job_id")) or None,
        "heterogeneous_offset": number(job.get("het_job_offset")) or None,
        "state": words(job)[-1],
        "allocated_nodes": job["nodes"] or None,
        "requeue_count": job["restart_cnt"],
    }
    return next(iter(parse_jobs([row])), None)


@pytest.mark.parametrize("door", [as_it_stands, by_old_json, by_new_json, by_pyslurm])
@pytest.mark.parametrize("case", JOB_RECORDS, ids=lambda case: case["id"])
def test_job_record(case: dict[str, Any], door: Callable[[dict[str, Any]], Allocation | None]) -> None:
    """Every job of the cases is its unit with its nodes, or no unit at all, in whatever form it is written."""
    allocation = door(case["job"])
    if case["unit"] is None:
        assert allocation is None
        return
    assert allocation is not None
    unit = unit_id_of(allocation)
    assert [unit.job_id, unit.task_id] == case["unit"]
    assert list(allocation.nodes) == case["nodes"]
    assert allocation.restart_count == case["job"]["restart_cnt"]
    assert allocation.is_understood


def old_state(case: dict[str, Any]) -> Node:
    """Read a state as 22.05 writes it: the base in small letters, the flags beside it."""
    return node_in(OLD_NODE | {"state": case["base"].lower(), "state_flags": case["flags"]})


def new_state(case: dict[str, Any]) -> Node:
    """Read a state as data_parsers since v0.0.39 write it: a list, empty where there is no base."""
    return node_in(NODE | {"state": [word for word in (case["base"], *case["flags"]) if word]})


def turned_state(case: dict[str, Any]) -> Node:
    """Read the list with its base at the end: no order is promised."""
    return node_in(NODE | {"state": [word for word in (*case["flags"], case["base"]) if word]})


def pyslurm_state(case: dict[str, Any]) -> Node:
    """Read a state as pyslurm gives it: one text."""
    row = json.loads((SAMPLES / "24.11/pyslurm_nodes.json").read_text())["n1"]
    (node,) = parse_nodes([row | {"state": case["state"]}]).values()
    return node


@pytest.mark.parametrize("door", [old_state, new_state, turned_state, pyslurm_state])
@pytest.mark.parametrize("case", NODE_STATES, ids=lambda case: case["id"])
def test_node_state(case: dict[str, Any], door: Callable[[dict[str, Any]], Node]) -> None:
    """Every node state of the cases is its base and flags, and has its level, in whatever form it is written."""
    node = door(case)
    assert (node.base, sorted(node.flags)) == (case["base"], case["flags"])
    level = Policy().assess(node, allocated=case["in_running_allocation"]).level
    assert (None if level is None else level.name) == case["level"]


# --- numbers ----------------------------------------------------------------------------------------------

NOTHING = [
    pytest.param(None, id="null"),
    pytest.param(struct(None), id="not-set"),
    pytest.param({"set": False}, id="not-set-and-no-number"),
    pytest.param({"set": True, "infinite": True, "number": 7}, id="infinite"),
    pytest.param({"set": True, "infinite": False, "number": NO_VAL}, id="set-to-no-val"),
    pytest.param("Infinity", id="infinity-in-words"),
    pytest.param(float("inf"), id="infinity"),
    pytest.param("", id="empty"),
    pytest.param(NO_VAL, id="no-val"),
    pytest.param(NO_VAL + 1, id="infinite-32"),
    pytest.param(0xFFFFFFFFFFFFFFFE, id="no-val-64"),
    pytest.param(0xFFFFFFFFFFFFFFFF, id="infinite-64"),
]
NO_NUMBER = [
    pytest.param(-1, id="negative"),
    pytest.param("7", id="digits-in-a-string"),
    pytest.param("seven", id="word"),
    pytest.param(7.0, id="float"),
    pytest.param(float("nan"), id="nan"),
    pytest.param(-float("inf"), id="minus-infinity"),
    pytest.param(True, id="true"),
    pytest.param([], id="empty-list"),
    pytest.param([7], id="list"),
    pytest.param({}, id="empty-struct"),
    pytest.param({"number": 7}, id="not-said-whether-set"),
    pytest.param({"set": 1, "number": 7}, id="set-to-a-number"),
    pytest.param({"set": "true", "number": 7}, id="set-to-a-word"),
    pytest.param({"set": True}, id="set-to-nothing"),
    pytest.param({"set": True, "infinite": False, "number": None}, id="set-to-null"),
    pytest.param({"set": True, "infinite": False, "number": [7]}, id="set-to-a-list"),
    pytest.param({"set": True, "infinite": False, "number": struct(7)}, id="struct-in-a-struct"),
    pytest.param({"set": True, "infinite": False, "number": "7"}, id="set-to-digits-in-a-string"),
    pytest.param({"set": True, "infinite": False, "number": -7}, id="set-to-a-negative"),
]
NEEDED = ("job_id", "restart_cnt", "start_time", "user_id")


@pytest.mark.parametrize("form", [lambda value: value, struct], ids=["plain", "struct"])
def test_a_number_in_either_form(form: Callable[[int], object]) -> None:
    """A plain number and one in a structure are the same; task 0 has number 0 and is set."""
    allocation = job_in(
        JOB
        | {"job_id": form(60), "array_job_id": form(57), "array_task_id": form(0)}
        | {"restart_cnt": form(3), "start_time": form(1_795_982_759), "user_id": form(1000)}
    )
    assert (allocation.job_id, allocation.array_job_id, allocation.array_task_id) == ("60", "57", "0")
    assert (allocation.restart_count, allocation.start_time) == (3, 1_795_982_759)
    assert allocation.user_id == "1000"


@pytest.mark.parametrize("value", NOTHING)
def test_not_set(value: object) -> None:
    """However "not set" is written, it is no id; and where a number is needed, the answer is refused."""
    regular = JOB | {"array_job_id": value, "array_task_id": value, "het_job_id": value}
    allocation = job_in(regular)
    assert (allocation.array_job_id, allocation.array_task_id, allocation.het_job_id) == (None, None, None)
    assert node_in(NODE | {"reason_changed_at": value}).reason_since is None
    for field in NEEDED:
        refused("jobs", [JOB | {field: value}])


@pytest.mark.parametrize("value", NO_NUMBER)
def test_is_no_number(value: object) -> None:
    """What is no number, or a structure that contradicts itself, is refused wherever it stands."""
    for field in (*NEEDED, "array_job_id", "array_task_id", "het_job_id"):
        assert field in refused("jobs", [JOB | {field: value}])
    assert "reason_changed_at" in refused("nodes", [NODE | {"reason_changed_at": value}])


def test_zero() -> None:
    """Array 0 and leader 0 are none; job 0 and a start in 1970 are not to be believed; 0 restarts are."""
    allocation = job_in(JOB | {"array_job_id": 0, "array_task_id": None, "het_job_id": 0, "restart_cnt": 0})
    assert (allocation.array_job_id, allocation.het_job_id, allocation.restart_count) == (None, None, 0)
    assert "no job id" in refused("jobs", [JOB | {"job_id": 0}])
    assert "not the time of a start" in refused("jobs", [JOB | {"start_time": struct(0)}])


# --- nodes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (["DRAIN", "MIXED"], ("MIXED", "DRAIN")),
        (["NOT_RESPONDING", "DRAIN", "DOWN"], ("DOWN", "DRAIN", "NOT_RESPONDING")),
        (["mixed", "drain"], ("MIXED", "DRAIN")),
        (["IDLE"], ("IDLE",)),
        (["INVALID"], ("INVALID",)),
        ([], ("",)),
        (["DRAIN"], ("DRAIN",)),  # a base that is missing is a base that we do not know
        (["NEWBASE", "DRAIN"], ("NEWBASE", "DRAIN")),
    ],
)
def test_state_in_a_list(state: list[str], expected: tuple[str, ...]) -> None:
    """The base comes first, wherever it stood in the list; a word that we do not know arrives as it is."""
    assert node_in(NODE | {"state": state}).state == expected


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(None, id="null"),
        pytest.param(1, id="number"),
        pytest.param({}, id="object"),
        pytest.param("MIXED", id="base-without-flags"),
        pytest.param(["MIXED", None], id="null-in-it"),
        pytest.param(["MIXED", 1], id="number-in-it"),
        pytest.param(["MIXED", ["DRAIN"]], id="list-in-it"),
        pytest.param(["MIXED", ""], id="empty-word"),
        pytest.param(["MIXED", "DRAI "], id="space-in-a-word"),
        pytest.param(["MIXED", "DR\\x00IN"], id="byte-in-a-word"),
        pytest.param(["MIXED", "DRÄIN"], id="letter-of-another-script"),
    ],
)
def test_is_no_state(state: object) -> None:
    """A state of another type, one without its flags, or a garbled word is no state of a fit node."""
    refused("nodes", [NODE | {"state": state}])


@pytest.mark.parametrize("flags", [None, "DRAIN", 1, {}, [None], [""], ["DRAI "]])
def test_are_no_flags(flags: object) -> None:
    """22.05's flags beside the base are a list of words, or the answer is refused."""
    refused("nodes", [OLD_NODE | {"state_flags": flags}])


@pytest.mark.parametrize("field", ["name", "state", "state_flags"])
def test_a_node_without(field: str) -> None:
    """A node that lacks what it is judged by makes the answer unusable."""
    refused("nodes", [{key: value for key, value in OLD_NODE.items() if key != field}])


@pytest.mark.parametrize("name", [None, "", 1, "n[1-2]", "n1,n2", "n1 ", "n\n1", "a" * 256])
def test_is_no_name(name: object) -> None:
    """A name that cannot be one node's is refused."""
    refused("nodes", [NODE | {"name": name}])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reason": ""}, (None, None, None)),
        ({"reason": None}, (None, None, None)),
        ({"reason": "(null)"}, (None, None, None)),
        ({"reason": " a\n  b\nc "}, ("a b c", "root", 1_795_982_762)),
        ({"reason": "x", "reason_set_by_user": None}, ("x", None, 1_795_982_762)),
        ({"reason": "x", "reason_set_by_user": ""}, ("x", None, 1_795_982_762)),
        ({"reason": "x", "reason_changed_at": 1_795_982_000}, ("x", "root", 1_795_982_000)),
        ({"reason": "x", "reason_changed_at": struct(0)}, ("x", "root", None)),
        ({"reason": "\x1b[1m \ud800"}, ("\x1b[1m \ud800", "root", 1_795_982_762)),
    ],
)
def test_reason(fields: dict[str, object], expected: tuple[str | None, str | None, int | None]) -> None:
    """A reason is one line as the text door reads it, with who gave it and when, or nothing at all."""
    node = node_in(NODE | fields)
    assert (node.reason, node.reason_user, node.reason_since) == expected


@pytest.mark.parametrize("field", ["reason", "reason_set_by_user", "reason_changed_at"])
def test_no_reason_is_needed(field: str) -> None:
    """A version that does not tell the reason tells the state all the same."""
    assert node_in({key: value for key, value in NODE.items() if key != field}).state == ("MIXED", "DRAIN")


# --- jobs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", "RUNNING"),
        ("running", "RUNNING"),
        (["RUNNING"], "RUNNING"),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "RUNNING,CONFIGURING,POWER_UP_NODE"),
        (["SUSPENDED"], "SUSPENDED"),
        (["TELEPORTING"], "TELEPORTING"),
        (["RUNNING", "TELEPORTING"], "RUNNING,TELEPORTING"),
        (["RUNNING", "COMPLETING"], None),
        (["COMPLETING", "RUNNING"], None),
        ("COMPLETING", None),
        ("PENDING", None),
        (["pending"], None),
    ],
)
def test_job_state(state: object, expected: str | None) -> None:
    """A state of one word or of several is read alike; a job that is ending or waiting is no allocation."""
    allocations = read("jobs", [JOB | {"job_state": state}]).allocations.values()
    assert [allocation.state for allocation in allocations] == ([] if expected is None else [expected])
    assert all(a.is_understood == (expected != "TELEPORTING") for a in allocations)


@pytest.mark.parametrize("state", [None, "", [], [""], [None], 1, {}, ["RUNNING", None]])
def test_is_no_job_state(state: object) -> None:
    """A job whose state is not told makes the answer unusable: it may be a unit."""
    refused("jobs", [JOB | {"job_state": state}])


@pytest.mark.parametrize(
    "field",
    [
        "job_id", "array_job_id", "array_task_id", "het_job_id", "job_state", "restart_cnt", "start_time",
        "user_id", "user_name", "partition", "nodes",
    ],
)  # fmt: skip
def test_a_job_without(field: str) -> None:
    """A field that has been there in every version is missed in every job, whatever its state."""
    for state in (["RUNNING"], ["PENDING"]):
        row = {key: value for key, value in JOB.items() if key != field} | {"job_state": state}
        row.pop(field, None)
        refused("jobs", [row])


@pytest.mark.parametrize(
    ("array", "task"),
    [(struct(1), struct(None)), (struct(None), struct(1)), (struct(0), struct(0)), (0, 3), (1, None), (None, 0)],
)
def test_contradictory_array_ids(array: object, task: object) -> None:
    """An array without a task, or a task without an array, names no unit: refused, whatever it stands for."""
    assert "do not go together" in refused("jobs", [JOB | {"array_job_id": array, "array_task_id": task}])


def test_heterogeneous_job() -> None:
    """Both components of a real heterogeneous job are the leader's unit; one that forgot its leader is refused."""
    assert {unit_id_of(a).job_id for a in read("jobs", HET).allocations.values()} == {"9"}
    for leader in (0, None, NO_VAL, struct(None)):
        assert "not told of which" in refused("jobs", [row | {"het_job_id": leader} for row in HET])


@pytest.mark.parametrize("nodes", [1, [], ["n1"], {}, "n[1-2", "@all", "n1 ", " n1", "n1 n2", "n1\n"])
def test_are_no_nodes(nodes: object) -> None:
    """A node list that is none, or lost a character, is refused."""
    refused("jobs", [JOB | {"nodes": nodes}])


@pytest.mark.parametrize("nodes", [None, "", "(null)", "None assigned"])
def test_running_on_no_node(nodes: str | None) -> None:
    """A job that runs on no node is there, and is not judged."""
    allocation = job_in(JOB | {"nodes": nodes})
    assert allocation.nodes == ()
    assert not allocation.is_understood


def test_no_job_is_an_answer() -> None:
    """A cluster without a job is one; a cluster without a node is none."""
    assert read("jobs", []).allocations == {}
    assert "no node in the answer" in refused("nodes", [])


# --- answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "row", "complaint"), [("nodes", NODE, "n1 is described twice"), ("jobs", JOB, "listed twice")]
)
def test_listed_twice(wanted: str, row: dict[str, Any], complaint: str) -> None:
    """A node or a job that is there twice makes the answer unusable."""
    assert complaint in refused(wanted, [row, row])


@pytest.mark.parametrize("wanted", ["nodes", "jobs"])
@pytest.mark.parametrize("row", [None, [], "n1", 1, {}])
def test_is_no_row(wanted: str, row: object) -> None:
    """One row that is none spoils the rows before it and behind it."""
    good = {"nodes": NODE, "jobs": JOB}[wanted]
    refused(wanted, [good, row])


ERROR = sample("24.11", "squeue.v42.json") | {
    "errors": [
        {
            "description": "Unable to query nodes",
            "error_number": 1007,
            "error": "Protocol authentication error",
            "source": "slurm_load_node2()",
        }
    ]
}


def test_errors_beside_everything_else() -> None:
    """An error in the answer is a failure though all rows are there, and its own words are told."""
    answer = JsonAnswer("squeue --json")
    answer.feed(json.dumps(ERROR).encode())
    with pytest.raises(SlurmUnavailable) as caught:
        answer.close("jobs")
    assert str(caught.value) == (
        "squeue --json: 'slurm_load_node2(): Protocol authentication error: Unable to query nodes'"
    )


@pytest.mark.parametrize("error", ["text", 1, {}, {"description": ""}, None, {"description": "x\n\x1b[1m"}])
def test_an_error_in_any_form(error: object) -> None:
    """Whatever form an error has, it is one, and it is told on one line."""
    with pytest.raises(SlurmUnavailable) as caught:
        read("nodes", [NODE], errors=[error])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("errors", ["text", 1, {"description": "x"}, True, 0, ""])
def test_errors_that_are_no_list(errors: object) -> None:
    """Errors that are no list are not the empty list."""
    assert "errors that are no list" in refused("nodes", [NODE], errors=errors)


def test_errors_come_before_what_they_explain() -> None:
    """An answer without rows because of an error says the error."""
    with pytest.raises(SlurmUnavailable, match="Unable to contact"):
        read("other", [], errors=[{"error": "Unable to contact slurm controller (connect failure)"}]).close(
            "nodes"
        )


@pytest.mark.parametrize("errors", [{}, {"errors": None}, {"errors": []}])
def test_no_error(errors: dict[str, object]) -> None:
    """No errors, whether said or not, is none."""
    assert len(read("nodes", [NODE], **errors).nodes) == 1


def test_warnings() -> None:
    """A warning in the answer is a remark for the log, and no failure."""
    answer = read("nodes", [NODE], warnings=[{"description": "deprecated", "source": "data_parser"}, "x"])
    assert answer.remarks == ["it: 'data_parser: deprecated'", "it: 'x'"]


@pytest.mark.parametrize("file", ["24.11", "25.11", "26.05"])
def test_grouped_sinfo(file: str) -> None:
    """`sinfo --json` of 23.02 and later has no row for a node: refused, with what to ask instead."""
    answer = JsonAnswer("saved.json")
    answer.feed((SAMPLES / file / "sinfo.json").read_bytes())
    with pytest.raises(SlurmProtocolError, match=r"no nodes in the answer.*scontrol show nodes --json"):
        answer.close("nodes")


def test_a_newer_version() -> None:
    """New members, words and fields of a version to come are passed over where what we know makes sense."""
    node = NODE | {"state": ["MIXED", "DRAIN", "ENTANGLED"], "new": {"a": [1]}, "name_of_rack": None}
    answer = read("nodes", [node], meta={"plugin": {"data_parser": "data_parser/v0.0.99"}}, new=[1, 2])
    assert answer.nodes["n1"].state == ("MIXED", "DRAIN", "ENTANGLED")
    assert Policy().assess(answer.nodes["n1"]).unknown == {"ENTANGLED"}
    job = JOB | {"job_state": ["RUNNING", "ENTANGLED"], "new": 1, "job_resources": "moved again"}
    assert job_in(job).is_understood


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"slurm": {"cluster": "c", "release": "24.11.5"}}, ("c", "24.11.5")),
        ({"Slurm": {"version": {"major": 22}, "release": "22.05.8"}}, (None, "22.05.8")),
        ({"slurm": {"cluster": "", "release": ""}}, (None, None)),
        ({"slurm": {"cluster": 1, "release": 2}}, (None, None)),
        ({"slurm": []}, (None, None)),
        ([], (None, None)),
        (None, (None, None)),
    ],
)
def test_meta(meta: object, expected: tuple[str | None, str | None]) -> None:
    """The cluster and its version are told where the answer tells them, and spoil nothing where it does not."""
    answer = read("nodes", [NODE], meta=meta)
    assert (answer.cluster, answer.version) == expected


# --- asking -----------------------------------------------------------------------------------------------

VERSIONS = {
    "22.05": (b"slurm-wlm 22.05.8\n", "sinfo.json", "squeue.json", ASK_SINFO),
    "24.11": (b"slurm-wlm 24.11.5\n", "nodes.v42.json", "squeue.v42.json", ASK_NODES),
    "25.11": (b"slurm 25.11.7\n", "nodes.v44.json", "squeue.v44.json", ASK_NODES),
    "26.05": (b"slurm-wlm 26.05.5\n", "nodes.v42.json", "squeue.v42.json", ASK_NODES),
}


def answering(slurm: FakeSlurm, version: str) -> JsonReader:
    """Let the commands answer as those of that version did."""
    banner, nodes, jobs, _ = VERSIONS[version]
    slurm.answers("version", banner)
    slurm.answers("config", CONFIG)
    slurm.answers("nodes", (SAMPLES / version / nodes).read_bytes())
    slurm.answers("jobs", (SAMPLES / version / jobs).read_bytes())
    return JsonReader(slurm.commands(30))


@pytest.mark.parametrize("version", VERSIONS)
def test_queries(fake_slurm: FakeSlurm, version: str) -> None:
    """One node and one job query a pass, who the cluster is once: of 22.05, which has no other, sinfo is asked."""
    reader = answering(fake_slurm, version)
    snapshot = reader.read()
    assert fake_slurm.calls() == sorted([ASK_CONFIG, ASK_VERSION, VERSIONS[version][3], ASK_JOBS])
    assert (snapshot.cluster, snapshot.slurm_version, snapshot.visible_user) == ("sandbox", "22.05.8", None)
    assert sorted(snapshot.nodes) == [*(f"d{number:03}" for number in range(1, 13)), "n1", "n2", "n3", "n4"]
    assert len(snapshot.allocations) == 14
    assert reader.remarks == []
    assert reader.read() == snapshot
    assert fake_slurm.calls() == sorted([VERSIONS[version][3], ASK_JOBS])


@pytest.mark.parametrize(
    ("banner", "asked"),
    [
        (b"slurm 22.05.11\n", ASK_SINFO),
        (b"slurm 21.08.8-2\n", ASK_SINFO),
        (b"slurm 23.02.0\n", ASK_NODES),
        (b"slurm 100.11.1\n", ASK_NODES),
        (b"whatever\n", ASK_NODES),
    ],
)
def test_who_shows_nodes(fake_slurm: FakeSlurm, banner: bytes, asked: list[str]) -> None:
    """From 23.02 on scontrol has --json, and is asked wherever it is not known to lack it."""
    reader = answering(fake_slurm, "22.05")
    fake_slurm.answers("version", banner)
    reader.read()
    assert asked in fake_slurm.calls()


@pytest.mark.parametrize("what", ["nodes", "jobs", "config", "version"])
def test_a_command_that_fails(fake_slurm: FakeSlurm, what: str) -> None:
    """A command that ends non-zero tells its own complaint, not what is wrong with what it had begun to print."""
    reader = answering(fake_slurm, "24.11")
    fake_slurm.does(what, "echo '{garbage'; echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmUnavailable, match="Unable to contact slurm controller"):
        reader.read()
    fake_slurm.does(what, "")
    assert len(reader.read().nodes) == 16


@pytest.mark.parametrize("what", ["nodes", "jobs"])
def test_no_half_snapshot(fake_slurm: FakeSlurm, what: str) -> None:
    """An answer that is cut short, is no JSON (a build without JSON-C) or reports an error is no snapshot."""
    reader = answering(fake_slurm, "24.11")
    whole = (SAMPLES / "24.11" / {"nodes": "nodes.v42.json", "jobs": "squeue.v42.json"}[what]).read_bytes()
    for answer in (whole[: len(whole) // 2], b"", b"NodeName=n1 State=IDLE\n", whole + whole):
        fake_slurm.answers(what, answer)
        with pytest.raises(SlurmProtocolError):
            reader.read()
    fake_slurm.answers(what, json.dumps(json.loads(whole) | {"errors": [{"description": "no"}]}).encode())
    with pytest.raises(SlurmUnavailable, match="'no'"):
        reader.read()
    fake_slurm.answers(what, whole)
    assert len(reader.read().allocations) == 14


def test_remarks(fake_slurm: FakeSlurm) -> None:
    """What stands on stderr and in `warnings` is told once, with the pass that it came with."""
    reader = answering(fake_slurm, "24.11")
    whole = sample("24.11", "nodes.v42.json")
    fake_slurm.answers("nodes", json.dumps(whole | {"warnings": [{"description": "old"}]}).encode())
    fake_slurm.does("jobs", "echo hm >&2")
    reader.read()
    assert reader.remarks == ["squeue: hm", f"{' '.join(ASK_NODES)}: 'old'"]
    fake_slurm.answers("nodes", json.dumps(whole).encode())
    fake_slurm.does("jobs", "")
    reader.read()
    assert reader.remarks == []


def test_future_nodes(fake_slurm: FakeSlurm) -> None:
    """A FUTURE node is left out, unless an allocation holds it."""
    reader = answering(fake_slurm, "24.11")
    whole = sample("24.11", "nodes.v42.json")
    for row in whole["nodes"]:
        if row["name"] in {"d012", "n3"}:
            row["state"] = ["FUTURE"]
    fake_slurm.answers("nodes", json.dumps(whole).encode())
    nodes = reader.read().nodes
    assert "d012" not in nodes
    assert nodes["n3"].base == "FUTURE"

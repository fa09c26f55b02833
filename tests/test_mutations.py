"""What a broken transport, or a version that we do not know, does to an answer never makes a bad node fit.

The guarantee. An answer with one fault in it is refused as a whole (SlurmError: nothing is written, lifted or
retired), or it is a snapshot in which

* every allocation unit of the whole answer is there, in its generation: a live unit never counts as gone, and
  never as a new one, since either would lift its exclusion;
* a unit that is understood has all its nodes, or one of which the node table has no row;
* every bad node is judged at least as bad, or has no verdict (its state is not understood, or its row is gone).

By segment_health.decide that is enough: only a unit that is understood and whose every node has a verdict can be
found fit, a node without one keeps its part of the last decision, and so does a unit that is not understood. The
guarantee does not say that nothing fit is ever excluded: a fault may cost a pass, and no more.

The faults: an answer cut at any byte; a byte overwritten by a line break, NUL, a space or 0xff; a row or record
twice, or in another place; of JSON and of pyslurm's rows any member, at any depth, missing, renamed, or with a
value of another type, null, "not set", negative, empty; of text any field missing, blank, or with a value of
another type.

What is not among them, since no parser could tell it from a true answer:

* one well-formed value in the place of another of its kind: a digit, a letter, a word that Slurm has, a list of
  words with one of them gone or exchanged; in JSON a number that lost its last digits to white space;
* whole rows missing: text cut at the end of a line (the command's exit status says that), `"jobs": []`, an empty
  `squeue`;
* in squeue's text "N/A" for the task where the job has the array's own id, and "N/A" for the leader of another
  component of a heterogeneous job: that is how a regular job prints;
* in pyslurm's rows None for a task's number, and for the array of task 0: that is how pyslurm gives task 0, and a
  regular job.

SEGMENT_HEALTH_EXAMPLES=100000 says how many examples are tried, all tests of this file together.
"""

from __future__ import annotations

import copy
import json
import os
import re
from dataclasses import dataclass
from datetime import timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from segment_health.unit import units_of
from slurm.commands import job_rows as _job_rows
from slurm.commands import node_rows as _node_rows
from slurm.commands.records import parse_saved_jobs
from slurm.errors import SlurmError
from slurm.json.answer import JobRow, JsonAnswer, NodeRow
from slurm.node import Node
from slurm.pyslurm import rows as _pyslurm_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm.job import Allocation

SAMPLES = Path(__file__).parent / "data/samples"
NO_VAL = 4294967294
TESTS = 7
EXAMPLES = int(os.environ.get("SEGMENT_HEALTH_EXAMPLES", "2800")) // TESTS
budget = settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@dataclass(frozen=True)
class Facts:
    """What is decided on: nodes, allocations, or both."""

    nodes: Mapping[str, Node]
    allocations: tuple[Allocation, ...] = ()


# --- the answers -------------------------------------------------------------------------------------------


def read_json(wanted: str) -> Callable[[bytes], Facts]:
    """Return what reads an answer of Slurm's commands or slurmrestd."""

    def read(data: bytes) -> Facts:
        answer = JsonAnswer("it")
        answer.feed(data)
        answer.close(wanted)
        return Facts(answer.nodes, tuple(answer.allocations.values()))

    return read


def read_nodes(data: bytes) -> Facts:
    """Read `scontrol show nodes --oneliner`."""
    return Facts(_node_rows.parse_nodes(data))


def read_queue(data: bytes) -> Facts:
    """Read what the live job query prints."""
    return Facts({}, _job_rows.parse_jobs(data))


def read_records(data: bytes) -> Facts:
    """Read saved `scontrol show jobs`."""
    return Facts({}, parse_saved_jobs(data, timezone.utc))


def read_pyslurm(wanted: str) -> Callable[[object], Facts]:
    """Return what reads pyslurm's rows, which cross from the child as JSON of ours."""

    def read(rows: Any) -> Facts:
        if wanted == "nodes":
            return Facts(_pyslurm_rows.parse_nodes(rows))
        return Facts({}, _pyslurm_rows.parse_jobs(rows))

    return read


TEXTS: dict[str, Callable[[bytes], Facts]] = {
    **{
        f"{version}/scontrol_show_nodes_oneline.txt": read_nodes
        for version in ("22.05", "24.11", "25.11", "26.05")
    },
    **{f"{version}/scontrol_show_jobs.txt": read_records for version in ("22.05", "24.11", "25.11", "26.05")},
    "22.05-hostile/scontrol_show_nodes_oneline.txt": read_nodes,
    "22.05-hostile/scontrol_show_jobs.txt": read_records,
    "22.05-hostile/scontrol_show_jobs_oneline.txt": read_records,
    "22.05-hostile/squeue.txt": read_queue,
    **{f"forms/{version}/nodes.txt": read_nodes for version in ("23.02", "26.05")},
    "forms/26.05/squeue.txt": read_queue,
}
JSONS = {
    "22.05/sinfo.json": "nodes",
    "22.05/squeue.json": "jobs",
    **{f"24.11/nodes.{form}.json": "nodes" for form in ("v40", "v42")},
    **{f"24.11/squeue.{form}.json": "jobs" for form in ("v40", "v42")},
    **{f"25.11/nodes.{form}.json": "nodes" for form in ("v42", "v44")},
    **{f"25.11/squeue.{form}.json": "jobs" for form in ("v42", "v44")},
    "26.05/nodes.v42.json": "nodes",
    "26.05/squeue.v42.json": "jobs",
    "forms/23.02/squeue.v0.0.39.json": "jobs",
    "forms/26.05/nodes.v0.0.45+complex.json": "nodes",
    "forms/26.05/squeue.v0.0.45+complex.json": "jobs",
    **{f"{version}/rest_v0.0.42_nodes.json": "nodes" for version in ("24.11", "25.11", "26.05")},
    **{f"{version}/rest_v0.0.42_jobs.json": "jobs" for version in ("24.11", "25.11", "26.05")},
}
PYSLURM = {
    f"{version}/pyslurm_{wanted}.json": wanted
    for version in ("22.05", "24.11", "25.11")
    for wanted in ("nodes", "jobs")
}
READ = {
    "nodes": {*NodeRow.model_fields},
    "jobs": {*JobRow.model_fields},
    "pyslurm-nodes": {*_pyslurm_rows.NodeRow.model_fields},
    "pyslurm-jobs": {*_pyslurm_rows.JobRow.model_fields},
}


@cache
def text(name: str) -> bytes:
    """Return a recorded answer."""
    return (SAMPLES / name).read_bytes()


def slim(row: dict[str, Any], kind: str) -> dict[str, Any]:
    """Leave out what no model reads, but one: some 140 members in which a mutation can do nothing."""
    return {key: value for key, value in row.items() if key in READ[kind] or key == "comment"}


@cache
def document(name: str) -> dict[str, Any]:
    """Return a recorded JSON answer, its rows slim."""
    answer: dict[str, Any] = json.loads(text(name))
    wanted = JSONS[name]
    return {**answer, wanted: [slim(row, wanted) for row in answer[wanted]]}


@cache
def rows(name: str) -> list[dict[str, Any]]:
    """Return pyslurm's rows, slim, as the child sends them."""
    return [slim(row, f"pyslurm-{PYSLURM[name]}") for row in json.loads(text(name)).values()]


@cache
def whole(name: str) -> Facts:
    """Return what the whole answer says."""
    if name in TEXTS:
        return TEXTS[name](text(name))
    if name in PYSLURM:
        return read_pyslurm(PYSLURM[name])(rows(name))
    return read_json(JSONS[name])(text(name))


@cache
def table(name: str) -> frozenset[str]:
    """Name the nodes of the node table beside an answer."""
    folder, file = name.rpartition("/")[0], "scontrol_show_nodes_oneline.txt"
    return frozenset(whole(f"{folder}/{'nodes.txt' if folder.startswith('forms/') else file}").nodes)


# --- the guarantee -----------------------------------------------------------------------------------------


def level(node: Node | None) -> FaultLevel | None:
    """Judge a node as one that a running allocation holds; without a row there is no verdict."""
    return None if node is None else Policy().assess(node).level


def losses(before: Facts, after: Facts, known: frozenset[str]) -> list[str]:
    """Name what the guarantee forbids, of two readings; `known` are the nodes that have a row."""
    found = []
    for name, node in before.nodes.items():
        was, now = level(node), level(after.nodes.get(name))
        if was is not None and was > FaultLevel.NotHandleFault and now is not None and now < was:
            found.append(f"{name} was {was.name} and is {now.name}")
    units = units_of(after.allocations)
    for unit_id, unit in units_of(before.allocations).items():
        if unit_id not in units:
            found.append(f"{unit_id} is gone")
            continue
        now_unit = units[unit_id]
        if unit.understood and not now_unit.understood:
            continue
        if now_unit.generation != unit.generation:
            found.append(f"{unit_id} is of another generation")
        if not (now_unit.nodes >= unit.nodes or now_unit.nodes - known):
            found.append(f"{unit_id} has lost a node")
    return found


def must_hold(name: str, read: Callable[[Any], Facts], mutated: Any) -> None:
    """Read a mutated answer, which must be refused or keep the guarantee."""
    try:
        after = read(mutated)
    except SlurmError:
        return
    assert losses(whole(name), after, table(name)) == []


@pytest.mark.parametrize("name", [*TEXTS, *JSONS, *PYSLURM])
def test_there_is_something_to_lose(name: str) -> None:
    """Each answer has bad nodes or units, and is itself without loss."""
    facts = whole(name)
    assert losses(facts, facts, table(name)) == []
    assert facts.allocations or any(level(node) for node in facts.nodes.values())


def test_losses_are_seen() -> None:
    """A bad node that became fit, and a unit without a node, of another generation, or gone, are losses."""
    facts = whole("24.11/nodes.v42.json")
    fit = {name: Node(name, "IDLE") for name in facts.nodes}
    assert len(losses(facts, Facts(fit), frozenset(fit))) == 5
    jobs = whole("24.11/squeue.v42.json").allocations
    known = table("24.11/squeue.v42.json")
    before = Facts({}, jobs)
    for after in (
        jobs[1:],
        (jobs[0]._replace(start_time=1), *jobs[1:]),
        (jobs[0]._replace(nodes=("n4",)), *jobs[1:]),
    ):
        assert len(losses(before, Facts({}, after), known)) == 1
    assert losses(before, Facts({}, (jobs[0]._replace(nodes=("new",)), *jobs[1:])), known) == []
    assert losses(before, Facts({}, (jobs[0]._replace(state="NEW"), *jobs[1:])), known) == []


# --- JSON and pyslurm: members -----------------------------------------------------------------------------

INFINITE = {"set": True, "infinite": True, "number": 1}
NOT_SET: list[object] = [None, "", NO_VAL, NO_VAL + 1, 2**64 - 1, 2**64 - 2, "Infinity", {"set": False}, INFINITE]
VALUES: list[object] = [
    *NOT_SET, [], {}, "x", "N/A", "(null)", True, False, -1, -NO_VAL, 1.5, [None], ["x"], [[]], {"x": 1},
    {"set": True}, {"set": True, "infinite": False, "number": -1},
    {"set": True, "number": None}, {"set": None, "number": 1}, "n\x00", "\ud800", 10**30,
]  # fmt: skip


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every member and element below a value."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = []
    for key, below in items:
        found += [(*path, key), *places(below, (*path, key))]
    return found


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return what stands at a path."""
    for key in path:
        value = value[key]
    return value


def is_another_true_answer(place: tuple[str | int, ...], old: object, new: object) -> bool:
    """Tell whether no parser could know better: see the top of this file."""
    if place == ("jobs",):
        return new == []
    if place[-1] == "state_flags":
        return new in ([], ["x"])
    is_word = isinstance(place[-1], int) and isinstance(old, str)
    return is_word and isinstance(new, str) and new.isalnum()


def mutated_member(data: st.DataObject, value: Any, start: tuple[str | int, ...]) -> Any:
    """Spoil one member at or below `start`: take it away, rename it, or give it another value."""
    value = copy.deepcopy(value)
    place = data.draw(st.sampled_from([start, *places(at(value, start), start)]))
    parent, key = at(value, place[:-1]), place[-1]
    how = data.draw(st.sampled_from(["remove", "rename", "replace", "replace", "replace"]))
    if how == "replace":
        new = data.draw(st.sampled_from(VALUES))
        assume(not is_another_true_answer(place, parent[key], new))
        parent[key] = copy.deepcopy(new)
    else:
        assume(isinstance(parent, dict))
        old = parent.pop(key)
        if how == "rename":
            parent[data.draw(st.sampled_from([f"{key}s", str(key).upper(), f"_{key}", ""]))] = old
    return value


@given(st.data())
@budget
def test_a_member_of_json(data: st.DataObject) -> None:
    """One member of one row, or beside the rows, is missing, renamed or of another value."""
    name = data.draw(st.sampled_from([*JSONS]))
    answer, wanted = document(name), JSONS[name]
    row = data.draw(st.integers(-1, len(answer[wanted]) - 1))
    start = (wanted, row) if row >= 0 else (data.draw(st.sampled_from([*answer])),)
    mutated = mutated_member(data, answer, start)
    must_hold(name, read_json(wanted), json.dumps(mutated).encode())


def pyslurm_cannot_tell(before: dict[str, Any], after: object) -> bool:
    """Tell whether pyslurm itself gives task 0, or a regular job, so."""
    if not isinstance(after, dict):
        return False
    unset = {key for key in ("array_id", "array_task_id") if before.get(key) and after.get(key, "") in NOT_SET}
    return unset >= {"array_task_id"} or (unset == {"array_id"} and before["array_task_id"] is None)


@given(st.data())
@budget
def test_an_attribute_of_pyslurm(data: st.DataObject) -> None:
    """One attribute of one row is missing, renamed or of another value."""
    name = data.draw(st.sampled_from([*PYSLURM]))
    before = rows(name)
    row = data.draw(st.integers(0, len(before) - 1))
    mutated = mutated_member(data, before, (row,))
    assume(not pyslurm_cannot_tell(before[row], mutated[row]))
    must_hold(name, read_pyslurm(PYSLURM[name]), mutated)


@given(st.data())
@budget
def test_rows_twice_or_elsewhere(data: st.DataObject) -> None:
    """A row that comes twice, in full or changed, is refused; one in another place changes nothing."""
    name = data.draw(st.sampled_from([*JSONS, *PYSLURM]))
    wanted = JSONS.get(name) or PYSLURM[name]
    before = document(name)[wanted] if name in JSONS else rows(name)
    order = data.draw(st.permutations(range(len(before))))
    mutated = [before[index] for index in order]
    read = read_pyslurm(wanted) if name in PYSLURM else lambda some: read_json(wanted)(json.dumps(some).encode())
    shaped = (lambda some: some) if name in PYSLURM else (lambda some: {**document(name), wanted: some})
    after = read(shaped(mutated))
    assert after.nodes == whole(name).nodes
    assert {*after.allocations} == {*whole(name).allocations}
    twice = data.draw(st.sampled_from([row for row in before if is_row_of_something(name, row)]))
    mutated.insert(data.draw(st.integers(0, len(before))), twice)
    with pytest.raises(SlurmError):
        read(shaped(mutated))


def is_row_of_something(name: str, row: dict[str, Any]) -> bool:
    """Tell whether a row is of a node with a name, or of a job that holds nodes."""
    facts = whole(name)
    ids = {*facts.nodes, *(allocation.job_id for allocation in facts.allocations)}
    return str(row.get("name", row.get("job_id", row.get("id")))) in ids


# --- bytes -------------------------------------------------------------------------------------------------

SPOILT = [b"\n", b"\0", b" ", b"\xff"]


@given(st.data())
@budget
def test_bytes_of_json(data: st.DataObject) -> None:
    """JSON that is cut is refused, wherever it is cut; with a byte overwritten it keeps the guarantee."""
    name = data.draw(st.sampled_from([*JSONS]))
    answer = json.dumps(document(name)).encode()
    where = data.draw(st.integers(0, len(answer) - 1))
    read = read_json(JSONS[name])
    with pytest.raises(SlurmError):
        read(answer[:where])
    spoilt = data.draw(st.sampled_from(SPOILT))
    assume(not (answer[where : where + 1].isdigit() and spoilt.isspace()))
    must_hold(name, read, answer[:where] + spoilt + answer[where + 1 :])


@given(st.data())
@budget
def test_cut_text(data: st.DataObject) -> None:
    """Text that is cut within a line is refused."""
    name = data.draw(st.sampled_from([*TEXTS]))
    answer = text(name)
    where = data.draw(st.integers(1, len(answer) - 1))
    assume(answer[where - 1 : where] != b"\n")
    with pytest.raises(SlurmError):
        TEXTS[name](answer[:where])


@given(st.data())
@budget
def test_bytes_of_text(data: st.DataObject) -> None:
    """Text with a byte overwritten keeps the guarantee."""
    name = data.draw(st.sampled_from([*TEXTS]))
    answer = text(name)
    where = data.draw(st.integers(0, len(answer) - 1))
    must_hold(name, TEXTS[name], answer[:where] + data.draw(st.sampled_from(SPOILT)) + answer[where + 1 :])


# --- text: fields ------------------------------------------------------------------------------------------

FIELD = re.compile(rb"(?<![^ \n])[A-Za-z:/]+=")
"""Where a `Key=Value` of scontrol begins."""
WORDS = [b"", b"x", b"-1", b"(null)", b"N/A", b"Unknown", b"4294967294", b"1.5", b"[]", b"\xff", b"n[1-", b"0x5"]


def fields(answer: bytes) -> list[tuple[int, int, int]]:
    """Return begin of key, begin of value and end of every field of scontrol's text."""
    begins = [(found.start(), found.end()) for found in FIELD.finditer(answer)]
    ends = [begin for begin, _ in begins[1:]] + [len(answer)]
    return [
        (begin, value, value + len(answer[value:end].rstrip()))
        for (begin, value), end in zip(begins, ends, strict=True)
    ]


@cache
def fields_of(name: str) -> list[tuple[int, int, int]]:
    """Return the fields of an answer; squeue's are parted by bars and have no key."""
    answer = text(name)
    if TEXTS[name] is not read_queue:
        return fields(answer)
    return [(found.start(), found.start(), found.end() - 1) for found in re.finditer(rb"[^|\n]*\|", answer)]


def is_printed_so(name: str, begin: int, new: bytes) -> bool:
    """Tell whether squeue prints a regular job so: "N/A" for a task of the array's own id, and for a leader."""
    if TEXTS[name] is not read_queue or new != b"N/A":
        return False
    row = text(name)[: text(name).index(b"\n", begin)].rpartition(b"\n")[2].split(b"|")
    column = text(name)[:begin].rpartition(b"\n")[2].count(b"|")
    return (column == 2 and row[0] == row[1]) or (column == 3 and row[0] != row[3])


@given(st.data())
@budget
def test_fields_of_text(data: st.DataObject) -> None:
    """One field is missing, blank or of another type; or a line comes twice."""
    name = data.draw(st.sampled_from([*TEXTS]))
    answer = text(name)
    begin, value, end = data.draw(st.sampled_from(fields_of(name)))
    how = data.draw(st.sampled_from(["remove", "replace", "replace", "twice"]))
    if how == "remove":
        mutated = answer[:begin] + answer[end:].removeprefix(b" ")
    elif how == "replace":
        new = data.draw(st.sampled_from(WORDS))
        assume(not is_printed_so(name, begin, new))
        mutated = answer[:value] + new + answer[end:]
    else:
        start, stop = answer.rfind(b"\n", 0, begin) + 1, answer.find(b"\n", begin) + 1
        mutated = answer[:stop] + answer[start:stop] + answer[stop:]
    must_hold(name, TEXTS[name], mutated)

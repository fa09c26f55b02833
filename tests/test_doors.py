"""Every door of every version, side by side: the same cluster is the same nodes and units whatever was asked.

What real clusters of four versions answered about one small scenario is read door by door. The answers of one
version were taken within some seconds or minutes of each other, so a few differ; each such difference is listed
here with its reason, and one that is no longer there fails the test too.

The jobs of the text door are the saved `scontrol show jobs` here, in which `scontrol_show_job_array.txt` stands
again (see test_records.py). Its live job query, and every form of JSON that a version has, are in test_forms.py.

`python tests/test_doors.py` writes the version table of docs/sources.md anew.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.unit import unit_id_of, units_of
from slurm.commands import node_rows as _node_rows
from slurm.commands.records import parse_saved_jobs
from slurm.json.answer import JsonAnswer
from slurm.pyslurm import rows as _pyslurm_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm.job import Allocation
    from slurm.node import Node

PROJECT = Path(__file__).parent.parent
SAMPLES = PROJECT / "tests/data/samples"
FORMS = SAMPLES / "forms"
PAGE = PROJECT / "docs/sources.md"
BEGIN, END = "<!-- versions: python tests/test_doors.py -->\n", "<!-- /versions -->\n"


@dataclass(frozen=True)
class Answer:
    """What one door of one version answered; `form` is the plugin that made the JSON, or pyslurm's own version."""

    version: str
    door: str
    form: str
    nodes_file: str
    jobs_file: str

    def __str__(self) -> str:
        return f"{self.version}-{self.door}-{self.form or 'text'}"

    def path(self, file: str) -> Path:
        """Return where a file of this version is."""
        return SAMPLES / self.version / file

    def nodes(self) -> Mapping[str, Node]:
        """Read the nodes."""
        data = self.path(self.nodes_file).read_bytes()
        if self.door == "text":
            return _node_rows.parse_nodes(data)
        if self.door == "pyslurm":
            return _pyslurm_rows.parse_nodes(json.loads(data))
        return self._answer("nodes", data).nodes

    def allocations(self) -> dict[str, Allocation]:
        """Read the jobs that hold nodes, by their own ids."""
        data = self.path(self.jobs_file).read_bytes()
        if self.door == "text":
            allocations: Iterable[Allocation] = parse_saved_jobs(data, timezone.utc)
        elif self.door == "pyslurm":
            allocations = _pyslurm_rows.parse_jobs(json.loads(data))
        else:
            allocations = self._answer("jobs", data).allocations.values()
        return {allocation.job_id: allocation for allocation in allocations}

    def _answer(self, wanted: str, data: bytes) -> JsonAnswer:
        answer = JsonAnswer(str(self))
        answer.feed(data)
        answer.close(wanted)
        return answer


def text(version: str) -> Answer:
    """Name what scontrol printed."""
    return Answer(version, "text", "", "scontrol_show_nodes_oneline.txt", "scontrol_show_jobs.txt")


def commands(version: str, form: str) -> Answer:
    """Name what the commands wrote as JSON in the form of one data_parser."""
    short = form.replace("v0.0.", "v")
    return Answer(version, "json", form, f"nodes.{short}.json", f"squeue.{short}.json")


def slurmrestd(version: str) -> Answer:
    """Name what slurmrestd answered."""
    form = "v0.0.42"
    return Answer(version, "rest", form, f"rest_{form}_nodes.json", f"rest_{form}_jobs.json")


def pyslurm(version: str, release: str) -> Answer:
    """Name what pyslurm loaded."""
    return Answer(version, "pyslurm", release, "pyslurm_nodes.json", "pyslurm_jobs.json")


ANSWERS = (
    text("22.05"),
    Answer("22.05", "json", "v0.0.38", "sinfo.json", "squeue.json"),
    pyslurm("22.05", "22.5.3"),
    text("24.11"),
    commands("24.11", "v0.0.40"),
    commands("24.11", "v0.0.42"),
    slurmrestd("24.11"),
    pyslurm("24.11", "24.11.0"),
    text("25.11"),
    commands("25.11", "v0.0.42"),
    commands("25.11", "v0.0.44"),
    slurmrestd("25.11"),
    pyslurm("25.11", "25.11.2"),
    text("26.05"),
    commands("26.05", "v0.0.42"),
    slurmrestd("26.05"),
)
TEXT = {answer.version: answer for answer in ANSWERS if answer.door == "text"}
OTHERS = [answer for answer in ANSWERS if answer.door != "text"]


# --- the doors of one version ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """What a door shows beside what the text door of its version shows, and why: flags, or a whole state."""

    why: str
    more: frozenset[str] = frozenset()
    state: tuple[str, ...] = ()

    def applied_to(self, state: tuple[str, ...]) -> tuple[str, ...]:
        """Return the state that is expected instead; it must be another one."""
        base, *flags = state
        expected = self.state or (base, *sorted({*flags, *self.more}))
        assert expected != state, "nothing differs"
        return expected


RESERVED = Difference(
    "asked later: the reservation for maintenance had begun", frozenset({"MAINTENANCE", "RESERVED"})
)
PINGED = Difference(
    "asked later: the first ping round had found that nobody answers", frozenset({"NOT_RESPONDING"})
)
NOT_MIXED = Difference(
    "22.05 makes MIXED in its commands, and pyslurm 22.5 does not repeat it", state=("ALLOCATED",)
)
DECLARED = [f"d{number:03}" for number in range(1, 13)]

DIFFERENCES: dict[str, dict[str, Difference]] = {
    "22.05-pyslurm-22.5.3": {"n3": NOT_MIXED, "n4": NOT_MIXED},
    "24.11-rest-v0.0.42": {"d007": RESERVED},
    "24.11-pyslurm-24.11.0": {"d007": RESERVED},
    "25.11-rest-v0.0.42": dict.fromkeys(DECLARED, PINGED),
    "25.11-pyslurm-25.11.2": dict.fromkeys(DECLARED, PINGED),
    "26.05-rest-v0.0.42": {"d007": RESERVED},
}


@pytest.mark.parametrize("answer", OTHERS, ids=str)
def test_nodes(answer: Answer) -> None:
    """Nodes, their states and reasons are those of the text door, but for the differences that are listed."""
    expected = TEXT[answer.version].nodes()
    listed = DIFFERENCES.get(str(answer), {})
    nodes = answer.nodes()
    assert nodes.keys() == expected.keys()
    states = {
        name: listed[name].applied_to(node.state) if name in listed else node.state
        for name, node in expected.items()
    }
    assert {name: node.state for name, node in nodes.items()} == states
    assert reasons(nodes) == reasons(expected)


@pytest.mark.parametrize("answer", OTHERS, ids=str)
def test_units(answer: Answer) -> None:
    """Units, their generations and nodes, and all else that an allocation says, are those of the text door."""
    expected = TEXT[answer.version].allocations()
    assert answer.allocations() == expected
    assert units_of(answer.allocations().values()) == units_of(expected.values())


def reasons(nodes: Mapping[str, Node]) -> dict[str, tuple[str | None, str | None, int | None]]:
    """Return why nodes are as they are, who said so, and when."""
    return {name: (node.reason, node.reason_user, node.reason_since) for name, node in nodes.items()}


def test_every_difference_is_of_an_answer() -> None:
    """The list speaks of answers that are read."""
    assert DIFFERENCES.keys() <= {str(answer) for answer in OTHERS}


def test_future_nodes_have_no_name_in_pyslurm() -> None:
    """A row without a name, which pyslurm 22.5 adds where nodes are FUTURE, is passed over, and nothing else."""
    rows = json.loads((SAMPLES / "22.05/pyslurm_nodes.json").read_text())
    assert {name for name, row in rows.items() if row["name"] is None} == {"null"}
    assert _pyslurm_rows.parse_nodes(rows).keys() == rows.keys() - {"null"}


# --- the versions ------------------------------------------------------------------------------------------

OF_24_11 = {
    **{("1", task): {"n1"} for task in "02345"},
    ("1", "6"): {"n3"},
    **{("2", task): {"n2", "n3"} for task in "123"},
    **{("3", task): {node} for task, node in (("1", "n1"), ("5", "n1"), ("9", "n2"), ("13", "n2"), ("17", "n3"))},
}


@dataclass(frozen=True)
class Run:
    """How the run of one version differs from that of 24.11, by the text door."""

    why: str
    states: dict[str, tuple[str, ...]]
    units: dict[tuple[str, str], set[str]]


def renamed(**ids: str) -> dict[tuple[str, str], set[str]]:
    """Return the units of 24.11 under other array ids."""
    names = {key.removeprefix("_"): value for key, value in ids.items()}
    return {(names.get(array, array), task): nodes for (array, task), nodes in OF_24_11.items()}


RUNS = {
    "22.05": Run(
        "n1 was drained while idle, so all ran on the other nodes, and the heterogeneous job as well; the "
        "reservation had begun",
        {
            "n1": ("IDLE", "DRAIN"),
            "n3": ("MIXED",),
            "n4": ("MIXED",),
            "d007": ("UNKNOWN", "MAINTENANCE", "NOT_RESPONDING", "RESERVED"),
        },
        {
            **{("1", task): {"n2"} for task in "023456"},
            ("2", "1"): {"n2", "n3"},
            **{("3", task): {"n4"} for task in ("1", "5", "9", "13", "17")},
            ("9", "9"): {"n3", "n4"},
        },
    ),
    "25.11": Run(
        "asked before the first ping round, when the reservation had begun",
        {
            **dict.fromkeys(DECLARED, ("UNKNOWN",)),
            "d003": ("UNKNOWN", "DRAIN"),
            "d004": ("DOWN",),
            "d005": ("UNKNOWN", "FAIL"),
            "d006": ("DOWN", "DRAIN"),
            "d007": ("UNKNOWN", "MAINTENANCE", "RESERVED"),
        },
        OF_24_11,
    ),
    "26.05": Run("tasks of the first array took the ids between", {}, renamed(_2="8", _3="9")),
}


@pytest.mark.parametrize("version", RUNS)
def test_states_of_a_version(version: str) -> None:
    """Node states and reasons are those of 24.11, but for what is listed; times are each run's own."""
    expected, nodes = TEXT["24.11"].nodes(), TEXT[version].nodes()
    differs = {name: node.state for name, node in nodes.items() if node.state != expected[name].state}
    assert differs == RUNS[version].states, RUNS[version].why
    assert nodes.keys() == expected.keys()
    words = {name: said[:2] for name, said in reasons(nodes).items()}
    assert words == {name: said[:2] for name, said in reasons(expected).items()}


@pytest.mark.parametrize("version", TEXT)
def test_units_of_a_version(version: str) -> None:
    """Units and their nodes are those of 24.11, but for what is listed with the reason; none was requeued."""
    run = RUNS.get(version, Run("itself", {}, OF_24_11))
    units = units_of(TEXT[version].allocations().values())
    assert {(unit.job_id, unit.task_id): set(units[unit].nodes) for unit in units} == run.units, run.why
    assert {unit.generation.restart_count for unit in units.values()} == {0}
    assert all(unit.understood for unit in units.values())


def test_a_heterogeneous_job() -> None:
    """Both components of the one that ran, in 22.05, are the leader's unit through every door."""
    for answer in ANSWERS:
        if answer.version == "22.05":
            parts = [job for job in answer.allocations().values() if job.het_job_id is not None]
            assert sorted(job.job_id for job in parts) == ["10", "9"]
            assert {unit_id_of(job).job_id for job in parts} == {"9"}


# --- the version table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [one for one in ANSWERS if one.door in {"json", "rest"}], ids=str)
def test_the_form_is_the_answers_own(answer: Answer) -> None:
    """What the table says of a JSON answer's form stands in that answer."""
    for file in (answer.nodes_file, answer.jobs_file):
        plugin = json.loads(answer.path(file).read_bytes())["meta"]["plugin"]
        assert plugin.get("data_parser", plugin["type"]).rpartition("/")[2] == answer.form


# The e2e of publishing goes through text, json and rest.
CI = "CI, `make test-matrix`"
"""CI has the Slurm of its own machine, Debian 12 or 13."""
MATRIX = "`make test-matrix`"
BY_HAND = "by hand"
LIVE = {
    **{(version, door): CI for version in ("22.05", "24.11") for door in ("text", "json", "rest")},
    ("23.02", "text"): BY_HAND,
    **{("23.11", door): BY_HAND for door in ("text", "json", "rest")},
    **{("25.11", door): BY_HAND for door in ("text", "json", "rest", "pyslurm")},
    **{("26.05", door): MATRIX for door in ("text", "json", "rest")},
}
NEEDS = {("23.02", "json"): "; jobs only where there is a slurmdbd"}
OF_JSON = re.compile(r"squeue\.(v[0-9.]+[0-9](?:\+complex)?)\.json")


def release(version: str) -> str:
    """Return the whole version of the Slurm that was recorded."""
    found = re.search(r"\d+\.\d+\.\d+", (FORMS / version / "version.txt").read_text())
    assert found is not None
    return found[0]


def recorded(version: str, door: str) -> str:
    """Name the forms in which answers of a door were recorded; test_forms.py reads those that are in FORMS."""
    if door == "text":
        return "yes"
    forms = {one.form for one in ANSWERS if (one.version, one.door) == (version, door)}
    plugin = "pyslurm" if door == "pyslurm" else "data_parser"
    if door == "json":
        found = [OF_JSON.fullmatch(path.name) for path in (FORMS / version).iterdir()]
        forms |= {match[1] for match in found if match}
        if forms == {"v0.0.38"}:
            plugin = "openapi"
    plain = sorted(form for form in forms if not form.endswith("+complex"))
    more = ", each also `+complex`" if len(plain) < len(forms) else ""
    assert len(forms) == len(plain) * (2 if more else 1)
    needs = NEEDS.get((version, door), "")
    return f"{plugin} {', '.join(plain)}{more}{needs}" if forms else "no"


def table() -> str:
    """Write the version table in Markdown."""
    rows = [
        ("Slurm", "`--source`", "recorded answers", "a living Slurm"),
        ("---",) * 4,
        *(
            (release(version), door, recorded(version, door), LIVE.get((version, door), "no"))
            for version in sorted(path.name for path in FORMS.iterdir())
            for door in ("text", "json", "rest", "pyslurm")
            if recorded(version, door) != "no" or (version, door) in LIVE
        ),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page_with(new_table: str) -> str:
    """Return the page with this table between its markers."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has no line {BEGIN}"
    assert end, f"{PAGE.name} has no line {END}"
    return f"{before}{BEGIN}\n{new_table}\n{END}{after}"


def test_the_page_has_the_table() -> None:
    """The documentation says of every version and door what is read and tested here."""
    assert PAGE.read_text() == page_with(table()), "python tests/test_doors.py writes it anew"


def test_every_recorded_answer_is_read() -> None:
    """No answer lies there that no row of the table names, but for those with tests of their own."""
    elsewhere = {"version.txt", "scontrol_show_job_array.txt", "sinfo.json", "rest_v0.0.42_ping.json"}
    for version in TEXT:
        read = {file for one in ANSWERS if one.version == version for file in (one.nodes_file, one.jobs_file)}
        there = {path.name for path in (SAMPLES / version).iterdir()}
        assert read <= there
        assert there - read <= elsewhere


if __name__ == "__main__":
    PAGE.write_text(page_with(table()))
    sys.stdout.write(f"{PAGE.name}: written\n")

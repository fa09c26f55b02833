"""Logs of the tests: the labelled extracts under tests/data, and lines made an extract."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import tomli

from segment_health.attribution.analysers.finding import Action, Extract, Finding
from segment_health.attribution.analysers.kind import Blame, Kind
from segment_health.attribution.analysers.pieces import lines_of
from segment_health.attribution.analysers.rules import Rules
from segment_health.attribution.analysers.table import KINDS

DATA = Path(__file__).parents[2] / "data" / "attribution"


class Labelled(NamedTuple):
    """A log with what a person makes of it; `earlier` are the logs of the cycles before."""

    name: str
    is_misleading: bool
    category: str
    action: Action
    nodes: tuple[str, ...]
    step: int | None
    log: str
    earlier: tuple[str, ...]


def labelled() -> list[Labelled]:
    """Return all that are there, in the order of their files."""
    return [
        Labelled(
            entry["name"],
            entry.get("is_misleading", False),
            entry["category"],
            Action(entry["action"]),
            tuple(entry.get("nodes", ())),
            entry.get("step"),
            entry["log"],
            tuple(entry.get("earlier", ())),
        )
        for path in sorted(DATA.glob("*.toml"))
        for entry in tomli.loads(path.read_text())["extract"]
    ]


def extract(text: str) -> Extract:
    """Make a log an extract that is whole, as reading it does."""
    data = text.lstrip("\n").encode()
    return Extract(tuple(lines_of(data, 1)), len(data))


def judged(*logs: str) -> Finding:
    """Have the logs of consecutive cycles judged; return what is found of the last one."""
    found: list[Finding] = []
    for log in logs:
        found.append(Rules().analyse(extract(log), tuple(found)))
    return found[-1]


def confusion(cases: list[Labelled]) -> str:
    """Return what people and the rules say of logs as a table of the documentation."""
    actions = list(Action)
    said = [(case.action, judged(*case.earlier, case.log).action) for case in cases]
    rows = [["a person says", *(f"rules: {action.value}" for action in actions)], ["---"] * (len(actions) + 1)]
    rows += [[person.value, *(str(said.count((person, rules))) for rules in actions)] for person in actions]
    return _table(rows)


def kinds() -> str:
    """Return the table of failures as one of the documentation."""
    rows = [["category", "it means", "STOP", "blames"], ["---"] * 4]
    rows += [[f"`{kind.category}`", kind.meaning, _stop_of(kind), _blame_of(kind)] for kind in KINDS]
    return _table(rows)


def _stop_of(kind: Kind) -> str:
    if kind.repeats is None:
        return "never"
    cycles = f"{kind.repeats + kind.is_outage} cycles"
    return f"at once, or {cycles}" if kind.is_certain else cycles


def _blame_of(kind: Kind) -> str:
    return {
        Blame.NOBODY: "",
        Blame.SPEAKER: "the host that says so",
        Blame.NAMED: "the node that is named",
        Blame.PEERS: "the one whom several do not reach",
        Blame.ODD: "the host that says so, where others do not",
    }[kind.blame]


def _table(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)

"""Logs of the tests: the labelled extracts under tests/data, and lines made an extract."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import tomli

from segment_health.attribution.analysers.finding import Action, Extract, Finding, Line
from segment_health.attribution.analysers.rules import Rules

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
    """Make a log an extract that is whole."""
    lines = text.lstrip("\n").splitlines()
    return Extract(tuple(Line(number, line) for number, line in enumerate(lines, 1)), len(text))


def judged(*logs: str) -> Finding:
    """Have the logs of consecutive cycles judged; return what is found of the last one."""
    found: list[Finding] = []
    for log in logs:
        found.append(Rules().analyse(extract(log), tuple(found)))
    return found[-1]

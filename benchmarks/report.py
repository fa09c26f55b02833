"""Makes the part of docs/performance.md that was measured, and its plots, from results.json."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.goals import GOALS

if TYPE_CHECKING:
    from benchmarks.goals import Goal, Results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- made by `make bench` -->\n", "<!-- end of what `make bench` makes -->\n"
PLOTS = {
    "one_shot": "One pass as a process",
    "steady": "A steady pass",
    "poked": "Drain to artifact",
    "memory": "Memory of the loop",
    "exclusions": "Many exclusions at once",
    "consumer": "The consumer",
    "rpcs": "What slurmctld counts",
    "growth": "Growth",
}
"""A section and a plot for each question."""


def page(results: Results) -> str:
    """Return the part between the markers: the table, the machine, and a section for each question."""
    lines = [
        "",
        "| figure | goal | measured | |",
        "|---|--:|--:|---|",
        *(_row(goal, results) for goal in GOALS),
        "",
    ]
    unmet = [goal for goal in GOALS if goal.question in results and not goal.met(results) and goal.why]
    lines += [f"- {goal.name}, {goal.text}: {goal.why}" for goal in unmet] + [""] * bool(unmet)
    if machine := results.get("machine"):
        lines += [f"Measured on {results['date']} by `{results['command']}`:", ""]
        lines += [f"- {name.replace('_', '-')}: {value}" for name, value in machine.items()]
        lines += [f"- measured again: {name}, on {when}" for name, when in results.get("again", {}).items()] + [""]
    for question, title in PLOTS.items():
        if question in results:
            image = f"images/performance-{question.replace('_', '-')}.svg"
            lines += [f"### {title}", "", _compared(question), "", f"![{title}]({image})", ""]
    return "\n".join(lines) + "\n"


def _compared(question: str) -> str:
    """Say what is compared with what, as the module that measures it does, and how to measure it alone."""
    tree = ast.parse((ROOT / "benchmarks" / f"{question}.py").read_text())
    told = " ".join((ast.get_docstring(tree) or "").split())
    return f"{told} Alone: `make bench ARGS='--only {question}'`."


def made_part(text: str) -> str:
    """Return what stands between the markers of a page."""
    return text.partition(BEGIN)[2].partition(END)[0]


def write(results: Results) -> None:
    """Put the page's part and the plots in place; what was written by hand around that part stays."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + page(results) + END + rest.partition(END)[2])
    from benchmarks import plots  # noqa: PLC0415 - matplotlib is of `make bench` alone

    plots.draw(results, IMAGES)


def read() -> Results:
    """Return what was measured last; nothing where nothing was."""
    if not RESULTS.exists():
        return {}
    found: Results = json.loads(RESULTS.read_text())
    return found


def _row(goal: Goal, results: Results) -> str:
    bound = f"at {'least' if goal.least else 'most'} {goal.limit:g} {goal.unit}"
    if goal.question not in results:
        return f"| {goal.name}, {goal.text} | {bound} | | not measured |"
    verdict = "met" if goal.met(results) else "**not met**"
    return f"| {goal.name}, {goal.text} | {bound} | {goal.take(results):.4g} {goal.unit} | {verdict} |"

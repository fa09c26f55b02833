"""The tables of docs/reliability.md: what the last full run found."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .fault import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .kills import Kills
    from .scenario import Report

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- made by `make test-faults` -->", "<!-- end of what was made -->"
TITLES = {
    "storage": "Storage",
    "content": "What lies in the directory",
    "process": "The publisher's process",
    "clock": "Clocks",
    "slurm": "slurmctld",
    "cluster": "The cluster",
    "commands": "Slurm's commands",
}
"""Headings, by the module that a fault is in, in the order of the page."""


def render(singles: Sequence[Report], pairs: Sequence[Report], kills: Sequence[Kills]) -> str:
    """Return the tables, and a sentence that sums them up."""
    lines = [_sum(singles, pairs, kills)]
    ordered = sorted(singles, key=lambda report: list(TITLES).index(_kind(report)))
    for kind, reports in groupby(ordered, key=_kind):
        lines += ["", f"### {TITLES[kind]}", "", "| fault | what it attacks | how | old for | back in |"]
        lines += ["|---|---|---|--:|--:|"]
        for report in reports:
            fault = FAULTS[report.faults[0]]
            lines.append(f"| {fault.name} | {fault.attacks} | {fault.how} | {_figures(report)} |")
    lines += [
        "",
        "### Two at once",
        "",
        "| fault | and in the middle of it | old for | back in |",
        "|---|---|--:|--:|",
    ]
    lines += [f"| {report.faults[0]} | {report.faults[1]} | {_figures(report)} |" for report in pairs]
    lines += [
        "",
        "### Kills at random instants",
        "",
        "| what was killed | kills | left a temporary file |",
        "|---|--:|--:|",
    ]
    for kill in kills:
        what = "a publisher forked from one that has everything imported, pass after pass"
        if kill.whole:
            what = "`segment-health publish --once` on a real slurmctld, from its start on"
        lines.append(f"| {what} | {kill.forked + kill.whole:,} | {kill.left:,} |")
    return "\n".join(lines)


def write(text: str, page: Path = PAGE) -> None:
    """Put the tables between the page's markers."""
    before, after = _around(page.read_text(encoding="utf-8"))
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def names_in(page: Path = PAGE) -> set[tuple[str, ...]]:
    """Return the faults and pairs of faults that the page's tables name."""
    text = page.read_text(encoding="utf-8")
    before, after = _around(text)
    made = text[len(before) : len(text) - len(after)]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in made.splitlines() if "|" in line
    ]
    return {row[:1] for row in rows if len(row) == 5} | {row[:2] for row in rows if len(row) == 4}


def figures_in(page: Path = PAGE) -> dict[str, int]:
    """Return the page's own sum: `{"faults": 51, "pairs": 16, "kills": 1150, "violations": 0}`."""
    text = page.read_text(encoding="utf-8").replace(",", "")
    return {
        what: int(number) for number, what in re.findall(r"\*\*(\d+) (faults|pairs|kills|violations)\*\*", text)
    }


def _sum(singles: Sequence[Report], pairs: Sequence[Report], kills: Sequence[Kills]) -> str:
    everything: list[Report | Kills] = [*singles, *pairs, *kills]
    killed = sum(kill.forked + kill.whole for kill in kills)
    broken = sum(len(report.violations) for report in everything)
    looks = sum(report.looks for report in everything)
    recovery = max(report.recovery for report in (*singles, *pairs))
    return (
        f"The last full run: **{len(singles)} faults**, **{len(pairs)} pairs**, **{killed:,} kills**, "
        f"**{broken} violations**; {looks:,} looks of a reader at five artifacts. After the end of a fault every "
        f"reader was told the truth within {recovery:.1f} s."
    )


def _kind(report: Report) -> str:
    return FAULTS[report.faults[0]].kind


def _figures(report: Report) -> str:
    return f"{report.lag:.1f} s | {report.recovery:.1f} s"


def _around(text: str) -> tuple[str, str]:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has no line {BEGIN}"
    assert end, f"{PAGE} has no line {END}"
    return before, after


def missing(played: Iterable[tuple[str, ...]], page: Path = PAGE) -> set[tuple[str, ...]]:
    """Return the faults and pairs that the page does not name."""
    return set(played) - names_in(page)

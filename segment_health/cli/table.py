"""An overview as tables in a terminal: the home of rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from . import overview

if TYPE_CHECKING:
    from types import TracebackType

    from segment_health.survey import Survey

_COLOURS = {
    "OK": "bold green",
    "WARNING": "bold yellow",
    "UNKNOWN": "bold red",
    "excluded": "red",
    "stale": "yellow",
    "foreign": "magenta",
    "overridden": "cyan",
    "SeparateFault": "red",
    "PreSeparateFault": "yellow",
}
_NARROWEST = 72
"""Columns of a terminal in which a table has room for all of its own; below that, rich leaves some out."""
_WHOLE = {"unit", "state", "since (UTC)"}
"""Columns whose words are never broken."""


def draw(found: Survey) -> str:
    """Return tables for the terminal that is our stdout: as wide as it is, in its colours (see NO_COLOR)."""
    console = Console()
    with console.capture() as capture:
        console.print(_fitting(found, console.width))
    return capture.get().rstrip("\n")


class Screen:
    """A part of the terminal that is drawn again and again, in place."""

    def __init__(self) -> None:
        # No thread draws: a fork in mid-drawing would hold its lock for ever.
        self._live = Live(auto_refresh=False, redirect_stderr=False, redirect_stdout=False)

    def __enter__(self) -> Screen:  # noqa: PYI034 - Self is not in Python 3.10
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, found: Survey | str) -> None:
        """Draw an overview, or one line, where the last one was."""
        shown = _first_line(found) if isinstance(found, str) else _fitting(found, self._live.console.width)
        self._live.update(shown, refresh=True)


def _fitting(found: Survey, width: int) -> RenderableType:
    """Return tables, or where they have no room lines, which the terminal folds."""
    if width >= _NARROWEST:
        return _tables(found)
    verdict, *lines = overview.lines(found)
    return Group(_first_line(verdict), Text("\n".join(lines), overflow="fold"))


def _tables(found: Survey) -> RenderableType:
    parts: list[RenderableType] = [_first_line(str(overview.verdict(found)))]
    publishers, ended = overview.publisher_rows(found)
    if publishers:
        parts.append(_of_publishers(publishers))
    if ended:
        parts.append(Text(f"and {ended} more publishers that ended"))
    units, healthy = overview.unit_rows(found)
    if units:
        parts.append(_of_units(units))
    parts.append(Text(f"{healthy} unit{'' if healthy == 1 else 's'} not excluded"))
    parts += [Text(f"note: {remark}", "dim") for remark in overview.remarks(found)]
    return Group(*parts)


def _first_line(text: str) -> Text:
    word, _, why = text.partition(":")
    return Text.assemble((word, _COLOURS.get(word, "")), f":{why}")


def _of_publishers(rows: list[overview.PublisherRow]) -> Table:
    table = _table("publisher", "last complete pass (UTC)", "units", "policy")
    for row in rows:
        # Text, never a string: what stands in brackets would be markup.
        table.add_row(
            Text(f"{row.name}\n{row.where}"),
            Text.assemble(
                (row.life, "green" if row.alive else "bold red"),
                f", {row.age}\n{_short(row.last_pass)}, {row.rhythm}",
            ),
            Text(row.units),
            Text.assemble(row.policy, *((f"\n{need}", "yellow") for need in row.needs)),
        )
    return table


def _of_units(rows: list[overview.UnitRow]) -> Table:
    table = _table("unit", "state", "since (UTC)", "nodes", "reasons, and by whom")
    for row in rows:
        table.add_row(
            Text(row.unit),
            Text.assemble((row.state, _COLOURS[row.state]), "\n", (row.level, _COLOURS.get(row.level, ""))),
            Text(f"{row.age}\n{_short(row.since)}"),
            Text(row.nodes),
            Text.assemble(row.reasons, "\n" if row.reasons else "", (f"by {row.by}", "dim")),
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for heading in headings:
        # What is too long for the terminal goes on in the next line: nothing of it is left out.
        table.add_column(heading, overflow="fold", no_wrap=heading in _WHOLE)
    return table


def _short(time: str) -> str:
    """Cut what a glance does not need from a UTC time: seconds and zone."""
    return time[:16].replace("T", " ")

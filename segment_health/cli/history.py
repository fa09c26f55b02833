"""`segment-health history`: what was decided in a directory, when, by whom and why."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from segment_health.record import brief, one_line, printable, utc

from . import in_force, times
from .command import Command, examples
from .failure import USAGE, Failure, say
from .status import directory_of, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.history import Entry, Reading

_UNIT = re.compile(r"([0-9]{1,20})(?:_([0-9]{1,20}))?", re.ASCII)
_LONGEST = 300
"""Characters of a reason or a list of nodes that a line shows."""


@click.command(
    cls=Command,
    short_help="Show what was decided, when, and by whose word.",
    epilog=examples("segment-health history --dir /shared/segment-health/decisions n12 --since 2d"),
)
@click.option("--dir", "directory", metavar="DIR", help="Decision directory.")
@click.option("--since", metavar="TIME", help="90, 15m, 2h or 3d ago; or 2026-11-30T10:00, UTC.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="The last N entries.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@in_force.storage_option
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.argument("what", metavar="[UNIT|NODE]", required=False)
def history(
    *,
    directory: str | None,
    since: str | None,
    limit: int | None,
    format_: str,
    storage_timeout: str | None,
    config: str | None,
    what: str | None,
) -> None:
    """Show what was decided in DIR, the oldest first: all of it, or of a unit (123_7, 123) or of a node.

    Exclusions, updates and clears, units that are gone (retire), exclusions that were held back (hold), lifted
    unconfirmed (stale) or by a person (manual). With --format json a line of JSON each.
    """
    path, seconds = directory_of(directory, storage_timeout, config)
    start = None if since is None else _start(since, time.time())
    concerns = _concerns(what)

    def is_wanted(entry: Entry) -> bool:
        return (start is None or entry.time >= start) and concerns(entry)

    found = within(path, seconds, lambda: _read(path, is_wanted, limit))
    lines = [json_line(entry) if format_ == "json" else text_line(entry) for entry in found.entries]
    if lines:
        say("\n".join(lines))
    for remark in found.remarks:
        say(f"segment-health: {printable(remark)}", err=True)
    if found.damaged:
        say(f"segment-health: {found.damaged} damaged lines of the history were passed over", err=True)


def _read(path: str, is_wanted: Callable[[Entry], bool], limit: int | None) -> Reading:
    from segment_health.store import open_decisions  # noqa: PLC0415 - each command loads what it needs

    with open_decisions(path) as directory:
        return directory.ledger("", "").recorded(is_wanted, limit)


def _start(text: str, now: float) -> float:
    """Read the time from which on entries are wanted. Raises Failure."""
    elapsed = times.seconds(text)
    if elapsed is not None:
        return now - elapsed
    try:
        told = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError) as error:
        raise Failure(f"--since: not a time such as 2h, 3d or 2026-11-30T10:00: {text[:40]!a}", USAGE) from error


def _concerns(what: str | None) -> Callable[[Entry], bool]:
    """Return what tells whether an entry is about a unit, all tasks of an array, or a node among the bad ones."""
    if what is None:
        return lambda _: True
    unit = _UNIT.fullmatch(what)
    known: dict[str, bool] = {}

    def concerns(entry: Entry) -> bool:
        if unit and entry.unit.job_id == unit[1] and unit[2] in (None, entry.unit.task_id):
            return True
        if entry.nodes not in known:  # the same list stands in many entries
            known[entry.nodes] = what in _names(entry.nodes)
        return known[entry.nodes]

    return concerns


def _names(nodes: str) -> tuple[str, ...]:
    from segment_health.sources import node_names  # noqa: PLC0415

    try:
        return node_names(nodes) if nodes else ()
    except ValueError:  # anybody may have written it
        return ()


def json_line(entry: Entry) -> str:
    """Return an entry as it was written, in ASCII."""
    return one_line(entry.document).decode().rstrip("\n")


def text_line(entry: Entry) -> str:
    """Return an entry as a person reads it."""
    rules = f" ({', '.join(entry.rules)})" if entry.rules and tuple(entry.why.split("; ")) != entry.rules else ""
    columns = (
        f"{utc(entry.time)}  {brief(entry.action, 20):8} {entry.unit!s:12} {brief(entry.level or '-', 20):16}"
    )
    return f"{columns} {brief(entry.nodes or '-', _LONGEST)}  by {_short(entry.who)}: {_short(entry.why + rules)}"


def _short(text: str) -> str:
    return brief(text, _LONGEST)

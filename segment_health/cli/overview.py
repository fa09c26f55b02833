"""How a decision directory stands: one word for a monitor, JSON for programs, rows and lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from segment_health.record import brief, utc

from .failure import ATTENTION, DONE, UNKNOWN
from .times import ago

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.memory import Heartbeat
    from segment_health.survey import Survey, UnitView

_SHOWN_DEAD = 10
"""Publishers that ended: each job's sidecar leaves a heartbeat for a week."""
_SHOWN_REMARKS = 10
_WIDEST = 70
"""Columns that a cell may ask of the rows around it."""
_LONGEST = 300
"""Characters of one cell: whatever an administrator or a forger wrote, a row stays a row."""
_STATES = {"fresh": "excluded", "stale": "stale", "foreign": "foreign", "override": "overridden"}


class Verdict(NamedTuple):
    """What a monitor wants to know: OK, WARNING or UNKNOWN, why in one line, and the exit code."""

    word: str
    why: str
    code: int

    def __str__(self) -> str:
        """Write it as plugins of Nagios do."""
        return f"{self.word}: {self.why}"


class PublisherRow(NamedTuple):
    """A publisher as a person reads it; `needs` are lines that need a person."""

    name: str
    alive: bool
    life: str
    last_pass: str
    age: str
    rhythm: str
    where: str
    policy: str
    units: str
    needs: tuple[str, ...]


class UnitRow(NamedTuple):
    """A unit that is not simply healthy, as a person reads it."""

    unit: str
    state: str
    since: str
    age: str
    level: str
    nodes: str
    reasons: str
    by: str


def verdict(found: Survey) -> Verdict:
    """Judge: 3 if nobody publishes, 1 if something needs a person, else 0."""
    living = found.living()
    watched = [view for view in found.units if view.excluded or view.state != "stale" or not living]
    counts = f"{_many(len(watched), 'unit')}, {len(found.excluded())} excluded"
    if not living:
        last = max((beat.last_complete_pass for beat in found.publishers), default=None)
        since = "nobody has ever published here" if last is None else f"the last pass was {ago(found.now - last)}"
        return Verdict("UNKNOWN", f"no living publisher, {since}; {counts}", UNKNOWN)
    concerns = _concerns(found)
    counts = f"{_many(len(living), 'publisher')}, {counts}"
    if concerns:
        return Verdict("WARNING", f"{', '.join(concerns)}; {counts}", ATTENTION)
    return Verdict("OK", counts, DONE)


def _concerns(found: Survey) -> list[str]:
    """Name what needs a person, with how many there are of each."""
    living, excluded = found.living(), found.excluded()
    counted = {
        "foreign": sum(view.state == "foreign" for view in excluded),
        "stale": sum(view.state == "stale" for view in excluded),
        "failing": sum(bool(beat.failures) for beat in living),
        "held": sum(max(0, beat.held) for beat in living),
        "with an old policy": sum(beat.policy_error is not None for beat in living),
    }
    return [f"{count} {what}" for what, count in counted.items() if count > 0]


def document(found: Survey, directory: str) -> dict[str, Any]:
    """Return the public JSON."""
    from segment_health.memory import heartbeat_document  # noqa: PLC0415 - loaded with the survey

    judged = verdict(found)
    return {
        "publishers": [
            {**heartbeat_document(beat), "alive": beat.is_alive(found.now)} for beat in found.publishers
        ],
        "units": [_unit_document(view) for view in found.units],
        "status": judged.word,
        "summary": judged.why,
        "time": utc(found.now),
        "directory": directory,
        "unreadable": list(found.unreadable),
        "remarks": list(found.remarks),
    }


def _unit_document(view: UnitView) -> dict[str, Any]:
    from segment_health.survey import unit_document  # noqa: PLC0415 - loaded with the survey

    said = view.override
    return {
        **unit_document(view),
        "unit": str(view.unit),
        "rules": _rules(view),
        "nodelist": view.nodelist,
        "override": None if said is None else {"who": said.who, "reason": said.reason, "since": utc(said.since)},
    }


def _rules(view: UnitView) -> list[str]:
    return list(dict.fromkeys(fault.rule for fault in view.faults))


# ── rows, whose every cell can be printed ──────────────────────────────────────────────────────────────────────


def publisher_rows(found: Survey) -> tuple[list[PublisherRow], int]:
    """Return the publishers, the living first, then the last of those that ended; and how many are not shown."""
    living = found.living()
    dead = sorted(set(found.publishers) - set(living), key=lambda beat: beat.last_complete_pass, reverse=True)
    shown = dead[:_SHOWN_DEAD]
    return [_publisher_row(beat, found.now) for beat in (*living, *shown)], len(dead) - len(shown)


def _publisher_row(beat: Heartbeat, now: int) -> PublisherRow:
    who, alive = beat.publisher, beat.is_alive(now)
    needs = [f"policy error: {beat.policy_error}"] if beat.policy_error is not None else []
    needs += [f"held: {_many(beat.held, 'new exclusion')}, too many at once"] if beat.held > 0 else []
    needs += [f"failing: {failure}" for failure in beat.failures]
    return PublisherRow(
        _cell(f"{who.scope}@{who.cluster}"),
        alive,
        "alive" if alive else "NOT ALIVE",
        utc(beat.last_complete_pass),
        ago(now - beat.last_complete_pass),
        f"every {beat.interval:g} s" if beat.loop else "one pass",
        _cell(f"{who.host} ({who.pid}), {who.version}"),
        _cell(beat.policy),
        "" if beat.units is None else f"{_many(beat.units, 'unit')}, {beat.excluded or 0} excluded",
        tuple(_cell(line) for line in needs),
    )


def unit_rows(found: Survey) -> tuple[list[UnitRow], int]:
    """Return the units that are excluded or overridden, and how many others living publishers watch."""
    rows = [_unit_row(view, found.now) for view in found.units if view.excluded or view.state == "override"]
    healthy = sum(not view.excluded and view.state == "fresh" for view in found.units)
    return rows, healthy


def _unit_row(view: UnitView, now: int) -> UnitRow:
    by = "somebody else" if view.publisher is None else f"{view.publisher.scope}@{view.publisher.cluster}"
    reasons = "; ".join(view.reasons or _rules(view))
    if view.override is not None:
        by, reasons = view.override.who, view.override.reason
    since, age = ("", "") if view.since is None else (utc(view.since), ago(now - view.since))
    cells = (str(view.unit), _STATES[view.state], since, age, view.level or "", view.nodes, reasons, by)
    return UnitRow(*map(_cell, cells))


def remarks(found: Survey) -> list[str]:
    """Return what else is worth a person's look."""
    told = [*(f"unreadable: {one}" for one in found.unreadable), *found.remarks]
    more = len(told) - _SHOWN_REMARKS
    return [_cell(one) for one in told[:_SHOWN_REMARKS]] + ([f"and {more} more"] if more > 0 else [])


def _cell(text: str) -> str:
    return brief(text, _LONGEST)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# ── lines, for pipes ───────────────────────────────────────────────────────────────────────────────────────────


def lines(found: Survey) -> list[str]:
    """Return what a person reads where there is no terminal: the verdict first, then columns."""
    told = [str(verdict(found))]
    publishers, ended = publisher_rows(found)
    if publishers:
        told += ["", "publishers"]
    columns = [(row.name, _life(row), row.rhythm, row.where, row.units) for row in publishers]
    for row, cells in zip(publishers, _aligned(columns), strict=True):
        told += [f"  {cells}", f"    policy {row.policy}", *(f"    {need}" for need in row.needs)]
    if ended:
        told.append(f"  and {ended} more that ended")
    units, healthy = unit_rows(found)
    if units:
        heading = UnitRow("UNIT", "STATE", "SINCE", "AGE", "LEVEL", "NODES", "REASONS", "BY")
        told += ["", "units", *(f"  {line}" for line in _aligned([heading, *units]))]
    told += ["", f"{_many(healthy, 'unit')} not excluded"]
    return told + [f"note: {remark}" for remark in remarks(found)]


def _life(row: PublisherRow) -> str:
    when = f"{row.last_pass} ({row.age})"
    return f"alive, last complete pass {when}" if row.alive else f"NOT ALIVE since {when}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Put cells under each other; a cell that is far wider than the others shifts only its own row."""
    widths = [min(max(map(len, column)), _WIDEST) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

"""What a pass looks like: as JSON, as lines for a person, and as complaints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segment_health.publish import Pass
    from segment_health.sources import Source
    from segment_health.store import Change

SHOWN_UNITS = 5
"""Units that a message names."""


def document(
    done: Pass | None, error: str | None, *, source: Source, dry_run: bool, seconds: float
) -> dict[str, Any]:
    """Return the public JSON of a pass; `done` is None unless it was complete, `error` then says why."""
    return {
        "pass": "unknown" if done is None else "complete",
        "source": source.name,
        "source_reason": source.why,
        "slurm_version": None if done is None else done.slurm_version,
        "policy": None if done is None else done.policy,
        "nodes": {
            "total": 0 if done is None else done.nodes,
            "unavailable": 0 if done is None else done.outcome.unavailable_nodes,
        },
        "units": {
            "total": 0 if done is None else done.outcome.units,
            "excluded": 0 if done is None else done.outcome.excluded,
        },
        "new_exclusions": new_exclusions(done),
        "changes": [] if done is None else [change_document(change) for change in done.changes],
        "dry_run": dry_run,
        "duration_ms": round(seconds * 1000, 1),
        "error": error if done is None else "; ".join(done.failures) or None,
    }


def new_exclusions(done: Pass | None) -> dict[str, Any]:
    """Return what the new exclusions of a pass take, published or held."""
    units, nodes = (0, 0) if done is None else done.outcome.blast_radius()
    return {"units": units, "nodes": nodes, "held": done is not None and bool(done.outcome.held)}


def change_document(change: Change) -> dict[str, Any]:
    """Return the public JSON of one change."""
    decision = change.decision
    return {
        "action": decision.action.value if change.error is None else "failed",
        "job_id": decision.unit.job_id,
        "task_id": decision.unit.task_id,
        "level": None if decision.level is None else decision.level.name,
        "nodes": decision.nodes,
        "path": change.path,
        "error": change.error,
    }


def change_line(change: Change) -> str:
    """Return one change as a person reads it: `exclude 123_7 PreSeparateFault n2 PATH`."""
    told = change_document(change)
    return " ".join(
        filter(None, [told["action"], str(change.decision.unit), told["level"], told["nodes"], told["path"]])
    )


def summary(done: Pass) -> str:
    """Return what a pass saw."""
    outcome = done.outcome
    taken = f"; {radius(done)}" if radius(done) else ""
    return (
        f"{done.nodes} nodes, {outcome.unavailable_nodes} unavailable; "
        f"{outcome.units} units, {outcome.excluded} excluded{taken}"
    )


def radius(done: Pass) -> str:
    """Return how much the new exclusions of a pass take, held or published; nothing where there are none."""
    units, nodes = done.outcome.blast_radius()
    return f"{units} new exclusion{'s' if units > 1 else ''} of {nodes} nodes" if units else ""


def complaints(done: Pass) -> list[str]:
    """Return what a person should read of a complete pass, a line each."""
    from segment_health.sources import fold  # noqa: PLC0415 - loaded by whoever made the pass

    outcome = done.outcome
    lines = [*done.remarks, *_held(done)]
    if outcome.superseded_by is not None:
        where = f"a publisher of this scope on {outcome.superseded_by}"
        lines.append(
            f"{where} has made a pass while this one asked Slurm: its newer view counts, nothing was changed"
        )
    lines += [
        f"node flag {flag} (seen on {node}) is not known; ignored"
        for flag, node in sorted(outcome.unknown_flags.items())
    ]
    lines += [
        f"unit {unit} is in a job state that is not known; its decision stays" for unit in outcome.not_understood
    ]
    lines += [
        f"unit {unit} is used by a person's word although nodes of it are bad" for unit in outcome.overridden
    ]
    lines += [
        f"unit {unit}: a person's word no longer holds, since its run or its set of bad nodes has changed"
        for unit in outcome.void_overrides
    ]
    if outcome.no_verdict:
        names = fold(sorted(outcome.no_verdict))
        lines.append(f"no verdict on {names}, whose state is not known; their part of each decision stays")
    for why in sorted(set(outcome.unsettled.values())):
        names = fold(sorted(name for name, told in outcome.unsettled.items() if told == why))
        lines.append(f"{why}: {names}; no exclusion is lifted for that, and other faults count")
    lines += [
        f"{change.decision.unit} is excluded: if it hosts the rendezvous store, as task 0 does by default, "
        "the job ends at its next restart"
        for change in done.changes
        if change_document(change)["action"] == "exclude" and change.decision.unit.task_id == "0"
    ]
    lines += [
        f"{change.path}: {change.error}; left as it was, tried again in the next pass"
        for change in done.changes
        if change.error is not None
    ]
    return lines + done.failures


def _held(done: Pass) -> list[str]:
    """Say that new exclusions were too many at once."""
    outcome = done.outcome
    if not outcome.held:
        return []
    units, nodes = outcome.blast_radius()
    shown = ", ".join(str(decision.unit) for decision in outcome.held[:SHOWN_UNITS])
    more = f" and {units - SHOWN_UNITS} more" if units > SHOWN_UNITS else ""
    taken = f"{units} new exclusions would take {nodes} nodes"
    limit = f"more of {outcome.units} units at once than max_new_exclusions = {done.limit} allows"
    held = f"held pass {outcome.held_passes} of {done.hold_passes}"
    by_hand = "`publish --once --force` publishes them now"
    return [f"held: {taken}, {limit}; not published: {shown}{more}; {held}; {by_hand}"]

"""What blames are worth: which of them count against a node now. Pure.

A log is text that a job wrote, and what it says against a node may be forged, or a mistake. So a blame counts at
once for as long as the job that it comes from holds the node: whoever forges it harms himself. It counts for
everybody only when the logs of several jobs blame the node. And it counts for a limited time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from segment_health.policy.assess import Assessment, Finding, worse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from segment_health.level import FaultLevel
    from segment_health.publication import Holder

    from .record import Blame

MARK = "attribution:"
"""How the rules begin that name a category (see judge.REPORTERS)."""
FUTURE_SECONDS = 60
"""How far the clocks of the two hosts may be apart."""


class Bar(NamedTuple):
    """What counts: blames of up to `max_age` seconds, and against everybody those by logs of `jobs` jobs."""

    max_age: int
    jobs: int


def grade(blames: Iterable[Blame], holders: Collection[Holder], bar: Bar, now: int) -> Assessment | None:
    """Return what the blames of one node are worth that is held by these jobs; None where nothing counts."""
    young = [blame for blame in blames if now - blame.time <= bar.max_age]
    jobs = {blame.job_id for blame in young}
    counting = [blame for blame in young if len(jobs) >= bar.jobs or _is_by_one_of(holders, blame)]
    found: dict[str, FaultLevel] = {}
    for blame in counting:
        found[blame.category] = max(blame.level, found.get(blame.category, blame.level))
    findings = tuple(Finding(f"{MARK}{word}", level, level) for word, level in sorted(found.items()))
    if not findings:
        return None
    leading = max(findings, key=lambda finding: finding.level or 0)
    return Assessment(leading.level, leading.word, findings=findings)


def no_verdict(why: str) -> Assessment:
    """Return what a node is worth whose blames cannot be read; `why` in a word."""
    word = f"{MARK}{why}"
    return Assessment(None, word, final=False, findings=(Finding(word, None, None),))


def together(told: Assessment | None, further: Assessment) -> Assessment:
    """Join two assessments of a node, the first of which may be none."""
    return worse(told, further) or further


def _is_by_one_of(holders: Collection[Holder], blame: Blame) -> bool:
    """Tell whether one of these jobs blames the node by its own log: its user's or root's, as far as is known."""
    return any(
        holder.job_id == blame.job_id and (blame.owner in {None, 0} or holder.user_id in {"", str(blame.owner)})
        for holder in holders
    )

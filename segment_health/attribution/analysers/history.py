"""What the cycles of a job say together. Pure.

Failures that are alike at the same step will come again; a job that gets on is let go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .finding import Action, Finding
from .kind import Blame
from .table import BY_CATEGORY, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

_USUAL_REPEATS = 2
"""Of a category that the table does not have."""


def settle(finding: Finding, earlier: Sequence[Finding]) -> Finding:
    """Return a finding with what the findings of the job's earlier cycles, oldest first, make of it.

    A step beyond that of the cycle before is a RESTART, whatever failed. The same failure at the same step in so
    many consecutive cycles as the table wants is a STOP. Two failures are the same where their signatures are
    (an empty one is like none), and the nodes too where hardware is to blame. Where an earlier cycle got further
    it takes one more.
    """
    if not earlier:
        return finding
    last = earlier[-1]
    if _place(finding) > _place(last) and (last.step is not None or last.category != UNKNOWN):
        got_on = "no step" if last.step is None else f"step {last.step}"
        reason = f"{finding.reason}; but the job got on, from {got_on} to step {finding.step}"
        return replace(finding, action=Action.RESTART, reason=reason)
    wanted = _repeats_of(finding)
    if wanted is not None and any(_place(before) > _place(finding) for before in earlier):
        wanted += 1  # it got further once
    if wanted is None or wanted > len(earlier) + 1:
        return finding
    if not all(_are_alike(finding, before) for before in earlier[len(earlier) + 1 - wanted :]):
        return finding
    where = "before the first step" if finding.step is None else f"at step {finding.step}"
    meaning = finding.reason.partition(": ")[0]
    return replace(
        finding, action=Action.STOP, reason=f"{meaning}: the same {where} in {wanted} consecutive cycles"
    )


def _place(finding: Finding) -> int:
    """Return how far a cycle came; before the first step is less than any."""
    return -1 if finding.step is None else finding.step


def _repeats_of(finding: Finding) -> int | None:
    """Return in how many cycles it has to come; None: it is never a reason to stop."""
    kind = BY_CATEGORY.get(finding.category)
    if kind is None:
        return _USUAL_REPEATS
    return kind.repeats + 1 if kind.repeats is not None and kind.is_outage else kind.repeats


def _are_alike(one: Finding, other: Finding) -> bool:
    kind = BY_CATEGORY.get(one.category)
    if kind is not None and kind.blame is not Blame.NOBODY and set(one.nodes) != set(other.nodes):
        return False
    return bool(one.signature) and one.signature == other.signature and one.step == other.step

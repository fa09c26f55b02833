"""One log and what is known of it, and what a submission makes of that. Pure.

    nothing ── any intent ──► pending ── terminal ──► in_flight ──► completed | failed ── terminal ──► in_flight

A terminal submission of what is in flight, or was judged and has not changed since, changes nothing: it may come
any number of times. A log that was written to since, or put in the place of another one, is judged anew: a job
that was requeued counts its cycles from 0 again, under the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from segment_health.attribution.analysers.finding import Action, Finding

from .refusal import INVALID_PARAMETER, Refusal
from .submission import Intent, cycle_of, series_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .confine import FileState, Found
    from .submission import Submission

HELD_SECONDS = 600.0
"""How long a log that nobody asked to judge belongs to the job that announced it: jobs that succeed never do."""
MAX_EARLIER = 16
"""Findings of earlier cycles that an analysis is given."""
UNSEEN = Finding("unknown", Action.UNKNOWN, "nobody was asked about the first cycles of the run", "service")
"""Stands for cycles of which nothing is known."""
_UNKNOWN = "unknown"


class Status(str, Enum):
    """Where a log is on its way."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A log of one cycle. `path` is where it really is, `given` as it was told.

    `registered` is when it was announced, in seconds since the epoch. `sequence` grows with each terminal
    submission of any log; 0 before the first. `state` is that of the file when it was announced, then when it was
    judged. `failure` says why an analysis that failed did.
    """

    path: str
    given: str
    user: str
    job_id: str
    cycle: int | None
    registered: float
    status: Status = Status.PENDING
    sequence: int = 0
    state: FileState | None = None
    finding: Finding | None = None
    failure: str = ""
    completed: float = 0.0

    @property
    def series(self) -> tuple[str, str, str]:
        """What all cycles of one training have in common."""
        return (self.job_id, self.user if not self.job_id else "", series_of(self.path))

    @property
    def is_done(self) -> bool:
        """Whether nothing more will be found."""
        return self.status in {Status.COMPLETED, Status.FAILED}


def submitted(former: Attempt | None, told: Submission, found: Found, *, now: float, sequence: int) -> Attempt:
    """Return what a log is after a submission; `former` itself where that changes nothing. Raises Refusal."""
    if former is None or _taken_over(former, told, found, now):
        attempt = _announced(told, found, now)
    else:
        user = told.user if former.user == _UNKNOWN else former.user
        changed = (told.log_path, user, former.job_id or told.job_id)
        attempt = former
        if changed != (former.given, former.user, former.job_id):
            attempt = replace(former, given=changed[0], user=changed[1], job_id=changed[2])
    if told.intent is not Intent.TERMINAL or attempt.status is Status.IN_FLIGHT:
        return attempt
    if attempt.status is Status.COMPLETED and attempt.state == found.state:
        return attempt
    return replace(
        attempt, status=Status.IN_FLIGHT, sequence=sequence, state=None, finding=None, failure="", completed=0.0
    )


def finished(
    attempt: Attempt, finding: Finding | None, failure: str, state: FileState | None, now: float
) -> Attempt:
    """Return what a log is once its analysis has ended."""
    status = Status.FAILED if finding is None else Status.COMPLETED
    return replace(attempt, status=status, finding=finding, failure=failure, state=state, completed=now)


def earlier_than(attempt: Attempt, judged: Iterable[Attempt]) -> list[Finding]:
    """Return what was found in earlier cycles of the same run of a training, oldest first.

    `judged` are completed attempts of its series. A requeued job counts from 0 again: going back in time, the
    first one whose cycle is not an earlier one is of another run, and so is all before it. Where nothing is known
    of how a run began, `UNSEEN` stands for it: the script may have got further then than it ever did since.
    """
    found: list[Finding] = []
    if attempt.cycle is None:
        return found
    cycle = attempt.cycle
    for other in sorted(judged, key=lambda other: other.sequence, reverse=True):
        if other.sequence >= attempt.sequence or other.finding is None:
            continue
        if other.cycle is None or other.cycle >= cycle or len(found) == MAX_EARLIER:
            break
        found.append(other.finding)
        cycle = other.cycle
    if cycle > 0 and len(found) < MAX_EARLIER:
        found.append(UNSEEN)
    return found[::-1]


def _announced(told: Submission, found: Found, now: float) -> Attempt:
    cycle = cycle_of(found.path) if told.cycle is None else told.cycle
    return Attempt(found.path, told.log_path, told.user, told.job_id, cycle, now, state=found.state)


def _taken_over(former: Attempt, told: Submission, found: Found, now: float) -> bool:
    """Whether a log is another one's now. Raises Refusal where it cannot be."""
    other = ""
    if told.job_id and former.job_id and told.job_id != former.job_id:
        other = "job_id"
    elif told.cycle is not None and told.cycle != former.cycle:
        other = "cycle_id"
    if not other:
        return False
    if former.status is Status.IN_FLIGHT or (
        former.status is Status.PENDING
        and now - former.registered < HELD_SECONDS
        and not _was_replaced(former.state, found.state)
    ):
        raise Refusal(INVALID_PARAMETER, f"log_path is registered with a different {other}")
    return True


def _was_replaced(former: FileState | None, now: FileState | None) -> bool:
    """Whether the file is surely another one than it was."""
    return former is not None and now is not None and former[:2] != now[:2]

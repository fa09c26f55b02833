"""The promise, as a pure function over logs: what readers were told against what was true on Slurm. Pure.

    Under any single fault, and any two, no reader is ever told something that was not true of the last complete
    view of Slurm, beyond a stated time.

A unit is *fit*, *bad*, or, between the start of a command that changes it and the moment when Slurm shows the
change, *either*. What a reader is told at an instant may be explained by exactly this:

* it was true within the stated time (`Bound.settle`) before that instant;
* or a fault that holds decisions (`Span.holds` names the unit) came in between: what was true within the
  stated time before it began, or became true during it, may be told until the stated time after its end;
* or the unit is told healthy, and a fault hides the storage from this reader (`Span.blinds`): fail open, until the
  stated time after its end;
* or the unit is told healthy, and no pass was complete for `Bound.stale_after`: fail open, until the stated time
  after the next complete pass.

Everything else is a Violation. A torn artifact is one whatever was true. All times are monotonic nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class Health(Enum):
    """What is true of a unit on Slurm."""

    FIT = "fit"
    BAD = "bad"
    EITHER = "either"


class Told(Enum):
    """What a reader finds. The consumer takes the first three for healthy."""

    MISSING = "missing"
    EMPTY = "empty"
    IGNORED = "ignored"
    EXCLUDED = "excluded"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Step:
    """From `at` on a unit is so."""

    at: int
    health: Health


@dataclass(frozen=True, slots=True)
class Transition:
    """From `at` on a reader is told so of a unit."""

    at: int
    unit: str
    told: Told
    detail: str = "-"


@dataclass(frozen=True, slots=True)
class Span:
    """A fault was in force from `begin` to `end`; the units whose decisions it may hold, or hide."""

    fault: str
    begin: int
    end: int
    holds: Collection[str] = ()
    blinds: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """The stated times: `settle` from a change on Slurm to what is told; `stale_after` None is never."""

    settle: int
    stale_after: int | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """A unit was told so from `begin` to `end`, and nothing explains it."""

    unit: str
    told: Told
    begin: int
    end: int
    detail: str = "-"

    def __str__(self) -> str:
        kind = {Told.EXCLUDED: "false exclusion", Told.TORN: "torn artifact"}.get(self.told, "false all-clear")
        told = f"{self.unit} told {self.told.value} ({self.detail})"
        return f"{kind}: {told} for {(self.end - self.begin) / 1e6:.1f} ms"


Interval = tuple[int, int]
_FOR_EVER = 1 << 62


def violations(
    transitions: Sequence[Transition],
    truth: Mapping[str, Sequence[Step]],
    passes: Sequence[int],
    bound: Bound,
    *,
    spans: Sequence[Span],
    until: int,
) -> list[Violation]:
    """Return what was told until `until` and is not explained, in the order of time.

    `passes` are the times of complete passes; the first one counts as made before the first transition.
    Units of which the truth is not known are not judged, except that nothing may be torn.
    """
    found = []
    for unit in sorted({transition.unit for transition in transitions}):
        told = [transition for transition in transitions if transition.unit == unit]
        for transition, end in zip(told, [*(later.at for later in told[1:]), until], strict=True):
            if transition.told is Told.TORN:
                found.append(Violation(unit, transition.told, transition.at, end, transition.detail))
            elif unit in truth:
                steps = truth[unit]
                explained = explanations(unit, transition.told, steps, passes=passes, bound=bound, spans=spans)
                found += [
                    Violation(unit, transition.told, begin, finish, transition.detail)
                    for begin, finish in without((transition.at, end), explained)
                ]
    return sorted(found, key=lambda violation: violation.begin)


def explanations(
    unit: str, told: Told, steps: Sequence[Step], *, passes: Sequence[int], bound: Bound, spans: Sequence[Span]
) -> list[Interval]:
    """Return the intervals of time in which a unit may be told so."""
    true_of = Health.BAD if told is Told.EXCLUDED else Health.FIT
    ends = [*(step.at for step in steps[1:]), _FOR_EVER]
    holding = sorted((span for span in spans if unit in span.holds), key=lambda span: span.begin)
    intervals = []
    for step, end in zip(steps, ends, strict=True):
        if step.health in {true_of, Health.EITHER}:
            last = end + bound.settle
            for span in holding:
                if span.begin < last and span.end + bound.settle > end:
                    last = max(last, span.end + bound.settle)
            intervals.append((step.at, last))
    if told is not Told.EXCLUDED:
        intervals += [(span.begin, span.end + bound.settle) for span in spans if unit in span.blinds]
        if bound.stale_after is not None:
            nexts = [*(after + bound.settle for after in passes[1:]), _FOR_EVER]
            intervals += [
                (complete + bound.stale_after, after)
                for complete, after in zip(passes, nexts, strict=True)
                if complete + bound.stale_after < after - bound.settle
            ]
    return intervals


def without(whole: Interval, parts: Iterable[Interval]) -> list[Interval]:
    """Return what is left of an interval when parts are taken away."""
    left = []
    begin, end = whole
    for first, last in sorted(parts):
        if first > begin:
            left.append((begin, min(first, end)))
        begin = max(begin, last)
        if begin >= end:
            return [part for part in left if part[0] < part[1]]
    return [part for part in (*left, (begin, end)) if part[0] < part[1]]


def longest_lag(transitions: Sequence[Transition], truth: Mapping[str, Sequence[Step]], until: int) -> int:
    """Return for how long at most a reader was told what was no longer true, explained or not."""
    longest = 0
    for unit, steps in truth.items():
        told = [transition for transition in transitions if transition.unit == unit]
        ends = [*(step.at for step in steps[1:]), _FOR_EVER]
        wrong: dict[bool, list[Interval]] = {
            excluded: [
                (step.at, end)
                for step, end in zip(steps, ends, strict=True)
                if step.health is (Health.FIT if excluded else Health.BAD)
            ]
            for excluded in (True, False)
        }
        for excluded, intervals in wrong.items():
            for begin, end in intervals:
                for here, there in _runs(told, until, excluded=excluded):
                    longest = max(longest, min(end, there) - max(begin, here))
    return longest


def _runs(told: Sequence[Transition], until: int, *, excluded: bool) -> list[Interval]:
    """Return from when to when a unit was told excluded, or healthy, in one go."""
    runs: list[Interval] = []
    for transition, end in zip(told, [*(later.at for later in told[1:]), until], strict=True):
        if (transition.told is Told.EXCLUDED) is excluded:
            if runs and runs[-1][1] == transition.at:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((transition.at, end))
    return runs

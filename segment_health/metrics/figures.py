"""The figures of a publisher: what is counted, what each means, and which values its label may have. Pure.

What labels say comes from short lists: never a job, a node, a user or a reason, whose number grows without end.
docs/metrics.md lists them for people.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segment_health.contract import Content
from segment_health.level import FaultLevel
from segment_health.situation import Action
from segment_health.watch import Cause

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "segment_health_"
COMPLETE = "complete"
NO_VERDICT = "no_verdict"
FOREIGN = Content.FOREIGN.value
LEVELS = tuple(level.name for level in FaultLevel)
EXCLUDED = (FaultLevel.PreSeparateFault.name, FaultLevel.SeparateFault.name, FOREIGN)
_DOORS = ("text", "json", "rest", "pyslurm")
_ACTIONS = tuple(action.value for action in Action if action is not Action.FOREIGN)
_CAUSES = tuple(cause.value for cause in Cause if cause is not Cause.LIFT)
MOST = 1e15
"""No counter counts further: what a file says beyond that is damage."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A metric: what it means, its label if it has one, and the values that this may have.

    `starts` says that all of them are shown from the start, as 0; else each once it is known.
    """

    means: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    starts: bool = True

    @property
    def from_start(self) -> tuple[str, ...]:
        """The values that are shown although nothing happened yet."""
        return self.values if self.starts else ()

    @property
    def labels(self) -> list[str]:
        """The names of its labels."""
        return ["scope", *filter(None, [self.label])]


COUNTERS = {
    "passes": Kind("Passes, by what came of them.", "result", (COMPLETE, *_CAUSES)),
    "changes": Kind("Changes of artifacts in complete passes, by action.", "action", _ACTIONS),
    "stale_lifted": Kind("Exclusions lifted because no pass was complete for too long."),
    "slurm_queries": Kind("Questions put to Slurm, by door.", "door", _DOORS, starts=False),
    "slurm_bytes": Kind("Bytes of Slurm's answers, by door.", "door", _DOORS, starts=False),
}
GAUGES = {
    "last_complete_pass_timestamp_seconds": Kind("When the last complete pass ended.", starts=False),
    "last_pass_success": Kind("Whether the last pass was complete (1) or not (0).", starts=False),
    "units": Kind("Units of the scope that hold nodes.", starts=False),
    "excluded_units": Kind("Units of the scope that are excluded, by level.", "level", EXCLUDED, starts=False),
    "held_units": Kind("New exclusions that are held back, being too many at once.", starts=False),
    "overridden_units": Kind("Units that a person wants used although they have bad nodes.", starts=False),
    "failing_artifacts": Kind("Artifacts that the last complete pass could not write.", starts=False),
    "failing_records": Kind("What else it could not write: heartbeat, state, history.", starts=False),
    "nodes": Kind("Nodes of the cluster, by level.", "level", (*LEVELS, NO_VERDICT), starts=False),
    "standby": Kind("Whether another publisher of the scope is at work, and this one waits (1)."),
}
HISTOGRAMS = {
    "pass_duration_seconds": (
        "How long passes took, complete or not.",
        (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
    ),
    "reason_to_artifact_seconds": (
        "From the newest reason that Slurm shows of a unit's bad nodes, or the unit's start, to its exclusion.",
        (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 86400.0),
    ),
}


@dataclass(slots=True)
class Distribution:
    """Observations by the first bound that is not below them, the last being that of all the rest."""

    bounds: Sequence[float]
    counts: list[float] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0.0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Take one more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def number(value: float) -> float:
    """Return what can be a figure. Raises ValueError."""
    if not 0 <= value <= MOST:  # false of NaN too
        raise ValueError("no number that anybody counts to")
    return value

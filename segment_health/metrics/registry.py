"""What a publisher tells Prometheus of its passes. The one home of prometheus_client.

The registry is its own, and no figures of the process are in it: whoever collects text files has those already.
"""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from segment_health.record import brief
from segment_health.situation import Action
from segment_health.watch import Cause

from .figures import (
    COMPLETE,
    COUNTERS,
    EXCLUDED,
    FOREIGN,
    GAUGES,
    HISTOGRAMS,
    LEVELS,
    NO_VERDICT,
    PREFIX,
    Distribution,
    Kind,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from segment_health.publish import Pass
    from segment_health.scope import Scope
    from segment_health.store import Change


class Watched(Protocol):
    """What is asked of a publisher whenever its metrics are written."""

    @property
    def interval(self) -> float:
        """Seconds from pass to pass."""

    @property
    def stale_after(self) -> float | None:
        """Seconds without a complete pass after which exclusions are lifted; None for never."""

    @property
    def policy_error(self) -> str | None:
        """Why the newest policy is not the one in force; None if it is."""

    def traffic(self) -> Mapping[str, tuple[int, int]]:
        """Return questions and bytes of answers since this process began, by door."""


_MAX_QUOTED = 100
"""Characters of a damaged text that are repeated."""


class DamagedError(ValueError):
    """A text is not what metrics() once wrote."""


class Metrics:
    """Keeps figures of a publisher's passes (see watch.Listener), and writes them as Prometheus reads them.

    `clock` gives seconds since the epoch.
    """

    def __init__(self, watched: Watched, scope: Scope, version: str, clock: Callable[[], float]) -> None:
        self._watched, self._version, self._clock = watched, version, clock
        # The name of a partition is a site's choice, of which there are few; job ids and users have no end.
        self._scope = str(scope) if scope.kind in {"all", "partition"} else scope.kind
        self._asked: dict[str, tuple[int, int]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._begin()

    def _begin(self) -> None:
        self._counters = {(name, value): 0.0 for name, kind in COUNTERS.items() for value in kind.from_start}
        self._gauges = {(name, value): 0.0 for name, kind in GAUGES.items() for value in kind.from_start}
        self._distributions = {name: Distribution(bounds) for name, (_, bounds) in HISTOGRAMS.items()}

    # ── what happens ───────────────────────────────────────────────────────────────────────────────────────────

    def completed(self, done: Pass, seconds: float) -> None:
        """Take the figures of a complete pass."""
        now, outcome = self._clock(), done.outcome
        self._ended(COMPLETE, seconds)
        written = [change for change in done.changes if change.error is None]
        for change in written:
            action = change.decision.action
            if action is not Action.FOREIGN:
                self._counters["changes", action.value] += 1
            if action is Action.EXCLUDE and (since := _began(change)) is not None:
                self._distributions["reason_to_artifact_seconds"].observe(max(0.0, now - since))
        self._set(
            last_complete_pass_timestamp_seconds=now,
            units=outcome.units,
            held_units=len(outcome.held),
            overridden_units=len(outcome.overridden),
            failing_artifacts=len(done.changes) - len(written),
            failing_records=len(done.failures),
        )
        nodes = {NO_VERDICT if at is None else at.name: number for at, number in outcome.nodes_by_level.items()}
        for level in (*LEVELS, NO_VERDICT):
            self._gauges["nodes", level] = nodes.get(level, 0)
        for level in EXCLUDED:
            self._gauges["excluded_units", level] = done.excluded.get(level, 0)

    def failed(self, cause: Cause, _why: str, seconds: float) -> None:
        """Count a pass that was not made."""
        if cause is not Cause.LIFT:
            self._ended(cause.value, seconds)

    def went_stale(self, changes: list[Change], _silent: float) -> None:
        """Count exclusions that were lifted without evidence."""
        for change in changes:
            if change.error is None:
                self._counters["stale_lifted", ""] += 1
                level = FOREIGN if change.decision.level is None else change.decision.level.name
                left = self._gauges.get(("excluded_units", level), 0) - 1
                self._gauges["excluded_units", level] = max(0, left)

    def standing_by(self) -> None:
        """Note that another publisher is at work."""
        self._set(standby=1)

    def _ended(self, result: str, seconds: float) -> None:
        self._counters["passes", result] += 1
        self._distributions["pass_duration_seconds"].observe(seconds)
        self._set(last_pass_success=result == COMPLETE, standby=0)

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            self._gauges[name, ""] = float(value)

    # ── what is written, and read back ─────────────────────────────────────────────────────────────────────────

    def exposition(self) -> bytes:
        """Write all as text, version 0.0.4 of Prometheus' format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give every metric, as a CollectorRegistry wants them."""
        self._count_traffic()
        for name, kind in COUNTERS.items():
            yield self._filled(CounterMetricFamily(PREFIX + name, kind.means, labels=kind.labels), name, kind)
        for name, kind in GAUGES.items():
            yield self._filled(GaugeMetricFamily(PREFIX + name, kind.means, labels=kind.labels), name, kind)
        for name, (means, _) in HISTOGRAMS.items():
            yield self._histogram(name, means)
        watched = self._watched
        yield self._gauge("interval_seconds", "Seconds from pass to pass.", watched.interval)
        yield self._gauge(
            "stale_after_seconds",
            "Seconds without a complete pass after which exclusions are lifted; +Inf for never.",
            inf if watched.stale_after is None else watched.stale_after,
        )
        yield self._gauge(
            "policy_error",
            "Whether the newest policy is wrong, so that an older one is in force (1).",
            watched.policy_error is not None,
        )
        build = GaugeMetricFamily(PREFIX + "build_info", "Always 1; who publishes.", labels=["scope", "version"])
        build.add_metric([self._scope, self._version], 1)
        yield build

    def restore(self, text: str) -> None:
        """Go on from what exposition() wrote for the same scope; of another scope nothing is taken.

        Raises DamagedError when the text is anything else, and then all begins anew.
        """
        self._begin()
        try:
            found = {
                (sample.name.removeprefix(PREFIX), sample.labels.get("le", _label_of(sample.labels))): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name.startswith(PREFIX) and sample.labels.get("scope") == self._scope
            }
            if PREFIX not in text:
                raise ValueError("no metrics of ours")  # noqa: TRY301 - one word for all that is wrong
            self._take(found)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            self._begin()
            raise DamagedError(brief(str(error), _MAX_QUOTED)) from error

    def _take(self, found: Mapping[tuple[str, str], float]) -> None:
        for kinds, kept, suffix in ((COUNTERS, self._counters, "_total"), (GAUGES, self._gauges, "")):
            for name, kind in kinds.items():
                for value in kind.values:
                    if (key := (name + suffix, value)) in found:
                        kept[name, value] = number(found[key])
        for name, distribution in self._distributions.items():
            if (f"{name}_count", "") not in found:
                continue
            sums = [number(found[f"{name}_bucket", _written(bound)]) for bound in (*distribution.bounds, inf)]
            if sorted(sums) != sums:
                raise ValueError(f"{name} counts backwards")
            distribution.counts = [above - below for above, below in zip(sums, [0.0, *sums[:-1]], strict=True)]
            distribution.total = number(found[f"{name}_sum", ""])

    def _count_traffic(self) -> None:
        for door, (queries, received) in self._watched.traffic().items():
            before = self._asked.get(door, (0, 0))
            for name, more in (("slurm_queries", queries - before[0]), ("slurm_bytes", received - before[1])):
                self._counters[name, door] = self._counters.get((name, door), 0.0) + more
            self._asked[door] = (queries, received)

    def _filled(self, family: Metric, name: str, kind: Kind) -> Metric:
        kept = self._counters if family.type == "counter" else self._gauges
        for value in kind.values:
            if (name, value) in kept:
                family.add_metric([self._scope, *filter(None, [value])], kept[name, value])  # type: ignore[attr-defined]  # both have it
        return family

    def _gauge(self, name: str, means: str, value: float) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, means, labels=["scope"])
        family.add_metric([self._scope], float(value))
        return family

    def _histogram(self, name: str, means: str) -> Metric:
        kept = self._distributions[name]
        sums = zip(map(_written, (*kept.bounds, inf)), accumulate(kept.counts), strict=True)
        family = HistogramMetricFamily(PREFIX + name, means, labels=["scope"])
        family.add_metric([self._scope], buckets=list(sums), sum_value=kept.total)
        return family


def _label_of(labels: Mapping[str, str]) -> str:
    return next((value for name, value in labels.items() if name != "scope"), "")


def _written(bound: float) -> str:
    return "+Inf" if bound == inf else str(bound)


def _began(change: Change) -> int | None:
    """Return since when a new exclusion could have been known; None where no node has a reason with a time."""
    artifact = change.decision.artifact
    if artifact is None:
        return None
    times = [node.reason_since for node in artifact.nodes if node.reason_since is not None]
    return max(*times, artifact.generation.start_time) if times else None

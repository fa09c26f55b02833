"""The decision directory as it stands: who publishes there, what is excluded, and whose word that is.

Reads what lies on the storage and asks nobody else, Slurm least of all. For people and for metrics; nothing is
decided by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .contract import Artifact
from .record import utc
from .situation import writer
from .store import open_decisions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .contract import Content, NodeFault, Publisher, UnitId
    from .memory import Heartbeat
    from .situation import Memory, Override, Remembered
    from .store import DecisionDirectory

    State = Literal["fresh", "stale", "foreign", "override"]


@dataclass(frozen=True, slots=True)
class UnitView:
    """How one unit stands. Times are in seconds since the epoch, UTC; node lists are hostlists, empty if unknown.

    `state` says whose word it is: "fresh" a living publisher's, "stale" that of dead ones alone, "foreign" that of
    somebody else, "override" a person's (then the unit is not excluded, and `override` is what was said). `since`
    is when the exclusion was first published, when a foreign artifact was last written, when a person spoke; None
    for a healthy unit. `nodes` are those that are bad, by the artifact or in a person's eyes, and `nodelist` all
    that the unit holds. `reasons` are texts of Slurm's administrators, each once, in the order of the nodes.
    `publisher` wrote the artifact, or watches the unit if there is none.
    """

    unit: UnitId
    excluded: bool
    level: str | None
    since: int | None
    nodes: str
    faults: tuple[NodeFault, ...]
    reasons: tuple[str, ...]
    publisher: Publisher | None
    state: State
    nodelist: str
    override: Override | None


@dataclass(frozen=True, slots=True)
class Survey:
    """A decision directory at `now`, in seconds since the epoch.

    `publishers` are all that left a heartbeat, by cluster and scope. `units` are those that are excluded or
    overridden, and the others that publishers know to run, by number. `unreadable` names artifacts that could not
    be read, which exclude, and `remarks` says what else is worth a person's look, a line each.
    """

    now: int
    publishers: tuple[Heartbeat, ...]
    units: tuple[UnitView, ...]
    unreadable: tuple[str, ...]
    remarks: tuple[str, ...]

    def living(self) -> tuple[Heartbeat, ...]:
        """Return the publishers that count as alive."""
        return tuple(beat for beat in self.publishers if beat.is_alive(self.now))

    def excluded(self) -> tuple[UnitView, ...]:
        """Return the units that are excluded, by whomever."""
        return tuple(view for view in self.units if view.excluded)


def survey(path: str, now: int) -> Survey:
    """Look at a decision directory. Raises OSError; a file of the ledger that cannot be read is left out."""
    with open_decisions(path) as directory:
        published = directory.read()
        ledger = directory.ledger("", "")
        unheard: list[str] = []
        beats = sorted(ledger.heartbeats(unheard), key=lambda beat: (beat.publisher.cluster, beat.publisher.scope))
        states, remarks = ledger.states()
        watched = _watched(states, beats, now)
        living = {writer(beat.publisher) for beat in beats if beat.is_alive(now)}
        views: dict[UnitId, UnitView] = {}
        for unit, found in published.items():
            watch = watched.get(unit)
            if isinstance(found, Artifact):
                views[unit] = _excluded(found, watch, living)
            else:
                views[unit] = _foreign(unit, found, watch, directory)
        for unit, override in ledger.overrides().items():
            if unit not in views:
                views[unit] = _overridden(unit, override, watched.get(unit))
        for unit in watched.keys() - views.keys():
            views[unit] = _healthy(unit, watched[unit])
        return Survey(
            now,
            tuple(beats),
            tuple(views[unit] for unit in sorted(views, key=lambda unit: (int(unit.job_id), int(unit.task_id)))),
            tuple(f"{directory.path_of(unit)}: {cause}" for unit, cause in sorted(directory.unreadable.items())),
            (*unheard, *remarks, *directory.remarks),
        )


def unit_document(view: UnitView) -> dict[str, Any]:
    """Return the public JSON of a unit, as programs and the status page get it."""
    return {
        "job_id": view.unit.job_id,
        "task_id": view.unit.task_id,
        "excluded": view.excluded,
        "level": view.level,
        "since": None if view.since is None else utc(view.since),
        "nodes": view.nodes,
        "reasons": list(view.reasons),
        "publisher": None if view.publisher is None else view.publisher._asdict(),
        "state": view.state,
    }


@dataclass(frozen=True, slots=True)
class _Watch:
    """What a scope knows of a unit, who that scope's publisher is, and whether it is alive."""

    known: Remembered
    publisher: Publisher | None
    alive: bool


def _watched(
    states: Mapping[tuple[str, str], Memory], beats: Iterable[Heartbeat], now: int
) -> dict[UnitId, _Watch]:
    """Return the units that publishers know to run, each as the best placed of them sees it.

    A living publisher's word goes before that of the dead, and of either kind the last one's to make a pass. What
    a publisher did not see in its last pass is on its way out, and not among them.
    """
    by_scope = {(beat.publisher.cluster, beat.publisher.scope): beat for beat in beats}
    ranked = []
    for who, memory in states.items():
        beat = by_scope.get(who)
        alive = beat is not None and beat.is_alive(now)
        ranked.append((alive, 0 if beat is None else beat.last_complete_pass, who, beat, memory))
    watched: dict[UnitId, _Watch] = {}
    for alive, _, _, beat, memory in sorted(ranked, key=lambda one: one[:3]):  # the best last: it stays
        publisher = None if beat is None else beat.publisher
        watched.update(
            {unit: _Watch(known, publisher, alive) for unit, known in memory.units.items() if not known.misses}
        )
    return watched


def _excluded(artifact: Artifact, watch: _Watch | None, living: set[str]) -> UnitView:
    """View an exclusion of ours: whoever lives and watches the unit has confirmed it, whoever wrote it."""
    confirmed = writer(artifact.publisher) in living or (watch is not None and watch.alive)
    reasons = dict.fromkeys(fault.reason for fault in artifact.nodes if fault.reason)
    return UnitView(
        unit=artifact.unit,
        excluded=True,
        level=artifact.level.name,
        since=artifact.first_published,
        nodes=artifact.unavailable,
        faults=artifact.nodes,
        reasons=tuple(reasons),
        publisher=artifact.publisher,
        state="fresh" if confirmed else "stale",
        nodelist=artifact.nodelist,
        override=None,
    )


def _foreign(unit: UnitId, _found: Content, watch: _Watch | None, directory: DecisionDirectory) -> UnitView:
    return UnitView(
        unit=unit,
        excluded=True,
        level=None,
        since=directory.written_at(unit),
        nodes="",
        faults=(),
        reasons=(),
        publisher=None,
        state="foreign",
        nodelist="" if watch is None else watch.known.nodelist,
        override=None,
    )


def _overridden(unit: UnitId, override: Override, watch: _Watch | None) -> UnitView:
    return UnitView(
        unit=unit,
        excluded=False,
        level=None,
        since=override.since,
        nodes=override.unavailable,
        faults=(),
        reasons=(),
        publisher=None if watch is None else watch.publisher,
        state="override",
        nodelist="" if watch is None else watch.known.nodelist,
        override=override,
    )


def _healthy(unit: UnitId, watch: _Watch) -> UnitView:
    return UnitView(
        unit=unit,
        excluded=False,
        level=None,
        since=None,
        nodes="",
        faults=(),
        reasons=(),
        publisher=watch.publisher,
        state="fresh" if watch.alive else "stale",
        nodelist=watch.known.nodelist,
        override=None,
    )

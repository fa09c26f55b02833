"""Makes pictures: of a pass that was just made, or of a decision directory alone. Reads the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segment_health.decide import decide
from segment_health.levels import levels
from segment_health.situation import Memory, Situation
from segment_health.sources import node_names
from segment_health.store import open_decisions
from segment_health.survey import Survey, UnitView, survey

from .picture import HISTORY, TOLD, Picture, Sight, portray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segment_health.contract import Artifact, UnitId
    from segment_health.observe import Observation
    from segment_health.publication import Publication
    from segment_health.situation import Remembered


def portrait_of_pass(
    observation: Observation, publication: Publication, seen: Mapping[tuple[str, str], int]
) -> Picture:
    """Return the picture of what was observed, and of the directory as it is after the pass. Raises OSError.

    `seen` says since when nodes show the words of their states (see Policy.first_seen).
    """
    return portrait(publication.directory, observation.now, sight_of(observation, publication, seen))


def sight_of(observation: Observation, publication: Publication, seen: Mapping[tuple[str, str], int]) -> Sight:
    """Judge every node that was observed."""
    snapshot = observation.snapshot
    judged = levels(snapshot, publication.policy, observation.reports, seen, observation.now)
    return Sight(snapshot, judged, publication.scope)


def portrait(directory: str, now: int, sight: Sight | None) -> Picture:
    """Return the picture of a directory, and of the nodes that were seen beside it. Raises OSError.

    Without a directory (an empty path) it shows the nodes alone.
    """
    if not directory:
        return portray(Survey(now, (), (), (), ()), (), _expand, sight)
    with open_decisions(directory) as opened:
        told = opened.ledger("", "").recorded(lambda entry: entry.action in TOLD, HISTORY)
    return portray(survey(directory, now), told.entries, _expand, sight)


def _expand(hostlist: str) -> tuple[str, ...]:
    """Name the nodes of a hostlist that stands in somebody's file; none where it is garbled."""
    try:
        return node_names(hostlist)
    except ValueError:
        return ()


def imagined(observation: Observation, publication: Publication) -> Picture:
    """Return the picture of what was observed where nothing is published: what a first pass would decide."""
    situation = Situation(
        observation.snapshot,
        {},
        Memory(),
        publication.scope,
        publication.policy,
        observation.publisher,
        observation.now,
        observation.began,
        reports=observation.reports,
        asked=observation.asked,
        force=True,
    )
    outcome = decide(situation)
    wanted = {decision.unit: decision.artifact for decision in outcome.decisions}
    views = tuple(_wanted(unit, known, wanted.get(unit)) for unit, known in outcome.memory.items())
    told = Survey(observation.now, (), views, (), ())
    return portray(told, (), _expand, sight_of(observation, publication, outcome.seen))


def _wanted(unit: UnitId, known: Remembered, artifact: Artifact | None) -> UnitView:
    """View a unit as it would be published."""
    faults = () if artifact is None else artifact.nodes
    return UnitView(
        unit=unit,
        excluded=artifact is not None,
        level=None if artifact is None else artifact.level.name,
        since=None if artifact is None else artifact.first_published,
        nodes="" if artifact is None else artifact.unavailable,
        faults=faults,
        reasons=tuple(dict.fromkeys(fault.reason for fault in faults if fault.reason)),
        publisher=None,
        state="fresh",
        nodelist=known.nodelist,
        override=None,
    )

"""Retires units that are gone: their artifacts are removed, and they are forgotten. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contract import Artifact
from .judge import is_ours
from .situation import Action, Decision, Remembered

if TYPE_CHECKING:
    from .contract import Content, UnitId
    from .situation import Outcome, Situation

MISSES_TO_RETIRE = 2
"""Complete passes in a row that must miss a unit: slurmctld may forget one for a moment, never twice."""


def candidates(situation: Situation) -> set[UnitId]:
    """Name what this scope retires if it is gone: its own units, dead publishers', those of people's words."""
    overridden = {unit_id for unit_id in situation.overrides if situation.scope.covers_absent(unit_id)}
    left = {unit_id for unit_id, prior in situation.published.items() if _may_retire(unit_id, prior, situation)}
    return situation.memory.units.keys() | overridden | left


def _may_retire(unit_id: UnitId, prior: Artifact | Content | None, situation: Situation) -> bool:
    """Whether what is published of a unit that is gone is this scope's to remove."""
    if not isinstance(prior, Artifact):
        return False
    if is_ours(prior, situation):
        return not situation.may_be_news(prior)
    return (
        prior.publisher.cluster == situation.publisher.cluster
        and situation.scope.covers_absent(unit_id)
        and not situation.is_alive(prior)
    )


def decide_absent(unit_id: UnitId, situation: Situation, outcome: Outcome) -> None:
    """Count a miss of a unit that Slurm does not list, or retire it, into `outcome`."""
    prior = situation.published.get(unit_id)
    remembered = situation.memory.units.get(unit_id)
    if remembered is None and isinstance(prior, Artifact):
        remembered = Remembered(prior.generation, prior.nodelist, published=True)
    elif remembered is None:  # a candidate is remembered, published or overridden
        remembered = Remembered(situation.overrides[unit_id].generation, "")
    visible = situation.snapshot.visible_user
    if visible is not None and visible != remembered.user_id:  # PrivateData: not seen is not absent
        outcome.memory[unit_id] = remembered
        return
    misses = remembered.misses + 1
    if misses >= MISSES_TO_RETIRE and unit_id in situation.overrides:
        outcome.void_overrides.append(unit_id)
    if misses < MISSES_TO_RETIRE:
        outcome.memory[unit_id] = remembered._replace(misses=misses)
    elif prior is None:
        if remembered.published:  # what it cleared lies there with zero bytes
            outcome.decisions.append(Decision(Action.RETIRE, unit_id))
    elif _may_retire(unit_id, prior, situation):
        assert isinstance(prior, Artifact)
        outcome.decisions.append(
            Decision(Action.RETIRE, unit_id, level=prior.level, nodes=prior.unavailable, lifted=prior)
        )

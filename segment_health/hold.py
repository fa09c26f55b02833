"""Holds new exclusions that are too many at once to be believed. Pure.

A wrong rule, or a Slurm that takes a whole row of racks for dead, must not stop every job at its next restart
before somebody has looked. What is excluded already stays so, and what is fit is lifted as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .situation import Action

if TYPE_CHECKING:
    from .situation import Outcome, Situation


def hold(situation: Situation, outcome: Outcome) -> None:
    """Take the new exclusions out of an outcome that has more of them than the policy allows at once.

    They are let through when enough passes in a row have been held before, or when a person says so.
    """
    new = [decision for decision in outcome.decisions if decision.action is Action.EXCLUDE]
    limit = situation.policy.max_new_exclusions
    if limit is None or situation.force or len(new) <= limit.of(outcome.units):
        return
    if situation.memory.held >= situation.policy.hold_passes:
        return
    outcome.held_passes = situation.memory.held + 1
    outcome.held = new
    outcome.decisions = [decision for decision in outcome.decisions if decision.action is not Action.EXCLUDE]
    outcome.excluded -= len(new)
    units = {decision.unit for decision in new}
    outcome.separated = [artifact for artifact in outcome.separated if artifact.unit not in units]
    for unit in units:
        before = situation.memory.units.get(unit)
        known = outcome.memory[unit]
        same = before is not None and before.generation == known.generation
        outcome.memory[unit] = known._replace(
            published=before is not None and before.published,
            separated=same and before is not None and before.separated,
            held=True,
        )

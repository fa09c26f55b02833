"""Decides what every unit's artifact has to say. Pure: no clock, no files, no logging.

Three rules run through it. A decision is lifted by evidence only: every node explicitly fit, a new generation,
or the unit gone. What is not understood changes nothing. And one scope never lifts what another one, alive,
holds to be true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contract import Artifact, Content
from .hold import hold
from .judge import is_ours, judge, nodes_at_start
from .level import FaultLevel
from .levels import tally, well
from .policy.states import is_understood
from .retire import candidates, decide_absent
from .situation import Action, Decision, Outcome, Remembered
from .unit import parts_of, unite

if TYPE_CHECKING:
    from slurm.job import Allocation

    from .contract import UnitId
    from .situation import Situation
    from .unit import Unit

_HEALTHY = {Action.CLEAR, Action.PRECREATE}
"""What leaves an artifact without content."""


def decide(situation: Situation) -> Outcome:
    """Compare the cluster with what is published and name every change, and what to remember.

    Never fails: a snapshot is whole by construction, and published content that is not ours is Content.FOREIGN.
    """
    outcome = Outcome(seen=_first_seen(situation))
    units = parts_of(situation.snapshot.allocations)
    covered = {unit_id for unit_id, parts in units.items() if any(map(situation.scope.covers, parts))}
    fit = well(situation.snapshot, situation.policy, situation.reports)
    news = [unit_id for unit_id in covered if not _is_left(unit_id, units[unit_id], fit, situation, outcome)]
    for unit_id in sorted(news, key=_by_number):
        _decide_present(unite(unit_id, units[unit_id]), situation, outcome)
    for unit_id in sorted(candidates(situation) - units.keys(), key=_by_number):
        decide_absent(unit_id, situation, outcome)
    for unit_id, remembered in situation.memory.units.items():
        if unit_id in units and unit_id not in covered:  # it left the scope, and is nobody's to retire
            outcome.memory[unit_id] = remembered
            _leave_behind(unite(unit_id, units[unit_id]), situation, outcome)
    _count_nodes(situation, outcome)
    hold(situation, outcome)
    _yield_to_a_newer_view(situation, outcome)
    return outcome


def _yield_to_a_newer_view(situation: Situation, outcome: Outcome) -> None:
    """Change nothing where a publisher of this scope on another host has judged by a newer view meanwhile."""
    if situation.is_superseded():
        outcome.superseded_by = situation.previous_host
        outcome.decisions, outcome.held, outcome.separated = [], [], []


def _first_seen(situation: Situation) -> dict[tuple[str, str], int]:
    """Return since when nodes show what they show."""
    policy, snapshot, before = situation.policy, situation.snapshot, situation.memory.seen
    seen: dict[tuple[str, str], int] = {}
    unclear: set[str] = set()
    for (base, flags), names in snapshot.by_state().items():
        if not is_understood(base):
            unclear.update(names)
        for name in names if policy.dates(base, flags) else ():
            node = snapshot.nodes[name]
            seen.update(policy.first_seen(node, before, previous_pass=situation.previous_pass, now=situation.now))
    lost = {name for name, _ in before if name not in snapshot.nodes}
    if lost:
        unclear.update(name for allocation in snapshot.allocations for name in allocation.nodes if name in lost)
    for (name, word), since in before.items():  # a slurmctld that has just started has not forgotten for good
        if name in unclear:
            seen.setdefault((name, word), since)
    return seen


def _by_number(unit: UnitId) -> tuple[int, int]:
    return int(unit.job_id), int(unit.task_id)


# ── units that are there ───────────────────────────────────────────────────────────────────────────────────────


def _is_left(
    unit_id: UnitId, parts: list[Allocation], fit: set[str], situation: Situation, outcome: Outcome
) -> bool:
    """Leave a unit as the last pass did, if nothing of it has changed and its nodes are all `fit`: as most are.

    It is what _decide_present() would find out at ten times the cost; a test holds the two together.
    """
    part, known = parts[0], situation.memory.units.get(unit_id)
    if (
        known is None
        or len(parts) > 1
        or not fit.issuperset(part.nodes)
        or known.nodelist != part.nodelist
        or known.generation != (part.restart_count, part.start_time)
        or known.user_id != part.user_id
        or not part.is_understood
        or unit_id in situation.published
        or unit_id in situation.overrides
        or known.misses
        or known.fit_passes
        or known.fit_since
        or known.held
        or known.over is not None
    ):
        return False
    is_empty = situation.empty.get(unit_id)
    if (is_empty and not known.published) or (is_empty is None and situation.precreate):
        return False
    outcome.units += 1
    outcome.nodes_of[unit_id] = len(part.nodes)
    outcome.memory[unit_id] = known
    return True


def _decide_present(unit: Unit, situation: Situation, outcome: Outcome) -> None:
    prior = situation.published.get(unit.id)
    remembered = situation.memory.units.get(unit.id)
    # An empty artifact may be of a pass of ours that was killed before it could remember.
    published = situation.empty.get(unit.id, False) or (remembered is not None and remembered.published)
    if remembered is not None and remembered.generation != unit.generation:
        remembered = None
    known_as = nodes_at_start(unit, remembered, prior, situation)
    decision = wanted = None
    fit_passes = fit_since = 0
    if unit.understood:
        judgement = judge(unit, known_as, situation, outcome)
        wanted = judgement.wanted
        if judgement.is_fit and prior is not None:
            fit_passes, fit_since = _fit_for(remembered, situation)
        healthy = situation.policy.clear_after.is_met(fit_passes, situation.now - fit_since)
        may_lift = judgement.is_fit and (healthy or judgement.overridden)
        decision = _reconcile(unit, wanted, prior, situation, may_lift=may_lift)
        if judgement.is_fit and not may_lift and decision is None and isinstance(prior, Artifact):
            outcome.clearing.append(unit.id)
    else:
        outcome.not_understood.append(unit.id)
    separated = remembered is not None and remembered.separated
    if wanted is not None and wanted.level is FaultLevel.SeparateFault and not separated:
        separated = True
        outcome.separated.append(wanted)
    over = _replaced(prior, decision, remembered, unit, situation)
    overridden = unit.id in outcome.overridden  # a person's word is about every scope's exclusion
    if over is not None and decision is not None and decision.action is Action.CLEAR and not overridden:
        decision, over = _write(Action.UPDATE, over), None  # what we raised was another scope's, which it is again
    if decision is None and prior is None and situation.precreate and unit.id not in situation.empty:
        decision = Decision(Action.PRECREATE, unit.id)
    if decision is not None:
        outcome.decisions.append(decision)
        published |= decision.action is not Action.FOREIGN
    outcome.units += 1
    outcome.nodes_of[unit.id] = len(unit.nodes)
    outcome.excluded += decision.action not in _HEALTHY if decision is not None else prior is not None
    outcome.memory[unit.id] = Remembered(
        unit.generation,
        situation.snapshot.folded(known_as, unit.nodelist, "" if remembered is None else remembered.nodelist),
        unit.user_id,
        published=published or is_ours(prior, situation),
        separated=separated,
        fit_passes=fit_passes,
        fit_since=fit_since,
        over=over,
    )


def _replaced(
    prior: Artifact | Content | None,
    decision: Decision | None,
    remembered: Remembered | None,
    unit: Unit,
    situation: Situation,
) -> Artifact | None:
    """Return the exclusion of another living scope that ours stands in the place of, None if there is none."""
    if is_ours(prior, situation):
        over = None if remembered is None else remembered.over
    else:
        raised = decision is not None and decision.action is Action.UPDATE
        over = prior if raised and isinstance(prior, Artifact) else None
    if over is None or over.generation != unit.generation or not situation.is_alive(over):
        return None
    return over


def _fit_for(remembered: Remembered | None, situation: Situation) -> tuple[int, int]:
    """Return how many passes in a row have found an excluded unit fit, with this one, and since when.

    Counted no further than `clear_after` asks: what is not ours to lift would change the state with every pass.
    """
    if remembered is None or not remembered.fit_passes:
        return 1, situation.now
    passes = min(remembered.fit_passes + 1, situation.policy.clear_after.passes)
    return passes, min(situation.now, remembered.fit_since)


def _leave_behind(unit: Unit, situation: Situation, outcome: Outcome) -> None:
    """Lift what this scope said of an earlier run of a unit that left it: nobody else may be there to do so."""
    prior = situation.published.get(unit.id)
    if (
        isinstance(prior, Artifact)
        and is_ours(prior, situation)
        and prior.generation.is_older_than(unit.generation)
    ):
        outcome.decisions.append(_lift(prior))


def _reconcile(
    unit: Unit,
    wanted: Artifact | None,
    prior: Artifact | Content | None,
    situation: Situation,
    *,
    may_lift: bool,
) -> Decision | None:
    """Name the step from what is published to what is wanted, if this scope may take it."""
    if prior is None:
        return None if wanted is None else _write(Action.EXCLUDE, wanted)
    if isinstance(prior, Content) or prior.publisher.cluster != situation.publisher.cluster:
        return _over_foreign(unit, wanted, situation, may_lift=may_lift)
    if is_ours(prior, situation):
        return _over_ours(unit, wanted, prior, situation, may_lift=may_lift)
    outdated = prior.generation.is_older_than(unit.generation)
    if wanted is not None:
        return _write(Action.UPDATE, wanted) if outdated or wanted.level > prior.level else None
    return _lift(prior) if outdated or (may_lift and not situation.is_alive(prior)) else None


def _over_ours(
    unit: Unit, wanted: Artifact | None, prior: Artifact, situation: Situation, *, may_lift: bool
) -> Decision | None:
    """Bring up to date what this scope wrote itself, unless another host has just done so."""
    if situation.may_be_news(prior) and not prior.generation.is_older_than(unit.generation):
        return None
    if wanted is not None:
        return None if wanted.says_the_same_as(prior) else _write(Action.UPDATE, wanted)
    return _lift(prior) if may_lift or prior.generation != unit.generation else None


def _over_foreign(unit: Unit, wanted: Artifact | None, situation: Situation, *, may_lift: bool) -> Decision | None:
    """Leave alone what a person, another tool or another cluster wrote, unless told to adopt it."""
    if not situation.adopt:
        return Decision(Action.FOREIGN, unit.id)
    if wanted is not None:
        return _write(Action.UPDATE, wanted)
    return Decision(Action.CLEAR, unit.id) if may_lift else None


def _lift(prior: Artifact) -> Decision:
    return Decision(Action.CLEAR, prior.unit, level=prior.level, nodes=prior.unavailable, lifted=prior)


def _write(action: Action, artifact: Artifact) -> Decision:
    return Decision(action, artifact.unit, artifact, artifact.level, artifact.unavailable)


# ── the whole cluster ──────────────────────────────────────────────────────────────────────────────────────────


def _count_nodes(situation: Situation, outcome: Outcome) -> None:
    told = tally(situation.snapshot, situation.policy, situation.reports, outcome.seen, situation.now)
    outcome.nodes_by_level = dict(told.levels)
    outcome.unavailable_nodes = sum(number for level, number in told.levels.items() if level)
    outcome.unknown_flags = dict(told.unknown_flags)

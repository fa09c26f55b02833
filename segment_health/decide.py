"""Decides what every unit's artifact has to say. Pure: no clock, no files, no logging.

Three rules run through it. A decision is lifted by evidence only: every node explicitly fit, a new generation,
or the unit gone. What is not understood changes nothing. And one scope never lifts what another one, alive,
holds to be true.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .contract import MAX_NODES, MAX_REASON, Artifact, Content, NodeFault, UnitId
from .level import FaultLevel
from .situation import Action, Decision, Outcome, Remembered, Situation
from .unit import Unit, unit_id_of, units_of

if TYPE_CHECKING:
    from slurm.node import Node

MISSES_TO_RETIRE = 2
"""Complete passes in a row that must miss a unit: slurmctld may forget one for a moment, never twice."""
SHRUNK = "unit:shrunk"
"""The rule that names a node which the unit lost in mid-generation."""


def decide(situation: Situation) -> Outcome:
    """Compare the cluster with what is published and name every change, and what to remember.

    Never fails: a snapshot is whole by construction, and published content that is not ours is Content.FOREIGN.
    """
    outcome = Outcome()
    units = units_of(situation.snapshot.allocations)
    covered = {unit_id_of(a) for a in situation.snapshot.allocations if situation.scope.covers(a)}
    for unit_id in sorted(covered, key=_by_number):
        _decide_present(units[unit_id], situation, outcome)
    for unit_id in sorted(_candidates(situation) - units.keys(), key=_by_number):
        _decide_absent(unit_id, situation, outcome)
    for unit_id, remembered in situation.memory.items():
        if unit_id in units and unit_id not in covered:  # it left the scope, and is nobody's to retire
            outcome.memory[unit_id] = remembered
    _count_nodes(situation, outcome)
    return outcome


def _by_number(unit: UnitId) -> tuple[int, int]:
    return int(unit.job_id), int(unit.task_id)


# ── units that are there ───────────────────────────────────────────────────────────────────────────────────────


def _decide_present(unit: Unit, situation: Situation, outcome: Outcome) -> None:
    prior = situation.published.get(unit.id)
    remembered = situation.memory.get(unit.id)
    published = remembered is not None and remembered.published
    if remembered is not None and remembered.generation != unit.generation:
        remembered = None
    known_as = _nodes_at_start(unit, remembered, prior, situation)
    decision = None
    if unit.understood:
        faults, every_node_fit = _judge(unit, known_as, situation, outcome)
        wanted = _artifact(unit, known_as, faults, prior, situation)
        decision = _reconcile(unit, wanted, prior, situation, may_lift=every_node_fit)
    else:
        outcome.not_understood.append(unit.id)
    if decision is not None:
        outcome.decisions.append(decision)
        published |= decision.action is not Action.FOREIGN
    outcome.units += 1
    outcome.excluded += decision.action is not Action.CLEAR if decision is not None else prior is not None
    outcome.memory[unit.id] = Remembered(
        unit.generation,
        _folded(known_as, remembered, situation),
        unit.user_id,
        published=published or _is_ours(prior, situation),
    )


def _folded(nodes: frozenset[str], remembered: Remembered | None, situation: Situation) -> str:
    """Fold node names, or keep the text that already says so: folding 10,000 names a pass is felt."""
    if remembered is not None and frozenset(situation.snapshot.recall(remembered.nodelist)) == nodes:
        return remembered.nodelist
    return situation.snapshot.fold(sorted(nodes))


def _nodes_at_start(
    unit: Unit, remembered: Remembered | None, prior: Artifact | Content | None, situation: Situation
) -> frozenset[str]:
    """Name all nodes that this generation of the unit ever had: a `--no-kill` job loses a DOWN one at once."""
    nodes = unit.nodes
    if remembered is not None:
        nodes |= frozenset(situation.snapshot.recall(remembered.nodelist))
    if isinstance(prior, Artifact) and prior.generation == unit.generation:
        nodes |= frozenset(situation.snapshot.recall(prior.nodelist))
    return nodes


def _judge(
    unit: Unit, known_as: frozenset[str], situation: Situation, outcome: Outcome
) -> tuple[dict[str, NodeFault], bool]:
    """Return the faults by node name, and whether every node is explicitly fit."""
    snapshot, inherited = situation.snapshot, _inherited(unit, situation)
    faults: dict[str, NodeFault] = {}
    every_node_fit = True
    for name in sorted(known_as):
        node = snapshot.nodes.get(name)
        if name not in unit.nodes:
            faults[name] = _fault(name, node, FaultLevel.SeparateFault, SHRUNK)
            continue
        assessment = situation.policy.assess(node) if node is not None else None
        if assessment is None or assessment.level is None:
            every_node_fit = False
            outcome.no_verdict.add(name)
            if name in inherited:
                faults[name] = inherited[name]
        elif assessment.level > FaultLevel.NotHandleFault:
            faults[name] = _fault(name, node, assessment.level, assessment.rule)
    level = max((fault.level for fault in faults.values()), default=FaultLevel.NotHandleFault)
    if level < situation.policy.publish_at:
        return {}, every_node_fit
    return faults, False


def _inherited(unit: Unit, situation: Situation) -> dict[str, NodeFault]:
    """Return this scope's own last word on the same generation: a node without a verdict keeps its part of it."""
    prior = situation.published.get(unit.id)
    if not isinstance(prior, Artifact) or prior.generation != unit.generation or not _is_ours(prior, situation):
        return {}
    beyond_the_entries = {
        name: _fault(name, None, prior.level, "state:unknown")
        for name in situation.snapshot.recall(prior.unavailable)
    }
    return beyond_the_entries | {fault.name: fault for fault in prior.nodes}


def _fault(name: str, node: Node | None, level: FaultLevel, rule: str) -> NodeFault:
    if node is None:
        return NodeFault(name, (), None, None, None, level, rule)
    reason = node.reason if node.reason is None else node.reason[:MAX_REASON]
    return NodeFault(name, node.state, reason, node.reason_user, node.reason_since, level, rule)


def _artifact(
    unit: Unit,
    known_as: frozenset[str],
    faults: dict[str, NodeFault],
    prior: Artifact | Content | None,
    situation: Situation,
) -> Artifact | None:
    """Write down the exclusion that the faults ask for; None when they ask for none."""
    if not faults:
        return None
    first_published = situation.now
    if isinstance(prior, Artifact) and prior.generation == unit.generation:
        first_published = prior.first_published
    names = sorted(faults)
    return Artifact(
        unit=unit.id,
        level=max(fault.level for fault in faults.values()),
        nodes=tuple(faults[name] for name in names[:MAX_NODES]),
        unavailable=situation.snapshot.fold(names),
        generation=unit.generation,
        nodelist=situation.snapshot.fold(sorted(known_as)),
        first_published=first_published,
        updated=situation.now,
        publisher=situation.publisher,
    )


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
    if _is_ours(prior, situation):
        if wanted is not None:
            return None if wanted.says_the_same_as(prior) else _write(Action.UPDATE, wanted)
        return _lift(prior) if may_lift or prior.generation != unit.generation else None
    outdated = prior.generation < unit.generation
    if wanted is not None:
        return _write(Action.UPDATE, wanted) if outdated or wanted.level > prior.level else None
    return _lift(prior) if outdated or (may_lift and not _is_alive(prior, situation)) else None


def _over_foreign(unit: Unit, wanted: Artifact | None, situation: Situation, *, may_lift: bool) -> Decision | None:
    """Leave alone what a person, another tool or another cluster wrote, unless told to adopt it."""
    if not situation.adopt:
        return Decision(Action.FOREIGN, unit.id)
    if wanted is not None:
        return _write(Action.UPDATE, wanted)
    return Decision(Action.CLEAR, unit.id) if may_lift else None


def _lift(prior: Artifact) -> Decision:
    return Decision(Action.CLEAR, prior.unit, level=prior.level, nodes=prior.unavailable)


def _write(action: Action, artifact: Artifact) -> Decision:
    return Decision(action, artifact.unit, artifact, artifact.level, artifact.unavailable)


def _is_ours(prior: Artifact | Content | None, situation: Situation) -> bool:
    """Whether this very scope wrote it, on whatever host."""
    return isinstance(prior, Artifact) and (prior.publisher.cluster, prior.publisher.scope) == (
        situation.publisher.cluster,
        situation.publisher.scope,
    )


def _is_alive(prior: Artifact, situation: Situation) -> bool:
    living = situation.living
    return living is None or (prior.publisher.cluster, prior.publisher.scope) in living


# ── units that are gone ────────────────────────────────────────────────────────────────────────────────────────


def _candidates(situation: Situation) -> set[UnitId]:
    """Name the units that this scope would retire if they are gone: its own, and those of dead publishers."""
    return situation.memory.keys() | {
        unit_id for unit_id, prior in situation.published.items() if _may_retire(unit_id, prior, situation)
    }


def _may_retire(unit_id: UnitId, prior: Artifact | Content | None, situation: Situation) -> bool:
    if not isinstance(prior, Artifact):
        return False
    if _is_ours(prior, situation):
        return True
    return (
        prior.publisher.cluster == situation.publisher.cluster
        and situation.scope.covers_absent(unit_id)
        and not _is_alive(prior, situation)
    )


def _decide_absent(unit_id: UnitId, situation: Situation, outcome: Outcome) -> None:
    prior = situation.published.get(unit_id)
    remembered = situation.memory.get(unit_id)
    if remembered is None:
        assert isinstance(prior, Artifact)  # a candidate is remembered or published
        remembered = Remembered(prior.generation, prior.nodelist, published=True)
    visible = situation.snapshot.visible_user
    if visible is not None and visible != remembered.user_id:  # PrivateData: not seen is not absent
        outcome.memory[unit_id] = remembered
        return
    misses = remembered.misses + 1
    if misses < MISSES_TO_RETIRE:
        outcome.memory[unit_id] = replace(remembered, misses=misses)
    elif prior is None:
        if remembered.published:  # what it cleared lies there with zero bytes
            outcome.decisions.append(Decision(Action.RETIRE, unit_id))
    elif _may_retire(unit_id, prior, situation):
        assert isinstance(prior, Artifact)
        outcome.decisions.append(Decision(Action.RETIRE, unit_id, level=prior.level, nodes=prior.unavailable))


# ── the whole cluster ──────────────────────────────────────────────────────────────────────────────────────────


def _count_nodes(situation: Situation, outcome: Outcome) -> None:
    allocated = {name for allocation in situation.snapshot.allocations for name in allocation.nodes}
    for node in situation.snapshot.nodes.values():
        assessment = situation.policy.assess(node, allocated=node.name in allocated)
        if assessment.level is not None and assessment.level > FaultLevel.NotHandleFault:
            outcome.unavailable_nodes += 1
        for flag in assessment.unknown:
            outcome.unknown_flags.setdefault(flag, node.name)

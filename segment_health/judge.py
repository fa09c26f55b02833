"""Judges one unit: which of its nodes are faults, and what its artifact ought to say. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contract import MAX_NODES, MAX_REASON, Artifact, Content, NodeFault
from .level import FaultLevel

if TYPE_CHECKING:
    from slurm.node import Node

    from .situation import Outcome, Remembered, Situation
    from .unit import Unit

SHRUNK = "unit:shrunk"
"""The rule that names a node which the unit lost in mid-generation."""


def judge(
    unit: Unit, known_as: frozenset[str], situation: Situation, outcome: Outcome
) -> tuple[Artifact | None, bool]:
    """Return the exclusion that a unit's nodes ask for, or None, and whether its lack is evidence.

    `known_as` are the nodes that the unit ever had in this generation. Without an exclusion it is evidence that
    lifts one only when every node is understood, and fit or faulty below the level that is published; or when a
    person has overridden the faults.
    """
    faults, all_understood = _faults(unit, known_as, situation, outcome)
    level = max((fault.level for fault in faults.values()), default=FaultLevel.NotHandleFault)
    wanted = _artifact(unit, known_as, faults, situation) if level >= situation.policy.publish_at else None
    may_lift = all_understood and wanted is None
    override = situation.overrides.get(unit.id)
    if override is None or not (faults or all_understood):
        return wanted, may_lift
    # Whatever this scope's own bar is: the word is about the nodes.
    if (unit.generation, situation.snapshot.fold(sorted(faults))) != (override.generation, override.unavailable):
        outcome.void_overrides.append(unit.id)
        return wanted, may_lift
    outcome.overridden.append(unit.id)
    return None, True


def nodes_at_start(
    unit: Unit, remembered: Remembered | None, prior: Artifact | Content | None, situation: Situation
) -> frozenset[str]:
    """Name all nodes that this generation of the unit ever had: a `--no-kill` job loses a DOWN one at once."""
    nodes = unit.nodes
    if remembered is not None:
        nodes |= frozenset(situation.snapshot.recall(remembered.nodelist))
    if isinstance(prior, Artifact) and prior.generation == unit.generation:
        nodes |= frozenset(situation.snapshot.recall(prior.nodelist))
    return nodes


def _faults(
    unit: Unit, known_as: frozenset[str], situation: Situation, outcome: Outcome
) -> tuple[dict[str, NodeFault], bool]:
    """Return the faults by node name, and whether every node's state is understood."""
    snapshot, inherited = situation.snapshot, _inherited(unit, situation)
    faults: dict[str, NodeFault] = {}
    all_understood = True
    for name in sorted(known_as):
        node = snapshot.nodes.get(name)
        if name not in unit.nodes:
            faults[name] = _fault(name, node, FaultLevel.SeparateFault, SHRUNK)
            continue
        assessment = situation.policy.assess(node) if node is not None else None
        if assessment is None or assessment.level is None:
            all_understood = False
            outcome.no_verdict.add(name)
            if name in inherited:
                faults[name] = inherited[name]
        elif assessment.level > FaultLevel.NotHandleFault:
            faults[name] = _fault(name, node, assessment.level, assessment.rule)
    return faults, all_understood


def _inherited(unit: Unit, situation: Situation) -> dict[str, NodeFault]:
    """Return this scope's own last word on the same generation: a node without a verdict keeps its part of it."""
    prior = situation.published.get(unit.id)
    if not isinstance(prior, Artifact) or prior.generation != unit.generation or not is_ours(prior, situation):
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
    situation: Situation,
) -> Artifact | None:
    """Write down the exclusion that the faults ask for; None when they ask for none."""
    if not faults:
        return None
    prior = situation.published.get(unit.id)
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


def is_ours(prior: Artifact | Content | None, situation: Situation) -> bool:
    """Whether this very scope wrote it, on whatever host."""
    return isinstance(prior, Artifact) and (prior.publisher.cluster, prior.publisher.scope) == (
        situation.publisher.cluster,
        situation.publisher.scope,
    )

"""Why a node or a unit is excluded or not: the same judgement that a pass makes, taken apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .contract import Artifact, Content
from .judge import assess, is_ours, nodes_at_start
from .level import FaultLevel
from .unit import units_of

if TYPE_CHECKING:
    from slurm.node import Node

    from .contract import UnitId
    from .policy.assess import Assessment, Finding
    from .situation import Outcome, Situation
    from .unit import Unit


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """How one node stands: `node` is None where Slurm does not list it, `assessment` where nobody knows.

    `units` hold it now; `is_lost` says that the unit looked at held it and does not any more.
    """

    name: str
    node: Node | None
    assessment: Assessment | None
    units: tuple[UnitId, ...]
    is_lost: bool = False

    @property
    def is_fit(self) -> bool:
        """Whether it is explicitly no fault."""
        told = self.assessment
        return not self.is_lost and told is not None and told.final and told.level is FaultLevel.NotHandleFault


@dataclass(frozen=True, slots=True)
class UnitStanding:
    """How one unit stands: `unit` is None when Slurm does not list it, `published` what its artifact says.

    `next_pass` is what a pass of the artifact's scope would do now: an action, "held" or "nothing". `nodes` are
    those that are not fit; `lifted_by` what would lift the exclusion that is there or is coming, a sentence each.
    """

    id: UnitId
    unit: Unit | None
    published: Artifact | Content | None
    next_pass: str
    nodes: tuple[NodeStanding, ...]
    lifted_by: tuple[str, ...]


def explain_node(name: str, situation: Situation, outcome: Outcome) -> NodeStanding:
    """Explain one node, by the worst that any unit which holds it may say of it."""
    units = [unit for unit in units_of(situation.snapshot.allocations).values() if name in unit.nodes]
    told = [assess(name, unit, situation, outcome.seen) for unit in units]
    node = situation.snapshot.nodes.get(name)
    if not told and node is not None:
        told = [situation.policy.assess(node, allocated=False, seen=outcome.seen, now=situation.now)]
    worst = max(told, key=lambda one: -1 if one is None or one.level is None else one.level, default=None)
    return NodeStanding(name, node, worst, tuple(sorted(unit.id for unit in units)))


def explain_unit(unit_id: UnitId, situation: Situation, outcome: Outcome) -> UnitStanding:
    """Explain one unit, as the scope of the situation sees it."""
    unit = units_of(situation.snapshot.allocations).get(unit_id)
    published = situation.published.get(unit_id)
    nodes: list[NodeStanding] = []
    if unit is not None:
        remembered = situation.memory.units.get(unit_id)
        if remembered is not None and remembered.generation != unit.generation:
            remembered = None
        for name in sorted(nodes_at_start(unit, remembered, published, situation)):
            told = assess(name, unit, situation, outcome.seen)
            row = situation.snapshot.nodes.get(name)
            standing = NodeStanding(name, row, told, (unit_id,), is_lost=name not in unit.nodes)
            if not standing.is_fit:
                nodes.append(standing)
    next_pass = _next_pass(unit_id, outcome)
    lifted_by: list[str] = []
    if published is not None or next_pass in {"exclude", "held"}:
        lifted_by = _lifted_by(unit_id, published, nodes, situation)
    return UnitStanding(unit_id, unit, published, next_pass, tuple(nodes), tuple(lifted_by))


def _next_pass(unit: UnitId, outcome: Outcome) -> str:
    if any(decision.unit == unit for decision in outcome.held):
        return "held"
    return next((decision.action.value for decision in outcome.decisions if decision.unit == unit), "nothing")


def _lifted_by(
    unit: UnitId, published: Artifact | Content | None, nodes: list[NodeStanding], situation: Situation
) -> list[str]:
    if isinstance(published, Content):
        return ["whoever wrote the artifact: remove it, or let a publisher with --adopt take it over"]
    sentences = []
    if isinstance(published, Artifact) and not is_ours(published, situation):
        writer = published.publisher
        sentences.append(f"the publisher of {writer.scope} on {writer.host}, which wrote it, or its end")
    sentences += [sentence for node in nodes for sentence in _cured_by(node, situation)]
    if situation.policy.clear_after.passes > 1 or situation.policy.clear_after.seconds:
        known = situation.memory.units.get(unit)
        so_far = f"; {known.fit_passes} passes so far" if known is not None and known.fit_passes else ""
        sentences.append(f"then health for {situation.policy.clear_after} (clear_after){so_far}")
    return [*sentences, "or a requeue, the job's end", f"or `segment-health clear {unit} --reason TEXT`"]


def _cured_by(node: NodeStanding, situation: Situation) -> list[str]:
    if node.is_lost:
        return [f"nothing but a new generation: the unit has lost {node.name}"]
    if node.node is None:
        return [f"{node.name} listed by Slurm again, and fit"]
    told = node.assessment
    if told is None:
        return [f"{node.name} in a state that is understood, and fit"]
    sentences = [_of_finding(node.name, finding, situation) for finding in told.findings]
    if not any(sentences):  # what another source says has no findings
        return [f"{node.name} without {told.rule}"]
    return [sentence for sentence in sentences if sentence]


def _of_finding(name: str, finding: Finding, situation: Situation) -> str:
    if finding.waiting is not None and finding.level is None:
        return f"{name} without {finding.word}, for which rule {finding.waiting.name!r} waits"
    if finding.level is None:
        return f"{name} with a verdict on {finding.word or 'its empty state'}"
    return f"{name} without {finding.word}" if finding.level >= situation.policy.publish_at else ""

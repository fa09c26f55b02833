"""Why a node or a unit is excluded or not: the same judgement that a pass makes, taken apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .contract import Artifact, Content
from .judge import assess, is_ours, nodes_at_start, reporter, unasked
from .level import FaultLevel
from .levels import badness
from .policy.assess import worse
from .record import utc
from .retire import MISSES_TO_RETIRE
from .situation import Action
from .unit import units_of

if TYPE_CHECKING:
    from slurm.node import Node

    from .contract import UnitId
    from .judge import Reporter
    from .policy.assess import Assessment, Finding
    from .situation import Outcome, Override, Remembered, Situation
    from .unit import Unit

HELD = "held"
"""What a pass would do with an exclusion that comes with too many others."""


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
    `override` is a person's word that holds. `is_clearing` says that it is fit, though not yet for as long as
    `clear_after` wants; `remembered` is what earlier passes saw of it.
    """

    id: UnitId
    unit: Unit | None
    published: Artifact | Content | None
    next_pass: str
    nodes: tuple[NodeStanding, ...]
    lifted_by: tuple[str, ...]
    override: Override | None = None
    is_clearing: bool = False
    remembered: Remembered | None = None

    @property
    def is_held(self) -> bool:
        """Whether its exclusion is held back, with others that are too many at once."""
        return self.next_pass == HELD


def explain_node(name: str, situation: Situation, outcome: Outcome) -> NodeStanding:
    """Explain one node, by the worst that any unit which holds it may say of it."""
    units = [unit for unit in units_of(situation.snapshot.allocations).values() if name in unit.nodes]
    told = [assess(name, unit, situation, outcome.seen) for unit in units]
    node = situation.snapshot.nodes.get(name)
    if not told and node is not None:
        alone = situation.policy.assess(node, allocated=False, seen=outcome.seen, now=situation.now)
        told = [worse(alone, situation.reports.get(name))]
    return NodeStanding(name, node, max(told, key=badness, default=None), tuple(sorted(unit.id for unit in units)))


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
    told_so_far = situation.memory.units.get(unit_id)
    lifted_by: list[str] = []
    if isinstance(published, Content):
        lifted_by = ["whoever wrote the artifact: remove it, or let a publisher with --adopt take it over"]
    elif published is not None or next_pass in {Action.EXCLUDE.value, HELD}:
        lifted_by = _gone(told_so_far) if unit is None else _cures(unit, published, nodes, situation)
        lifted_by.append(f"or `segment-health clear {_for_clear(unit_id, situation)} --reason TEXT`")
    return UnitStanding(
        unit_id,
        unit,
        published,
        next_pass,
        tuple(nodes),
        tuple(lifted_by),
        situation.overrides[unit_id] if unit_id in outcome.overridden else None,
        unit_id in outcome.clearing,
        told_so_far,
    )


def _next_pass(unit: UnitId, outcome: Outcome) -> str:
    if any(decision.unit == unit for decision in outcome.held):
        return HELD
    return next((decision.action.value for decision in outcome.decisions if decision.unit == unit), "nothing")


def _for_clear(unit: UnitId, situation: Situation) -> str:
    """Name a unit so that `clear` takes it alone: of array 7, task 7 is written 7, and so is the whole array."""
    others = {*units_of(situation.snapshot.allocations), *situation.published} - {unit}
    alone = all(other.job_id != unit.job_id for other in others)
    return str(unit) if alone else f"{unit.job_id}_{unit.task_id}"


def _gone(remembered: Remembered | None) -> list[str]:
    misses = 0 if remembered is None else remembered.misses
    return [f"{MISSES_TO_RETIRE} complete passes in a row that do not find it ({misses} so far)"]


def _cures(
    unit: Unit, published: Artifact | Content | None, nodes: list[NodeStanding], situation: Situation
) -> list[str]:
    if isinstance(published, Artifact) and published.generation != unit.generation and not nodes:
        return ["the next pass: the generation that it is about is over"]
    sentences = []
    if isinstance(published, Artifact) and not is_ours(published, situation):
        writer = published.publisher
        of_cluster = "" if writer.cluster == situation.publisher.cluster else f" of cluster {writer.cluster}"
        sentences.append(
            f"the publisher of {writer.scope}{of_cluster} on {writer.host}, which wrote it, or its end"
        )
    sentences += [sentence for node in nodes for sentence in _cured_by(node, situation)]
    if isinstance(published, Artifact):
        sentences += _asked_again(published, situation)
    wanted = situation.policy.clear_after
    if wanted.passes > 1 or wanted.seconds:
        known = situation.memory.units.get(unit.id)
        health = f"health for {wanted} (clear_after){_so_far(known)}"
        sentences.append(f"then {health}" if sentences else health)
    elif not sentences:
        sentences.append("the next pass: every node of it is fit")
    return [*sentences, "or a requeue, or the job's end"]


def _asked_again(published: Artifact, situation: Situation) -> list[str]:
    """Name the sources that were not asked, and whose word is in the artifact."""
    missed: dict[Reporter, list[str]] = {}
    for fault in published.nodes:
        who = unasked(fault.rule, situation)
        if who is not None:
            missed.setdefault(who, []).append(fault.name)
    return [
        f"a pass that is given {who.option}: {who.said} names {situation.snapshot.fold(names)}"
        for who, names in missed.items()
    ]


def _so_far(known: Remembered | None) -> str:
    if known is None or not known.fit_passes:
        return ""
    passes = "1 pass" if known.fit_passes == 1 else f"{known.fit_passes} passes"
    return f"; {passes} so far, since {utc(known.fit_since)}"


def _cured_by(node: NodeStanding, situation: Situation) -> list[str]:
    if node.is_lost:
        return [f"nothing but a new generation: the unit has lost {node.name}"]
    if node.node is None:
        return [f"{node.name} listed by Slurm again, and fit"]
    told = node.assessment
    if told is None:
        return [f"{node.name} in a state that is understood, and fit"]
    sentences = [sentence for finding in told.findings if (sentence := _of_finding(node.name, finding, situation))]
    counts = not told.final or told.level is None or told.level >= situation.policy.publish_at
    if counts and not sentences:  # what another source says has no findings
        sentences.append(f"{node.name} without {told.rule}")
    return sentences


def _of_finding(name: str, finding: Finding, situation: Situation) -> str:
    """Say what would cure one word of a state; nothing where it needs no cure."""
    word = finding.word or "its empty state"
    if finding.level is None:
        waits = finding.waiting
        return (
            f"{name} with a verdict on {word}" if waits is None else f"{name} without {word} ({_waits(finding)})"
        )
    if finding.level < situation.policy.publish_at:
        # Below the bar it is no fault to anybody; while a rule waits it is no health either.
        return "" if finding.waiting is None else f"{name} without {word} ({_waits(finding)})"
    if finding.rule is not None and finding.rule.reason is not None:
        return f"{name} without {word}, or without the reason that rule {finding.rule.name!r} looks for"
    who = reporter(word)
    ends = f": {who.ended_by}" if who is not None and who.ended_by else ""
    return f"{name} without {word}{ends}"


def _waits(finding: Finding) -> str:
    return "" if finding.waiting is None else f"rule {finding.waiting.name!r} waits"

"""Judges one unit: which of its nodes are faults, and what its artifact ought to say. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .contract import MAX_NODES, MAX_REASON, Artifact, Content, NodeFault
from .level import FaultLevel
from .levels import together
from .situation import writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.node import Node

    from .policy.assess import Assessment
    from .situation import Outcome, Remembered, Situation
    from .unit import Unit

SHRUNK = "unit:shrunk"
"""The rule that names a node which the unit lost in mid-generation."""


class Reporter(NamedTuple):
    """A source of faults beside Slurm, for a sentence: what it said, by which option it is asked, what ends it."""

    said: str
    option: str
    ended_by: str = ""


REPORTERS = {
    "noded:": Reporter("NodeD's report", "--noded-dir"),
    "attribution:": Reporter(
        "a blame of attribution's", "--attribution-blame", "its age (--blame-max-age), or the removal of its file"
    ),
}
"""How rules begin that name what another source reported: Slurm's word alone is no evidence against that."""


def unasked(rule: str, situation: Situation) -> Reporter | None:
    """Return who gave a fault this rule, if that is a source which was not asked this time."""
    who = reporter(rule)
    return None if who is None or f"{rule.partition(':')[0]}:" in situation.asked else who


def reporter(rule: str) -> Reporter | None:
    """Return which source beside Slurm names its rules so, None where it is Slurm or a rule of the policy."""
    return REPORTERS.get(f"{rule.partition(':')[0]}:")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a unit's nodes ask for: `wanted` is the exclusion, None if they ask for none.

    `is_fit` says that the lack of one is evidence: every node is understood, and fit or faulty below the level
    that is published. `overridden` says that it is a person's word.
    """

    wanted: Artifact | None
    is_fit: bool
    overridden: bool = False


def judge(unit: Unit, known_as: frozenset[str], situation: Situation, outcome: Outcome) -> Judgement:
    """Judge a unit; `known_as` are the nodes that it ever had in this generation."""
    faults, unclear = _faults(unit, known_as, situation, outcome)
    level = max((fault.level for fault in faults.values()), default=FaultLevel.NotHandleFault)
    wanted = _artifact(unit, known_as, faults, situation) if level >= situation.policy.publish_at else None
    told = Judgement(wanted, not unclear and wanted is None)
    override = situation.overrides.get(unit.id)
    if override is None:
        return told
    # Whatever this scope's own bar is: the word is about the nodes. One without a verdict is neither fit nor new.
    # That a node is no longer bad is for the scope to say whose exclusion it was: another policy may forgive more.
    spoken_of = frozenset(situation.snapshot.recall(override.unavailable))
    is_its_own = override.scope in {"", writer(situation.publisher)}
    same = faults.keys() <= spoken_of and (not is_its_own or spoken_of <= faults.keys() | unclear)
    if unit.generation != override.generation or not same:
        outcome.void_overrides.append(unit.id)
        return told
    if wanted is None and not is_its_own:
        return told
    outcome.overridden.append(unit.id)
    return Judgement(None, is_fit=True, overridden=True)


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
) -> tuple[dict[str, NodeFault], set[str]]:
    """Return the faults by node name, and the nodes of which not everything is known."""
    snapshot, inherited = situation.snapshot, _inherited(unit, situation)
    faults: dict[str, NodeFault] = {}
    unclear: set[str] = set()
    for name in sorted(known_as):
        node = snapshot.nodes.get(name)
        if name not in unit.nodes:
            faults[name] = _fault(name, node, FaultLevel.SeparateFault, SHRUNK)
            continue
        assessment = assess(name, unit, situation, outcome.seen)
        missed = unasked(inherited[name].rule, situation) if name in inherited else None
        if assessment is None or not assessment.final or missed:
            unclear.add(name)
            _note(name, assessment, outcome, missed)
            if name in inherited:
                faults[name] = inherited[name]
        if assessment is None or not assessment.level:
            continue
        if name not in faults or assessment.level > faults[name].level:
            faults[name] = _fault(name, node, assessment.level, assessment.rule)
    return faults, unclear


def assess(name: str, unit: Unit, situation: Situation, seen: Mapping[tuple[str, str], int]) -> Assessment | None:
    """Judge a node of a unit by all that is known of it; None where nothing is."""
    node, policy = situation.snapshot.nodes.get(name), situation.policy
    if node is None:
        told = None
    elif policy.rules:
        told = policy.assess(node, partitions=unit.partitions_of(name), seen=seen, now=situation.now)
    else:
        told = policy.assess(node)
    return together(told, situation.reports.get(name))


def _note(name: str, assessment: Assessment | None, outcome: Outcome, missed: Reporter | None) -> None:
    """Say why a node is neither fit nor surely faulty: a rule, a source that was not asked, or nobody knows."""
    for finding in () if assessment is None else assessment.findings:
        if finding.waiting is not None:
            told = f"rule {finding.waiting.name!r} ({finding.waiting.place}) waits for its min_duration"
        elif finding.level is None and finding.rule is not None:
            told = f"rule {finding.rule.name!r} ({finding.rule.place}) says no-verdict"
        else:
            continue
        outcome.unsettled[name] = told
        return
    if missed is not None:
        outcome.unsettled[name] = f"{missed.said} excluded it, and {missed.option} is not given"
    else:
        outcome.no_verdict.add(name)


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
    first_published, before = situation.now, ("", "")
    if isinstance(prior, Artifact) and prior.generation == unit.generation:
        first_published, before = prior.first_published, (prior.unavailable, prior.nodelist)
    names = sorted(faults)
    return Artifact(
        unit=unit.id,
        level=max(fault.level for fault in faults.values()),
        nodes=tuple(faults[name] for name in names[:MAX_NODES]),
        unavailable=situation.snapshot.folded(names, before[0], unit.nodelist),
        generation=unit.generation,
        nodelist=situation.snapshot.folded(known_as, before[1], unit.nodelist),
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

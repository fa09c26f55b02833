"""Judges one node: each word of its state by the first rule that matches, else by the contract's table. Pure.

A rule grades *faults*, and the node is as bad as its worst one. So a rule about DRAIN never talks down a node that
is DOWN as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from segment_health.level import FaultLevel

from .limits import ClearAfter
from .states import STAMPED, read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from slurm.node import Node

    from .limits import MaxNewExclusions
    from .rule import Rule


MAX_STATES = 4096
"""States that a memo keeps: many more than a cluster shows, few enough for one that shows nonsense."""


class Finding(NamedTuple):
    """What one word of a state is worth.

    `level` None is no verdict. `rule` decided; None is the table, which says `default`. `waiting` is the first
    rule that matches but for its `min_duration`, and `began` since when it does, in seconds since the epoch.
    """

    word: str
    default: FaultLevel | None
    level: FaultLevel | None
    rule: Rule | None = None
    waiting: Rule | None = None
    began: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether there is a verdict, and no rule waits to change it."""
        return self.level is not None and self.waiting is None

    @property
    def name(self) -> str:
        """What decided, as artifacts and the history show it."""
        rule = self.rule or (self.waiting if self.level is None else None)
        return f"state:{self.word or 'empty'}" if rule is None else f"rule:{rule.name}"


class Assessment(NamedTuple):
    """What a node is worth: `level` is that of its worst fault, None when nothing is known for sure.

    `rule` names what decided, `state:DRAIN` or `rule:planned maintenance`. `final` is False while part of the node
    has no verdict: then `level` is the least that it is, and the node is not explicitly fit. `unknown` are flags
    that nobody knows. `findings` are the words, each for itself.
    """

    level: FaultLevel | None
    rule: str
    unknown: frozenset[str] = frozenset()
    final: bool = True
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What faults are worth, and when a unit is excluded and used again.

    `publish_at` is the lowest level that excludes. A pass with more new exclusions than `max_new_exclusions` is
    held until as many as `hold_passes` in a row have been. `name` says where it comes from: a path, or "default".
    `digest` tells two contents of one file apart.
    """

    publish_at: FaultLevel = FaultLevel.PreSeparateFault
    name: str = "default"
    rules: tuple[Rule, ...] = ()
    clear_after: ClearAfter = field(default_factory=ClearAfter)
    max_new_exclusions: MaxNewExclusions | None = None
    hold_passes: int = 3
    digest: str = ""
    _concerned: dict[tuple[str, frozenset[str], bool], tuple[Rule, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Memo: the rules that have a say in a state. A cluster has a few dozen states."""

    def __str__(self) -> str:
        return f"{self.name} sha256:{self.digest}" if self.digest else self.name

    def assess(
        self,
        node: Node,
        *,
        allocated: bool = True,
        partitions: AbstractSet[str] = frozenset(),
        seen: Mapping[tuple[str, str], int] | None = None,
        now: int = 0,
    ) -> Assessment:
        """Judge one node.

        `allocated` says whether a running allocation holds it, `partitions` which partitions those are of. `seen`
        tells since when the node shows a word (see first_seen), and `now` the time: only rules with a
        `min_duration` ask.
        """
        rules = self._concerning(node.base, node.flags, allocated=allocated) if self.rules else ()
        rules = tuple(rule for rule in rules if rule.fits(node, partitions))
        if not rules:
            return _by_default(node.base, node.flags, allocated=allocated)
        reading = read(node.base, node.flags, allocated=allocated)
        findings = []
        for word, default in reading.words:
            shown = (seen or {}).get((node.name, word))
            candidates = [(r, r.began(shown, node)) for r in rules if _may_grade(r, word, default)]
            findings.append(_grade(word, default, candidates, now))
        return _summed_up(tuple(findings), reading.unknown)

    def of_state(self, base: str, flags: frozenset[str], *, allocated: bool) -> Assessment | None:
        """Judge all nodes in a state at once; None where a rule may tell some of them from others."""
        if self.rules and self._concerning(base, flags, allocated=allocated):
            return None
        return _by_default(base, flags, allocated=allocated)

    def dates(self, base: str, flags: frozenset[str]) -> bool:
        """Tell whether first_seen() may have something to say of nodes in a state."""
        words = read(base, flags, allocated=False).words
        waiting = [rule for rule in self.rules if rule.min_duration]
        return any(level or any(rule.speaks_of(word) for rule in waiting) for word, level in words)

    def first_seen(
        self, node: Node, before: Mapping[tuple[str, str], int], *, previous_pass: int | None, now: int
    ) -> dict[tuple[str, str], int]:
        """Return since when the node shows each fault, and each word that a rule with a `min_duration` asks about.

        Faults that no rule of today waits for are in it for the policy of tomorrow. `before` is what earlier
        passes found. Where they saw nothing, a word is as old as the reason that Slurm wrote down with it, unless
        that is older than `previous_pass`, which did not see the word; else it begins now.
        """
        reading = read(node.base, node.flags, allocated=False)
        words = [word for word, level in reading.words if level]
        for rule in self.rules:
            if rule.min_duration and rule.fits(node, None):
                words += [word for word, _ in reading.words if rule.speaks_of(word)]
        found: dict[tuple[str, str], int] = {}
        for word in words:
            key = (node.name, word)
            found[key] = min(now, before[key]) if key in before else _begin(word, node, previous_pass, now)
        return found

    def _concerning(self, base: str, flags: frozenset[str], *, allocated: bool) -> tuple[Rule, ...]:
        key = (base, flags, allocated)
        found = self._concerned.get(key)
        if found is None:
            if len(self._concerned) > MAX_STATES:
                self._concerned.clear()
            words = read(base, flags, allocated=allocated).words
            found = tuple(rule for rule in self.rules if any(_may_grade(rule, *word) for word in words))
            self._concerned[key] = found
        return found


def worse(first: Assessment | None, second: Assessment | None) -> Assessment | None:
    """Join what two sources say of one node: the worse of the two, and final only if both are."""
    if first is None or second is None:
        return second or first
    levels = [told.level for told in (first, second) if told.level is not None]
    final = first.final and second.final
    level = max(levels, default=FaultLevel.NotHandleFault)
    leading = second if (second.level or 0) > (first.level or 0) or (not level and first.final) else first
    return Assessment(
        level if level or final else None,
        leading.rule,
        first.unknown | second.unknown,
        final,
        first.findings + second.findings,
    )


def _begin(word: str, node: Node, previous_pass: int | None, now: int) -> int:
    since = node.reason_since if word in STAMPED else None
    if since is None or (previous_pass is not None and since < previous_pass):
        return now
    return min(now, since)


@lru_cache(maxsize=MAX_STATES)  # few distinct states, many nodes
def _by_default(base: str, flags: frozenset[str], *, allocated: bool) -> Assessment:
    reading = read(base, flags, allocated=allocated)
    return _summed_up(tuple(Finding(word, level, level) for word, level in reading.words), reading.unknown)


def _may_grade(rule: Rule, word: str, default: FaultLevel | None) -> bool:
    """Tell whether a rule has a say in a word: in what nobody understands only one that names it."""
    return rule.speaks_of(word) if default is not None else word in rule.states


def _grade(word: str, default: FaultLevel | None, candidates: list[tuple[Rule, int | None]], now: int) -> Finding:
    """Grade a word by rules that match it, each with the time since when; the first has its say.

    A rule that waits is passed over, and what stands in for it counts only if it says less.
    """
    waiting: list[tuple[Rule, int | None]] = []
    level, decided = default, None
    for rule, began in candidates:
        if rule.min_duration and (began is None or now - began < rule.min_duration):
            waiting.append((rule, began))
            continue
        level, decided = rule.level, rule
        break
    if not waiting:
        return Finding(word, default, level, decided)
    first, began = waiting[0]
    least = min(rule.level for rule, _ in waiting if rule.level is not None)
    if level is not None and level >= least:
        level, decided = None, None
    return Finding(word, default, level, decided, first, began)


def _summed_up(findings: tuple[Finding, ...], unknown: frozenset[str]) -> Assessment:
    final = all(finding.is_final for finding in findings)
    leading = min(findings, key=_prominence)
    level = leading.level
    if level is FaultLevel.NotHandleFault and not final:
        level = None
    return Assessment(level, leading.name, unknown, final, findings)


def _prominence(finding: Finding) -> tuple[int, bool, bool, str]:
    """Order findings as a person should read them: the worst, what is not known, what a rule changed."""
    return (
        -(finding.level or 0),
        finding.is_final,
        finding.level == finding.default,
        finding.word,
    )

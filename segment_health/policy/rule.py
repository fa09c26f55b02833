"""One rule of a site: which faults it speaks of, and what it says of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .states import NOT_UNDERSTOOD

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from segment_health.level import FaultLevel
    from slurm.node import Node

    from .pattern import Pattern


@dataclass(frozen=True, slots=True)
class Rule:
    """Gives a word of a node's state a level; what is not asked for (empty, None) is not looked at.

    `level` None is no verdict: the word counts neither as a fault nor as health. `min_duration` is in seconds.
    `nodes` are names, `hostlist` the text that named them. `partitions` are those of the allocation that holds
    the node. `place` is where the rule stands, `policy.toml:12`.
    """

    name: str
    level: FaultLevel | None
    states: frozenset[str] = frozenset()
    reason: Pattern | None = None
    reason_users: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    hostlist: str = ""
    partitions: frozenset[str] = frozenset()
    min_duration: int = 0
    place: str = ""

    def speaks_of(self, word: str) -> bool:
        """Tell whether the rule asks for this word of a state, or for none in particular."""
        return not self.states or word in self.states

    def fits(self, node: Node, partitions: AbstractSet[str] | None) -> bool:
        """Tell whether all else that the rule asks for holds; `partitions` None holds whichever it asks for."""
        return (
            (not self.nodes or node.name in self.nodes)
            and (not self.partitions or partitions is None or not self.partitions.isdisjoint(partitions))
            and (not self.reason_users or node.reason_user in self.reason_users)
            and (self.reason is None or self.reason.found_in(node.reason))
        )

    def began(self, seen: int | None, node: Node) -> int | None:
        """Return since when all of it holds, given since when the word is there; None if nobody can tell."""
        if seen is None or node.reason_since is None or not (self.reason or self.reason_users):
            return seen
        return max(seen, node.reason_since)

    def hides(self, later: Rule) -> bool:
        """Tell whether a later rule can never have a say, because this one has said it before."""
        asks_for_no_more = (
            _holds(self.states, later.states)
            and (self.states or later.states.isdisjoint(NOT_UNDERSTOOD))  # of these only who names them has a say
            and (self.reason is None or self.reason == later.reason)
            and _holds(self.partitions, later.partitions)
            and _holds(self.reason_users, later.reason_users)
            and _holds(self.nodes, later.nodes)  # last: there may be thousands
        )
        if not asks_for_no_more or self.min_duration <= later.min_duration:
            return bool(asks_for_no_more)
        # While this one waits, a later one counts that says less, or that there is no verdict.
        return self.level is None or (later.level is not None and later.level >= self.level)


def _holds(asked: frozenset[str], later: frozenset[str]) -> bool:
    """Tell whether whatever is in `later` is in `asked`; asking for nothing is asking for anything."""
    return not asked or (bool(later) and asked >= later)

"""The node table: every node of a cluster by name, and no object for one that nobody looks at.

Of 10,000 nodes some dozens are not well; what the others have to tell is their state, and a cluster shows a few
dozen distinct ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .node import Node

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, KeysView

    from .job import Allocation

    State = tuple[str, frozenset[str]]
    """A base and its flags, as in Node."""
    Reason = tuple[str | None, str | None, int | None]
    """What was written down, by whom and when, as in Node."""

_NO_REASON = (None, None, None)


class NodeTable(Mapping[str, Node]):
    """Nodes by name, each made when it is asked for. Equal to a dict of the same nodes."""

    __slots__ = ("_grouped", "_reasons", "_states")

    def __init__(self, states: dict[str, State], reasons: Mapping[str, Reason]) -> None:
        self._states = states
        self._reasons = reasons
        self._grouped: dict[State, list[str]] | None = None

    def __getitem__(self, name: str) -> Node:
        base, flags = self._states[name]
        return Node(name, base, flags, *self._reasons.get(name, _NO_REASON))

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, name: object) -> bool:
        """Tell without making it."""
        return name in self._states

    def keys(self) -> KeysView[str]:
        """Return the names as a dict does: sets of them are compared without a call for each."""
        return self._states.keys()

    @property
    def grouped(self) -> dict[State, list[str]]:
        """Their names by state; made once, since many ask."""
        if self._grouped is None:
            self._grouped = _grouped(self._states.items())
        return self._grouped


def names_by_state(nodes: Mapping[str, Node]) -> Mapping[State, list[str]]:
    """Group the names of nodes by what they show."""
    if isinstance(nodes, NodeTable):
        return nodes.grouped
    return _grouped((name, (node.base, node.flags)) for name, node in nodes.items())


def _grouped(states: Iterable[tuple[str, State]]) -> dict[State, list[str]]:
    found: dict[State, list[str]] = {}
    for name, state in states:
        names = found.get(state)
        if names is None:
            found[state] = [name]
        else:
            names.append(name)
    return found


def existing(nodes: Mapping[str, Node], allocations: Collection[Allocation]) -> Mapping[str, Node]:
    """Leave out FUTURE nodes, which are names reserved for machines to come (slurm.conf(5)).

    One that an allocation holds stays: its machine was there and is gone.
    """
    future = {name for (base, _), names in names_by_state(nodes).items() if base == "FUTURE" for name in names}
    if not future:
        return nodes
    future.difference_update(*(allocation.nodes for allocation in allocations))
    return {name: node for name, node in nodes.items() if name not in future}

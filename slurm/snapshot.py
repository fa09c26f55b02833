"""What one cluster looked like at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import hostlist
from .errors import SlurmProtocolError
from .nodes import names_by_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .job import Allocation
    from .node import Node
    from .nodes import State


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes by name, and every allocation that holds nodes or may: one whole answer, never a part of one.

    `slurm_version` is None where the answer does not say.
    `visible_user` is None when every user's jobs were visible, else the only user whose jobs were
    (PrivateData=jobs of slurm.conf(5)): an allocation of somebody else that is not listed may well be there.
    """

    cluster: str
    slurm_version: str | None
    nodes: Mapping[str, Node]
    allocations: tuple[Allocation, ...]
    visible_user: str | None = None

    # Whoever decides on a snapshot needs these of it, and knows nothing else of Slurm.

    def by_state(self) -> Mapping[State, list[str]]:
        """Group the names of nodes by what they show, a base and flags: a few dozen states."""
        return names_by_state(self.nodes)

    @staticmethod
    def fold(names: Iterable[str]) -> str:
        """Write names as one hostlist (see hostlist.fold)."""
        return hostlist.fold(names)

    @classmethod
    def folded(cls, names: Collection[str], *known: str) -> str:
        """Write names as one hostlist: one of those `known`, if that names the same, for folding is dear."""
        for text in known:
            recalled = cls.recall(text)
            if len(recalled) == len(names) and set(recalled) == set(names):
                return text
        return hostlist.fold(sorted(names))

    @staticmethod
    def recall(text: str) -> tuple[str, ...]:
        """Name every node of a hostlist that stands in a file of ours; none where somebody garbled it."""
        try:
            return hostlist.expand(text)
        except SlurmProtocolError:
            return ()

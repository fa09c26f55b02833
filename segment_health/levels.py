"""What every node of a cluster is worth now, whoever holds it: for figures and pictures. Pure.

Decisions do not come from here: judge.py looks at a unit's nodes, and at what was said of them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .policy.assess import Assessment, worse
from .unit import units_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.snapshot import Snapshot

    from .policy.assess import Policy

UNSEEN = Assessment(None, "node:unlisted", final=False)
"""What Slurm says of a node that it does not list."""

_NOBODY: frozenset[frozenset[str]] = frozenset()
_ANY_PARTITION = frozenset({frozenset[str]()})


def levels(
    snapshot: Snapshot,
    policy: Policy,
    reports: Mapping[str, Assessment] | None,
    seen: Mapping[tuple[str, str], int],
    now: int,
) -> dict[str, Assessment | None]:
    """Judge every node that Slurm lists or an allocation names; None where nobody knows anything of one.

    Where units of several partitions share a node and rules tell those apart, the worst counts. `reports` is what
    another source says, `seen` since when a node shows a word (see Policy.first_seen), `now` the time.
    """
    held, judged = _holders(snapshot, policy), dict[str, Assessment | None]()
    for name in [*snapshot.nodes, *(name for name in held if name not in snapshot.nodes)]:
        node, told = snapshot.nodes.get(name), None
        if node is not None:
            holders = held.get(name, _NOBODY)
            each = [policy.assess(node, partitions=partitions, seen=seen, now=now) for partitions in holders]
            told = max(each or [policy.assess(node, allocated=False, seen=seen, now=now)], key=badness)
        judged[name] = together(told, reports.get(name) if reports else None)
    return judged


def together(told: Assessment | None, reported: Assessment | None) -> Assessment | None:
    """Join what Slurm says of a node and what another source does, which may be nothing each."""
    return told if reported is None else worse(told or UNSEEN, reported)


def badness(told: Assessment | None) -> tuple[int, bool]:
    """Order what two units say of a node: the worse first, and what is not known before what is."""
    return (0, True) if told is None else (told.level or 0, not told.final)


def _holders(snapshot: Snapshot, policy: Policy) -> dict[str, frozenset[frozenset[str]]]:
    """Map each node that is held to the partitions of each of its holders; without rules nobody asks for those."""
    if not policy.rules:
        return {name: _ANY_PARTITION for allocation in snapshot.allocations for name in allocation.nodes}
    held: dict[str, set[frozenset[str]]] = {}
    for unit in units_of(snapshot.allocations).values():
        for name in unit.nodes:
            held.setdefault(name, set()).add(unit.partitions_of(name))
    return {name: frozenset(partitions) for name, partitions in held.items()}

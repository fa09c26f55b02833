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


def levels(
    snapshot: Snapshot,
    policy: Policy,
    reports: Mapping[str, Assessment],
    seen: Mapping[tuple[str, str], int],
    now: int,
) -> dict[str, Assessment | None]:
    """Judge every node that Slurm lists or an allocation names; None where nobody knows anything of one.

    Where units of several partitions share a node and rules tell those apart, the worst counts. `reports` is what
    other sources say, `seen` since when a node shows a word (see Policy.first_seen), `now` the time.
    """
    held = {name for allocation in snapshot.allocations for name in allocation.nodes}
    if policy.rules:
        judged = _by_rules(snapshot, policy, seen, now)
    else:  # nothing but the state counts, and who holds a node does not
        judged = {name: policy.assess(node, allocated=name in held) for name, node in snapshot.nodes.items()}
    judged.update(dict.fromkeys(sorted(held - snapshot.nodes.keys())))
    for name, told in reports.items():
        if name in judged:
            judged[name] = together(judged[name], told)
    return judged


def together(told: Assessment | None, reported: Assessment | None) -> Assessment | None:
    """Join what Slurm says of a node and what another source does, which may be nothing each."""
    return told if reported is None else worse(told or UNSEEN, reported)


def badness(told: Assessment | None) -> tuple[int, bool]:
    """Order what two units say of a node: the worse first, and what is not known before what is."""
    return (0, True) if told is None else (told.level or 0, not told.final)


def _by_rules(
    snapshot: Snapshot, policy: Policy, seen: Mapping[tuple[str, str], int], now: int
) -> dict[str, Assessment | None]:
    """Judge each node as each unit that holds it would."""
    held: dict[str, set[frozenset[str]]] = {}
    for unit in units_of(snapshot.allocations).values():
        for name in unit.nodes:
            held.setdefault(name, set()).add(unit.partitions_of(name))
    judged: dict[str, Assessment | None] = {}
    for name, node in snapshot.nodes.items():
        told = [policy.assess(node, partitions=each, seen=seen, now=now) for each in held.get(name, ())]
        alone = () if told else (policy.assess(node, allocated=False, seen=seen, now=now),)
        judged[name] = max((*told, *alone), key=badness)
    return judged

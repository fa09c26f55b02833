"""What every node of a cluster is worth now, whoever holds it: for figures and pictures. Pure.

Decisions do not come from here: judge.py looks at a unit's nodes, and at what was said of them before. Only which
nodes are well, so that no unit of such nodes needs a look, is told here as well.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .policy.assess import Assessment, worse
from .unit import units_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slurm.snapshot import Snapshot

    from .level import FaultLevel
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
    judged: dict[str, Assessment | None] = {}
    for told, names in _judged(snapshot, policy, reports, seen, now):
        judged.update(dict.fromkeys(names, told))
    return {name: judged[name] for name in snapshot.nodes} | judged  # in Slurm's order, as people know their racks


class Tally(NamedTuple):
    """How many nodes have each level, None being no verdict; and a node for each flag that nobody knows."""

    levels: Mapping[FaultLevel | None, int]
    unknown_flags: Mapping[str, str]


def tally(
    snapshot: Snapshot,
    policy: Policy,
    reports: Mapping[str, Assessment],
    seen: Mapping[tuple[str, str], int],
    now: int,
) -> Tally:
    """Count what levels() says, and name no healthy node for it."""
    counted: Counter[FaultLevel | None] = Counter()
    flags: dict[str, str] = {}
    for told, names in _judged(snapshot, policy, reports, seen, now):
        if names:
            counted[None if told is None else told.level] += len(names)
            for flag in () if told is None else told.unknown:
                flags.setdefault(flag, names[0])
    return Tally(dict(counted), flags)


def well(snapshot: Snapshot, policy: Policy, reports: Mapping[str, Assessment]) -> set[str]:
    """Name the nodes that are fit for whoever holds them, now and by all that is known.

    Those whose state alone says so: where a rule may have a say, someone has to look.
    """
    fit: set[str] = set()
    for (base, flags), names in snapshot.by_state().items():
        told = policy.of_state(base, flags, allocated=True)
        if told is not None and told.final and not told.level:
            fit.update(names)
    fit.difference_update(name for name, told in reports.items() if told.level or not told.final)
    return fit


def together(told: Assessment | None, reported: Assessment | None) -> Assessment | None:
    """Join what Slurm says of a node and what another source does, which may be nothing each."""
    return told if reported is None else worse(told or UNSEEN, reported)


def badness(told: Assessment | None) -> tuple[int, bool]:
    """Order what two units say of a node: the worse first, and what is not known before what is."""
    return (0, True) if told is None else (told.level or 0, not told.final)


def _judged(
    snapshot: Snapshot,
    policy: Policy,
    reports: Mapping[str, Assessment],
    seen: Mapping[tuple[str, str], int],
    now: int,
) -> Iterator[tuple[Assessment | None, list[str]]]:
    """Judge groups of nodes, each node once."""
    held: set[str] = set()
    held.update(*(allocation.nodes for allocation in snapshot.allocations))
    apart: list[str] = []
    """Nodes of which a rule may say something else than of others in the same state."""
    groups: list[tuple[Assessment | None, list[str]]] = []
    for (base, flags), names in snapshot.by_state().items():
        used = policy.of_state(base, flags, allocated=True)
        idle = policy.of_state(base, flags, allocated=False)
        if used is None or idle is None:
            apart += names
        elif used == idle:
            groups.append((used, names))
        else:
            groups.append((used, [name for name in names if name in held]))
            groups.append((idle, [name for name in names if name not in held]))
    groups += [(told, [name]) for name, told in _by_rules(apart, snapshot, policy, seen, now)]
    groups.append((None, sorted(held - snapshot.nodes.keys())))
    for told, names in groups:
        reported = [name for name in names if name in reports] if reports else []
        for name in reported:
            yield together(told, reports[name]), [name]
        yield told, [name for name in names if name not in reports] if reported else names


def _by_rules(
    names: Iterable[str], snapshot: Snapshot, policy: Policy, seen: Mapping[tuple[str, str], int], now: int
) -> Iterator[tuple[str, Assessment]]:
    """Judge each node as each unit that holds it would."""
    if not names:
        return
    held: dict[str, set[frozenset[str]]] = {}
    for unit in units_of(snapshot.allocations).values():
        for name in unit.nodes:
            held.setdefault(name, set()).add(unit.partitions_of(name))
    for name in names:
        node = snapshot.nodes[name]
        told = [policy.assess(node, partitions=each, seen=seen, now=now) for each in held.get(name, ())]
        alone = () if told else (policy.assess(node, allocated=False, seen=seen, now=now),)
        yield name, max((*told, *alone), key=badness)

"""Allocation units: what is excluded or not, made of what Slurm lists. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .contract import Generation, UnitId

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm.job import Allocation


class Unit(NamedTuple):
    """An allocation unit as Slurm shows it now; a heterogeneous job's components are one unit.

    `understood` is False while any part is in a state that we do not know: then it is there, and not judged.
    `partitions` are those of its parts, each with the part's nodes. `nodelist` is how Slurm folds its nodes, empty
    where it has several parts.
    """

    id: UnitId
    generation: Generation
    nodes: frozenset[str]
    user_id: str
    understood: bool
    partitions: tuple[tuple[str, frozenset[str]], ...] = ()
    nodelist: str = ""

    def partitions_of(self, node: str) -> frozenset[str]:
        """Name the partitions in which the unit holds a node."""
        return frozenset(partition for partition, nodes in self.partitions if node in nodes)


def unit_id_of(allocation: Allocation) -> UnitId:
    """Name the unit whose artifact the allocation's processes will look for."""
    if allocation.het_job_id is not None:  # in every step SLURM_JOB_ID is the leader's
        return UnitId(allocation.het_job_id, allocation.het_job_id)
    if allocation.array_job_id is not None and allocation.array_task_id is not None:
        return UnitId(allocation.array_job_id, allocation.array_task_id)
    return UnitId(allocation.job_id, allocation.job_id)


def units_of(allocations: Collection[Allocation]) -> dict[UnitId, Unit]:
    """Group allocations into units."""
    return {unit_id: unite(unit_id, parts) for unit_id, parts in parts_of(allocations).items()}


def parts_of(allocations: Collection[Allocation]) -> dict[UnitId, list[Allocation]]:
    """Group allocations by the units that they are parts of, one part each but for heterogeneous jobs."""
    parts: dict[UnitId, list[Allocation]] = {}
    for allocation in allocations:
        unit_id = unit_id_of(allocation)
        if unit_id in parts:
            parts[unit_id].append(allocation)
        else:
            parts[unit_id] = [allocation]
    return parts


def partitions_by_node(allocations: Collection[Allocation]) -> dict[str, list[str]]:
    """Map each node that is held to the partitions of those who hold it."""
    partitions: dict[str, list[str]] = {}
    for allocation in allocations:
        for name in allocation.nodes:
            partitions.setdefault(name, []).append(allocation.partition)
    return partitions


def unite(unit_id: UnitId, parts: list[Allocation]) -> Unit:
    """Make a unit of its parts."""
    if len(parts) == 1:
        return _alone(unit_id, parts[0])
    leader = min(parts, key=lambda part: (part.job_id != part.het_job_id, int(part.job_id)))
    return Unit(
        unit_id,
        Generation(leader.restart_count, leader.start_time),
        frozenset(name for part in parts for name in part.nodes),
        leader.user_id,
        all(part.is_understood for part in parts),
        tuple((part.partition, frozenset(part.nodes)) for part in parts),
    )


def _alone(unit_id: UnitId, part: Allocation) -> Unit:
    nodes = frozenset(part.nodes)
    generation = Generation(part.restart_count, part.start_time)
    partitions = ((part.partition, nodes),)
    return Unit(unit_id, generation, nodes, part.user_id, part.is_understood, partitions, part.nodelist)

"""Nodes and jobs by pyslurm's names, living or saved, made into ours.

pyslurm of every version is read if these attributes make sense; one that is missing spoils the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from slurm.errors import SlurmProtocolError
from slurm.fields import Held, node_of, numbered_allocation, shown
from slurm.job import holds_nothing
from slurm.json.answer import Number, Optional, Text  # noqa: TC001 - pydantic asks what they are

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm.job import Allocation
    from slurm.node import Node


class _Row(BaseModel):
    """What is read of anything, by pyslurm's names."""

    cluster: Text = None


class NodeRow(_Row):
    """What is read of a node."""

    name: Text
    state: Text
    reason: Text
    reason_user: Text
    reason_time: Optional

    @property
    def key(self) -> str:
        """Under which a dump lists it: its name."""
        return "null" if self.name is None else self.name


class JobRow(_Row):
    """What is read of a job."""

    id: Number
    array_id: Optional
    array_task_id: Optional
    array_tasks_waiting: Text
    heterogeneous_id: Optional
    heterogeneous_offset: Optional
    state: Text
    requeue_count: Optional
    start_time: Optional
    user_id: Optional
    user_name: Text
    partition: Text
    allocated_nodes: Text

    @property
    def key(self) -> str:
        """Under which a dump lists it: its id."""
        return str(self.id)


_AnyRow = TypeVar("_AnyRow", NodeRow, JobRow)


def parse_nodes(rows: Mapping[str, object] | Iterable[object], cluster: str | None = None) -> dict[str, Node]:
    """Make nodes by name of pyslurm's rows, or of a dump of them (a mapping of names to rows); never none.

    `cluster` is the one that they must be of. Raises SlurmProtocolError.
    """
    nodes: dict[str, Node] = {}
    for row in _checked(NodeRow, rows, cluster):
        if row.name is None:  # 22.5 has one such row where there are FUTURE nodes
            continue
        if row.state is None:
            raise SlurmProtocolError(f"pyslurm: {shown(row.name)} has no state")
        node = node_of(
            row.name, row.state, reason=row.reason, reason_user=row.reason_user, reason_since=row.reason_time
        )
        if node.name in nodes:
            raise SlurmProtocolError(f"pyslurm: {node.name} is described twice")
        nodes[node.name] = node
    if not nodes:
        raise SlurmProtocolError("pyslurm: no node in the answer")
    return nodes


def parse_jobs(
    rows: Mapping[str, object] | Iterable[object], cluster: str | None = None
) -> tuple[Allocation, ...]:
    """Make allocations of pyslurm's rows, or of a dump of them (a mapping of ids to rows): none is an answer.

    `cluster` is the one that they must be of. Raises SlurmProtocolError.
    """
    allocations: dict[int, Allocation | None] = {}
    held = Held()
    for row in _checked(JobRow, rows, cluster):
        if not row.state:
            raise SlurmProtocolError(f"pyslurm: job {row.id} has no state")
        if row.id in allocations:
            raise SlurmProtocolError(f"pyslurm: job {row.id} is listed twice")
        try:
            allocation = None if holds_nothing(row.state) else _allocation(row, row.state)
            if allocation is not None:
                held.add(allocation)
        except (ValueError, SlurmProtocolError) as error:
            raise SlurmProtocolError(f"pyslurm: job {row.id} in state {shown(row.state)}: {error}") from error
        allocations[row.id] = allocation
    return tuple(filter(None, allocations.values()))


def _checked(
    model: type[_AnyRow], rows: Mapping[str, object] | Iterable[object], cluster: str | None
) -> Iterator[_AnyRow]:
    pairs = rows.items() if isinstance(rows, Mapping) else ((None, row) for row in rows)
    for key, element in pairs:
        try:
            row = model.model_validate(element)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "the row"
            raise SlurmProtocolError(
                f"pyslurm: {field}: {first['msg']}, got {shown(repr(first['input']))}"
            ) from error
        if key not in {None, row.key}:
            raise SlurmProtocolError(f"pyslurm: {shown(str(key))} is {shown(row.key)} in its own row")
        if cluster is not None and row.cluster not in {None, cluster}:
            raise SlurmProtocolError(
                f"pyslurm speaks to cluster {shown(str(row.cluster))}, and scontrol to {cluster}: give both one "
                "slurm.conf, by --slurm-conf"
            )
        yield row


def _allocation(row: JobRow, state: str) -> Allocation:
    if row.heterogeneous_offset and not row.heterogeneous_id:
        raise ValueError("a part of a heterogeneous job, and it is not told of which")
    return numbered_allocation(
        job_id=row.id,
        array_job_id=row.array_id,
        array_task_id=_task_of(row),
        het_job_id=row.heterogeneous_id,
        state=state,
        restart_count=row.requeue_count,
        start_time=row.start_time,
        user=row.user_name,
        user_id=row.user_id,
        partition=row.partition,
        nodelist=row.allocated_nodes,
    )


def _task_of(row: JobRow) -> int | None:
    """Return the task of an array, where pyslurm of every version writes task 0 as None.

    The one other record without a task is that of the tasks which wait: it names them, and holds no node.
    """
    if not row.array_id:
        if row.array_task_id is not None or row.array_tasks_waiting is not None:
            raise ValueError("tasks, and no array")
        return None
    if row.array_tasks_waiting is not None:
        raise ValueError(f"it holds nodes, and tasks {shown(row.array_tasks_waiting)} of it wait")
    if row.array_task_id is None and not row.allocated_nodes:
        raise ValueError("a task of an array without a number and without nodes")
    return row.array_task_id or 0

"""Parses what the live job query prints, line by line as it arrives.

Names and comments of jobs are free text, which is why the query asks for none of them. A row that cannot be read
makes the whole answer unusable (SlurmProtocolError).
"""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError
from slurm.fields import Held, allocation_of, digits, shown
from slurm.job import holds_nothing

from .printed import NO_ID, Lines, decode, parse_time

if TYPE_CHECKING:
    from datetime import tzinfo

    from slurm.job import Allocation

FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "State",
    "RestartCnt",
    "StartTime",
    "UserName",
    "UserID",
    "Partition",
    "NodeList",
)
"""What is asked of squeue(1), by its names for --Format; each ends with `|`."""


class JobRows:
    """Allocations in the making: of every job that holds nodes, or may. `zone` is as in NodeRows."""

    def __init__(self, zone: tzinfo | None = timezone.utc) -> None:
        self._zone = zone
        self._lines = Lines("squeue")
        self._allocations: dict[str, Allocation] = {}
        self._held = Held()

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises SlurmProtocolError for a malformed row."""
        for row in self._lines.feed(data):
            if not row.strip(b" "):
                continue
            allocation = _parse_job(decode(row), self._zone)
            if allocation is None:
                continue
            if allocation.job_id in self._allocations:
                raise SlurmProtocolError(f"squeue: job {allocation.job_id} is listed twice")
            self._held.add(allocation)
            self._allocations[allocation.job_id] = allocation

    def close(self) -> tuple[Allocation, ...]:
        """End the answer; nothing at all is a valid one. Raises SlurmProtocolError where it is cut short."""
        self._lines.close(may_be_empty=True)
        return tuple(self._allocations.values())


def parse_jobs(output: bytes, zone: tzinfo | None = timezone.utc) -> tuple[Allocation, ...]:
    """Read a whole answer. Raises SlurmProtocolError, as JobRows does."""
    rows = JobRows(zone)
    rows.feed(output)
    return rows.close()


def _parse_job(row: str, zone: tzinfo | None) -> Allocation | None:
    values = row.split("|")
    if len(values) != len(FIELDS) + 1 or values[-1]:
        raise SlurmProtocolError(f"squeue: row without its {len(FIELDS)} fields: {shown(row)}")
    job, array, task, het, state, restarts, start, user, user_id, partition, nodelist, _ = values
    return printed_allocation(
        job_id=job,
        array_job_id=array,
        array_task_id=task,
        het_job_id=het,
        state=state,
        restart_count=restarts,
        start_time=start,
        user=user,
        user_id=user_id,
        partition=partition,
        nodelist=nodelist,
        zone=zone,
    )


def printed_allocation(  # noqa: PLR0913 - one parameter a printed field
    *,
    job_id: str,
    array_job_id: str,
    array_task_id: str,
    het_job_id: str,
    state: str,
    restart_count: str,
    start_time: str,
    user: str,
    user_id: str,
    partition: str,
    nodelist: str,
    zone: tzinfo | None,
) -> Allocation | None:
    """Make an Allocation of printed fields, or None of a job that surely holds nothing; no such id is NO_ID.

    Raises SlurmProtocolError when a job that may hold nodes has an id, a count, a time or a node list that
    cannot be one: guessing would name the wrong unit.
    """
    if not state:
        raise SlurmProtocolError(f"job {shown(job_id)} has no state")
    if holds_nothing(state):
        return None
    try:
        return allocation_of(
            job_id=job_id,
            array_job_id=None if array_job_id == NO_ID else array_job_id,
            array_task_id=None if array_task_id == NO_ID else array_task_id,
            het_job_id=None if het_job_id == NO_ID else het_job_id,
            state=state,
            restart_count=int(digits(restart_count)),
            start_time=parse_time(start_time, zone),
            user=user,
            user_id=user_id,
            partition=partition,
            nodelist=nodelist,
        )
    except (ValueError, SlurmProtocolError) as error:
        raise SlurmProtocolError(f"job {shown(job_id)} in state {shown(state)}: {error}") from error

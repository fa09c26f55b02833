"""What the rows of every door are made into: strict about ids and times, tolerant about words.

A wrong id, time or node list would name the wrong unit, so it spoils the whole answer (SlurmProtocolError).
"""

from __future__ import annotations

import re

from . import hostlist
from .errors import SlurmProtocolError
from .job import Allocation
from .node import Node, parse_state

NO_VAL = 0xFFFFFFFE
"""Slurm's own word for "not set" in a 32-bit number (slurm/slurm.h)."""
_LATEST_TIME = 253_402_300_799  # 9999-12-31T23:59:59, what the text door can print
_STATE = re.compile(r"[A-Z0-9_]*[-*~#!%$@^]*(?:\+[A-Z0-9_]+[-*~#!%$@^]*)*", re.IGNORECASE | re.ASCII)
"""A base, which may be missing, and flags. Half of a flag would be an unknown one, and those are passed over."""
_LONGEST_STATE = 1000
"""Characters of a state; all the words that Slurm has are some 400 together."""

MAX_HELD = 1 << 20
"""Nodes that the jobs of one answer hold, counted once a job: names for some 80 MB."""


class Held:
    """Counts the nodes that the jobs of one answer hold. A row of 40 bytes may name MAX_HOSTS of them."""

    def __init__(self) -> None:
        self._nodes = 0

    def add(self, allocation: Allocation) -> None:
        """Count those of one more job. Raises SlurmProtocolError when they become too many."""
        self._nodes += len(allocation.nodes)
        if self._nodes > MAX_HELD:
            raise SlurmProtocolError(f"its jobs hold more than {MAX_HELD} nodes, each counted once a job")


def shown(text: str) -> str:
    """Quote text from outside for an error: short, control characters escaped."""
    return ascii(text if len(text) <= 120 else text[:117] + "...")  # noqa: PLR2004 - about one line


def digits(text: str) -> str:
    """Return `text` if it can be an id; ValueError otherwise."""
    if not (text.isascii() and text.isdigit() and len(text) <= hostlist.MAX_DIGITS):
        raise ValueError(f"not a number: {shown(text)}")
    return text


def _id(text: str) -> str:
    """Return an id of a job, an array or a task; ValueError for what cannot be one."""
    if int(digits(text)) >= NO_VAL:
        raise ValueError(f"not an id: {shown(text)}")
    return text


def reason_of(text: str | None) -> str | None:
    """Put a reason on one line, the way scontrol's indented lines read; None where there is none.

    Blanks are one, and nothing is left of it: somebody set it at a time, which is worth knowing.
    """
    if not text or text.strip() == "(null)":
        return None
    first, _, rest = text.partition("\n")
    return " ".join(filter(None, [first.strip(), " ".join(rest.split())]))


def state_of(text: str) -> tuple[str, frozenset[str]]:
    """Split a node's state (see parse_state); ValueError where it is garbled. Words may be new to us."""
    if len(text) > _LONGEST_STATE or _STATE.fullmatch(text) is None:
        raise ValueError(f"not the state of a node: {shown(text)}")
    return parse_state(text)


def time_of_reason(seconds: int | None) -> int | None:
    """Return when a reason was set, None for a time that no calendar has: it never spoils its node."""
    return seconds if seconds is not None and 0 < seconds <= _LATEST_TIME else None


def node_of(
    name: str, state: str, *, reason: str | None, reason_user: str | None, reason_since: int | None
) -> Node:
    """Make a Node; who set a reason, and when, counts only beside one.

    Raises SlurmProtocolError for a name or a state that cannot be one.
    """
    if not hostlist.is_node_name(name):
        raise SlurmProtocolError(f"not the name of a node: {shown(name)}")
    try:
        base, flags = state_of(state)
    except ValueError as error:
        raise SlurmProtocolError(f"{name}: {error}") from error
    text = reason_of(reason)
    if text is None:
        return Node(name, base, flags)
    return Node(name, base, flags, text, reason_user or None, time_of_reason(reason_since))


def numbered_allocation(  # noqa: PLR0913 - one parameter a field
    *,
    job_id: int | None,
    array_job_id: int | None,
    array_task_id: int | None,
    het_job_id: int | None,
    state: str,
    restart_count: int | None,
    start_time: int | None,
    user: str | None,
    user_id: int | None,
    partition: str | None,
    nodelist: str | None,
) -> Allocation:
    """Make an Allocation of the numbers that libslurm has: None is not set, and no id but a task's is 0.

    Raises as allocation_of(), and ValueError where what must be set is not.
    """
    if not job_id:
        raise ValueError("no job id")
    if restart_count is None or start_time is None or user_id is None:
        raise ValueError("no count of restarts, no start or no user")
    return allocation_of(
        job_id=str(job_id),
        array_job_id=str(array_job_id) if array_job_id else None,
        array_task_id=None if array_task_id is None else str(array_task_id),
        het_job_id=str(het_job_id) if het_job_id else None,
        state=state,
        restart_count=restart_count,
        start_time=start_time,
        user=user or "",
        user_id=str(user_id),
        partition=partition or "",
        nodelist=nodelist or "",
    )


def allocation_of(  # noqa: PLR0913 - one parameter a field
    *,
    job_id: str,
    array_job_id: str | None,
    array_task_id: str | None,
    het_job_id: str | None,
    state: str,
    restart_count: int,
    start_time: int,
    user: str,
    user_id: str,
    partition: str,
    nodelist: str,
) -> Allocation:
    """Make the Allocation of a job that holds nodes, or may; ids that are not set are None.

    Raises ValueError or SlurmProtocolError for an id, a time or a node list that cannot be one.
    """
    if array_task_id is None and array_job_id not in {None, job_id}:
        raise ValueError(f"a task of array {shown(str(array_job_id))}, and it is not told which")
    if array_task_id is not None and array_job_id is None:
        raise ValueError(f"task {shown(array_task_id)} of an array, and it is not told of which")
    if not 0 < start_time <= _LATEST_TIME:
        raise ValueError(f"not the time of a start: {start_time}")
    if not 0 <= restart_count < NO_VAL:
        raise ValueError(f"not a count: {restart_count}")
    return Allocation(
        job_id=_id(job_id),
        state=state,
        restart_count=restart_count,
        start_time=start_time,
        nodelist=nodelist,
        nodes=hostlist.expand(nodelist),
        array_job_id=None if array_job_id is None or array_task_id is None else _id(array_job_id),
        array_task_id=None if array_task_id is None else _id(array_task_id),
        het_job_id=None if het_job_id is None else _id(het_job_id),
        user=user,
        user_id=user_id,
        partition=partition,
    )

"""What the rows of every door are made into: strict about ids and times, tolerant about words.

A wrong id, time or node list would name the wrong unit, so it spoils the whole answer (SlurmProtocolError).
"""

from __future__ import annotations

from . import hostlist
from .errors import SlurmProtocolError
from .job import Allocation
from .node import Node, parse_state

NO_VAL = 0xFFFFFFFE
"""Slurm's own word for "not set" in a 32-bit number (slurm/slurm.h)."""
_LATEST_TIME = 253_402_300_799  # 9999-12-31T23:59:59, what the text door can print


def shown(text: str) -> str:
    """Quote text from outside for an error: short, control characters escaped."""
    return ascii(text if len(text) <= 120 else text[:117] + "...")  # noqa: PLR2004 - about one line


def digits(text: str) -> str:
    """Return `text` if it can be an id; ValueError otherwise."""
    if not (text.isascii() and text.isdigit() and len(text) <= hostlist.MAX_DIGITS):
        raise ValueError(f"not a number: {shown(text)}")
    return text


def reason_of(text: str | None) -> str | None:
    """Put a reason on one line, the way scontrol's indented lines read; None where there is none."""
    if text is None or text.strip() in {"", "(null)"}:
        return None
    first, _, rest = text.partition("\n")
    return " ".join(filter(None, [first.strip(), " ".join(rest.split())]))


def node_of(
    name: str, state: str, *, reason: str | None, reason_user: str | None, reason_since: int | None
) -> Node:
    """Make a Node; who set a reason, and when, counts only beside one.

    Raises SlurmProtocolError for a name that cannot be one.
    """
    if not hostlist.is_node_name(name):
        raise SlurmProtocolError(f"not the name of a node: {shown(name)}")
    base, flags = parse_state(state)
    text = reason_of(reason)
    if text is None:
        return Node(name, base, flags)
    return Node(name, base, flags, text, reason_user or None, reason_since or None)


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
    if not 0 < start_time <= _LATEST_TIME:
        raise ValueError(f"not the time of a start: {start_time}")
    if restart_count < 0:
        raise ValueError(f"not a count: {restart_count}")
    in_array = array_task_id is not None and array_job_id is not None
    return Allocation(
        job_id=digits(job_id),
        state=state,
        restart_count=restart_count,
        start_time=start_time,
        nodelist=nodelist,
        nodes=hostlist.expand(nodelist),
        array_job_id=digits(array_job_id) if in_array and array_job_id is not None else None,
        array_task_id=digits(array_task_id) if in_array and array_task_id is not None else None,
        het_job_id=None if het_job_id is None else digits(het_job_id),
        user=user,
        user_id=user_id,
        partition=partition,
    )

"""Parses saved `scontrol show jobs`, with `-o` or without, for replay and for sites that ship dumps.

Unlike the live query this text holds the free text of whoever submitted the jobs. A job named
`x JobState=PENDING NodeList=n1` or one with a newline and a whole forged record in its name is recognised by
Slurm's own order of fields and refused. What cannot be recognised is a complete forged record behind a line
break in a job's *comment*: a dump is as trustworthy as whoever may set comments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError
from slurm.fields import Held

from .job_rows import printed_allocation
from .printed import NO_ID, decode

if TYPE_CHECKING:
    from datetime import tzinfo

    from slurm.job import Allocation

# No `=` in a name: else a job named ` UserId= UserId= ...` would cost the square of its length.
_OWNER = re.compile(r" UserId=([^()=]*)\((\d+)\) GroupId=[^()=]*\(\d+\) ")
_HEAD = re.compile(
    r"JobId=(?P<job>\d+)"
    r"(?: ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\d\S*)(?: ArrayTaskThrottle=\d+)?)?"
    r"(?: HetJobId=(?P<het>\d+) HetJobOffset=\d+(?: HetJobIdSet=\S+)?)?"
    r" JobName=.*",
    re.DOTALL,
)
# What follows the owner, each searched behind the one before: Slurm's own order. All of it stands before the
# record's free text (comment, command, paths), so the first of each is Slurm's.
_STATE = re.compile(
    r"MCS_label=\S* Priority=\d+ Nice=-?\d+ Account=\S* QOS=\S* (?:WCKey=\S* )?"
    r"JobState=(?P<state>\S+) Reason=.*? Dependency=\S*"
    r" Requeue=\d+ Restarts=(?P<restarts>\d+) BatchFlag=\d+ "
)
_TAIL = (
    re.compile(r" StartTime=(?P<start>\S+) "),
    re.compile(r" Partition=(?P<partition>\S+) "),
    re.compile(r" ReqNodeList=\S* ExcNodeList=\S* NodeList=(?P<nodes>\S*) (?=\S)"),
    re.compile(r" NumNodes=\d+"),
)
_NO_JOBS = re.compile(r"\s*No jobs in the system\s*")
_RECORD = re.compile(r"^(?=JobId=)", re.MULTILINE)
_NEXT_LINE = "\n" + " " * 3
"""How a record goes on without `-o`; any other line break has spoilt what it stands in."""


def parse_saved_jobs(output: bytes, zone: tzinfo | None = None) -> tuple[Allocation, ...]:
    """Read saved `scontrol show jobs`: every job that holds nodes, or may.

    `zone` is that of the printed times; None is this process's own (set TZ to say otherwise). Raises
    SlurmProtocolError for an answer that is empty, cut short, or has a record whose fields are not in Slurm's
    own order. "No jobs in the system" is an answer.
    """
    if not output.strip():
        raise SlurmProtocolError("scontrol show jobs: empty answer")
    if not output.endswith(b"\n"):
        raise SlurmProtocolError("scontrol show jobs: answer cut short (no newline at its end)")
    text = decode(output)
    if _NO_JOBS.fullmatch(text):
        return ()
    before, *records = _RECORD.split(text)
    if before.strip():
        raise SlurmProtocolError(f"scontrol show jobs: does not begin with a job: {before[:80]!a}")
    allocations = []
    seen: set[str] = set()
    held = Held()
    for record in records:
        job_id, allocation = _parse_record(record.replace(_NEXT_LINE, " "), zone)
        if job_id in seen:
            raise SlurmProtocolError(f"scontrol show jobs: job {job_id} is described twice")
        seen.add(job_id)
        if allocation is not None:
            held.add(allocation)
            allocations.append(allocation)
    return tuple(allocations)


def _parse_record(record: str, zone: tzinfo | None) -> tuple[str, Allocation | None]:
    owners = list(_OWNER.finditer(record))
    if len(owners) != 1:  # none: cut short by a forged record; two: one of them stands in the job's free text
        raise SlurmProtocolError(f"scontrol show jobs: malformed record: {record[:120]!a}")
    owner = owners[0]
    head = _HEAD.fullmatch(record[: owner.start()])
    found = _STATE.match(record, owner.end())
    if head is None or found is None:
        raise SlurmProtocolError(f"scontrol show jobs: malformed record: {record[:120]!a}")
    tail = found.groupdict()
    for pattern in _TAIL:
        found = pattern.search(record, found.end() - 1)
        if found is None:
            raise SlurmProtocolError(f"scontrol show jobs: malformed record: {record[:120]!a}")
        tail |= found.groupdict()
    allocation = printed_allocation(
        job_id=head["job"],
        array_job_id=head["array"] or NO_ID,
        array_task_id=head["task"] or NO_ID,
        het_job_id=head["het"] or NO_ID,
        state=tail["state"],
        restart_count=tail["restarts"],
        start_time=tail["start"],
        user=owner[1],
        user_id=owner[2],
        partition=tail["partition"],
        nodelist=tail["nodes"],
        zone=zone,
    )
    return head["job"], allocation

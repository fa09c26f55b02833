"""What all jobs of one answer hold is bounded, by whatever door the answer comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm import hostlist, recording
from slurm.commands.job_rows import parse_jobs
from slurm.commands.records import parse_saved_jobs
from slurm.errors import SlurmProtocolError
from slurm.fields import MAX_HELD
from slurm.json.answer import JsonAnswer
from slurm.pyslurm import rows

if TYPE_CHECKING:
    from collections.abc import Callable

LIST = ",".join(f"{letter}[0-65535]" for letter in "abcd")
ENOUGH = MAX_HELD // hostlist.MAX_HOSTS


def squeue(count: int) -> None:
    """Read as many rows of squeue."""
    row = "{0}|{0}|N/A|N/A|RUNNING|0|2026-11-29T19:50:07|al|1001|main|{1}|\n"
    parse_jobs("".join(row.format(job, LIST) for job in range(1, count + 1)).encode())


def scontrol(count: int) -> None:
    """Read as many records of scontrol."""
    record = (
        "JobId={0} JobName=x UserId=al(1001) GroupId=al(1001) MCS_label=N/A Priority=1 Nice=0 Account=a QOS=q "
        "JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 "
        "StartTime=2026-11-29T19:50:07 Partition=main ReqNodeList= ExcNodeList= NodeList={1} NumNodes=1\n"
    )
    parse_saved_jobs("".join(record.format(job, LIST) for job in range(1, count + 1)).encode())


def of_json(count: int) -> None:
    """Read as many rows of Slurm's JSON."""
    row = {
        "array_job_id": 0, "array_task_id": None, "het_job_id": 0, "job_state": ["RUNNING"], "restart_cnt": 0,
        "start_time": 1_795_000_000, "user_id": 1001, "user_name": "al", "partition": "main", "nodes": LIST,
    }  # fmt: skip
    answer = JsonAnswer("it")
    answer.feed(json.dumps({"jobs": [{"job_id": job, **row} for job in range(1, count + 1)]}).encode())
    answer.close("jobs")


def pyslurm(count: int) -> None:
    """Read as many rows of pyslurm."""
    row = {
        "array_id": None, "array_task_id": None, "array_tasks_waiting": None, "heterogeneous_id": None,
        "heterogeneous_offset": None, "state": "RUNNING", "requeue_count": 0, "start_time": 1_795_000_000,
        "user_id": 1001, "user_name": "al", "partition": "main", "allocated_nodes": LIST,
    }  # fmt: skip
    rows.parse_jobs([{"id": job, **row} for job in range(1, count + 1)])


def recorded(count: int) -> None:
    """Play a recording of as many jobs."""
    head = {"schema": 1, "cluster": "c", "slurm_version": None, "visible_user": None, "source": "", "recorded": ""}
    row = {
        "state": "RUNNING", "restart_count": 0, "start_time": 1_795_000_000, "user": "al", "user_id": "1001",
        "partition": "main", "nodelist": LIST,
    }  # fmt: skip
    jobs = [{"job_id": str(job), **row} for job in range(1, count + 1)]
    told = {**head, "nodes": [{"name": "n1", "state": ["IDLE"]}], "allocations": jobs}
    recording.load([json.dumps(told).encode()], "it")


@pytest.mark.parametrize("read", [squeue, scontrol, of_json, pyslurm, recorded])
def test_jobs_that_hold_too_much(read: Callable[[int], None]) -> None:
    """As many nodes as are allowed are read; with another job the answer is refused."""
    read(ENOUGH)
    with pytest.raises(SlurmProtocolError, match=f"hold more than {MAX_HELD} nodes"):
        read(ENOUGH + 1)

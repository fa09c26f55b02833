"""How one job was submitted: what stands in no table of jobs, and is asked of the job that one runs in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.fields import shown

if TYPE_CHECKING:
    from .run import Commands

_FIELDS = "--Format=JobID:|,Requeue:|"  # nothing free-form: see text.SHOW_JOBS
_REQUEUE = {"0": False, "1": True}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Whether Slurm may requeue a job, and its batch script; None where it has none, or it is not ours."""

    requeue: bool
    script: str | None


def options_of(job_id: str, commands: Commands) -> JobOptions:
    """Ask for a job by its own id, SLURM_JOB_ID, in an array too.

    Raises SlurmUnavailable or SlurmProtocolError.
    """
    commands.begin()
    query = ("squeue", "--all", "--local", "--noheader", _FIELDS, f"--jobs={job_id}")
    requeue = parse_requeue(commands.ask(query)[0].stdout, job_id)
    try:
        script = commands.ask(("scontrol", "--local", "write", "batch_script", job_id, "-"))[0].stdout
    except SlurmUnavailable:  # salloc has none, and another user's is not shown
        return JobOptions(requeue, None)
    return JobOptions(requeue, script.decode("utf-8", "backslashreplace"))


def parse_requeue(output: bytes, job_id: str) -> bool:
    """Read the row of a job; where its id is the array's too there are more. Raises SlurmProtocolError."""
    rows = [row.split("|") for row in output.decode("utf-8", "backslashreplace").splitlines()]
    mine = [row for row in rows if row[0] == job_id]
    if len(mine) != 1 or len(mine[0]) != 3 or mine[0][1] not in _REQUEUE:  # noqa: PLR2004 - two fields and an end
        told = shown(output[:200].decode("utf-8", "replace"))
        raise SlurmProtocolError(f"squeue: no row of job {job_id}: {told}")
    return _REQUEUE[mine[0][1]]

"""The job that this runs in, and how its launchers are started. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .check import error, ok, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .check import Check

CHECKS = ("job.processes", "job.kill-on-bad-exit", "job.requeue", "job.replacement-group")
_TASKS = re.compile(r"([0-9]{1,9})(?:\(x[0-9]{1,9}\))?")
_KILL = re.compile(r"(?:^|\s)(?:--kill-on-bad-exit|-K)(?:[= ]?([01]))?(?=\s|$)")
_RESTARTS = re.compile(r"--max[-_]restarts(?:[= ]|\s+)([0-9]{1,9})\b")
_GROUP = re.compile(r"\breplacement_group_size=([0-9]{1,9})\b")
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n")
_FALSE = {"", "0", "false", "no", "off"}


class Job(NamedTuple):
    """What can be seen from inside a job, or of the environment outside one.

    `requeue` is None where Slurm was not asked or did not say, and `untold` why. `script` is the batch script.
    `sruns` are the command lines of the job's srun processes on this host. `settings` are Slurm's.
    """

    environ: Mapping[str, str]
    requeue: bool | None
    untold: str
    script: str | None
    sruns: Sequence[str]
    settings: Mapping[str, str] | None

    @property
    def job_id(self) -> str:
        """Slurm's id of the job, "" outside one."""
        return self.environ.get("SLURM_JOB_ID", "")

    @property
    def scope_id(self) -> str:
        """The id by which a sidecar's scope names the job: an array's is that of the whole array."""
        return self.environ.get("SLURM_ARRAY_JOB_ID") or self.job_id

    @property
    def commands(self) -> str:
        """The batch script without comments, a command a line."""
        return _CONTINUED.sub(" ", _COMMENT.sub("", self.script or ""))

    @property
    def is_array(self) -> bool:
        """Whether this is a task of a job array."""
        return bool(self.environ.get("SLURM_ARRAY_TASK_ID"))

    @property
    def is_step(self) -> bool:
        """Whether this runs under srun, and not in the batch script."""
        return self.environ.get("SLURM_STEP_ID", "").isdigit()


def check_processes(job: Job) -> Check:
    """Judge whether a node gets one launcher: of several, each would be taken for the node's."""
    name = "job.processes"
    told = tasks_per_node(job.environ)
    if told is None:
        return skipped(name, "the environment does not say how many processes a node gets")
    variable, most = told
    if most == 1:
        return ok(name, f"one process a node ({variable})")
    value = job.environ.get("NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE", "")
    found = f"{most} processes a node ({variable})"
    remedy = (
        "srun --ntasks-per-node=1, and #SBATCH --ntasks-per-node=1: one launcher a node starts the workers itself"
    )
    if value.lower() not in _FALSE:
        return warning(name, f"{found}, which NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE={value} allows", remedy)
    if job.is_step:
        return error(name, f"{found}: ft_launcher refuses to start", remedy)
    return warning(name, f"{found}: srun starts as many, unless it is told otherwise", remedy)


def tasks_per_node(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the most processes that a node gets, and by what that is known; None where nothing tells."""
    for variable in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"):
        parts = [_TASKS.fullmatch(part.strip()) for part in environ.get(variable, "").split(",")]
        if parts and all(parts):
            return f"{variable}={environ[variable]}", max(int(part[1]) for part in parts if part)
    tasks, nodes = environ.get("SLURM_NTASKS", ""), environ.get("SLURM_NNODES", "")
    if tasks.isdecimal() and nodes.isdecimal() and int(nodes):
        return f"SLURM_NTASKS={tasks}, SLURM_NNODES={nodes}", -(-int(tasks) // int(nodes))
    return None


def check_kill_on_bad_exit(job: Job) -> Check:
    """Judge whether the whole step ends when process 0 leaves: the nearest witness counts."""
    name = "job.kill-on-bad-exit"
    told = _kill_on_bad_exit(job)
    if told is None:
        return warning(
            name,
            "neither an srun on this host, nor SLURM_KILL_BAD_EXIT, the batch script or slurm.conf tells",
            "srun --kill-on-bad-exit=1",
        )
    ends, by = told
    if ends:
        return ok(name, f"{by}: when process 0 of an excluded unit leaves, its step ends")
    return error(
        name,
        f"{by}: process 0 of an excluded unit leaves, and the others keep its nodes to the end of the run",
        "srun --kill-on-bad-exit=1",
    )


def _kill_on_bad_exit(job: Job) -> tuple[bool, str] | None:
    """Return whether, and by whose word: that of the nearest who has one."""
    for srun in job.sruns:
        if match := _KILL.search(srun):
            return match[1] != "0", f"srun runs with {match[0].strip()}"
    variable = job.environ.get("SLURM_KILL_BAD_EXIT")
    if variable is not None:
        return variable != "0", f"SLURM_KILL_BAD_EXIT={variable}"
    starts_steps = "srun" in job.commands
    if starts_steps and not job.sruns and (match := _KILL.search(job.commands)):
        return match[1] != "0", f"the batch script says {match[0].strip()}"
    value = None if job.settings is None else job.settings.get("KillOnBadExit")
    if value is not None and (value != "0" or job.sruns or starts_steps):
        return value != "0", f"KillOnBadExit={value} in slurm.conf, and no srun says otherwise"
    return None


def check_requeue(job: Job) -> Check:
    """Judge whether an array task may come back under its number."""
    name = "job.requeue"
    if job.requeue is None:
        return skipped(name, job.untold)
    if not job.requeue:
        return ok(name, "Requeue=0")
    if job.is_array:
        return error(
            name,
            "Requeue=1: an excluded array task can come back under the same number, beside its spare",
            "#SBATCH --no-requeue",
        )
    return ok(name, "Requeue=1: for a regular job, if `publish --once --wait` runs before srun")


def check_replacement_group(job: Job, size: int | None) -> Check:
    """Judge whether a replacement group is an array task; `size` is what the launcher is told, None: nothing."""
    name = "job.replacement-group"
    if not job.is_array and not job.environ.get("NVRX_REPLACEMENT_GROUP_ID"):
        return skipped(name, "not an array task: there are no replacement groups")
    nodes = job.environ.get("SLURM_NNODES") or job.environ.get("SLURM_JOB_NUM_NODES") or ""
    if not nodes.isdecimal():
        return error(name, "SLURM_NNODES is not set: ft_launcher cannot start in an array", "export SLURM_NNODES")
    if size is None:
        size = _found(_GROUP, job.environ.get("PET_RDZV_CONF", ""), job.commands)
    if size is None or size == int(nodes):
        return ok(name, f"{nodes} nodes{'' if size else ', which is what ft_launcher takes unless it is told'}")
    remedy = f"replacement_group_size={nodes} in --rdzv-conf, or leave it out"
    if size > int(nodes):
        return error(name, f"{size}, and an array task has {nodes} nodes: no group is ever complete", remedy)
    return warning(
        name,
        f"{size}, and an array task has {nodes} nodes: a part of an excluded task counts as a whole group",
        remedy,
    )


def check_restarts(budget: int | None, job: Job) -> Check:
    """Judge whether there is a next rendezvous; `budget` is what the launcher is told, None: to be found out.

    MindCluster says so of its PreSeparate: a job that ends abnormally there needs the unconditional retry.
    """
    name = "job.restarts"
    by = "--max-restarts"
    for variable in ("PET_MAX_RESTARTS", "TORCHELASTIC_MAX_RESTARTS"):
        value = job.environ.get(variable, "")
        if budget is None and value.isdecimal():
            budget, by = int(value), variable
    if budget is None:
        budget, by = _found(_RESTARTS, job.commands), "the batch script"
    if budget is None:
        return skipped(name, "not known: give --max-restarts N; ft_launcher takes 0 where it is not told")
    if budget == 0:
        return warning(
            name,
            f"a restart budget of 0 ({by}): what fails on a drained node is not started again by its launcher, "
            "and exclusion counts from the next run of the job on",
            "ft_launcher --max-restarts N, or a job that is submitted again whatever its end",
        )
    return ok(name, f"{budget} restarts ({by})")


def _found(pattern: re.Pattern[str], *texts: str) -> int | None:
    for text in texts:
        match = pattern.search(text)
        if match is not None:
            return int(match[1])
    return None

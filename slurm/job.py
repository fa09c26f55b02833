"""One allocation: a job, an array task or a component of a heterogeneous job that holds nodes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

HOLDS_NODES = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED"})
"""Job states in which the job runs, or will in a moment, on the nodes that it has.

Slurm's commands print one word for a base and its flags (job_state_string() of slurm_protocol_defs.c), the flag
first: a running job that is being resized, signalled or stopped prints RESIZING, SIGNALING or STOPPED.
"""

HOLDS_NOTHING = frozenset(
    {
        "PENDING",
        "COMPLETING",
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
        "REVOKED",
        "STAGE_OUT",
        "EXPEDITING",
    }
)
"""Job states in which there is no allocation to reuse: not begun, ending, ended, or waiting for its next run."""


@lru_cache(maxsize=256)  # thousands of jobs, a handful of states
def holds_nothing(state: str) -> bool:
    """Tell whether a job in this state, or in these joined by commas, surely has no allocation to reuse."""
    return not HOLDS_NOTHING.isdisjoint(state.split(","))


@lru_cache(maxsize=256)
def holds_nodes(state: str) -> bool:
    """Tell whether a job in this state, or in these joined by commas, surely runs on the nodes that it has."""
    return not HOLDS_NODES.isdisjoint(state.split(","))


class Allocation(NamedTuple):
    """An allocation, in Slurm's own ids; a tuple, since a pass makes thousands.

    `state` is Slurm's word, or several joined by commas. Ids are ASCII decimal digits. `array_job_id` and
    `array_task_id` are None outside an array, `het_job_id` (the leader's) outside a heterogeneous job; the last
    task of an array has `job_id` equal to `array_job_id`. `start_time` is in seconds since the epoch, UTC.
    `nodes` are the names that `nodelist` folds.
    """

    job_id: str
    state: str
    restart_count: int
    start_time: int
    nodelist: str
    nodes: tuple[str, ...]
    array_job_id: str | None = None
    array_task_id: str | None = None
    het_job_id: str | None = None
    user: str = ""
    user_id: str = ""
    partition: str = ""

    @property
    def is_understood(self) -> bool:
        """Whether it surely runs on these nodes; False for a state of a newer Slurm, and with no node."""
        return holds_nodes(self.state) and bool(self.nodes)

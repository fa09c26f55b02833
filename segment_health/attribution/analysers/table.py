"""The failures of training on Slurm that are recognised. Of several rows that match a line the first counts."""

from __future__ import annotations

from .collective import COLLECTIVE
from .machine import MACHINE
from .program import PROGRAM

KINDS = (*MACHINE, *PROGRAM, *COLLECTIVE)
BY_CATEGORY = {kind.category: kind for kind in KINDS}
UNKNOWN = "unknown"
"""The category of what no row matches."""
FOREIGN = frozenset({"node-failure", "preemption", "time-limit", "cancelled"})
"""Categories of what ended a job from outside: nothing in it failed."""

MARKS = (
    # Slurm and the kernel.
    *(
        "slurmstepd",
        "srun: ",
        "scontrol: ",
        "CANCELLED AT",
        "REQUEUED AT",
        "can't open file",
        r"Xid \(",
        "fallen off the bus",
    ),
    *("oom-kill:", "ut of memory: Kill", r"error: Detected \d"),
    # The GPU and the network.
    *("CUDA ", "Cuda failure", "CUDA_ERROR_", "CUBLAS_STATUS_", "CUDNN_STATUS_", "initialize NVML"),
    *(r"libcuda\.so", " out of memory", "RESOURCE_EXHAUSTED"),
    *("NET/", "ibv_", "NCCL error", "NCCL Error", "NCCL WARN", "NCCL watchdog", "NCCL operations", "NCCL work"),
    *(r"nccl[A-Z]\w*Error", "atchdog caught", "by watchdog", "please report.*NCCL", "invalid usage.*NCCL"),
    # The storage.
    *(r"\[Errno ", "No space left", "quota exceeded", "Read-only file", "file handle", "ransport endpoint"),
    *("I/O error", "nput/output error"),
    # The script.
    *("Error: ", r"Error\(", r"Error:?\r?$", "Exception", "error: ", "Interrupt", "SystemExit", "StopIteration"),
    *(
        "Missing",
        "Assertion",
        "DataLoader worker",
        "Fatal Python",
        "egfault",
        "Segmentation fault",
        "Bus error",
        "Illegal instr",
        "received signal",
        "double free",
    ),
    *(r"malloc\(\): ", "corrupted size"),
    *(r"oss (?:is|became|was|=) ?(?i:nan|inf)\b", "NaN|Inf |on-finite", r"result (?:nan|inf)\b"),
    "loss scale already",
    # The end of others.
    *("losed by ", "reset by peer", "Broken pipe", "Socket closed", "remote process exited", "exitcode: "),
    *("closing signal", "terminate called", "Killed", "Terminated", "Aborted", "Killing subprocess"),
    "with return code",
)
"""A line that has none of these matches no row: they are what a long log is searched for."""

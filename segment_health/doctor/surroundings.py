"""What this process can see of where it runs: its Python's NVRx, the srun processes of its job, users."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING

from .directory import JobUser
from .launcher import DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYBODY = JobUser("everybody", None)


def nvrx_version() -> str | None:
    """Return the installed version, None where there is none. Imports nothing of it: that would load torch."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def srun_commands(job_id: str) -> list[str]:
    """Return the command lines of the srun processes of a job on this host, as far as we may see them."""
    return sorted(set(_srun_commands(job_id)))


def _srun_commands(job_id: str) -> Iterator[str]:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "backslashreplace").split("\0")[:-1]
            if not words or os.path.basename(words[0]) != "srun":
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"SLURM_JOB_ID={job_id}".encode() in file.read().split(b"\0"):
                    yield " ".join(words)


def job_user(told: str | None) -> JobUser | None:
    """Return whose launchers have to see decisions: the one who is named, else us; for root it is everybody.

    None when there is no such user.
    """
    if told is None:
        uid = os.geteuid()
        if uid == 0:
            return EVERYBODY
        return JobUser(f"uid {uid}", uid, {os.getegid(), *os.getgroups()})
    try:
        found = pwd.getpwuid(int(told)) if told.isdecimal() else pwd.getpwnam(told)
    except (KeyError, OverflowError):
        return None
    return JobUser(found.pw_name, found.pw_uid, os.getgrouplist(found.pw_name, found.pw_gid))

"""Whose job a log is of, as an attribution service is told. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobMetadata(NamedTuple):
    """The user and the id of a job; None, and not sent, where the environment does not say."""

    user: str | None = None
    job_id: str | None = None


def is_requeued(environ: Mapping[str, str]) -> bool:
    """Tell whether this run of a job is not its first: an earlier one had its id, and its logs had these names.

    What cannot be read counts as such.
    """
    return (environ.get("SLURM_RESTART_COUNT") or "0") != "0"


def job_metadata(environ: Mapping[str, str]) -> JobMetadata:
    """Read both from an environment, where an empty variable says as little as none.

    All tasks of an array have one job id, that of the array: its cycles are one history to the service.
    Source: seed 001, "Attribution service integration".
    """
    return JobMetadata(
        user=environ.get("SLURM_JOB_USER") or environ.get("USER") or None,
        job_id=environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID") or None,
    )

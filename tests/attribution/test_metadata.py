"""Whose job it is, from an environment."""

from __future__ import annotations

import pytest

from segment_health.attribution.metadata import JobMetadata, is_requeued, job_metadata


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        pytest.param(
            {"SLURM_JOB_USER": "ann", "USER": "root", "SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": "9"},
            ("ann", "7"),
            id="slurm-comes-first",
        ),
        pytest.param({"USER": "root", "SLURM_JOB_ID": "9"}, ("root", "9"), id="fallback"),
        pytest.param({}, (None, None), id="nothing"),
        pytest.param(
            {"SLURM_JOB_USER": "", "USER": "", "SLURM_ARRAY_JOB_ID": "", "SLURM_JOB_ID": ""},
            (None, None),
            id="empty",
        ),
        pytest.param(
            {"SLURM_JOB_USER": "", "USER": "ann", "SLURM_ARRAY_JOB_ID": "", "SLURM_JOB_ID": "9"},
            ("ann", "9"),
            id="empty-is-none",
        ),
        pytest.param({"LOGNAME": "ann", "SLURM_ARRAY_TASK_ID": "3"}, (None, None), id="nothing-else-counts"),
    ],
)
def test_metadata(environ: dict[str, str], told: tuple[str | None, str | None]) -> None:
    """Slurm's own variables come first, the array's id stands for its tasks, and what is empty is not told."""
    assert job_metadata(environ) == JobMetadata(*told)


@pytest.mark.parametrize(
    ("count", "requeued"), [(None, False), ("", False), ("0", False), ("1", True), ("12", True), ("x", True)]
)
def test_a_requeue(count: str | None, requeued: bool) -> None:
    """A run is the first where Slurm counts none before it, or does not count."""
    assert is_requeued({} if count is None else {"SLURM_RESTART_COUNT": count}) is requeued

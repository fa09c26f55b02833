from __future__ import annotations

import pytest

from segment_health.doctor.job import (
    Job,
    check_kill_on_bad_exit,
    check_processes,
    check_replacement_group,
    check_requeue,
    check_restarts,
)

ARRAY = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "0", "SLURM_NNODES": "18"}
STEP = {"SLURM_STEP_ID": "0"}


def job(
    environ: dict[str, str] | None = None,
    script: str | None = None,
    *sruns: str,
    conf: str | None = None,
    requeue: bool | None = None,
) -> Job:
    """A job in this environment; `conf` is KillOnBadExit."""
    settings = None if conf is None else {"KillOnBadExit": conf}
    return Job(environ or {}, requeue, "nobody asked", script, sruns, settings)


@pytest.mark.parametrize(
    ("environ", "severity"),
    [
        ({"SLURM_TASKS_PER_NODE": "1(x18)"}, "ok"),
        ({"SLURM_TASKS_PER_NODE": "1"}, "ok"),
        ({"SLURM_TASKS_PER_NODE": "2(x17),1"}, "warning"),
        ({"SLURM_TASKS_PER_NODE": "1,2"} | STEP, "error"),
        ({"SLURM_TASKS_PER_NODE": "8(x2)", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"} | STEP, "ok"),
        ({"SLURM_TASKS_PER_NODE": "2"} | STEP | {"NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE": "1"}, "warning"),
        ({"SLURM_TASKS_PER_NODE": "2"} | STEP | {"NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE": "0"}, "error"),
        ({"SLURM_TASKS_PER_NODE": "garbled", "SLURM_NTASKS_PER_NODE": "2"}, "warning"),
        ({"SLURM_NTASKS": "18", "SLURM_NNODES": "18"}, "ok"),
        ({"SLURM_NTASKS": "19", "SLURM_NNODES": "18"}, "warning"),
        ({"SLURM_NTASKS": "1", "SLURM_NNODES": "0"}, "skipped"),
        ({}, "skipped"),
    ],
)
def test_processes(environ: dict[str, str], severity: str) -> None:
    """One process a node is what a launcher wants; a batch script may still tell srun so."""
    assert check_processes(job(environ)).severity == severity


SRUN = "srun -l --nodes=2"


@pytest.mark.parametrize(
    ("inside", "severity"),
    [
        pytest.param(job(None, None, f"{SRUN} --kill-on-bad-exit=1 bash"), "ok", id="srun says so"),
        pytest.param(job(None, None, f"{SRUN} --kill-on-bad-exit bash"), "ok", id="without a number"),
        pytest.param(job(None, None, f"{SRUN} -K1 bash"), "ok", id="short"),
        pytest.param(job(None, None, f"{SRUN} -K bash", conf="0"), "ok", id="srun before slurm.conf"),
        pytest.param(job(None, None, f"{SRUN} -K0 bash", conf="1"), "error", id="srun takes it back"),
        pytest.param(job(None, None, f"{SRUN} bash", conf="0"), "error", id="nobody says so"),
        pytest.param(job(None, None, f"{SRUN} bash", conf="1"), "ok", id="slurm.conf does"),
        pytest.param(job({"SLURM_KILL_BAD_EXIT": "1"}, None, f"{SRUN} bash", conf="0"), "ok", id="variable"),
        pytest.param(job({"SLURM_KILL_BAD_EXIT": "0"}, None, conf="1"), "error", id="variable takes it back"),
        pytest.param(job(None, "srun \\\n  --kill-on-bad-exit=1 x\n", conf="0"), "ok", id="batch script"),
        pytest.param(job(None, "# srun --kill-on-bad-exit=1\nsrun x\n", conf="0"), "error", id="a comment"),
        pytest.param(job(None, "srun x --not-kill-on-bad-exit=1\n", conf="0"), "error", id="part of a word"),
        pytest.param(job(None, "srun --kill-on-bad-exit=1 x\n", SRUN, conf="0"), "error", id="another srun"),
        pytest.param(job(None, "python launch.py\n", conf="0"), "warning", id="no srun to be seen"),
        pytest.param(job(), "warning", id="nothing to be seen"),
    ],
)
def test_kill_on_bad_exit(inside: Job, severity: str) -> None:
    """The nearest witness counts: the running srun, its variable, the batch script, slurm.conf."""
    assert check_kill_on_bad_exit(inside).severity == severity


@pytest.mark.parametrize(
    ("environ", "requeue", "severity"),
    [(ARRAY, True, "error"), (ARRAY, False, "ok"), ({}, True, "ok"), ({}, False, "ok"), (ARRAY, None, "skipped")],
)
def test_requeue(environ: dict[str, str], requeue: bool | None, severity: str) -> None:
    """An array task must not come back under its number; a regular job may."""
    assert check_requeue(job(environ, requeue=requeue)).severity == severity


@pytest.mark.parametrize(
    ("environ", "script", "size", "severity"),
    [
        pytest.param(ARRAY, None, None, "ok", id="by default"),
        pytest.param(ARRAY, None, 18, "ok", id="as told"),
        pytest.param(ARRAY, None, 9, "warning", id="smaller"),
        pytest.param(ARRAY, None, 36, "error", id="larger"),
        pytest.param(ARRAY, "x --rdzv-conf a=1,replacement_group_size=9", None, "warning", id="batch script"),
        pytest.param(ARRAY | {"PET_RDZV_CONF": "replacement_group_size=36"}, None, None, "error", id="variable"),
        pytest.param({"SLURM_ARRAY_TASK_ID": "0"}, None, None, "error", id="no SLURM_NNODES"),
        pytest.param({"SLURM_NNODES": "2"}, None, 1, "skipped", id="regular job"),
        pytest.param({"SLURM_NNODES": "2", "NVRX_REPLACEMENT_GROUP_ID": "a"}, None, 1, "warning", id="own groups"),
    ],
)
def test_replacement_group(environ: dict[str, str], script: str | None, size: int | None, severity: str) -> None:
    """A group is a whole array task: a smaller one lets a part of it in, a larger one is never complete."""
    assert check_replacement_group(job(environ, script), size).severity == severity


@pytest.mark.parametrize(
    ("budget", "environ", "script", "severity"),
    [
        pytest.param(0, {"PET_MAX_RESTARTS": "3"}, None, "warning", id="told none"),
        pytest.param(3, {"PET_MAX_RESTARTS": "0"}, None, "ok", id="told"),
        pytest.param(None, {"PET_MAX_RESTARTS": "0"}, None, "warning", id="launcher's variable"),
        pytest.param(None, {"TORCHELASTIC_MAX_RESTARTS": "2"}, None, "ok", id="worker's variable"),
        pytest.param(None, {}, "ft_launcher --max-restarts=0 train.py", "warning", id="batch script"),
        pytest.param(None, {}, "ft_launcher --max_restarts 7 \\\n train.py", "ok", id="other spelling"),
        pytest.param(None, {}, "# --max-restarts=0\nft_launcher train.py", "skipped", id="a comment"),
        pytest.param(None, {"PET_MAX_RESTARTS": "many"}, None, "skipped", id="garbled"),
    ],
)
def test_restarts(budget: int | None, environ: dict[str, str], script: str | None, severity: str) -> None:
    """Without a restart there is no next rendezvous at which an exclusion could count."""
    assert check_restarts(budget, job(environ, script)).severity == severity

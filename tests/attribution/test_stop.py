"""The STOP of a job: whom it binds, and what is no STOP."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.stop import Run, Stop, StopFile, asks, decode, encode, is_first, run_of

if TYPE_CHECKING:
    from pathlib import Path

ARRAY = {"SLURM_CLUSTER_NAME": "c", "SLURM_ARRAY_JOB_ID": "12", "SLURM_JOB_ID": "14", "SLURM_ARRAY_TASK_ID": "2"}
NOW = 1_795_982_759


def run(task: str = "12", restarts: int = 0, job: str = "12", cluster: str = "c") -> Run:
    """Return a run; of a regular job unless a task is given."""
    return Run(cluster, job, task, restarts)


def leave(directory: Path, by: Run) -> str:
    """Leave the STOP of a run, as the task that asks does; return where."""
    file = StopFile(str(directory), by)
    assert file.write("/logs/train_cycle3.log", "host1", NOW)
    return file.path


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SLURM_PROCID": "0"}, None),
        ({"SLURM_JOB_ID": "7"}, Run("", "7", "7", 0)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "3"}, Run("", "7", "7", 3)),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": ""}, Run("", "7", "7", 0)),
        (ARRAY, Run("c", "12", "2", 0)),
    ],
    ids=["nowhere", "no-job", "job", "requeued", "empty", "array"],
)
def test_a_run_is_read_from_the_environment(environ: dict[str, str], expected: Run | None) -> None:
    """An array's tasks share the job id, each counts its own restarts."""
    assert run_of(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [{"SLURM_JOB_ID": "../7"}, {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "-1"}, ARRAY | {"SLURM_JOB_ID": "1"}],
    ids=["id", "count", "fine"],
)
def test_a_strange_environment(environ: dict[str, str]) -> None:
    """What is no number never becomes a path."""
    if environ["SLURM_JOB_ID"] == "1":
        assert run_of(environ) == Run("c", "12", "2", 0)
    else:
        with pytest.raises(ValueError, match=r"digits|no number"):
            run_of(environ)


@pytest.mark.parametrize(
    ("environ", "first", "asker"),
    [
        ({}, True, True),
        ({"SLURM_PROCID": "0"}, True, True),
        ({"SLURM_PROCID": "1"}, False, False),
        (ARRAY | {"SLURM_PROCID": "0", "SLURM_ARRAY_TASK_MIN": "2"}, True, True),
        (ARRAY | {"SLURM_PROCID": "0", "SLURM_ARRAY_TASK_MIN": "1"}, True, False),
        (ARRAY | {"SLURM_PROCID": "0"}, True, True),
        (ARRAY | {"SLURM_PROCID": "1", "SLURM_ARRAY_TASK_MIN": "2"}, False, False),
    ],
    ids=["no-slurm", "process-0", "process-1", "first-task", "second-task", "no-minimum", "its-process-1"],
)
def test_one_process_of_a_job_asks(environ: dict[str, str], first: bool, asker: bool) -> None:
    """Process 0 of the first task asks; process 0 of each task looks for a STOP."""
    assert (is_first(environ), asks(environ)) == (first, asker)


@pytest.mark.parametrize(
    ("stopped", "mine", "found_first", "binds"),
    [
        pytest.param(run(), run(), False, True, id="own"),
        pytest.param(run(), run(), True, True, id="own-again"),
        pytest.param(run(), run(restarts=1), True, False, id="requeued"),
        pytest.param(run(), run(restarts=1), False, False, id="predecessor-late"),
        pytest.param(run("0"), run("2"), False, True, id="another-task"),
        pytest.param(run("0"), run("2"), True, True, id="another-task-that-began-later"),
        pytest.param(run("0"), run("2", 1), False, True, id="a-task-that-was-requeued-before"),
        pytest.param(run("0"), run("2", 1), True, False, id="a-task-requeued-after"),
        pytest.param(run("0", 1), run("2", 1), True, False, id="a-task-requeued-after-with-equal-count"),
        pytest.param(run("0", 1), run("2", 0), False, True, id="requeued-asker"),
        pytest.param(run("0", job="13"), run("2"), False, False, id="another-job"),
        pytest.param(run("0", cluster="d"), run("2"), False, False, id="another-cluster"),
    ],
)
def test_whom_it_binds(tmp_path: Path, stopped: Run, mine: Run, found_first: bool, binds: bool) -> None:
    """The run that it was given for and the other tasks of that run, and no later one."""
    file = StopFile(str(tmp_path), mine)
    if not found_first:
        assert file.look() is None
    path = leave(tmp_path, stopped)
    os.replace(path, file.path)  # that of another job would not even be looked at
    assert (file.look() is not None) == binds
    assert (file.look() is not None) == binds


def test_it_is_written_once(tmp_path: Path) -> None:
    """The second STOP of a run leaves the first one; that of an earlier run is replaced."""
    path = leave(tmp_path, run())
    assert not StopFile(str(tmp_path), run()).write("/other", "host2", NOW + 9)
    stop = StopFile(str(tmp_path), run()).look()
    assert stop == Stop(run(), "/logs/train_cycle3.log", "host1", NOW)
    assert StopFile(str(tmp_path), run(restarts=1)).write("/other", "host2", NOW + 9)
    assert json.loads((tmp_path / "segment_health_stop.12").read_text())["restart_count"] == 1
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["segment_health_stop.12"]


def test_an_unreadable_one_is_replaced(tmp_path: Path) -> None:
    """Junk under its name keeps nobody from a STOP."""
    file = StopFile(str(tmp_path), run())
    (tmp_path / "segment_health_stop.12").write_text("x")
    assert file.write("/log", "host1", NOW)
    assert file.look() is not None


def test_a_new_run_of_the_asking_task_lifts_it(tmp_path: Path) -> None:
    """So that tasks of the array that only begin now, in their first run, are not bound either."""
    leave(tmp_path, run("0"))
    late = StopFile(str(tmp_path), run("3"))
    assert late.look() is not None
    assert not StopFile(str(tmp_path), run("0")).forget_predecessor()
    assert not StopFile(str(tmp_path), run("1", 1)).forget_predecessor()
    again = StopFile(str(tmp_path), run("0", 1))
    assert again.forget_predecessor()
    assert not again.forget_predecessor()
    assert (late.look(), again.look()) == (None, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"STOP",
        b"[]",
        b"\xff\xfe",
        b"[" * 60_000,
        encode(Stop(run(), "/l", "h", NOW)).replace(b'"restart_count": 0', b'"restart_count": "0"'),
        encode(Stop(run(), "/l", "h", NOW)).replace(b'"job_id": "12", ', b""),
        encode(Stop(run(), "/l", "h", NOW)).replace(b"2026", b"never"),
    ],
    ids=["empty", "word", "list", "bytes", "deep", "type", "missing", "time"],
)
def test_what_is_no_stop_binds_nobody(tmp_path: Path, content: bytes) -> None:
    """It is a ValueError, of which a person is told."""
    (tmp_path / "segment_health_stop.12").write_bytes(content)
    with pytest.raises(ValueError, match="no STOP that this program wrote"):
        StopFile(str(tmp_path), run()).look()


def test_what_is_no_file_binds_nobody(tmp_path: Path) -> None:
    """A directory, a fifo, a link, a file without end: an OSError, at once."""
    path = tmp_path / "segment_health_stop.12"
    for make in (
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.write_bytes(b" " * (1 << 17)),
    ):
        make()
        with pytest.raises(OSError, match=r".+"):
            StopFile(str(tmp_path), run()).look()
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


@pytest.mark.root
def test_a_strangers_binds_nobody(tmp_path: Path) -> None:
    """Only this user and root can stop this user's job."""
    path = leave(tmp_path, run())
    os.chown(path, 1234, 1234)
    with pytest.raises(PermissionError, match="1234"):
        StopFile(str(tmp_path), run()).look()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """Nobody is bound, and whoever leaves a STOP is told."""
    file = StopFile(str(tmp_path / "no"), run())
    assert file.look() is None
    with pytest.raises(FileNotFoundError):
        file.write("/log", "host1", NOW)


def test_it_is_read_back_as_it_was_written() -> None:
    """One line, of which nothing is lost."""
    stop = Stop(run("3", 4), "/logs/\n\x1b[2J\udcff.log", "host1", NOW)
    content = encode(stop)
    assert content.count(b"\n") == 1
    assert content.isascii()
    assert b"\x1b" not in content
    assert decode(content) == stop

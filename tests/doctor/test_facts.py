"""What is really looked at: a directory of this machine, its mount, and the NVRx beside us."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from segment_health import atomic
from segment_health.atomic import open_directory
from segment_health.doctor import facts
from segment_health.doctor.surroundings import EVERYBODY, job_user, nvrx_version, srun_commands

WHEEL = Path(__file__).parents[2] / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"


def test_a_directory(tmp_path: Path) -> None:
    """Every directory above it is looked at, the mount is known, and the probe is gone again."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    directory.chmod(0o750)
    place = facts.examine(str(directory))
    assert place.path == place.real == str(directory)
    assert [step.path for step in place.steps][:1] == ["/"]
    assert place.steps[-1].path == str(directory)
    assert place.steps[-1].mode == 0o750
    assert place.mount is not None
    assert place.mount.point in {"/", *map(str, directory.parents)}
    assert place.room.free is not None
    assert 0 < place.room.free <= place.room.size
    assert place.trial.replaced > 0
    assert place.trial.looks > 0
    assert (place.trial.wrong, place.trial.mode, place.trial.failure) == ({}, 0o644, None)
    assert place.heartbeats == []
    assert os.listdir(directory) == []


def test_a_way_through_a_link(tmp_path: Path) -> None:
    """Directories of both ways are searched: the one that is written, and the one that it leads to."""
    (tmp_path / "real" / "decisions").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    place = facts.examine(str(tmp_path / "link" / "decisions"))
    assert place.real == str(tmp_path / "real" / "decisions")
    steps = {step.path for step in place.steps}
    assert {str(tmp_path / "link"), str(tmp_path / "real"), place.real, place.path} <= steps


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    """The failure is told, and that it is one of permission; what cannot be opened is an OSError."""
    with open_directory("/proc/self") as directory:  # nobody may write there, not even root
        trial = facts._try_to_replace(directory)
    assert trial.failure is not None
    with pytest.raises(FileNotFoundError):
        facts.examine(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        pytest.param(lambda path: path.unlink(), "no file", id="unlink before replace"),
        pytest.param(lambda path: path.write_bytes(b""), "an empty file", id="truncate before replace"),
        pytest.param(lambda path: path.write_bytes(b"b" * 7), "a partial file", id="write in place"),
    ],
)
def test_a_look_that_is_wrong_is_counted(tmp_path: Path, spoil: object, expected: str) -> None:
    """Each way in which a file system may break a replacement is told by its name."""
    assert callable(spoil)
    with open_directory(str(tmp_path)) as directory:
        watcher = facts._Watcher(directory, "probe")
        (tmp_path / "probe").write_bytes(facts._CONTENTS[0])
        watcher.look(facts._CONTENTS[0])
        assert not watcher.wrong
        watcher.look(facts._CONTENTS[1])
        assert list(watcher.wrong) == ["the old file after the new one was in place"]
        watcher.wrong.clear()
        spoil(tmp_path / "probe")
        watcher.look()
    assert watcher.wrong == {expected: 1}


def test_the_watcher_looks_while_files_are_replaced(tmp_path: Path) -> None:
    """It is not the trial's own thread that looks: a gap between two replacements is seen."""
    path = tmp_path / "probe"
    path.write_bytes(facts._CONTENTS[0])
    with open_directory(str(tmp_path)) as directory, facts._Watcher(directory, "probe") as watcher:
        assert threading.active_count() > 1
        path.unlink()
        deadline = time.monotonic() + 30
        while not watcher.wrong:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert "no file" in watcher.wrong


def test_nothing_of_nvrx_is_imported() -> None:
    """Its version is read beside it: importing it would load torch."""
    assert nvrx_version() is None
    assert not [name for name in sys.modules if name.startswith(("torch", "nvidia_resiliency_ext"))]


@pytest.mark.wheel
def test_the_version_of_a_real_nvrx(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel of 0.7.0 on the path of this Python is found by its metadata."""
    assert WHEEL.is_dir(), "`make test` fetches it"
    monkeypatch.syspath_prepend(WHEEL)
    assert nvrx_version() == "0.7.0"


def test_the_user_of_the_jobs() -> None:
    """Who is named counts, by name or id; root asks for everybody, others for themselves."""
    assert job_user("nobody-of-that-name") is None
    assert job_user("99999999999") is None
    root = job_user("root")
    assert root is not None
    assert root == job_user("0")
    assert (root.uid, 0 in root.groups) == (0, True)
    us = job_user(None)
    assert us is not None
    assert us == EVERYBODY if os.geteuid() == 0 else us.uid == os.geteuid()


def test_no_srun_of_a_job_that_is_not_there() -> None:
    """Nobody's srun has an id that no job has."""
    assert srun_commands("99999999999999999999") == []


def test_a_probe_that_is_left_is_a_publishers_to_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A doctor that is killed leaves a file that the next publisher of this host removes."""
    monkeypatch.setattr(atomic, "_is_running", lambda _: False)
    name = atomic.temporary_name()
    (tmp_path / name).touch()
    assert not name.startswith("segment_health_check.")
    with open_directory(str(tmp_path)) as directory:
        assert stat.S_ISDIR(os.fstat(directory).st_mode)
        atomic.sweep(directory, [name])
    assert os.listdir(tmp_path) == []

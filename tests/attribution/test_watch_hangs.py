"""`segment-health attribution watch` where the logs lie on storage that hangs: the launcher is not held up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Until = Callable[[Callable[[], object], str], None]

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parents[1] / "faults/passthrough.py"
SCRIPT = str(Path(sys.executable).with_name("segment-health"))
GUARD_SECONDS = 120


class Mounted:
    """A file system of FUSE at `point` which hangs when it is told to, in a way that no signal ends."""

    def __init__(self, work: Path) -> None:
        self.point, self.backing, self._mode = work / "logs", work / "backing", work / "mode"
        for path in (self.point, self.backing):
            path.mkdir()
        command: list[str | Path] = [
            sys.executable,
            PROGRAM,
            self.backing,
            self.point,
            self._mode,
            "segmenthealth",
        ]
        self.daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        guard = (
            f"sleep {GUARD_SECONDS}; kill -KILL {self.daemon.pid}"  # should a test hang, with this whole Python
        )
        self._guard = subprocess.Popen(["sh", "-c", guard], start_new_session=True)

    def hangs(self, what: str) -> None:
        """Let such requests hang from now on."""
        new = self._mode.with_name("mode.new")
        new.write_text(f"{what} hang\n")
        new.replace(self._mode)

    def close(self) -> None:
        """Let whoever waits go, and unmount it."""
        self.daemon.kill()
        self.daemon.wait()
        os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        subprocess.run(["umount", "--lazy", self.point], check=True)


@pytest.fixture
def fuse(until: Until) -> Iterator[Mounted]:
    """A mount that can be made to hang."""
    with tempfile.TemporaryDirectory(prefix="watch-", dir="/tmp") as work:
        mounted = Mounted(Path(work))
        try:
            until(lambda: os.path.ismount(mounted.point), "a mount")
            yield mounted
        finally:
            mounted.close()


def watch(fuse: Mounted, code: str) -> subprocess.Popen[bytes]:
    """Start a launcher of some shell code under watch, in a job."""
    flags = ("--ft-attribution-endpoint", "http://127.0.0.1:9", "--ft-attribution-stop-action", "no-restart")
    prefix = ("--ft-per-cycle-applog-prefix", f"{fuse.point}/train.log")
    job = {"SLURM_JOB_ID": "12", "SLURM_PROCID": "0"}
    return subprocess.Popen(
        [SCRIPT, "attribution", "watch", *flags, *prefix, "--", "sh", "-c", code],
        env={"PATH": os.environ["PATH"], **job},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def observer_of(pid: int) -> int:
    """Return the child of watch that is a fork of it."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{child}/cmdline").read_bytes() == Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(child)
    raise AssertionError


def state_of(pid: int) -> str:
    """Return the letter of ps(1)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("what", ["readdir", "open", "getattr"])
def test_storage_that_hangs_from_the_start(fuse: Mounted, tmp_path: Path, what: str) -> None:
    """The launcher begins a second later, and its status is passed on, though what looked is stuck for good."""
    (fuse.backing / "segment_health_stop.12").write_text("junk")
    fuse.hangs(what)
    began = time.monotonic()
    process = watch(fuse, f"touch {tmp_path}/ran; exit 5")
    assert process.wait(60) == 5
    assert (tmp_path / "ran").exists()
    assert time.monotonic() - began < 20  # 1.5 s, and 3 s for the last words, on an idle machine


def test_storage_that_hangs_later(fuse: Mounted, tmp_path: Path, until: Until) -> None:
    """What looks is stuck for good; the launcher goes on, hears signals, and its status counts."""
    end = tmp_path / "end"
    code = (
        f"trap 'echo told >>{tmp_path}/told' USR1; touch {tmp_path}/began; until [ -e {end} ]; do sleep 0.1; done"
    )
    process = watch(fuse, f"{code}; exit 6")
    until((tmp_path / "began").exists, "a launcher")
    observer = observer_of(process.pid)
    fuse.hangs("readdir")
    until(lambda: Path(f"/proc/{observer}/wchan").read_text() == "request_wait_answer", "a look that hangs")
    process.send_signal(signal.SIGUSR1)
    until((tmp_path / "told").exists, "the signal")
    end.touch()
    assert process.wait(60) == 6
    assert (tmp_path / "told").read_text() == "told\n"
    assert state_of(observer) == "D"  # killed, and waiting for the storage all the same

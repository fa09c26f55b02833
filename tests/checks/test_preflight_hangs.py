"""A decision directory on storage that hangs, beyond any signal: it holds up no launcher, and excludes nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health import bounded
from segment_health.checks.chain import segment_finding

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parents[1] / "faults/passthrough.py"
JOB = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0"}


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A directory whose unit is excluded, and whose storage hangs until its daemon is killed at the end."""
    point, backing, mode = tmp_path / "point", tmp_path / "backing", tmp_path / "mode"
    point.mkdir()
    backing.mkdir()
    (backing / "segment_health_check.5.5").write_text("x")
    with subprocess.Popen([sys.executable, PROGRAM, backing, point, mode], stderr=subprocess.DEVNULL) as daemon:
        # Should what is tested hang, this whole Python does, and with it all that could end a test.
        guard = subprocess.Popen(["sh", "-c", f"sleep 60; kill -KILL {daemon.pid}"], start_new_session=True)
        try:
            deadline = time.monotonic() + 30
            while not os.path.ismount(point):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert segment_finding(str(point), JOB).problems
            mode.write_text("getattr hang\n")
            yield point
        finally:
            daemon.kill()
            os.killpg(guard.pid, signal.SIGKILL)
            guard.wait()
    subprocess.run(["umount", "--lazy", point], check=True)


def test_a_directory_that_hangs_is_ignored(hanging: Path) -> None:
    """The decision is left aside in time, with a remark; the next one does not even wait."""
    began = time.monotonic()
    (first,) = segment_finding(str(hanging), JOB, 0.5).remarks
    assert first.startswith("Ignoring segment health decision: no answer within 0.5 s from ")
    (second,) = segment_finding(str(hanging), JOB, 30).remarks
    assert "has not answered process" in second
    assert time.monotonic() - began < 20
    (child,) = (pid for what, pid in bounded._left_behind.items() if what.startswith(str(hanging)))
    assert "\nState:\tD " in Path(f"/proc/{child}/status").read_text()

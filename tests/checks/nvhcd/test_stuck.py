"""A check that hangs in the kernel, where no signal reaches it: the callers get an answer all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Daemon

PASSTHROUGH = Path(__file__).parents[2] / "faults/passthrough.py"


@pytest.fixture
def mount(short_path: Path) -> Iterator[Path]:
    """A file system that hangs while a file `mode` beside it says so."""
    backing, point, mode = (short_path / name for name in ("backing", "mount", "mode"))
    backing.mkdir()
    point.mkdir()
    with subprocess.Popen(
        [sys.executable, PASSTHROUGH, backing, point, mode], stderr=subprocess.DEVNULL
    ) as server:
        try:
            deadline = time.monotonic() + 30
            while not os.path.ismount(point):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield point
        finally:
            server.kill()  # first of all: whoever waits for it is let go
            server.wait()
            subprocess.run(["umount", "--lazy", point], check=True)


@pytest.mark.root
def test_a_check_in_the_kernel(daemon: Daemon, script: Callable[[str], str], mount: Path) -> None:
    """It is late, and named; who asks again is told at once, no second one is started; later all is well again."""
    mode = mount.with_name("mode")
    daemon.start(script(f"stat {mount}/no-such-file; echo done"), timeout=0.5)
    assert daemon.call()["output"] == "done\n"
    mode.write_text("* hang\n")
    found = daemon.call()
    assert found["success"] is False
    assert found["seconds"] < 20
    assert "within 0.5 s and was killed, but the kernel has not let go of it: process " in found["error"]
    stuck = daemon.below()
    assert len(stuck) >= 2  # one that hangs, and the reaper that waits for it
    again = daemon.call()
    assert again["success"] is False
    assert again["seconds"] < 3
    assert "s ago was killed, but the kernel has not let go of it" in again["error"]
    assert daemon.below() == stuck
    mode.unlink()
    daemon.until(lambda: daemon.below() == [])
    assert daemon.call()["output"] == "done\n"

    mode.write_text("* hang\n")
    daemon.call()
    began = time.monotonic()
    assert daemon.end() == 0
    assert time.monotonic() - began < 20
    mode.unlink()
    daemon.until(lambda: daemon.below() == [])

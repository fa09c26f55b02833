"""A check that hangs in the kernel, where no signal reaches it: the callers get an answer all the same."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.checks.nvhcd.config import parse
from segment_health.checks.nvhcd.outcome import Answer, Refusal
from segment_health.checks.nvhcd.program import Programs
from segment_health.checks.nvhcd.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from segment_health.checks.nvhcd.outcome import Outcome

    from .conftest import Daemon, Marked

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


@pytest.mark.root
def test_a_check_that_cannot_begin(daemon: Daemon, mount: Path) -> None:
    """One that lies on storage that hangs is late, as one that touches it: its time has begun before it has."""
    program, mode = mount / "check", mount.with_name("mode")
    (mount.with_name("backing") / "check").write_text("#!/bin/sh\necho done\n")
    program.chmod(0o755)
    daemon.start(str(program), timeout=0.5)
    assert daemon.call()["output"] == "done\n"
    mode.write_text("* hang\n")
    found = daemon.call()
    assert found["success"] is False
    assert "the health check did not end within 0.5 s and was killed" in found["error"]
    mode.unlink()
    daemon.until(lambda: daemon.below() == [])
    assert daemon.call()["output"] == "done\n"
    assert daemon.end() == 0


class Nobody:
    """Who is told, and does not listen."""

    def ran(self, args: Sequence[str], outcome: Outcome, seconds: float) -> None:
        """Do nothing."""

    def repeated(self, args: Sequence[str]) -> None:
        """Do nothing."""


@pytest.mark.root
def test_not_without_end(marked: Marked, script: Callable[[str], str], mount: Path) -> None:
    """Whoever asks ever other questions leaves no more than so many processes; later all are answered again."""
    told = {"socket_path": "/s", "healthcheck_path": script(f"stat {mount}/none; echo done"), "timeout": 0.2}
    mode = mount.with_name("mode")
    mode.write_text("* hang\n")

    async def work() -> None:
        programs = Programs(marked.environ)
        config = parse(json.dumps(told).encode(), "c.yaml")
        service = Service(config, "/c.yaml", programs, Nobody(), time.monotonic, max_stuck=1)
        first = await service.answer(("a",))
        assert isinstance(first, Answer)
        assert not first.success
        stuck = marked.living()
        another = await service.answer(("b",))
        assert another == Refusal(
            "RESOURCE_EXHAUSTED", "1 health checks hang in the kernel; until one ends no other is started"
        )
        again = await service.answer(("a",))
        assert isinstance(again, Answer)
        assert again.summary == "still hangs"
        assert marked.living() == stuck
        mode.unlink()
        await marked.soon(lambda: not marked.living())
        while isinstance(last := await service.answer(("b",)), Refusal):  # noqa: ASYNC110 - it has to hear of it
            await asyncio.sleep(0.02)
        assert last.success
        await programs.close()

    asyncio.run(asyncio.wait_for(work(), 60))

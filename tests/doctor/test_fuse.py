"""What docs/visibility.md says of FUSE, measured; and what `doctor` says of such a mount."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.atomic import open_directory, replace_file
from segment_health.consumer import SegmentHealthCheck
from segment_health.doctor.facts import examine
from segment_health.doctor.visibility import window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

pytestmark = pytest.mark.root

UNIT = ("123", "7")
ARTIFACT = "segment_health_check.123.7"


@pytest.fixture
def backing(tmp_path: Path) -> Path:
    """The directory as another host has it."""
    path = tmp_path / "backing"
    path.mkdir()
    return path


@pytest.fixture
def mount(
    tmp_path: Path, backing: Path
) -> Callable[..., AbstractContextManager[tuple[Path, subprocess.Popen[bytes]]]]:
    """Mount the directory by FUSE, inside `with`, with libfuse's options."""

    @contextmanager
    def mounted(**options: float) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
        point = tmp_path / "mount"
        point.mkdir()
        program = Path(__file__).with_name("loopback.py")
        told = [f"{name}={value}" for name, value in options.items()]
        daemon = subprocess.Popen([sys.executable, program, backing, point, *told], stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while not os.path.ismount(point):
                assert daemon.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield point, daemon
        finally:
            daemon.kill()  # first of all: whoever waits for it is let go
            daemon.wait()
            subprocess.run(["umount", point], check=True)

    return mounted


def seconds_until_seen(check: SegmentHealthCheck, backing: Path) -> float:
    """Publish as another host does, and look without pause until the launcher's check is told."""
    assert check()
    began = time.monotonic()
    with open_directory(str(backing)) as directory:
        replace_file(directory, ARTIFACT, b"excluded\n", mode=0o644)
    while check():
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    return time.monotonic() - began


@pytest.mark.parametrize("kept", [0, 2])
def test_a_missing_name_stays_missing(mount: Any, backing: Path, kept: int) -> None:
    """A launcher that found no artifact finds none for `negative_timeout`, whatever was published."""
    with mount(negative_timeout=kept, entry_timeout=0, attr_timeout=0) as (point, _):
        seen = seconds_until_seen(SegmentHealthCheck(str(point), *UNIT), backing)
    assert kept - 0.2 <= seen < kept + 1


@pytest.mark.parametrize(("entry", "attribute"), [(2, 2), (2, 0), (0, 2)])
def test_an_empty_artifact_stays_empty(mount: Any, backing: Path, entry: int, attribute: int) -> None:
    """With --precreate it is the smaller of `entry_timeout` and `attr_timeout` that counts."""
    (backing / ARTIFACT).touch()
    with mount(negative_timeout=9, entry_timeout=entry, attr_timeout=attribute) as (point, _):
        seen = seconds_until_seen(SegmentHealthCheck(str(point), *UNIT), backing)
    assert min(entry, attribute) - 0.2 <= seen < min(entry, attribute) + 1


def test_a_replacement_that_is_not_whole_is_found(mount: Any) -> None:
    """Where the new file is late under its name there is none for a while, and the trial sees it."""
    with mount(negative_timeout=0, entry_timeout=0, attr_timeout=0, late=0.05) as (point, _):
        place = examine(str(point))
    assert place.mount is not None
    assert window_of(place.mount).row.name == "FUSE"
    assert "no file" in place.trial.wrong


def test_a_mount_that_hangs_is_told_in_time(mount: Any) -> None:
    """A daemon that is stopped: one error that says so, the other checks skipped, and an end."""
    command = Path(sysconfig.get_path("scripts")) / "segment-health"
    with mount() as (point, daemon):
        daemon.send_signal(signal.SIGSTOP)
        done = subprocess.run(
            [command, "doctor", "--dir", point, "--storage-timeout", "1", "--timeout", "5", "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1, done
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["directory.path"]["severity"] == "error"
    assert "no answer within 1 s" in checks["directory.path"]["detail"]
    assert checks["directory.replace"]["severity"] == checks["publisher.alive"]["severity"] == "skipped"

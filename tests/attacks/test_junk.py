"""100,000 files of the attacker's, where others may write: a pass stays bounded, and serves everybody."""

from __future__ import annotations

import functools
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(600)]

MANY = 100_000
MEGABYTES = 300
"""What a pass may hold at most; without junk it holds 42."""
HOST = os.uname().nodename

Make = tuple[str, "Callable[[int], str]", bytes]

# Folder, names, and what stands in the files.
ARTIFACTS: Make = ("", lambda n: f"segment_health_check.{10**9 + n}.{n}", b'{"schema": 1,')
EMPTY: Make = ("", lambda n: f"segment_health_check.{2 * 10**9 + n}.{n}", b"")
TEMPORARIES: Make = ("", lambda n: f".segment-health.tmp.{HOST}.{4_194_305 + n}.{n}", b"x")
ANY_NAMES: Make = ("", lambda n: f"{n}\x1b]0;\nsegment_health_check.1.1", b"x")
HEARTBEATS: Make = (".segment-health/heartbeat", lambda n: f"job:{n}@sandbox.json", b'{"schema": 1, "host": "h"}')
WORDS: Make = (".segment-health/override", lambda n: f"{n}.{n}.json", b'{"schema": 1}')
JUNK = {"beside our artifacts": (ARTIFACTS, EMPTY, TEMPORARIES, ANY_NAMES), "in the ledger": (HEARTBEATS, WORDS)}


def _make(directory: Path, many: int, name: Callable[[int], str], content: bytes) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(many):
        descriptor = os.open(name(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=opened)
        if content:
            os.write(descriptor, content)
        os.close(descriptor)


@pytest.fixture
def roomy(shared: Service) -> Iterator[Service]:
    """A service on a file system in memory: what is tried is the pass, not the disk."""
    mode = shared.directory.stat().st_mode & 0o7777
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode={mode:o}", "none", shared.directory], check=True)
    yield shared
    subprocess.run(["umount", "-l", shared.directory], check=True)


@pytest.mark.parametrize("shared", ["root, sticky"], indirect=True)
@pytest.mark.parametrize("junk", JUNK)
def test_a_hundred_thousand(
    roomy: Service, jobs: Jobs, attacker: Person, junk: str, record_property: Callable[[str, object], None]
) -> None:
    """No unit waits for it or is missed, time and memory have a bound, and it is not mistaken for ours."""
    roomy.publish()
    (roomy.ledger / "override").mkdir()
    (roomy.ledger / "override").chmod(0o1777)
    roomy.path(jobs.bad).unlink()
    kinds = JUNK[junk]
    for where, name, content in kinds:
        attacker.does(functools.partial(_make, roomy.directory / where, MANY // len(kinds), name, content))
    done = roomy.publish()
    figures = f"{junk}: {done.seconds:.1f} s, {done.megabytes:.0f} MB"
    record_property("figures", figures)
    print(figures)  # pytest -s shows it
    assert done.changes() == [f"exclude {jobs.bad}"]
    assert done.megabytes < MEGABYTES
    assert "\x1b" not in done.err
    assert len(done.err) < 2000


@pytest.mark.parametrize("shared", ["root, sticky"], indirect=True)
def test_temporaries_are_swept_little_by_little(roomy: Service, jobs: Jobs, attacker: Person) -> None:
    """They are of processes that are no more, and go; but decisions do not wait until the last one has gone."""
    attacker.does(functools.partial(_make, roomy.directory, 1500, *TEMPORARIES[1:]))
    for left in (500, 0):
        roomy.publish()
        assert len(list(roomy.directory.glob(".segment-health.tmp.*"))) == left
    assert roomy.is_excluded(jobs.bad)

"""What systemd is told, over the socket that sd_notify(3) describes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from segment_health.notify import Notifier
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING
from segment_health.testing import FakeClock, FakeCluster
from segment_health.watch import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segment_health.publish import Pass


@pytest.fixture(params=["path", "abstract"])
def systemd(short_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens as systemd does, and what NOTIFY_SOCKET says of it."""
    address = str(short_path / "notify") if request.param == "path" else f"@segment-health-{short_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0", 1))
        listening.setblocking(False)
        yield listening, address


@pytest.fixture
def done(tmp_path: Path) -> Callable[[], Pass]:
    """Make a pass over a cluster in which one of two units is excluded."""
    cluster = FakeCluster()
    cluster.run("1", "n1")
    cluster.run("2", "n2")
    cluster.set_node("n2", "DRAIN")
    directory = tmp_path / "decisions"
    directory.mkdir()
    publication = Publication(str(directory), EVERYTHING, Policy(), "0.1.0", interval=300.0)
    return lambda: run_once(publication, cluster.source, FakeClock())


def told(listening: socket.socket) -> list[str]:
    """Return the lines of the next message."""
    return listening.recv(65536).decode().split("\n")


def test_a_complete_pass(systemd: tuple[socket.socket, str], done: Callable[[], Pass]) -> None:
    """Ready, how it is, and food for the watchdog."""
    listening, address = systemd
    environ = {"NOTIFY_SOCKET": address}
    notifier = Notifier(environ)
    assert environ == {}  # no command that we start speaks for the service
    notifier.completed(done(), 0.25)
    ready, status, watchdog = told(listening)
    assert (ready, watchdog) == ("READY=1", "WATCHDOG=1")
    assert status == "STATUS=publishing: 1 of 2 units excluded, 9 nodes; the last pass took 0.2 s"


def test_a_failed_pass_feeds_no_watchdog(systemd: tuple[socket.socket, str]) -> None:
    """It says why in one line that moves no cursor; the service is ready all the same."""
    listening, address = systemd
    Notifier({"NOTIFY_SOCKET": address}).failed(Cause.SLURM, "no answer\nWATCHDOG=1\x1b[2J" + "x" * 999, 1.0)
    ready, status = told(listening)
    assert ready == "READY=1"
    assert status.startswith("STATUS=no answer\\nWATCHDOG=1\\x1b[2J")
    assert len(status) < 500


def test_standing_by_and_ending(systemd: tuple[socket.socket, str]) -> None:
    """A standby does what it is there for; one that ends says so first."""
    listening, address = systemd
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.standing_by()
    assert told(listening)[::2] == ["READY=1", "WATCHDOG=1"]
    notifier.went_stale([], 1800.0)
    assert told(listening) == ["STATUS=no complete pass for 1800 s: 0 exclusions lifted (fail open)"]
    notifier.stopping()
    assert told(listening)[0] == "STOPPING=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_where_nobody_listens_nothing_happens(environ: dict[str, str]) -> None:
    """Outside systemd, and when it has gone."""
    Notifier(environ).stopping()

"""A socket that systemd has opened: calls are passed on, and it outlives the daemon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Daemon

    Script = Callable[..., str]

EXEC = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.fixture
def given() -> Iterator[socket.socket]:
    """The socket, as systemd keeps it."""
    with socket.socket(socket.AF_UNIX) as made:
        yield made


def start(daemon: Daemon, given: socket.socket, number: int = 1) -> None:
    """Start the daemon as systemd does, with `given` as descriptor 3."""
    command = [sys.executable, "-c", EXEC, str(given.fileno()), str(number)]
    command += [str(Path(sys.executable).with_name("nvhcd")), "-config", str(daemon.config)]
    with daemon.log.open("ab") as log:
        daemon.process = subprocess.Popen(command, pass_fds=[given.fileno()], env=daemon.environ, stderr=log)


def test_calls_are_passed_on(daemon: Daemon, script: Script, given: socket.socket) -> None:
    """Large answers too; in the end the file stays, and who calls then waits for the next daemon."""
    given.bind(daemon.socket)
    given.listen()
    daemon.configure(script("echo $LISTEN_FDS-; head -c 200000 /dev/zero"))
    for _ in range(2):
        daemon.begin(*({"args": [str(number)]} for number in range(10)))  # before it is there
        start(daemon, given)
        assert {found["output"] for found in daemon.results()} == {"-\n" + "\0" * 200_000}
        assert daemon.end() == 0
        assert Path(daemon.socket).is_socket()
        assert not any("private" in name for name in os.listdir(daemon.directory))
    assert "systemd's socket is" not in daemon.said()


def test_callers_that_come_and_go(daemon: Daemon, script: Script, given: socket.socket) -> None:
    """Connections that say nothing, or end in the middle, leave nothing open."""
    given.bind(str(daemon.directory / "elsewhere.sock"))
    given.listen(200)
    daemon.configure(script("echo"))
    start(daemon, given)
    daemon.socket = str(daemon.directory / "elsewhere.sock")
    assert daemon.call()["success"]
    assert "elsewhere.sock; socket_path" in daemon.said()
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(daemon.socket)
            rude.send(b"PRI * HTTP/2.0")
    assert daemon.call()["success"]
    daemon.until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before)
    assert daemon.end() == 0


@pytest.mark.parametrize(
    ("number", "kind", "listens", "said"),
    [
        (2, socket.SOCK_STREAM, True, "systemd passed '2' sockets; nvhcd serves one"),
        (1, socket.SOCK_DGRAM, False, "what systemd passed is no UNIX socket that listens"),
        (1, socket.SOCK_STREAM, False, "what systemd passed is no UNIX socket that listens"),
    ],
    ids=["two", "datagrams", "does-not-listen"],
)
def test_sockets_that_cannot_be_served(  # noqa: PLR0917 - a table
    daemon: Daemon, script: Script, number: int, kind: int, listens: bool, said: str
) -> None:
    """Status 2, and a line."""
    daemon.configure(script("echo"))
    with socket.socket(socket.AF_UNIX, kind) as given:
        given.bind(daemon.socket)
        if listens:
            given.listen()
        start(daemon, given, number)
        assert daemon.process is not None
        assert daemon.process.wait(30) == 2
    assert said in daemon.said()

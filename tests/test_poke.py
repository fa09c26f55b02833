"""Asking for a pass now: the local socket, the file on shared storage, and how often either is obeyed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health import poke
from segment_health import signals as signals_module
from segment_health.atomic import host_name
from segment_health.cli import main
from segment_health.contract import Publisher
from segment_health.ledger import FOLDER
from segment_health.lock import lock_directory
from segment_health.memory import Heartbeat
from segment_health.poke import LocalSocket, PokeFile, ask, ring_sockets
from segment_health.signals import Signals
from segment_health.store import open_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW = 1_795_982_759.0


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose locks and sockets are this test's own, for whoever is not root."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    return {"XDG_RUNTIME_DIR": str(runtime)}


@pytest.fixture
def beat(tmp_path: Path) -> Callable[..., Heartbeat]:
    """Leave the heartbeat of a publisher that is alive at NOW, unless told otherwise."""

    def leave(scope: str, host: str, *, age: float = 1.0, loop: bool = True) -> Heartbeat:
        made = Heartbeat(Publisher(host, 1, "0.1.0", "c", scope), "default", int(NOW - age), 300.0, loop)
        with open_decisions(str(tmp_path)) as directory:
            directory.ledger("c", scope).beat(made)
        return made

    return leave


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[PokeFile]:
    """Something that watches the file of this test's directory."""
    file = PokeFile(str(tmp_path))
    assert file.fileno() >= 0
    yield file
    file.close()


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_socket_is_heard_once_for_many(tmp_path: Path, environ: dict[str, str]) -> None:
    """Ten rings are one, and afterwards there is silence."""
    listening = LocalSocket(str(tmp_path), environ)
    try:
        assert not listening.heard()
        assert [ring_sockets(str(tmp_path), environ) for _ in range(10)] == [1] * 10
        assert listening.heard()
        assert not listening.heard()
    finally:
        listening.close()
    assert ring_sockets(str(tmp_path), environ) == 0


def test_a_full_queue_is_asking_enough(tmp_path: Path, environ: dict[str, str]) -> None:
    """Who does not read, because a pass of theirs goes on, is asked all the same."""
    listening = LocalSocket(str(tmp_path), environ)
    try:
        address = listening._socket.getsockname()
        assert address.startswith("/proc/self/fd/")  # as short as it has to be, however deep the directory is
        home = os.open(lock_directory(environ), os.O_RDONLY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
            sender.setblocking(False)
            while True:
                sender.sendto(b"!", f"/proc/self/fd/{home}/{os.path.basename(listening._path)}")
        os.close(home)
        assert ring_sockets(str(tmp_path), environ) == 1
    finally:
        listening.close()


def test_other_directories_are_not_asked(tmp_path: Path, environ: dict[str, str]) -> None:
    """Two directories are two sites."""
    listening = LocalSocket(str(tmp_path / "a"), environ)
    try:
        assert ring_sockets(str(tmp_path / "b"), environ) == 0
        assert not listening.heard()
    finally:
        listening.close()


def test_the_socket_of_a_dead_publisher_is_removed(tmp_path: Path, environ: dict[str, str]) -> None:
    """It refuses, and would for ever."""
    listening = LocalSocket(str(tmp_path), environ)
    listening._socket.close()
    (left,) = [name for name in os.listdir(lock_directory(environ)) if name in listening._path]
    assert ring_sockets(str(tmp_path), environ) == 0
    assert left not in os.listdir(lock_directory(environ))


@pytest.mark.parametrize(
    ("host", "sockets", "asked"),
    [
        pytest.param("elsewhere", 0, True, id="another-host"),
        pytest.param("elsewhere", 3, True, id="another-host-beside-sockets"),
        pytest.param(None, 1, False, id="here-by-socket"),
        pytest.param(None, 0, True, id="here-without-one"),
    ],
)
def test_who_is_asked_by_file(
    tmp_path: Path, beat: Callable[..., Heartbeat], host: str | None, sockets: int, *, asked: bool
) -> None:
    """Loops of other hosts, and those of this one that no socket belongs to: another user's."""
    made = beat("all", host or host_name())
    assert ask(str(tmp_path), sockets, NOW).by_file == ((made,) if asked else ())
    assert (tmp_path / FOLDER / "poke").exists() == asked


@pytest.mark.parametrize(
    ("age", "loop"), [pytest.param(601.0, True, id="dead"), pytest.param(1.0, False, id="a-single-pass")]
)
def test_who_cannot_hear_is_not_asked(
    tmp_path: Path, beat: Callable[..., Heartbeat], age: float, *, loop: bool
) -> None:
    """Neither the dead nor cron's single passes: nobody would look at the file."""
    beat("all", "elsewhere", age=age, loop=loop)
    assert ask(str(tmp_path), 0, NOW).by_file == ()
    assert not (tmp_path / FOLDER / "poke").exists()


def test_the_file_is_heard(tmp_path: Path, beat: Callable[..., Heartbeat], watching: PokeFile) -> None:
    """Each time that it is renewed, and then no more."""
    beat("all", "elsewhere")
    until(lambda: [ask(str(tmp_path), 0, NOW), watching.heard()][1])  # again, until the child is there
    time.sleep(2.5 * poke.LOOK_SECONDS)
    watching.heard()
    ask(str(tmp_path), 0, NOW)
    until(watching.heard)
    assert not watching.heard()


def test_what_lies_there_already_asks_for_nothing(tmp_path: Path, beat: Callable[..., Heartbeat]) -> None:
    """A publisher that starts makes a pass anyway."""
    beat("all", "elsewhere")
    ask(str(tmp_path), 0, NOW)
    watching = PokeFile(str(tmp_path))
    try:
        assert watching.fileno() >= 0
        time.sleep(2.5 * poke.LOOK_SECONDS)
        assert not watching.heard()
    finally:
        watching.close()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_asks_for_nothing(
    tmp_path: Path, make: Callable[[str], None], beat: Callable[..., Heartbeat], watching: PokeFile
) -> None:
    """A fifo does not stop who watches, and nothing is followed."""
    beat("all", "elsewhere")
    make(str(tmp_path / FOLDER / "poke"))
    time.sleep(2.5 * poke.LOOK_SECONDS)
    assert not watching.heard()
    assert watching.fileno() >= 0


def test_one_who_watches_and_dies_is_followed_by_another(
    tmp_path: Path, beat: Callable[..., Heartbeat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed; and the next one, not before its time, hears what was asked for meanwhile."""
    beat("all", "elsewhere")
    watching = PokeFile(str(tmp_path))
    try:
        assert watching.fileno() >= 0
        os.kill(watching._child, signal.SIGKILL)
        until(lambda: not watching.heard() and watching._told is None)
        assert watching.fileno() == -1
        ask(str(tmp_path), 0, NOW)
        monkeypatch.setattr(watching, "_next_start", 0.0)
        assert watching.fileno() >= 0
        until(watching.heard)
    finally:
        watching.close()


def test_who_watches_ends_with_its_publisher(tmp_path: Path) -> None:
    """Nothing is left of a publisher that was killed, but for the time that a process takes to end."""
    receiving, sending = os.pipe()
    publisher = os.fork()
    if publisher == 0:
        watching = PokeFile(str(tmp_path))
        watching.fileno()
        os.write(sending, str(watching._child).encode())
        signal.pause()
    child = int(os.read(receiving, 100))
    os.kill(publisher, signal.SIGKILL)
    os.waitpid(publisher, 0)
    until(lambda: _has_ended(child))
    os.close(receiving)
    os.close(sending)


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that whoever adopted it has not waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def called(directory: Path, *options: str) -> tuple[int, str, str]:
    """Call `segment-health poke`; return its status, what it says and what it complains of."""
    ended = CliRunner().invoke(main, ["poke", "--dir", str(directory), *options])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_says_who_was_asked(tmp_path: Path, beat: Callable[..., Heartbeat]) -> None:
    """Scope and host of each loop that lives elsewhere, or nothing where that is not wanted."""
    for scope in ("all", "job:1"):
        alive = beat(scope, "elsewhere")
        with open_decisions(str(tmp_path)) as directory:
            directory.ledger("c", scope).beat(alive._replace(last_complete_pass=int(time.time())))
    code, out, err = called(tmp_path)
    assert (code, err) == (0, "")
    assert out in {
        "asked for a pass: all on elsewhere, job:1 on elsewhere\n",
        "asked for a pass: job:1 on elsewhere, all on elsewhere\n",
    }
    assert called(tmp_path, "--quiet") == (0, "", "")


def test_the_command_finds_nobody(tmp_path: Path) -> None:
    """Status 3 where no publisher lives, 2 where there is no directory."""
    code, out, err = called(tmp_path)
    assert (code, out) == (3, "")
    assert err == f"segment-health: no publisher of {tmp_path} is alive: nobody was asked\n"
    assert called(tmp_path / "missing")[0] == 2


def test_the_command_cannot_write(tmp_path: Path, beat: Callable[..., Heartbeat]) -> None:
    """Status 1: who is elsewhere was not asked; why, and where."""
    alive = beat("all", "elsewhere")
    with open_decisions(str(tmp_path)) as directory:
        directory.ledger("c", "all").beat(alive._replace(last_complete_pass=int(time.time())))
    (tmp_path / FOLDER / "poke").mkdir()
    code, out, err = called(tmp_path)
    assert (code, out) == (1, "")
    assert f"{tmp_path}: publishers on other hosts could not be asked: Is a directory" in err


class Asking:
    """An asker that has always something to say."""

    def __init__(self) -> None:
        self.said = 0
        self.receiving, self.sending = os.pipe()
        os.write(self.sending, b"!")

    def fileno(self) -> int:
        """Return what is always readable."""
        return self.receiving

    def heard(self) -> bool:
        """Ask once more."""
        self.said += 1
        return True


@pytest.mark.usefixtures("own_signals")
def test_who_asks_without_end_is_not_obeyed_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait ends at once; the next one, asked again, only when QUIET_SECONDS have gone by."""
    monkeypatch.setattr(signals_module, "QUIET_SECONDS", 0.6)
    asking = Asking()
    with Signals() as signals:
        signals.askers.append(asking)
        began = time.monotonic()
        signals.wait(60)
        first = time.monotonic() - began
        signals.wait(60)
        second = time.monotonic() - began
        asking.heard = lambda: False  # type: ignore[method-assign]  # from now on it has nothing to say
        signals.wait(0.1)
    os.close(asking.receiving)
    os.close(asking.sending)
    assert first < 0.5
    assert 0.6 <= second < 30


@pytest.mark.usefixtures("own_signals")
def test_a_wait_ends_by_a_socket(tmp_path: Path, environ: dict[str, str]) -> None:
    """The whole way: who is rung wakes up, and sleeps on when nobody rings."""
    listening = LocalSocket(str(tmp_path), environ)
    try:
        with Signals() as signals:
            signals.askers.append(listening)
            ring_sockets(str(tmp_path), environ)
            signals.wait(60)
            began = time.monotonic()
            signals.wait(0.3)
            assert time.monotonic() - began >= 0.3
    finally:
        listening.close()

"""The thin parent of a launcher, in this process: what its observer may tell it, and is told."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.relay import FAILED, READY, REFUSED, STOP, Patience, RefusedError, run

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

LONG = Patience(60.0, 60.0, 60.0)
SHORT = Patience(0.2, 0.2)


def launch(code: str, observe: Callable[[socket.socket], object], patience: Patience = LONG) -> tuple[int, bool]:
    """Run shell code as a launcher."""
    return run(("sh", "-c", code), os.environb, observe, patience)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs, and is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def ready(channel: socket.socket) -> None:
    """Be an observer that has nothing to say."""
    channel.send(bytes([READY]))
    channel.setblocking(True)
    while channel.recv(16):
        pass


def stop(channel: socket.socket) -> None:
    """Be an observer that has the launcher ended, once it runs."""
    channel.send(bytes([READY]))
    time.sleep(0.3)  # the launcher may not have set its traps yet; the status is the same then
    channel.send(bytes([STOP, STOP]))
    ready(channel)


@pytest.mark.parametrize("status", [0, 1, 93])
def test_the_status_is_the_launchers(status: int) -> None:
    """Whatever it is, and it was not ended by us."""
    assert launch(f"exit {status}", ready) == (status, False)


def test_the_signal_is_the_launchers() -> None:
    """A status below 0, as subprocess has it."""
    assert launch("kill -9 $$", ready) == (-signal.SIGKILL, False)


def test_a_stop_ends_it() -> None:
    """By SIGTERM, and what the launcher makes of that is told."""
    assert launch("trap 'exit 5' TERM; while :; do sleep 0.05; done", stop)[1]
    assert launch("exec sleep 60", stop) == (-signal.SIGTERM, True)


def test_a_deaf_launcher_is_killed(tmp_path: Path) -> None:
    """After the grace, and with it what descends from it."""
    code = f"trap '' TERM; setsid sleep 60 & echo $! >{tmp_path}/worker; wait; sleep 60"
    assert launch(code, stop, Patience(0.5, 60.0)) == (-signal.SIGKILL, True)
    worker = int((tmp_path / "worker").read_text())
    deadline = time.monotonic() + 30
    while is_alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stop_after_the_end_is_none() -> None:
    """A launcher that ended by itself ended by itself."""

    def late(channel: socket.socket) -> None:
        channel.send(bytes([READY]))
        channel.setblocking(True)
        channel.recv(16)  # the end
        channel.send(bytes([STOP]))

    assert launch("exit 0", late) == (0, False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("exit 3", FAILED), ("exit 0", b""), ("kill -9 $$", FAILED)],
    ids=["failed", "fine", "died"],
)
def test_the_observer_is_told_of_a_failure(tmp_path: Path, code: str, expected: bytes) -> None:
    """And of nothing else but the end."""

    def note(channel: socket.socket) -> None:
        channel.send(bytes([READY]))
        channel.setblocking(True)
        told = b""
        while data := channel.recv(16):
            told += data
        (tmp_path / "told").write_bytes(told)

    launch(code, note)
    assert (tmp_path / "told").read_bytes() == expected


def test_a_refusal(tmp_path: Path) -> None:
    """The launcher does not begin."""
    with pytest.raises(RefusedError):
        launch(f"touch {tmp_path}/ran", lambda channel: channel.send(bytes([REFUSED])))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "observe",
    [lambda _: None, lambda _: time.sleep(600), lambda _: os.kill(os.getpid(), signal.SIGKILL), lambda _: 1 / 0],
    ids=["ends", "hangs", "dies", "fails"],
)
def test_an_observer_that_is_none(
    observe: Callable[[socket.socket], object], capfd: pytest.CaptureFixture[str]
) -> None:
    """The launcher begins soon, and its status is passed on soon."""
    began = time.monotonic()
    assert launch("exit 3", observe, SHORT) == (3, False)
    assert time.monotonic() - began < 20  # 3 s for last words, on an idle machine
    out, err = capfd.readouterr()
    assert out == ""
    assert ("ZeroDivisionError" in err) == (err != "")  # a bug is seen


def test_what_cannot_be_run() -> None:
    """An error of the system, and nothing is left."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = children.read_text()
    with pytest.raises(FileNotFoundError):
        run(("/no/such",), os.environb, ready, LONG)
    with pytest.raises(PermissionError):
        run(("/etc",), os.environb, ready, LONG)
    assert children.read_text() == before


def in_a_child(what: Callable[[], int]) -> int:
    """Do that in a child, which may change what it is and has; return its exit status within some seconds."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(what())
        finally:
            os._exit(99)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("it hangs")
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])


def test_a_blocked_sigchld() -> None:
    """Whoever started us may have blocked it; the end of the launcher is seen all the same."""

    def run_blocked() -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        return launch("sleep 0.3; exit 7", ready)[0]

    assert in_a_child(run_blocked) == 7


def test_a_thousand_descriptors() -> None:
    """More than select(2) can count: the launcher begins, a STOP ends it."""

    def run_with_many() -> int:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2048), hard), hard))
        while os.dup(2) < 1100:
            pass
        ended = launch("exec sleep 60", stop)
        return 0 if ended == (-signal.SIGTERM, True) else 1

    assert in_a_child(run_with_many) == 0


@pytest.mark.root
def test_a_launcher_of_another_user(short_path: Path) -> None:
    """One that became somebody else cannot be told signals; it is waited for, and its status is passed on."""
    short_path.chmod(0o777)
    runs = short_path / "runs"

    def tell(channel: socket.socket) -> None:
        channel.send(bytes([READY]))
        while not runs.exists():
            time.sleep(0.02)
        os.kill(os.getppid(), signal.SIGUSR1)
        channel.send(bytes([STOP]))
        ready(channel)

    def run_as_nobody() -> int:
        os.setresuid(0, 65534, 0)  # whoever is executed may become root again, and then anybody
        become = ("setpriv", "--reuid=0", "setpriv", "--reuid=65533", "--regid=65533", "--clear-groups")
        command = (*become, "sh", "-c", f"echo >{runs}; sleep 1; exit 7")
        status, was_stopped = run(command, os.environb, tell, Patience(0.1, 60.0))
        return status if was_stopped else 1

    assert in_a_child(run_as_nobody) == 7


def test_this_process_is_as_before() -> None:
    """Handlers, mask, the descriptor for wake-ups; and no descriptor is left open."""

    def state() -> tuple[object, ...]:
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        wakeup = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(wakeup)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        return handlers, wakeup, mask

    before, opened = state(), set(os.listdir("/proc/self/fd"))
    assert launch("exit 0", ready) == (0, False)
    assert state() == before
    assert set(os.listdir("/proc/self/fd")) <= opened  # what other tests left may be collected meanwhile


INTERRUPTED = """
import os, signal, sys, time
from segment_health.attribution.relay import Patience, run

def tell(_channel):
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(600)

signal.signal(signal.SIGTERM, lambda *_: None)
print(*run(("touch", sys.argv[1]), os.environb, tell, Patience(60.0, 60.0, 60.0)))
"""


def test_a_signal_while_the_observer_is_waited_for(tmp_path: Path) -> None:
    """The launcher does not begin any more, and the end is that signal's."""
    ran = tmp_path / "ran"
    # In a process of its own: here a thread that another test left could take the signal.
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, ran], capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout == f"{-signal.SIGTERM} False\n"
    assert not ran.exists()

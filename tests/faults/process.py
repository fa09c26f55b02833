"""Faults of the publisher's process: killed, stopped, starved, told to end in the middle of a write."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import EVERYONE, fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory, Process

_DEATH = "what a dead publisher said stays as it is, whole, and the next one goes on from it"
_STARVED = "a pass that cannot be made changes nothing, and the publisher lives or is started again"


@contextmanager
def traced(lab: Laboratory, inject: str) -> Iterator[None]:
    """Let strace(1) change what system calls of the publisher, and of its children, do."""
    argv = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(lab.publisher.pid), "-e", f"inject={inject}"]
    tracer = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        lab.until(lambda: _tracer_of(lab.publisher) == tracer.pid, "strace at the publisher")
        yield
    finally:
        tracer.send_signal(signal.SIGINT)  # detaches
        tracer.wait(30)


def _tracer_of(process: Process) -> int:
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("TracerPid:"))


@contextmanager
def limited(lab: Laboratory, what: int, limit: int) -> Iterator[None]:
    """Give the publisher a limit of resources inside; it is started again if it did not live through it."""
    before = resource.prlimit(lab.publisher.pid, what)
    resource.prlimit(lab.publisher.pid, what, (limit, before[1]))
    try:
        yield
    finally:
        if lab.publisher.is_running():
            resource.prlimit(lab.publisher.pid, what, before)
        else:
            lab.start()


@fault(
    "killed",
    attacks=_DEATH,
    how="SIGKILL to the publisher, not to the child that writes; another one is started later",
    holds=EVERYONE,
)
@contextmanager
def killed(lab: Laboratory) -> Iterator[None]:
    """Kill the publisher, and nobody else."""
    lab.publisher.signal(signal.SIGKILL)
    lab.publisher.wait()
    try:
        yield
    finally:
        lab.start()


@fault("killed again and again", attacks=_DEATH, how="SIGKILL 0.6 s after each start", holds=EVERYONE, seconds=2)
@contextmanager
def crash_loop(lab: Laboratory) -> Iterator[None]:
    """Kill the publisher, start another one, kill it ..."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(0.6):
            lab.publisher.kill()
            lab.start()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@fault(
    "stopped for long",
    attacks="a publisher that was stopped for longer than the staleness limit lifts nothing that it can confirm",
    how="SIGSTOP for 4 s, a limit of 2 s, SIGCONT",
    holds=EVERYONE,
    seconds=4,
    stale_after=2,
)
@contextmanager
def stopped(lab: Laboratory) -> Iterator[None]:
    """Stop the publisher for longer than its exclusions are good without it."""
    lab.publisher.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        lab.publisher.signal(signal.SIGCONT)
    lab.afterwards("nothing went stale", lambda: not lab.said('"event": "stale"'))


@fault(
    "told to end in the middle of a write",
    attacks="a signal never leaves half a write behind",
    how="strace: every rename takes 0.3 s; SIGTERM to the process group; it must end with status 0",
    holds=EVERYONE,
)
@contextmanager
def ended_in_rename(lab: Laboratory) -> Iterator[None]:
    """Send SIGTERM while os.replace is under way, which it is most of the time."""
    with traced(lab, "rename,renameat,renameat2:delay_enter=300000"):
        yield
        os.killpg(lab.publisher.pid, signal.SIGTERM)
        status = lab.publisher.wait()
        assert status == 0, (status, lab.log())
    lab.start()


@fault(
    "writer killed in the middle of a write",
    attacks=_DEATH,
    how="strace: SIGKILL to the child that writes, as each rename begins",
    holds=EVERYONE,
    says="died (by signal 9",
)
@contextmanager
def killed_in_rename(lab: Laboratory) -> Iterator[None]:
    """Send SIGKILL from within os.replace."""
    with traced(lab, "rename,renameat,renameat2:signal=SIGKILL"):
        yield
    assert lab.publisher.is_running(), lab.log()


@fault(
    "killed in the middle of a write",
    attacks=_DEATH,
    how="strace: every rename takes 0.3 s; SIGKILL to the process group, again and again",
    holds=EVERYONE,
)
@contextmanager
def all_killed_in_rename(lab: Laboratory) -> Iterator[None]:
    """Send SIGKILL to all while os.replace is under way."""
    for _ in range(3):
        with traced(lab, "rename,renameat,renameat2:delay_enter=300000"):
            lab.until(lambda: any(lab.storage.rglob(".segment-health.tmp.*")), "a write under way")
            lab.publisher.kill()
        lab.start()
        lab.until(lab.publisher.lines, "a publisher")
    yield


@fault(
    "no memory",
    attacks=_STARVED,
    how="RLIMIT_AS at what it has already",
    holds=EVERYONE,
    says="memory",
)
@contextmanager
def no_memory(lab: Laboratory) -> Iterator[None]:
    """Let no page more be mapped."""
    with open(f"/proc/{lab.publisher.pid}/statm", encoding="ascii") as sizes:
        pages = int(sizes.read().split()[0])
    with limited(lab, resource.RLIMIT_AS, pages * resource.getpagesize()):
        yield


@fault("no descriptors", attacks=_STARVED, how="RLIMIT_NOFILE 4", holds=EVERYONE, says="Too many open files")
@contextmanager
def no_descriptors(lab: Laboratory) -> Iterator[None]:
    """Let no file more be opened."""
    with limited(lab, resource.RLIMIT_NOFILE, 4):
        yield


@fault("no file may grow", attacks=_STARVED, how="RLIMIT_FSIZE 0 (EFBIG)", holds=EVERYONE, says="File too large")
@contextmanager
def no_growth(lab: Laboratory) -> Iterator[None]:
    """Let no byte be written to a file."""
    with limited(lab, resource.RLIMIT_FSIZE, 0):
        yield


@fault(
    "no processes",
    attacks=_STARVED,
    how="strace: fork, vfork and clone answer EAGAIN",
    holds=EVERYONE,
    says="Resource temporarily unavailable",
)
@contextmanager
def no_processes(lab: Laboratory) -> Iterator[None]:
    """Let no process and no thread be made."""
    with traced(lab, "fork,vfork,clone,clone3:error=EAGAIN"):
        yield
    if not lab.publisher.is_running():
        lab.start()


@fault(
    "host reboots",
    attacks=_DEATH,
    how="SIGKILL to all; a lock file, a lock's owner and old temporaries of a living number are left",
    holds=EVERYONE,
)
@contextmanager
def reboot(lab: Laboratory) -> Iterator[None]:
    """Leave what a host leaves that lost its power."""
    lab.publisher.kill()
    left = [
        lab.storage / f".segment-health.tmp.{socket.gethostname()}.1.7",
        lab.storage / f".segment-health/state/.segment-health.tmp.{socket.gethostname()}.1.8",
    ]
    for path in left:
        path.write_bytes(b"{")
        os.utime(path, (0, 0))
    try:
        yield
    finally:
        lab.start()
    lab.afterwards("temporaries of another life gone", lambda: not any(path.exists() for path in left))


@fault(
    "two publishers",
    attacks="a second publisher of a scope on a host refuses to be one",
    how="a second loop of the same scope, again and again",
)
@contextmanager
def second(lab: Laboratory) -> Iterator[None]:
    """Start another publisher, which must end with status 2."""
    yield
    first = lab.publisher
    lab.quiet = True  # a poke would end what is about to end
    status = lab.start().wait()
    lab.publishers.append(first)  # in charge again
    lab.quiet = False
    assert status == 2, lab.log()


@fault(
    "log goes nowhere",
    attacks="a publisher that cannot speak goes on",
    how="the reading end of its stderr closed (EPIPE)",
)
@contextmanager
def no_log(lab: Laboratory) -> Iterator[None]:
    """Close the pipe that the publisher logs to."""
    lab.publisher.deafen()
    yield
    assert lab.publisher.is_running()

"""Work that may hang, in a child that can be left behind."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from segment_health.bounded import bounded
from segment_health.cli.failure import Failure
from segment_health.lock import AlreadyRunning
from segment_health.noded.config import ConfigurationError
from segment_health.sources import SourceUnknown

if TYPE_CHECKING:
    from pathlib import Path


def children() -> set[int]:
    """Return the processes that this one has started and not waited for."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return {int(word) for word in file.read().split()}


def test_what_it_returns() -> None:
    """What the work returns comes back whole, of any size, made in another process."""
    pid, text = bounded(lambda: (os.getpid(), "x" * (1 << 22)), 30, "it")
    assert pid != os.getpid()
    assert text == "x" * (1 << 22)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        PermissionError(errno.EACCES, "Permission denied", "/x"),
        SourceUnknown("no answer"),
        AlreadyRunning("process 7"),
        ConfigurationError("/x", "bad"),
        Failure("no such unit", 2),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_it_raises(error: BaseException) -> None:
    """What the work raises comes back as what it was."""

    def work() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        bounded(work, 30, "it")
    assert (str(raised.value), raised.value.__dict__) == (str(error), error.__dict__)


def test_want_of_memory() -> None:
    """A child that finds no memory tells so as storage does: the publisher goes on."""

    def work() -> None:
        raise MemoryError

    with pytest.raises(OSError, match="Cannot allocate memory"):
        bounded(work, 30, "it")


def test_what_cannot_be_sent() -> None:
    """An exception that cannot cross is a bug, and is shown with its place."""

    class Local(Exception):  # noqa: N818 - a class that pickle does not find
        pass

    def work() -> None:
        raise Local("lost")

    with pytest.raises(RuntimeError, match=r"in work[\s\S]*Local: lost"):
        bounded(work, 30, "it")


def test_a_late_child_is_killed() -> None:
    """What takes too long is ended, and the caller told in time what did not answer."""
    before, began = children(), time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.3 s from /mnt/x"):
        bounded(lambda: time.sleep(60), 0.3, "/mnt/x")
    assert time.monotonic() - began < 10
    assert children() == before
    assert bounded(lambda: 1, 30, "/mnt/x") == 1


def test_a_child_that_died() -> None:
    """A child that was killed, as by the kernel for want of memory, is an error of the storage's kind."""
    with pytest.raises(ChildProcessError, match=r"/mnt/x died \(by signal 9; out of memory\?\)"):
        bounded(lambda: os.kill(os.getpid(), signal.SIGKILL), 30, "/mnt/x")


def test_an_interruption_ends_the_child() -> None:
    """Whoever is interrupted while waiting leaves no child behind."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before, old = children(), signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Interrupted):
            bounded(lambda: time.sleep(60), 60, "it")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert children() == before


def test_signals_are_the_parents() -> None:
    """What a terminal or systemd sends to all processes does not end the work in hand."""

    def work() -> str:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        return "done"

    assert bounded(work, 30, "it") == "done"


def test_nothing_of_the_parents_is_held(tmp_path: Path) -> None:
    """A child has none of the parent's descriptors, so no lock of it."""
    with (tmp_path / "file").open("wb") as file:
        number = file.fileno()
        with pytest.raises(OSError, match="Bad file descriptor"):
            bounded(lambda: os.fstat(number), 30, "it")

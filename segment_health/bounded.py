"""Bounds how long shared storage may take: what touches it runs in a child process that can be left behind.

A process that waits for a dead mount may sit in the kernel, where no signal reaches it (state D of ps(1)): no
timer and no thread can bring it back. So a child waits, and the parent waits for the child. A child that is late
is killed. Should it be stuck in the kernel it dies as soon as the storage answers, before it can do anything more;
until then no further child is started for the same thing, and an old decision is never written after a newer one.

What it does not do: retry, or judge. TimeoutError is an OSError like every other one of that storage.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from .readable import readable

if TYPE_CHECKING:
    from collections.abc import Callable

    Result = TypeVar("Result")

_REAP_SECONDS = 2.0
"""How long a killed child may take to disappear; one that is stuck in the kernel is left behind."""
_CHUNK = 1 << 16
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Signals that are for the parent: a terminal or systemd sends them to the child as well."""

_left_behind: dict[str, int] = {}
"""Children that did not die, by what they wait for: process-wide, as children are."""


def bounded(work: Callable[[], Result], seconds: float, what: str) -> Result:
    """Return what `work` returns, called in a child process that may take so many seconds.

    Raises what `work` raises (a MemoryError as OSError); TimeoutError when it is late, or when an earlier child
    still waits for `what` (what is waited for, as a person knows it); ChildProcessError when the child was killed.
    What `work` changes in memory is lost; what it returns or raises has to be picklable.
    """
    _refuse_a_second_one(what)
    receiving, sending = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError:
        os.close(receiving)
        os.close(sending)
        raise
    if child == 0:
        become_child(sending, lambda: _serve(work, sending))
    os.close(sending)
    ended = False
    try:
        told = _receive(receiving, time.monotonic() + seconds)
        ended = told is not None
    finally:  # an interruption too: nobody is left who would read the answer
        os.close(receiving)
        status = _end(child, what, by_itself=ended)
    if told is None:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:g} s from {what}")
    if not told:
        raise ChildProcessError(errno.ECHILD, f"the process that used {what} died ({_cause_of(status)})")
    succeeded, value = pickle.loads(told)  # noqa: S301 - what our own child sent
    if not succeeded:
        raise value
    return cast("Result", value)


def _refuse_a_second_one(what: str) -> None:
    child = _left_behind.get(what)
    if child is None:
        return
    if _reap(child) is None:
        raise TimeoutError(errno.ETIMEDOUT, f"{what} has not answered process {child} yet")
    del _left_behind[what]


def become_child(keep: int, work: Callable[[], object]) -> NoReturn:
    """Be a child that was just forked: do the work and end. Nothing of the parent's is closed, flushed or ended.

    Of the parent's descriptors only `keep` and the standard ones stay open: its locks and pipes are not to be held
    by one who may never die.
    """
    status = 1
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") > 0 else 1 << 16)
        work()
        status = 0
    finally:
        os._exit(status)


def _serve(work: Callable[[], object], sending: int) -> None:
    """Do the work, in a child, and send what came of it."""
    gc.disable()  # it ends soon, and with it what it leaves; to look for cycles takes as long as the work
    view = memoryview(_answer(work))
    while view:
        view = view[os.write(sending, view) :]


def _answer(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, work()))
    except MemoryError:
        return pickle.dumps((False, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the parent's
        import traceback  # noqa: PLC0415 - 3 ms that work which succeeds never costs

        try:
            told = pickle.dumps((False, error))
            pickle.loads(told)  # noqa: S301 - many an exception cannot be made again
        except Exception:  # noqa: BLE001 - a bug, which has to be seen all the same
            return pickle.dumps((False, RuntimeError(traceback.format_exc())))
        return told


def _receive(receiving: int, deadline: float) -> bytes | None:
    """Return all that the child sent; None if it has not ended at the deadline (time.monotonic).

    What lies in the pipe is read before the clock is: we may have been stopped for long, and the child not.
    """
    told = bytearray()
    while readable([receiving], max(0.0, deadline - time.monotonic())):
        data = os.read(receiving, _CHUNK)
        if not data:
            return bytes(told)
        told += data
    return None


def _end(child: int, what: str, *, by_itself: bool) -> int | None:
    """Wait for a child that has sent all, or kill it; return its status, None if it is left behind."""
    if not by_itself:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _REAP_SECONDS
    pause = 0.0005
    while (status := _reap(child)) is None and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    if status is None:
        _left_behind[what] = child
    return status


def _reap(child: int) -> int | None:
    """Return the status of a child that has ended, else None; never wait."""
    try:
        ended, status = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:  # somebody waited for all of our children
        return 0
    return status if ended else None


def _cause_of(status: int | None) -> str:
    if status is None:
        return "and cannot be waited for"
    code = os.waitstatus_to_exitcode(status)
    return f"by signal {-code}; out of memory?" if code < 0 else f"with status {code}"

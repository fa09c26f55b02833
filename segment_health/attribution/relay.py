"""Runs a launcher with an observer beside it, so that the launcher notices neither.

This process is the launcher's parent: it passes signals and the status on, and touches nothing that can hang. The
observer is another child, which reads shared storage and speaks to a service, and may hang or die. All three are
of one process group. So the launcher has the terminal, and a signal for the whole group, such as Ctrl-C or
scancel, reaches it without us; told a second time it would take that for impatience. Whether a signal was for the
group, or for this process alone and so for the launcher, the observer tells: it echoes what reaches it.

Should this process be killed, the launcher goes on: training must not die of what looks at it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from segment_health.readable import readable

from .ends import kill_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

STOP = 255
READY = 254
REFUSED = 253
"""What an observer sends: the launcher is to be ended; it may begin; it must not. Numbers of signals are below."""
FAILED = b"F"
"""What an observer is sent when the launcher has failed by itself."""
_ECHO_SECONDS = 1.0
"""How far a signal for the group may come apart on a busy machine."""
_SLICE_SECONDS = 0.05
_LAST_SECONDS = {"failed": 3.0, "stopped": 5.0}
"""How long an observer may take for its last words; to hand in a last log, and to leave a STOP for others."""
_NOT_RELAYED = {
    "SIGKILL", "SIGSTOP",  # which nobody can catch
    "SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH",  # do as they do anywhere
    "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP",  # our own bugs
    "SIGPIPE", "SIGXCPU", "SIGXFSZ",  # for what a process did itself
}  # fmt: skip
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
"""Whoever ends after one of these has not failed by itself."""


class RefusedError(Exception):
    """The observer does not let the launcher begin; it has said why."""


class Patience(NamedTuple):
    """How long somebody waits, in seconds.

    `grace`: from SIGTERM to SIGKILL for a launcher at a STOP. `ready`: a launcher for its observer, which looks
    first what lies there from an earlier run. `farewell`: the end for an observer that has no last words to say.
    """

    grace: float
    ready: float = 1.0
    farewell: float = 0.0


class Ended(NamedTuple):
    """How it ended: `status` is the launcher's, below 0 a signal; `was_stopped`, that it was ended by us."""

    status: int
    was_stopped: bool


def run(
    command: tuple[str, ...],
    environ: Mapping[bytes, bytes],
    observe: Callable[[socket.socket], object],
    patience: Patience,
) -> Ended:
    """Run the command with this environment to its end, and `observe` in a process beside it.

    `observe` is given a socket. There it sends the byte READY when the launcher may begin, which it does some
    time later anyway, or REFUSED; and STOP to have the launcher ended. It reads FAILED if the launcher failed by
    itself, and then, or only, the end.

    Raises OSError or ValueError where the command cannot be run, RefusedError where it must not.
    """
    ours, theirs = socket.socketpair()
    bell, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    usual: dict[int, object] = {number: signal.getsignal(number) for number in _relayed()}
    relayed = {number for number, handler in usual.items() if handler is not signal.SIG_IGN}
    usual[signal.SIGCHLD] = signal.getsignal(signal.SIGCHLD)
    mask: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, relayed | {signal.SIGCHLD}))
    observer = os.fork()
    if observer == 0:
        _become_observer(theirs, observe, relayed, mask)
    theirs.close()

    def as_it_was() -> None:
        for number, handler in usual.items():
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_IGN else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    before = {number: signal.signal(number, _note) for number in (*relayed, signal.SIGCHLD)}
    was_awake = signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    try:
        interrupted = _wait_for_ready(ours, patience.ready, relayed)
        if interrupted:
            return Ended(-interrupted, was_stopped=False)
        launcher = subprocess.Popen(
            command,
            env=environ,
            close_fds=False,
            preexec_fn=as_it_was,  # noqa: PLW1509 - there are no threads here
        )
        relay = _Relay(launcher, ours, bell, patience)
        relay.pass_on(set(signal.sigpending()) & relayed)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - {signal.SIGCHLD})  # which wakes us, whoever blocked it
        return relay.run()
    finally:
        ours.close()
        _end(observer)
        signal.set_wakeup_fd(was_awake)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            if handler is not None:  # somebody else's, which is not Python's
                signal.signal(number, handler)
        os.close(bell)
        os.close(ring)


class _Relay:
    """The parent's part, until the launcher has ended."""

    def __init__(
        self, launcher: subprocess.Popen[bytes], observer: socket.socket, bell: int, patience: Patience
    ) -> None:
        self._launcher = launcher
        self._observer = observer
        self._bell = bell
        self._patience = patience
        self._listening = True
        self._kill_at = float("inf")
        self._was_stopped = False
        self._was_signalled = False
        self._pending: dict[int, float] = {}
        """Signals that came to us, each with the time when it is passed on."""
        self._echoed: dict[int, float] = {}
        """Signals that came to the observer, each with the time of the last one."""

    def pass_on(self, missed: set[int]) -> None:
        """Pass on what came before there was a launcher, which is about to be seen here too."""
        for number in missed:
            self._echoed[number] = time.monotonic()
            self._tell(number)

    def run(self) -> Ended:
        """Wait for the launcher's end."""
        while (status := self._launcher.poll()) is None:
            now = time.monotonic()
            for number in [number for number, due in self._pending.items() if due <= now]:
                del self._pending[number]
                self._tell(number)
            if self._kill_at <= now:
                self._kill_at = float("inf")
                kill_tree(self._launcher.pid)
            self._wait(min([self._kill_at, *self._pending.values()]))
        self._part(status)
        return Ended(status, self._was_stopped)

    def _wait(self, until: float) -> None:
        """Wait for a signal, the launcher's end, a word of the observer's, or until then (time.monotonic)."""
        timeout = None if until == float("inf") else max(0.0, until - time.monotonic())
        sources: list[Any] = [self._bell, *([self._observer] if self._listening else [])]
        ready = readable(sources, timeout)
        now = time.monotonic()
        if self._observer in ready:  # first: an echo may lie there beside its signal
            self._hear(now)
        if self._bell in ready:
            for number in os.read(self._bell, 4096):
                if number != signal.SIGCHLD:
                    self._was_signalled |= number in _ENDING
                    if now - self._echoed.get(number, float("-inf")) > _ECHO_SECONDS:
                        self._pending.setdefault(number, now + _ECHO_SECONDS)

    def _hear(self, now: float) -> None:
        try:
            told = self._observer.recv(4096)
        except OSError:
            told = b""
        if not told:  # it died: from now on no signal is known to be for the group
            self._listening = False
        for number in told:
            if number == STOP:
                self._stop(now)
            elif number != READY:
                self._echoed[number] = now
                self._pending.pop(number, None)

    def _stop(self, now: float) -> None:
        if not self._was_stopped and self._launcher.poll() is None:
            self._was_stopped = True
            self._kill_at = now + self._patience.grace
            self._tell(signal.SIGTERM)

    def _tell(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have become another user
            self._launcher.send_signal(number)

    def _part(self, status: int) -> None:
        """Let the observer say its last words, if it has any to say."""
        failed = status != 0 and not self._was_stopped and not self._was_signalled
        seconds = _LAST_SECONDS["stopped"] if self._was_stopped else _LAST_SECONDS["failed"] if failed else 0.0
        deadline = time.monotonic() + max(seconds, self._patience.farewell)
        with contextlib.suppress(OSError):
            if failed:
                self._observer.send(FAILED)
            self._observer.shutdown(socket.SHUT_WR)
        while self._listening and (left := deadline - time.monotonic()) > 0:
            sources: list[Any] = [self._observer, self._bell]
            ready = readable(sources, left)
            if self._bell in ready and set(os.read(self._bell, 4096)) - {signal.SIGCHLD}:
                break  # somebody is in a hurry
            if self._observer in ready:
                self._hear(time.monotonic())


def _wait_for_ready(observer: socket.socket, seconds: float, relayed: set[int]) -> int:
    """Wait for the observer's word; return the signal that ended the wait, or 0. Raises RefusedError.

    What is heard is left where it is, but for a refusal: an echo may be among it.
    """
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if ending := set(signal.sigpending()) & relayed & _ENDING:
            return int(min(ending))
        if readable([observer], min(left, _SLICE_SECONDS)):
            told = observer.recv(4096, socket.MSG_PEEK)
            if REFUSED in told:
                raise RefusedError
            if READY in told or not told:
                break
            time.sleep(_SLICE_SECONDS)
    return 0


def _relayed() -> set[int]:
    kept = {getattr(signal, name) for name in _NOT_RELAYED}
    return {int(number) for number in signal.valid_signals()} - {int(number) for number in kept}


def _note(_number: int, _frame: object) -> None:
    """Take a signal: what wakes us is the byte that Python writes for it."""


def _become_observer(
    theirs: socket.socket, observe: Callable[[socket.socket], object], relayed: set[int], mask: Iterable[int]
) -> NoReturn:
    """Be the observer: echo signals and obey none; hold nothing that somebody waits for the end of."""
    try:
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in relayed:
            signal.signal(number, _note)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        os.closerange(3, theirs.fileno())
        os.closerange(theirs.fileno() + 1, max(os.sysconf("SC_OPEN_MAX"), 1 << 16))
        observe(theirs)
    except Exception:  # noqa: BLE001 - a bug, which has to be seen, and costs the launcher nothing
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _end(observer: int) -> None:
    """End the observer. One that is stuck in the kernel is left behind: it dies when the storage answers."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(observer, signal.SIGKILL)
    for _ in range(50):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(observer, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
                continue
        return

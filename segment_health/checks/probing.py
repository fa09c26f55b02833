"""Touches many paths side by side, in processes that can be left behind, and tells what came of each.

Whoever asks a dead server may sit in the kernel, where no signal reaches (state D of ps(1)). So each path has a
process of its own, and a clock; one that is late is killed, and one that does not die of it is left behind. It
ends as soon as its storage answers. Until then no other is started for that path, whoever asks.

This runs in launchers: with threads, with torch, with signals handled or ignored, with standard streams closed. So
nothing is forked but what becomes another program at once (vfork), no signal is handled, and nothing but our own
processes is waited for. The program is started by env(1): where Python itself lies on storage that hangs, exec(2)
does, and with it whoever waits for exec, this whole interpreter. As it is, only env waits.

What it does not do: retry, or judge.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from . import outcome, probe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .outcome import Outcome

AT_ONCE = 32
"""Processes that are waited for at the same time."""
REAP_SECONDS = 2.0
"""How long killed processes may take to disappear, all together."""
_ORPHAN_SECONDS = 60.0
"""How much later than we would have killed it a process ends by itself."""
_PATH_MAX = 4096
"""Bytes of a path that Linux takes, its end counted."""
_CHUNK = 1 << 18
_ENV = "/usr/bin/env"

_left_behind: list[_Child] = []
"""Processes that did not die: of this whole process, as children are. Threads share the list without a lock."""


def ask(task: str, paths: Iterable[str], seconds: float) -> dict[str, Outcome]:
    """Do a task of probe.py with each path, and return what came of it by path; raises nothing of the storage's.

    Each path has so many seconds, AT_ONCE of them at the same time. So this takes at most
    `seconds * ceil(paths / AT_ONCE) + REAP_SECONDS`, and some milliseconds a path to start its process.
    """
    _let_go_of_the_dead()
    waiting = deque(dict.fromkeys(paths))
    came: dict[str, Outcome] = dict.fromkeys(waiting, outcome.Outcome("", ""))  # in this order
    children: list[_Child] = []
    try:
        with selectors.DefaultSelector() as selector:
            while waiting or selector.get_map():
                while waiting and len(selector.get_map()) < AT_ONCE:
                    path = waiting.popleft()
                    started = _start(task, path, seconds)
                    if isinstance(started, _Child):
                        children.append(started)
                        selector.register(started.pipe, selectors.EVENT_READ, started)
                    else:
                        came[path] = started
                if selector.get_map():
                    _hear(selector)
    finally:  # an interruption too: nobody is left who would read an answer
        _end(children)
    return came | {child.path: child.outcome() for child in children}


def _start(task: str, path: str, seconds: float) -> _Child | Outcome:
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return outcome.not_asked(path, "no file has a name that is written so")
    if b"\0" in raw:
        return outcome.not_asked(path, "a path holds no NUL")
    if len(raw) >= _PATH_MAX:
        return outcome.not_asked(path, os.strerror(errno.ENAMETOOLONG))
    for child in _left_behind:
        if child.path == path and child.hangs:
            return outcome.still(path, child.process.pid, waited=time.monotonic() - child.began)
    try:
        return _Child(task, path, seconds)
    except OSError as error:
        return outcome.not_asked(path, f"no process can be started: {error.strerror}")


def _hear(selector: selectors.BaseSelector) -> None:
    """Wait for news, and take processes off the list that have told all, ended, or are late.

    What lies in a pipe is read before the clock is: we may have been stopped for long, and the process not. It is
    looked for once more, since a wait that was interrupted until it was over has not looked again.
    """
    ends = min(key.data.deadline for key in selector.get_map().values())
    for key, _ in selector.select(max(0.0, ends - time.monotonic())) or selector.select(0):
        if key.data.hear():
            selector.unregister(key.fileobj)
    now = time.monotonic()
    for key in list(selector.get_map().values()):
        if key.data.deadline <= now:
            selector.unregister(key.fileobj)
            key.data.is_late = True
            key.data.kill()


def _end(children: list[_Child]) -> None:
    """Wait for processes that have told all, kill the others, and leave behind what does not die."""
    for child in children:
        if not child.has_told:
            child.kill()
    deadline = time.monotonic() + REAP_SECONDS
    pause = 0.0005
    while any(child.hangs for child in children) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    for child in children:
        child.close()
        if child.hangs:
            child.kill()
            _left_behind.append(child)


def _let_go_of_the_dead() -> None:
    """Forget processes that were left behind and have ended since, whatever their path: none stays a zombie."""
    for child in list(_left_behind):
        if not child.hangs:
            with suppress(ValueError):  # another thread was quicker
                _left_behind.remove(child)


class _Child:
    """A process that touches a path, and what it has told so far."""

    def __init__(self, task: str, path: str, seconds: float) -> None:
        self.path = path
        self.is_late = self.has_told = False
        self._seconds = seconds
        self._told = bytearray()
        self._answer: outcome.Answer | None = None
        self._program = sys.executable or "python3"
        start = [] if "=" in self._program else [_ENV]  # to which that would be a variable
        options = ["-I", "-S", probe.__file__, str(seconds + _ORPHAN_SECONDS), task, path]
        self.began = self._ended = time.monotonic()
        self.deadline = self.began + seconds
        self.process = subprocess.Popen(
            [*start, self._program, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd="/",  # whoever is left behind is not to hold a mount, nor does it begin on one that hangs
            start_new_session=True,  # its own process group: whatever the program is a script for dies with it
        )
        assert self.process.stdout is not None
        self._stdout = self.process.stdout
        self.pipe = self._stdout.fileno()

    def hear(self) -> bool:
        """Read what there is; return whether that was all."""
        data = os.read(self.pipe, _CHUNK)
        self._told += data
        self._answer = outcome.answer_in(self._told)
        self.has_told = not data or self._answer is not None
        self._ended = time.monotonic()
        if self._answer is None and outcome.is_endless(self._told):
            self.kill()
            self.has_told = True
        return self.has_told

    @property
    def hangs(self) -> bool:
        """Whether it has not ended. One that somebody else has waited for, or that nobody can, has (ECHILD)."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it, if it can be."""
        if self.hangs:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Hear no more of it."""
        self._stdout.close()

    def outcome(self) -> Outcome:
        """Say what came of it; once it has been waited for."""
        doing = outcome.doing_in(self._told)
        if self._answer is not None and not self.is_late:
            reason = os.strerror(self._answer.number)
            waited = self._ended - self.began
            return outcome.answered(self.path, self._answer, reason=reason, doing=doing or "used", waited=waited)
        if self.is_late:
            left = self.process.pid if self.hangs else None
            return outcome.late(self.path, doing=doing, seconds=self._seconds, program=self._program, left=left)
        return outcome.died(self.path, doing=doing, how=_how(self.process.returncode), told=self._told)


def _how(status: int | None) -> str:
    if status is None:
        return "its answers, and not itself"
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"

"""What runs beside a launcher: it follows the logs, has failed cycles analysed, and says when there is a STOP.

A process of its own (relay.py), since it reads shared storage, which may hang, and may do so without harm.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from segment_health.atomic import host_name
from segment_health.readable import readable

from .child import ServiceError
from .cycles import Cycles, Names, Stamp
from .relay import FAILED, READY, REFUSED, STOP

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from .stop import StopFile

LOOK_SECONDS = 1.0
"""From one look to the next: a STOP of another task is obeyed within two of them."""
_MISSING_LOOKS = 60
"""A launcher may make the directory of its logs when it writes the first one."""
_CLOSE_SECONDS = 2.5
"""How long handing in the last log may take; the relay waits a little longer."""


class Asking(Protocol):
    """What is told of cycles and asks a service about them: poller.Attribution."""

    def cycle_began(self, log_path: str) -> None:
        """Take the log of a cycle that began; return at once."""

    def cycle_failed(self, log_path: str) -> None:
        """Take the log of a cycle that failed; return at once."""

    def stop_requested(self) -> bool:
        """Tell whether the job is to end."""

    def close(self, timeout: float) -> None:
        """Hand in what was taken, within so many seconds, and end."""


class Say(Protocol):
    """Tells a person: a level, a word for programs, a sentence. `once` does not repeat itself for an hour."""

    def say(self, level: str, event: str, message: str) -> None:
        """Tell it."""

    def once(self, level: str, event: str, message: str) -> None:
        """Tell it unless it was told within the hour."""


class Task(NamedTuple):
    """What an observer does: ask about the logs of a prefix, obey a STOP, or both.

    `attribution` makes who asks. `service` makes the service that is to be asked, of the job's own: entering it
    waits until it is ready, or raises ServiceError, and then the launcher does not begin.
    """

    prefix: str = ""
    attribution: Callable[[], Asking] | None = None
    service: Callable[[Callable[[str, str], None]], contextlib.AbstractContextManager[object]] | None = None
    stop_file: StopFile | None = None


def observe(channel: socket.socket, task: Task, tell: Say) -> None:
    """Do that until the launcher ends, which the channel tells (relay.run). Nothing is raised for what fails."""
    observer = _Observer(channel, task, tell)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_log_to(tell))
        observer.see_what_was_before()
        if task.service is not None:
            try:
                stack.enter_context(task.service(lambda level, text: tell.say(level, "service", text)))
            except ServiceError as error:
                tell.say("ERROR", "service", f"{error}; the launcher is not started")
                observer.send(REFUSED)
                return
        observer.send(READY)
        observer.run()


class _Observer:
    def __init__(self, channel: socket.socket, task: Task, tell: Say) -> None:
        self._channel = channel
        self._task = task
        self._stop_file = task.stop_file
        self._tell = tell
        self._names = Names(task.prefix)
        self._asking: Asking | None = None
        self._cycles: Cycles | None = None
        """None until it was seen what lay there before."""
        self._failed_last = ""
        self._vain_looks = 0
        self._over = False

    def see_what_was_before(self) -> None:
        """Look what lies there before the launcher writes anything."""
        self._follow()
        if self._task.attribution is not None:
            self._forget()

    def run(self) -> None:
        """Look until the launcher has ended."""
        self._asking = self._begin_asking()
        while True:
            if not self._over:
                self._look()
            if readable([self._channel], LOOK_SECONDS) and not self._hear():
                break
        if self._asking is not None:
            self._asking.close(_CLOSE_SECONDS)

    def _begin_asking(self) -> Asking | None:
        if self._task.attribution is None:
            return None
        try:
            return self._task.attribution()
        except ValueError as error:
            self._tell.say("ERROR", "attribution", f"no cycle is analysed: {error}")
            return None

    def _hear(self) -> bool:
        """Hear what the relay says; tell whether the launcher still runs."""
        try:
            told = self._channel.recv(16)
        except OSError:
            return False
        if FAILED in told and self._asking is not None and not self._over:
            self._follow()  # the last cycle may not have been seen yet
            if self._cycles is not None and self._cycles.current is not None:
                self._asking.cycle_failed(self._names.path_of(self._cycles.current))
        return bool(told)

    def _look(self) -> None:
        self._follow()
        if self._asking is not None and self._asking.stop_requested():
            self._end("STOP: the launcher is ended")
            self._leave()
        elif self._stop_file is not None:
            self._obey(self._stop_file)

    def _obey(self, stop_file: StopFile) -> None:
        """End the launcher if another task left a STOP for this run."""
        try:
            stop = stop_file.look()
        except (OSError, ValueError) as error:
            self._tell.once("WARNING", "stop", f"{stop_file.path}: ignored, it cannot be read: {_cause(error)}")
            return
        if stop is not None:
            self._end(
                f"STOP of task {stop.run.task_id}, left on {stop.host} in {stop_file.path}: the launcher is ended"
            )

    def _follow(self) -> None:
        """Tell of cycles that are new: none that the first look shows, which an earlier run may have left."""
        found = None if self._task.attribution is None else self._logs()
        if found is None:
            return
        if self._cycles is None:
            self._cycles = Cycles(self._names, found)
        if self._asking is None:
            return
        for event in self._cycles.see(found):
            if event.has_failed:
                self._failed_last = event.path
                self._asking.cycle_failed(event.path)
            else:
                self._asking.cycle_began(event.path)

    def _logs(self) -> dict[int, Stamp] | None:
        """Look which logs are there; None where that cannot be told."""
        found = {}
        try:
            with os.scandir(self._names.directory) as entries:
                for entry in entries:
                    cycle = self._names.cycle_of(entry.name)
                    if cycle is not None:
                        with contextlib.suppress(OSError):  # removed just now, or a link that leads nowhere
                            status = entry.stat()
                            found[cycle] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
        except OSError as error:
            self._vain_looks += 1
            is_missing = isinstance(error, FileNotFoundError)
            if not is_missing or self._vain_looks > _MISSING_LOOKS:
                self._tell.once(
                    "WARNING", "logs", f"{self._names.directory}: cycles are not seen: {_cause(error)}"
                )
            return {} if is_missing else None
        return found

    def _end(self, why: str) -> None:
        self._over = True
        self._tell.say("ERROR", "stop", why)
        self.send(STOP)

    def send(self, number: int) -> None:
        """Tell the relay."""
        with contextlib.suppress(OSError):  # it has ended already
            self._channel.send(bytes([number]))

    def _leave(self) -> None:
        """Leave the STOP for the other tasks, while our own launcher is ending already."""
        if self._stop_file is None:
            return
        try:
            self._stop_file.write(self._failed_last, host_name(), int(time.time()))
        except (OSError, ValueError) as error:
            told = f"{self._stop_file.path}: not written, other tasks go on: {_cause(error)}"
            self._tell.say("ERROR", "stop", told)

    def _forget(self) -> None:
        if self._stop_file is None:
            return
        try:
            if self._stop_file.forget_predecessor():
                self._tell.say("INFO", "stop", f"{self._stop_file.path}: removed, it was for an earlier run")
        except (OSError, ValueError) as error:
            told = f"{self._stop_file.path}: an earlier run's cannot be removed: {_cause(error)}"
            self._tell.once("WARNING", "stop", told)


@contextlib.contextmanager
def _log_to(tell: Say) -> Iterator[None]:
    """Tell what is logged; NVRx's logger has its own handlers in a launcher, and none here."""

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell.say(record.levelname, "attribution", record.getMessage())

    logger, handler = logging.getLogger("nvrx"), Telling()
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _cause(error: Exception) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)

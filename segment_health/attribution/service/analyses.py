"""The life of logs: accepted and written down, waited for until they are whole, analysed, and told.

What is known stands in memory (known_logs); the register has it for the next start. Logs are touched by workers
alone (storage), the register by a thread of its own (journal, disk_thread).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from .attempt import Attempt, Status, finished, submitted
from .drain import Drain, Patience
from .refusal import JOB_LIMIT, NOT_FOUND, STATE, Refusal
from .register import Change, RegisterError
from .submission import Intent
from .worker_pool import LateError, PoolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from segment_health.attribution.analysers.finding import Finding

    from .confine import FileState
    from .journal import Journal
    from .known_logs import KnownLogs
    from .storage import Storage
    from .submission import Submission

    Say = Callable[[str, str, str], None]
    """Takes a line of the log: level, event and sentence."""

_SUBMIT_SECONDS = 1.8
"""What a submission may take: its client has two seconds."""
_MAX_SUBMITTING = 200
"""Submissions that may wait for a disk."""
_SAVE_SECONDS = 5.0
"""From one attempt to write what was found to the next."""


class Limits(NamedTuple):
    """How much at a time, and for how long, in seconds."""

    queued: int = 2000
    """Logs that are accepted and not judged yet."""
    analysis: float = 300.0
    """An analysis, from when a worker is free for it."""
    patience: Patience = Patience()


class Ports(NamedTuple):
    """What logs and the register are reached by, and where it is said what happens."""

    journal: Journal
    storage: Storage
    say: Say
    clock: Callable[[], float]
    """Gives seconds since the epoch."""


class Analyses:
    """Takes logs, and tells what was found in them. `analyser` is what this is known as."""

    def __init__(self, ports: Ports, limits: Limits, known: KnownLogs, analyser: str) -> None:
        self._ports = ports
        self._limits = limits
        self._known = known
        self._say = ports.say
        self.analyser = analyser
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._saving: set[asyncio.Task[None]] = set()
        self._submitting: set[asyncio.Task[str]] = set()
        self._deciding: dict[str, tuple[asyncio.Lock, int]] = {}
        self._trouble = ""
        self.listeners: list[Callable[[Attempt], None]] = []
        """Who is told of what was found, once it is written."""

    def resume(self) -> None:
        """Begin again what was accepted before, and not judged."""
        waiting = [attempt for attempt in self._known.all() if attempt.status is Status.IN_FLIGHT]
        for attempt in sorted(waiting, key=lambda attempt: attempt.sequence):
            self._begin(attempt)
        if waiting:
            self._say("INFO", "resume", f"{len(waiting)} logs were accepted before, and are analysed now")

    async def submit(self, told: Submission) -> str:
        """Accept a log, and return where it really is. Raises Refusal."""
        if len(self._submitting) >= _MAX_SUBMITTING:
            raise Refusal(STATE, "too many submissions wait for the disk of the state file")
        task = asyncio.ensure_future(self._submit(told))
        self._submitting.add(task)
        task.add_done_callback(self._submitting.discard)
        try:
            # Whoever has waited for too long goes; the submission may still come to its end, and then counts.
            return await asyncio.wait_for(asyncio.shield(task), _SUBMIT_SECONDS)
        except (asyncio.TimeoutError, TimeoutError):
            task.add_done_callback(_let_go)
            raise Refusal(STATE, "the disk of the state file does not answer") from None

    async def find(self, path: str, seconds: float) -> Attempt:
        """Return what is known of a log, after its analysis if that takes no longer. Raises Refusal."""
        attempt = self._known.named(path)
        if attempt is None:  # by another name than it was announced
            attempt = self._known.get((await self._ports.storage.look(path)).path)
        if attempt is None:
            raise Refusal(NOT_FOUND, "log_path has not been submitted")
        task = self._tasks.get(attempt.path)
        if task is not None and seconds > 0:
            await asyncio.wait([task], timeout=seconds)
        return self._known.get(attempt.path) or attempt

    async def preview(self, path: str) -> str:
        """Return how a log begins. Raises Refusal."""
        return await self._ports.storage.preview(path)

    def attempts(self) -> list[Attempt]:
        """Return all that is known, in order of registration."""
        return self._known.all()

    def issues(self) -> list[str]:
        """Say what is wrong with the service itself."""
        found = [self._trouble] if self._trouble else []
        if self._ports.storage.hanging:
            found.append(f"{self._ports.storage.hanging} processes hang in the kernel, waiting for storage")
        if len(self._tasks) >= self._limits.queued:
            found.append(f"{len(self._tasks)} logs wait to be analysed, and no more are taken")
        return found

    async def close(self) -> None:
        """End: what is not judged is judged after the next start."""
        tasks = [*self._tasks.values(), *self._saving, *self._submitting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ports.storage.close()

    async def _submit(self, told: Submission) -> str:
        found = await self._ports.storage.look(told.log_path)
        async with self._alone(found.path):
            former = self._known.get(found.path)
            sequence = self._known.next()
            attempt = submitted(former, told, found, now=self._ports.clock(), sequence=sequence)
            begins = attempt.status is Status.IN_FLIGHT and attempt.sequence == sequence
            if begins and len(self._tasks) >= self._limits.queued:
                raise Refusal(JOB_LIMIT, f"{len(self._tasks)} logs wait to be analysed: try again later")
            if attempt is not former:
                await self._accept(attempt)
            if begins:
                self._begin(attempt)
        if told.intent is Intent.TERMINAL:
            self._say("DEBUG", "accepted", f"{attempt.path}: to be analysed ({attempt.status.value})")
        return attempt.path

    @contextlib.asynccontextmanager
    async def _alone(self, path: str) -> AsyncIterator[None]:
        """Keep submissions of one log one after the other, and those of others out of it."""
        lock, users = self._deciding.get(path, (asyncio.Lock(), 0))
        self._deciding[path] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._deciding.pop(path)
            if users > 1:
                self._deciding[path] = (lock, users - 1)

    async def _accept(self, attempt: Attempt) -> None:
        """Write what was accepted, and know it then. Raises Refusal."""
        forgotten = self._known.to_forget()
        try:
            await self._ports.journal.write(Change(attempt, forgotten))
        except RegisterError as error:
            self._complain(str(error))
            raise Refusal(STATE, "the state file could not be written, so the log was not accepted") from error
        self._trouble = ""
        for path in forgotten:
            self._known.drop(path)
        self._known.know(attempt)

    def _begin(self, attempt: Attempt) -> None:
        task = asyncio.ensure_future(self._live(attempt))
        self._tasks[attempt.path] = task
        task.add_done_callback(lambda ended: self._ended(attempt.path, ended))

    def _ended(self, path: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(path) is task:  # and not one that came after it
            del self._tasks[path]

    async def _live(self, attempt: Attempt) -> None:
        """Judge a log."""
        began = self._ports.clock()
        finding, failure, state = None, "", None
        try:
            finding, state = await self._judge(attempt)
        except Refusal as refused:
            failure = refused.message
        except LateError as late:
            failure = f"the analysis was ended: {late}"
        except PoolError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - a bug, which must cost this analysis alone
            failure = f"{type(error).__name__}: {error}"
        now = self._ports.clock()
        done = finished(self._known.get(attempt.path) or attempt, finding, failure, state, now)
        # It is told before it is written: should it be lost the log is still in flight in the register.
        self._known.know(done)
        self._known.remember(done)
        seconds = now - began
        if finding is None:
            self._say("WARNING", "failed", f"{done.path}: the analysis failed after {seconds:.1f} s: {failure}")
        else:
            told = f"{finding.action.value}, {finding.category}: {finding.reason}"
            self._say("INFO", "judged", f"{done.path}: {told} (after {seconds:.1f} s)")
        saving = asyncio.ensure_future(self._save(done))
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)

    async def _judge(self, attempt: Attempt) -> tuple[Finding, FileState]:
        """Wait until a log is whole, and have it analysed. Raises Refusal and PoolError."""
        storage, limits = self._ports.storage, self._limits
        loop = asyncio.get_running_loop()
        drain = Drain(limits.patience, loop.time())
        # No file tells that it has grown.
        while not drain.looked(await storage.watch(attempt.path), loop.time()):  # noqa: ASYNC110
            await asyncio.sleep(limits.patience.look)
        return await storage.analyse(attempt.path, self._known.earlier(attempt), limits.analysis)

    async def _save(self, done: Attempt) -> None:
        """Write what was found, however often that has to be tried."""
        while True:
            try:
                forgotten = await self._ports.journal.write(Change(done))
            except RegisterError as error:
                self._complain(str(error))
                await asyncio.sleep(_SAVE_SECONDS)
            else:
                break
        self._trouble = ""
        for path in forgotten:
            self._known.drop(path)
        for listener in self.listeners:
            listener(done)

    def _complain(self, trouble: str) -> None:
        self._trouble = trouble
        self._say("ERROR", "state", trouble)


def _let_go(task: asyncio.Task[str]) -> None:
    """Take note of how a submission ended for which nobody waits any more."""
    if not task.cancelled():
        task.exception()

"""Workers: processes that touch storage for the service, so many at a time, each of which can be left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_ANSWER = 4 << 20
_MAX_LEFT = 8
"""Workers that may hang in the kernel, beyond any signal, before no more are started."""
_REAP_SECONDS = 2.0
_END_SECONDS = 1.0
"""What killed workers may take to be gone, when all is over."""


class PoolError(Exception):
    """A task was not done; a sentence."""


class LateError(PoolError):
    """It was not done in time, as when storage hangs."""


class WorkerPool:
    """Up to `size` workers, started when they are needed. `order` is the first line that each is told.

    `command` is the program (see worker), `environ` its environment.
    """

    def __init__(
        self, command: Sequence[str], order: Mapping[str, Any], size: int, environ: Mapping[str, str]
    ) -> None:
        self._command = command
        self._environ = dict(environ)
        self._order = dict(order) | {"parent": os.getpid()}
        self._free = asyncio.Semaphore(size)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._left: set[_Worker] = set()

    @property
    def hanging(self) -> int:
        """How many workers were killed, and are still there."""
        self._left = {worker for worker in self._left if not worker.has_ended()}
        return len(self._left)

    async def do(self, task: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Have a task done, within so many seconds from its beginning. Raises PoolError."""
        async with self._free:
            worker = self._idle.pop() if self._idle else self._started()
            self._busy.add(worker)
            done = False
            try:
                answer = await asyncio.wait_for(worker.ask(task), seconds)
                done = True
            except (asyncio.TimeoutError, TimeoutError):
                raise LateError(f"no answer within {seconds:g} s") from None
            except (OSError, EOFError, ValueError):
                raise PoolError(f"the process died that did it ({await worker.how()})") from None
            finally:
                self._busy.discard(worker)
                if done:
                    self._idle.append(worker)
                else:
                    self._end(worker)
            return answer

    def close(self) -> None:
        """Kill all workers, whatever they do."""
        for worker in [*self._idle, *self._busy]:
            self._end(worker)
        self._idle.clear()
        deadline = time.monotonic() + _END_SECONDS
        while self.hanging and time.monotonic() < deadline:
            time.sleep(0.01)

    def _started(self) -> _Worker:
        if self.hanging >= _MAX_LEFT:
            raise LateError(f"{len(self._left)} processes hang in the kernel, waiting for storage")
        try:
            return _Worker(self._command, self._order, self._environ)
        except OSError as error:
            raise PoolError(f"no process could be started for it: {error.strerror}") from error

    def _end(self, worker: _Worker) -> None:
        worker.kill()
        if not worker.has_ended():
            self._left.add(worker)


class _Worker:
    """One process, and the line to it."""

    def __init__(self, command: Sequence[str], order: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    env=environ,
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                self._line.close()
                raise
        self._line.setblocking(False)
        self._order: Mapping[str, Any] | None = order
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Give a task, and return its answer. Raises OSError, EOFError and ValueError where there is none."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._line, limit=_MAX_ANSWER)
        reader, writer = self._streams
        for told in (self._order, task):
            if told is not None:
                writer.write(json.dumps(told).encode() + b"\n")
        self._order = None
        await writer.drain()
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def how(self) -> str:
        """Say how it ended, once it has."""
        for _ in range(40):
            if self.has_ended():
                break
            await asyncio.sleep(_REAP_SECONDS / 40)
        status = self._process.returncode
        if status is None:
            return "it talks nonsense"
        return f"by signal {-status}; out of memory?" if status < 0 else f"status {status}"

    def has_ended(self) -> bool:
        """Tell whether it has, and wait for it if so."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it, and what it started."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        else:
            self._line.close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)  # what is not stuck is gone at once

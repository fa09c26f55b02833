"""Runs health checks within bounds, and leaves nothing of them (see reaper, which does it)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from . import reaper
from .config import builtins_of
from .outcome import MAX_STDERR, MAX_STDOUT, Ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .config import Config

_SLACK_SECONDS = 15.0
"""Beyond the program's time, what its reaper may take for everything; then it is itself killed."""
_SWEEP_SECONDS = 3.0
_SCRUBBED = ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "GRPC_")
"""Beginnings of variables that are for the daemon."""


class NoReportError(Exception):
    """The reaper told nothing, since somebody killed it; nothing is known of the node."""


def argv(config: Config, path: str, args: Sequence[str]) -> list[str]:
    """Return the command line of a health check; `path` is where the configuration is.

    A request's arguments are appended to a program's. Built-in checks get none: NVRx sends what other checks want.
    """
    if names := builtins_of(config.healthcheck_path):
        return [sys.executable, "-m", "segment_health", "builtin", *names, "--config", path]
    return [config.healthcheck_path, *args]


class Programs:
    """Starts programs in an environment, and knows their reapers."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {key: value for key, value in environ.items() if not key.startswith(_SCRUBBED)}
        self._reapers: dict[int, asyncio.Task[None]] = {}
        self._birth = asyncio.Lock()
        """Held while a reaper is born: until it is known it looks like something that was left behind."""

    async def start(self, command: Sequence[str], timeout: float) -> Running | Ended:
        """Start a program that may take `timeout` seconds; Ended where it cannot be, and `errno` says why."""
        if any("\0" in word for word in command):
            return Ended(errno=errno.EINVAL, cause="an argument holds a NUL byte")
        try:
            async with self._birth:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    "-S",
                    reaper.__file__,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env=self._environ,
                    cwd="/",
                    start_new_session=True,  # a terminal's Ctrl-C is for the daemon, which lets checks end
                )
                assert process.stdout is not None
                reading = asyncio.create_task(process.stdout.read())
                self._reapers[process.pid] = asyncio.create_task(self._mourn(process, reading))
        except OSError as error:
            return Ended(errno=errno.EAGAIN, cause=f"no process to start it: {error.strerror or error}")
        order = {"argv": list(command), "timeout": timeout, "stdout": MAX_STDOUT, "stderr": MAX_STDERR}
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        return Running(self, process, reading, timeout)

    async def sweep(self) -> None:
        """Kill what is below no reaper: it was left by one that was killed, and is ours (see become_subreaper)."""
        deadline = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < deadline:
            async with self._birth:
                if not self._kill_strays():
                    return
            await asyncio.sleep(0.02)

    def _kill_strays(self) -> bool:
        """Kill what is below no reaper, and take note of those that are dead; tell whether there were any."""
        strays = reaper.descendants(os.getpid(), frozenset(self._reapers))
        reaper.kill(strays)
        for process in strays:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        return bool(strays)

    async def close(self) -> None:
        """Give reapers time to end, whose programs are killed as nobody waits for them any more."""
        if self._reapers:
            await asyncio.wait(self._reapers.values(), timeout=_SWEEP_SECONDS)

    async def _mourn(self, process: asyncio.subprocess.Process, reading: asyncio.Task[bytes]) -> None:
        """Forget a reaper when it has ended; what it tells is read, whoever waits: else it would not end."""
        await reading
        await process.wait()
        del self._reapers[process.pid]


class Running:
    """A health check that runs. Cancelling wait() kills it and all that it started."""

    def __init__(
        self,
        programs: Programs,
        process: asyncio.subprocess.Process,
        reading: asyncio.Task[bytes],
        timeout: float,
    ) -> None:
        self._programs = programs
        self._process = process
        self._reading = reading
        self._timeout = timeout

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        return self._process.returncode is not None

    async def wait(self) -> Ended:
        """Return how it ended, some seconds after its time at the latest. Raises NoReportError."""
        process = self._process
        assert process.stdin is not None
        try:
            told = await asyncio.wait_for(asyncio.shield(self._reading), self._timeout + _SLACK_SECONDS)
        except asyncio.TimeoutError:  # somebody stopped the reaper
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            told = b""
        finally:
            process.stdin.close()  # by which a reaper knows that nobody waits any more
        head, _, rest = told.partition(b"\n")
        if not head:
            await process.wait()
            await self._programs.sweep()
            raise NoReportError
        report = json.loads(head)
        if not report["left"]:
            await process.wait()
        length = report["stdout"]
        return Ended(
            status=report["status"],
            stdout=rest[:length],
            stderr=rest[length:],
            errno=report["errno"],
            cause=_cause(report["errno"], report["status"]),
            late=report["late"],
            cut=report["cut"],
            left=tuple(report["left"]),
        )


def _cause(number: int | None, status: int | None) -> str:
    """Return in words why a program was not started, or the name of the signal that ended it."""
    if number is not None:
        return os.strerror(number)
    if status is None or status >= 0:
        return ""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"

"""What a call is answered: by a run of its own, by one that others wait for, or by one that ended a moment ago."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .config import builtins_of
from .outcome import Answer, Outcome, Refusal, again, outcome, still_there
from .program import NoReportError, Programs, Running, argv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .config import Config

    Command = tuple[str, ...]

_MAX_STUCK = 16
"""Questions whose programs the kernel does not let go, each with a process that waits for them. Beyond that no
other is asked: there is no end to what callers can ask, and all of it may hang."""
_MAX_CACHED = 16
"""Answers that are kept, of up to 1 MB each: launchers of one site ask one or two different questions."""


class Listener(Protocol):
    """Who is told what the daemon does."""

    def ran(self, args: Sequence[str], outcome: Outcome, seconds: float) -> None:
        """A program ended, or could not be started."""

    def repeated(self, args: Sequence[str]) -> None:
        """A call was answered from the cache."""


@dataclass(slots=True)
class _Run:
    """A run that calls wait for: so many, and whether its program was started."""

    waiting: int = 0
    begun: bool = False
    task: asyncio.Task[Outcome] | None = None


class _Stuck(NamedTuple):
    """A run of which processes are left that the kernel does not let go; what was answered then."""

    began: float
    running: Running
    left: tuple[int, ...]
    came: Outcome


class Service:
    """Answers calls; `path` is where the configuration is, `clock` a monotonic one.

    Calls of the same command line share one run, and a run goes on when those who asked have gone: who asks next
    waits for it. What has not begun is forgotten with the last of them.
    """

    def __init__(  # noqa: PLR0913 - what it works with; and a bound, by name
        self,
        config: Config,
        path: str,
        programs: Programs,
        listener: Listener,
        clock: Callable[[], float],
        *,
        max_stuck: int = _MAX_STUCK,
    ) -> None:
        self._config = config
        self._path = path
        self._programs = programs
        self._listener = listener
        self._clock = clock
        self._max_stuck = max_stuck
        self._places = asyncio.Semaphore(config.max_programs)
        self._runs: dict[Command, _Run] = {}
        self._cached: dict[Command, tuple[float, Answer]] = {}
        self._stuck: dict[Command, _Stuck] = {}

    def configure(self, config: Config) -> None:
        """Answer by another configuration from here on; what runs goes on as it began."""
        if config.max_programs != self._config.max_programs:
            self._places = asyncio.Semaphore(config.max_programs)  # who waits already waits for the old ones
        self._config = config
        self._cached.clear()

    async def answer(self, args: Sequence[str]) -> Outcome:
        """Answer one call. It may be cancelled, which ends nothing that others wait for."""
        command = tuple(argv(self._config, self._path, args))
        if (cached := self._cached.get(command)) is not None:
            if self._clock() - cached[0] < self._config.cache:
                self._listener.repeated(args)
                return cached[1]
            del self._cached[command]
        run = self._runs.get(command)
        if run is None:
            run = self._runs[command] = _Run()
            run.task = asyncio.create_task(self._run(command, args, run))
        assert run.task is not None
        run.waiting += 1
        try:
            return await asyncio.shield(run.task)
        finally:
            run.waiting -= 1
            if not run.waiting and not run.begun:
                run.task.cancel()
                self._forget(command, run)

    async def close(self) -> None:
        """Kill what still runs; nobody waits for it any more."""
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, command: Command, args: Sequence[str], run: _Run) -> Outcome:
        config = self._config
        try:
            async with self._places:
                run.begun = True
                began = self._clock()
                came = await self._run_program(command, config)
                ended = self._clock()
            self._listener.ran(args, came, ended - began)
            if isinstance(came, Answer) and config is self._config and config.cache > 0:
                self._keep(command, ended, came)
            return came
        finally:
            self._forget(command, run)

    async def _run_program(self, command: Command, config: Config) -> Outcome:
        began = self._clock()
        self._stuck = {asked: stuck for asked, stuck in self._stuck.items() if not stuck.running.is_gone}
        builtin = bool(builtins_of(config.healthcheck_path))
        if (stuck := self._stuck.get(command)) is not None:
            return again(stuck.came) if builtin else still_there(began - stuck.began, stuck.left)
        if len(self._stuck) >= self._max_stuck:
            told = f"{len(self._stuck)} health checks hang in the kernel; until one ends no other is started"
            return Refusal("RESOURCE_EXHAUSTED", told)
        running = await self._programs.start(command, config.timeout)
        if isinstance(running, Running):
            try:
                ended = await running.wait()
            except NoReportError:
                return Refusal("ABORTED", "the process that ran the health check was killed; nothing is known")
        else:
            ended = running
        came = outcome(ended, config.healthcheck_path, config.timeout, builtin=builtin)
        if isinstance(running, Running) and ended.left:
            self._stuck[command] = _Stuck(began, running, ended.left, came)
        return came

    def _keep(self, command: Command, now: float, answer: Answer) -> None:
        self._cached[command] = (now, answer)
        while len(self._cached) > _MAX_CACHED:
            del self._cached[next(iter(self._cached))]  # the oldest

    def _forget(self, command: Command, run: _Run) -> None:
        if self._runs.get(command) is run:
            del self._runs[command]

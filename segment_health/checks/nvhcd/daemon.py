"""The life of the daemon: it takes its place, serves, rereads its configuration, and ends when nobody waits."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Protocol

from segment_health.checks.builtin.settings import MAX_FILE, ConfigError
from segment_health.notify import Systemd

from . import reaper, service
from .config import builtins_of, parse, remarks
from .outcome import Ended, unfit
from .place import Place
from .program import NoReportError, Programs
from .relay import Relay, inherited

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from .config import Config
    from .outcome import Outcome

    Answer = Callable[[Sequence[str]], Awaitable[Outcome]]
    Serve = Callable[[Answer, Callable[[str], None]], "Server"]

_DRAIN_SECONDS = 20.0
"""Beyond the program's own time, what calls that are being answered may take when the daemon ends."""
_READ_SECONDS = 10.0


class Log(service.Listener, Protocol):
    """Where the daemon says what it does."""

    def say(self, level: str, event: str, message: str, **further: Any) -> None:
        """Say it: a word for programs, a sentence for people."""

    def remark(self, event: str, message: str) -> None:
        """Say what anybody who calls can bring about, which is not to be repeated."""

    def configure(self, log_level: str) -> None:
        """Say what is of this level, as a configuration names it."""


class Server(Protocol):
    """What takes calls (see server.Server)."""

    async def start(self, path: str) -> None:
        """Bind a socket at a path, and serve. Raises OSError."""

    async def stop(self, grace: float | None) -> None:
        """Take no more calls; those that are being answered have so many seconds, None for none."""


class Daemon:
    """Serves one configuration, read from the absolute `path`, until it is told to end.

    `serve` makes the server of a function that answers, and of one that is told what goes wrong.
    """

    def __init__(
        self,
        config: Config,
        path: str,
        log: Log,
        environ: MutableMapping[str, str],
        serve: Serve,
    ) -> None:
        self._config = config
        self._path = path
        self._log = log
        self._watchdog = _watchdog_seconds(environ)
        self._given = inherited(environ)
        self._systemd = Systemd(environ)
        self._programs = Programs(environ)
        self._service = service.Service(config, path, self._programs, log, time.monotonic)
        self._server = serve(self._service.answer, lambda sentence: log.remark("grpc", sentence))
        self._signalled: asyncio.Queue[int] = asyncio.Queue()

    async def run(self) -> int:
        """Serve until a signal; return the number of a second one that ended it at once, else 0.

        Raises PlaceError, and OSError where gRPC cannot serve.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled.put_nowait, number)
        loop.set_exception_handler(lambda _, context: self._log.remark("trouble", _told(context)))
        path = self._config.socket_path if self._given is None else str(self._given.getsockname())
        with Place(path) as place:
            await self._server.start(place.to_bind)
            feeding = asyncio.create_task(self._feed_watchdog())
            try:
                relay = self._begin(place)
                await self._remark(self._config)
                await self._serve()
                return await self._drain(relay)
            finally:
                feeding.cancel()
                await self._server.stop(None)
                await self._service.close()
                await self._programs.close()

    def _begin(self, place: Place) -> Relay | None:
        """Let callers in."""
        config, relay = self._config, None
        if self._given is not None:
            relay = Relay(self._given, place.to_bind)
            relay.start()
            if place.path != config.socket_path:
                told = f"systemd's socket is {place.path}; socket_path {config.socket_path} is not used"
                self._log.say("WARNING", "start", told)
        else:
            place.publish(config.socket_mode, config.socket_owner, config.socket_group)
            if place.replaced:
                self._log.say("INFO", "start", f"{place.path}: a socket that nobody answered at was replaced")
        who = f"mode {config.socket_mode:04o}" if relay is None else "systemd's"
        what = f"{place.path} ({who}) answers by {config.healthcheck_path}, within {config.timeout:g} s"
        self._log.say("INFO", "start", what)
        self._systemd.status(f"serving {what}", "READY=1")
        return relay

    async def _serve(self) -> None:
        """Serve until a signal asks to end."""
        while await self._signalled.get() == signal.SIGHUP:
            await self._reread()

    async def _drain(self, relay: Relay | None) -> int:
        """Let calls that are being answered end; return the number of a signal that wanted no wait, else 0."""
        self._systemd.status("ending; calls that are being answered end first", "STOPPING=1")
        self._log.say(
            "INFO", "end", "told to end: no more calls are taken, those that are being answered end first"
        )
        if relay is not None:
            relay.stop()
        stopping = asyncio.create_task(self._server.stop(self._config.timeout + _DRAIN_SECONDS))
        second = asyncio.create_task(self._second_signal())
        await asyncio.wait({stopping, second}, return_when=asyncio.FIRST_COMPLETED)
        number = second.result() if second.done() else 0
        if not stopping.done():
            await self._server.stop(None)
        await stopping
        second.cancel()
        if relay is not None:
            await relay.close()
        self._log.say("INFO", "end", "ended at once: programs are killed" if number else "ended")
        return number

    async def _second_signal(self) -> int:
        while (number := await self._signalled.get()) == signal.SIGHUP:
            pass
        return number

    async def _reread(self) -> None:
        """Read the configuration again; a wrong one changes nothing."""
        try:
            new = parse(await self._read(), self._path)
        except (ConfigError, OSError) as error:
            self._log.say("ERROR", "reload", f"the configuration in force stays: {error}")
            return
        if new.needs_restart != self._config.needs_restart:
            self._log.say("WARNING", "reload", f"{self._path}: what it says of the socket waits for a restart")
        self._config = new
        self._log.configure(new.log_level)
        self._service.configure(new)
        self._log.say("INFO", "reload", f"{self._path}: read again; answers by {new.healthcheck_path}")
        await self._remark(new)

    async def _read(self) -> bytes:
        """Read it. Raises OSError."""
        ended = await self._look("/bin/cat", "--", self._path)
        if ended.errno is not None:
            raise OSError(f"{self._path}: could not be read: {ended.cause}")
        if ended.late or ended.status is None:
            raise OSError(f"{self._path}: could not be read within {_READ_SECONDS:g} s")
        if ended.status != 0:
            raise OSError(ended.stderr.decode("utf-8", "replace").strip() or f"{self._path}: could not be read")
        if ended.cut or len(ended.stdout) > MAX_FILE:
            raise OSError(f"{self._path}: larger than {MAX_FILE} bytes")
        return ended.stdout

    async def _look(self, *command: str) -> Ended:
        """Look at a file by a program: with gRPC's threads this process can neither fork nor wait for storage."""
        running = await self._programs.start(command, _READ_SECONDS)
        try:
            return running if isinstance(running, Ended) else await running.wait()
        except NoReportError:
            return Ended(late=True)

    async def _remark(self, config: Config) -> None:
        """Say what a person should know of a configuration."""
        for remark in remarks(config):
            self._log.say("WARNING", "config", f"{self._path}: {remark}")
        program = config.healthcheck_path
        if not builtins_of(program):
            found = await self._look("/usr/bin/test", "-f", program, "-a", "-x", program)
            if (told := unfit(found, program, _READ_SECONDS)) is not None:
                self._log.say("WARNING", "config", f"{self._path}: healthcheck_path: {told}")

    async def _feed_watchdog(self) -> None:
        """Tell systemd, where it wants to hear it, that calls are still being answered."""
        while self._watchdog is not None:
            self._systemd.tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / 2)


def run(config: Config, path: str, log: Log, environ: MutableMapping[str, str], serve: Serve) -> int:
    """Serve until a signal, as Daemon does, and return the same. Raises ActivationError too."""

    async def live() -> int:
        return await Daemon(config, path, log, environ, serve).run()

    reaper.become_subreaper()
    return asyncio.run(live())


def _watchdog_seconds(environ: MutableMapping[str, str]) -> float | None:
    """Return after how long systemd wants to hear something (sd_watchdog_enabled(3))."""
    told, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID")
    if not (told.isascii() and told.isdigit()) or process not in {None, str(os.getpid())}:
        return None
    return int(told) / 1e6 or None


def _told(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"{context.get('message', 'trouble')}{'' if error is None else f': {error!r}'}"

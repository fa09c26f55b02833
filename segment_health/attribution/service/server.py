"""The service, from its start to its end: it opens the register, serves, and ends within seconds when told to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from segment_health import listening, serving
from segment_health.attribution.flags import without_key
from segment_health.notify import Systemd

from .analyses import Analyses, Limits, Ports
from .app import PerMinute, Traits, application
from .blaming import Blaming
from .disk_thread import DiskThread
from .export import Destination, Export
from .journal import Journal
from .known_logs import KnownLogs
from .register import Register
from .storage import Storage
from .worker_pool import PoolError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from socket import socket as Socket  # noqa: N812 - a parameter has its name

    from segment_health.address import Address

_START_SECONDS = 30.0
"""What the storage of the root and of the state file may take when the service starts."""
_END_SECONDS = 3.0
"""What the disk of the state file may take when it ends."""
_CONNECTIONS = 500
_LOOKERS = 2
_WORKER = "segment_health.attribution.service.worker"


class StartError(Exception):
    """The service cannot be started; a sentence."""


class Log(Protocol):
    """Where the service says what it does."""

    def say(self, level: str, event: str, message: str, **further: Any) -> None:
        """Say it: a word for programs, a sentence for people."""

    def remark(self, event: str, message: str) -> None:
        """Say what anybody who asks can bring about, which is not to be repeated."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a service is told. `root` and `state` are absolute paths, `analyser` is for its workers.

    `worker` is another program for these, `export` where results are posted, `blame` the directory for what is
    said against nodes, none if empty.
    """

    listen: Address
    root: str
    state: str
    analyser: Mapping[str, Any] = field(default_factory=lambda: {"name": "rules"})
    workers: int = 4
    keep: int = 3000
    per_minute: PerMinute = field(default_factory=PerMinute)
    limits: Limits = field(default_factory=Limits)
    worker: tuple[str, ...] = ()
    export: Destination | None = None
    blame: str = ""


def run(settings: Settings, log: Log, environ: MutableMapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartError and RegisterError where it cannot begin."""
    disk = DiskThread("attribution-state")
    socket = None
    try:
        opening = disk.put(lambda: _register(settings))
        try:
            register = opening.result(_START_SECONDS)
        except (concurrent.futures.TimeoutError, TimeoutError):  # one since Python 3.11
            raise StartError(f"{settings.state}: its storage does not answer") from None
        try:
            socket = _listening(settings)
            asyncio.run(_Service(settings, log, environ, register, disk).run(socket))
        finally:
            disk.put(register.close)
    finally:
        if socket is not None:
            listening.close(socket, settings.listen)
        if not disk.close(_END_SECONDS):
            log.say("WARNING", "end", f"{settings.state}: its storage does not answer; what was accepted is in it")


def _listening(settings: Settings) -> Socket:
    try:
        return listening.listen(settings.listen)
    except OSError as error:
        raise StartError(f"--listen {settings.listen}: {error.strerror or error}") from error


def _register(settings: Settings) -> Register:
    return Register(settings.state, keep=settings.keep, exports=settings.export is not None)


class _Service:
    """One life of the service."""

    def __init__(
        self, settings: Settings, log: Log, environ: MutableMapping[str, str], register: Register, disk: DiskThread
    ) -> None:
        self._settings = settings
        self._log = log
        self._systemd = Systemd(environ)
        self._environ = environ
        self._register = register
        self._disk = disk
        self._ending = asyncio.Event()

    async def run(self, socket: Any) -> None:
        """Serve at a socket until a signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        settings = self._settings
        order = {"root": await self._root(), "analyser": dict(settings.analyser)}
        command = settings.worker or (sys.executable, *_isolation(self._environ), "-m", _WORKER)
        # An API key is read from its file, and from nowhere else.
        environ = without_key(self._environ)
        lookers, watchers, analysts = (
            WorkerPool(command, order, size, environ) for size in (_LOOKERS, _LOOKERS, settings.workers)
        )
        analyses = Analyses(
            Ports(
                Journal(self._register, self._disk),
                Storage(lookers, watchers, analysts),
                self._log.say,
                time.time,
            ),
            settings.limits,
            KnownLogs(*await self._disk.do(lambda: (self._register.attempts(), self._register.judged()))),
            str(settings.analyser["name"]),
        )
        export = self._exports(analyses)
        blaming = await self._blaming()
        if blaming is not None:
            analyses.listeners.append(blaming.heard)
        try:
            await self._warm(lookers, str(order["root"]))
            analyses.resume()
            await self._serve(application(analyses, self._traits()), socket)
        finally:
            if export is not None:
                export.close()
            self._systemd.status("ending; what is not judged is judged after the next start", "STOPPING=1")
            self._log.say("INFO", "end", "told to end; what was accepted is judged after the next start")
            await analyses.close()
            if blaming is not None:
                await blaming.end()

    def _exports(self, analyses: Analyses) -> Export | None:
        """Begin to post results, if that is wanted. Raises StartError."""
        settings = self._settings
        if settings.export is None:
            return None
        try:
            export = Export(settings.export, self._register, self._disk, self._log.say, self._environ)
        except ValueError as error:
            raise StartError(f"--export-url: {error}") from error
        analyses.listeners.append(export.wake)
        export.start()
        return export

    async def _serve(self, app: Any, socket: Any) -> None:
        handler = _Lines(self._log)
        logger = logging.getLogger("uvicorn.error")
        logger.addHandler(handler)
        logger.propagate = False
        server = serving.server(app, _CONNECTIONS)
        # A copy: uvicorn closes what it was given, and by the other one we know our place when it is left.
        answering = asyncio.ensure_future(server.serve(sockets=[socket.dup()]))
        what = f"{self._settings.listen}, for logs below {self._settings.root}"
        self._log.say("INFO", "start", f"serving at {what}; state in {self._settings.state}")
        self._systemd.status(f"serving at {what}", "READY=1")
        try:
            ended = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait({ended, answering}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            server.should_exit = True
            await answering
        finally:
            logger.removeHandler(handler)

    async def _root(self) -> str:
        """Return the real path of the directory below which logs are. Raises StartError."""
        root = self._settings.root
        disk = DiskThread("attribution-root")
        try:
            real, is_directory = await asyncio.wait_for(disk.do(lambda: _looked(root)), _START_SECONDS)
        except (asyncio.TimeoutError, TimeoutError):
            raise StartError(f"{root}: its storage does not answer") from None
        finally:
            disk.close(0.0)
        if not is_directory:
            raise StartError(f"{root}: no directory that can be read")
        return real

    async def _blaming(self) -> Blaming | None:
        """Return who writes what is said against nodes, None where nobody is to. Raises StartError."""
        path = self._settings.blame
        if not path:
            return None
        made = Blaming(path, self._log.say, time.time)
        try:
            await made.begin(_START_SECONDS)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            cause = (error.strerror if isinstance(error, OSError) else None) or error
            raise StartError(f"--blame-dir {path!a}: {cause}") from error
        return made

    async def _warm(self, lookers: WorkerPool, root: str) -> None:
        """Start those who look for clients: a start takes longer than a client has."""
        looks = (lookers.do({"do": "look", "path": root}, _START_SECONDS) for _ in range(_LOOKERS))
        with contextlib.suppress(PoolError):
            await asyncio.gather(*looks)

    def _traits(self) -> Traits:
        where = self._settings.listen
        hosts = serving.LOOPBACK_NAMES | {where.name} if where.is_loopback else None
        return Traits(self._settings.per_minute, hosts, time.monotonic, self._log.remark)


class _Lines(logging.Handler):
    """Says in the service's log what goes wrong in its server."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record in one line."""
        text = record.getMessage().strip()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        self._log.remark("http", text)


def _isolation(environ: Mapping[str, str]) -> list[str]:
    """Return the option that keeps strange modules out; where this package is only on PYTHONPATH it cannot be."""
    return [] if environ.get("PYTHONPATH") else ["-I"]


def _looked(root: str) -> tuple[str, bool]:
    real = os.path.realpath(root)
    return real, os.path.isdir(real) and os.access(real, os.R_OK | os.X_OK)

"""A service for one job, for the endpoint `localhost`: started, watched over, ended with the job (seed 001).

It is a child (see child, leash) of a thread that lives as long as the service may: the kernel kills the child as
soon as that thread is gone, however this process ends. The API key is read by the service alone.

What it does not do: say what the service is asked, or hold up a job that runs. One that dies is started again,
some times; then there is no attribution any more, and training goes on.
"""

from __future__ import annotations

import http.client
import threading
import time
from typing import TYPE_CHECKING

from segment_health.record import printable

from . import port
from .child import TERM_SECONDS, Child, ServiceError, installed
from .flags import KEY_FILE_VARIABLE, MANAGED_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from .flags import AttributionSettings

RESTARTS = 5
"""How often a service that died is started again, from 1 s to 16 s later."""
STEADY_SECONDS = 600.0
"""One that served so long has died for the first time."""
_REAP_SECONDS = 5.0
_PROBE_SECONDS = 1.0
_LOOK_SECONDS = 0.2
_OK = range(200, 300)


class Service:
    """A service of the job's own, inside `with`: entering waits until it is ready, leaving ends it.

    `settings` are those of `localhost`. `say` writes a line of the log, level and sentence; it is called from a
    thread. Entering raises ServiceError: within `startup_timeout` seconds and a moment, whatever hangs.
    """

    def __init__(
        self,
        settings: AttributionSettings,
        *,
        environ: Mapping[str, str],
        say: Callable[[str, str], None],
        number: int = MANAGED_PORT,
    ) -> None:
        self.endpoint = f"http://{port.LOOPBACK}:{number}"
        self._settings = settings
        self._environ = dict(environ)
        self._say = say
        self._number = number
        self._ending = threading.Event()
        self._known = threading.Event()
        self._error: ServiceError | None = None
        self._child: Child | None = None
        self._thread = threading.Thread(target=self._live, name="attribution-service", daemon=True)

    def __enter__(self) -> Service:  # noqa: PYI034 - Self is Python 3.11
        if not self._settings.key_file and installed(self._environ) is not None:
            told = f"--ft-attribution-llm-api-key-file or {KEY_FILE_VARIABLE} has to name the API key's file"
            raise ServiceError(f"{told}; no service was started", nothing_was_started=True)
        self._thread.start()
        try:
            if not self._known.wait(self._settings.startup_timeout + _PROBE_SECONDS):
                self._error = self._late()
        finally:
            if self._error is not None or not self._known.is_set():
                self.close()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the service: SIGTERM, after TERM_SECONDS SIGKILL, to it and all that it started."""
        self._ending.set()
        if self._thread.ident is None:
            return
        self._thread.join(TERM_SECONDS + 2 * _REAP_SECONDS)
        if self._thread.is_alive() and self._child is not None:  # it waits for what hangs
            self._child.kill()

    def _live(self) -> None:
        """Keep a service running, in the thread whose end is the child's."""
        restarts = 0
        while True:
            began = time.monotonic()
            try:
                told = self._serve()
            except ServiceError as error:
                if not self._known.is_set():
                    self._error = error
                    self._known.set()
                    return
                told = str(error)
            if self._ending.is_set():
                return
            if time.monotonic() - began >= STEADY_SECONDS:
                restarts = 0
            if restarts == RESTARTS:
                self._say("ERROR", f"attribution service: {told}; given up: no more verdicts, and the job goes on")
                return
            self._say("WARNING", f"attribution service: {told}; it is started again in {_pause(restarts):g} s")
            if self._ending.wait(_pause(restarts)):
                return
            restarts += 1

    def _serve(self) -> str:
        """Run the service once, until it dies, which is told, or is ended. Raises ServiceError."""
        deadline = time.monotonic() + self._settings.startup_timeout
        if not _asked(port.is_free, self._number):
            told = (
                f"{port.LOOPBACK}:{self._number} is taken by another process: end it, or name it as the endpoint"
            )
            raise ServiceError(told, nothing_was_started=True)
        self._child = child = Child(self._settings, self._environ, self._number)
        try:
            log = child.wait_for_start(deadline, self._ending)
            self._wait_until_ready(child, log, deadline)
            self._say("INFO", f"attribution service: ready, process {child.pid}, log {log}")
            self._known.set()
            while not child.has_ended():
                if self._ending.wait(_LOOK_SECONDS):
                    child.terminate()
                    break
        finally:
            child.kill()
        return f"process {child.pid} ended ({child.how()}), see {log}"

    def _wait_until_ready(self, child: Child, log: str, deadline: float) -> None:
        while not self._ending.is_set():
            if child.has_ended():
                child.kill()
                raise ServiceError(f"the attribution service ended before it was ready ({child.how()}), see {log}")
            if self._answers() and not child.has_ended():
                if _asked(port.is_of, child.pid, self._number):
                    return
                told = f"what answers at {self.endpoint} is not the service that was started to listen just there"
                raise ServiceError(f"{told}, see {log}")
            if time.monotonic() >= deadline:
                raise self._late(log)
            self._ending.wait(_LOOK_SECONDS)
        raise ServiceError("ended before it was ready")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(port.LOOPBACK, self._number, timeout=_PROBE_SECONDS)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status in _OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _late(self, log: str = "") -> ServiceError:
        seconds = self._settings.startup_timeout
        told = f"the attribution service was not ready within {seconds:g} s (--ft-attribution-startup-timeout)"
        return ServiceError(f"{told}, see {log or printable(self._settings.service_log)}")


def _pause(restarts: int) -> float:
    """Return the seconds before another start, after so many."""
    return 2.0**restarts


def _asked(question: Callable[..., bool], *about: int) -> bool:
    try:
        return question(*about)
    except OSError as error:  # no socket left for us, or no /proc
        raise ServiceError(f"whose port {about[-1]} is cannot be told: {error}") from error

"""The process of a service for one job: what it is told, how it begins, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from segment_health.record import printable

from . import leash, port
from .flags import without_key

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from .flags import AttributionSettings

PROGRAM = "nvrx-attrsvc"
TERM_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
_REAP_SECONDS = 2.0
_LOOK_SECONDS = 0.2


class ServiceError(Exception):
    """There is no service, and why: a sentence. `nothing_was_started` where what was told can be blamed."""

    def __init__(self, told: str, *, nothing_was_started: bool = False) -> None:
        super().__init__(told)
        self.nothing_was_started = nothing_was_started


def installed(environ: Mapping[str, str]) -> str | None:
    """Return NVRx's service: on PATH, or beside this Python; None where it is not installed."""
    path = os.pathsep.join(filter(None, [environ.get("PATH"), os.path.dirname(sys.executable)]))
    found = shutil.which(PROGRAM, path=path)
    return None if found is None else os.path.abspath(found)


def command(settings: AttributionSettings, environ: Mapping[str, str]) -> list[str]:
    """Return how the service is started: NVRx's where that is installed, else our own."""
    found = installed(environ)
    if found is not None:
        return [found]
    # -I: neither the job's directory nor PYTHONPATH adds modules to it; unless this package is only there.
    isolation = [] if environ.get("PYTHONPATH") else ["-I"]
    serve = ["-m", "segment_health", "attribution", "serve", "--state", state_file(settings, environ)]
    if settings.key_file and settings.base_url and settings.model:
        serve += ["--analyser", "llm"]
    return [sys.executable, *isolation, *serve]


def state_file(settings: AttributionSettings, environ: Mapping[str, str]) -> str:
    """Return where our own service keeps what it accepted and found: beside its log, a file for each run of a job.

    A run that was requeued elsewhere would else wait for the lock of a node that is dead.
    """
    ids = [environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT")]
    run = [value for value in ids if value.isascii() and value.isdigit()]
    return ".".join([settings.service_log.removesuffix(".log"), *run, "db"])


def environment(settings: AttributionSettings, environ: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the environment of a service at a port: the job's own, and what was told in NVRx's words.

    The key comes from the file that was named and from nowhere else, and results go where flags or the file say.
    """
    told = {
        "NVRX_ATTRSVC_ENDPOINT": f"http://{port.LOOPBACK}:{number}",
        "NVRX_ATTRSVC_LLM_BASE_URL": settings.base_url,
        "NVRX_ATTRSVC_LLM_MODEL": settings.model,
        "NVRX_ATTRSVC_ANALYSIS_BACKEND": settings.backend,
        "NVRX_ATTRSVC_LOG_LEVEL": settings.log_level,
        "NVRX_ATTRSVC_EXPORT_URL": settings.export_url,
    }
    kept = {name: value for name, value in without_key(environ).items() if name != "NVRX_ATTRSVC_EXPORT_URL"}
    return kept | {name: value for name, value in told.items() if value}


class Child:
    """One service, from its leash to its end; its own session, and the first process of that."""

    def __init__(self, settings: AttributionSettings, environ: Mapping[str, str], number: int) -> None:
        self._order = {
            "parent": os.getpid(),
            "argv": command(settings, environ),
            "key_file": settings.key_file,
            "prefix": settings.applog_prefix,
            "log": settings.service_log,
        }
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", leash.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=environment(settings, environ, number),
                start_new_session=True,  # a terminal's Ctrl-C is for the launcher
            )
        except OSError as error:
            raise ServiceError(f"the attribution service cannot be started: {error.strerror}") from error
        self.pid = self._process.pid

    def wait_for_start(self, deadline: float, ending: threading.Event) -> str:
        """Wait until the program runs; return where its log is, to be printed. Raises ServiceError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as orders:
            orders.write(json.dumps(self._order).encode() + b"\n")
        told = bytearray()
        while not ending.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                why = "the storage of the API key, of the logs or of the program does not answer"
                raise ServiceError(f"the attribution service was not started in time: {why}")
            if select.select([self._process.stdout], [], [], min(left, _LOOK_SECONDS))[0]:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    break
                told += data
        lines: list[dict[str, Any]] = [json.loads(line) for line in told.splitlines()]
        if not lines or "refused" in lines[-1]:
            why = lines[-1]["refused"] if lines else "its first process ended without a word"
            raise ServiceError(
                f"{printable(why)}; no attribution service was started", nothing_was_started=bool(lines)
            )
        return printable(lines[-1]["log"])

    def has_ended(self) -> bool:
        """Tell whether it has; its number stays its own until kill()."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody waited for all of our children
            return True

    def terminate(self) -> None:
        """Ask it to end, and give it time."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + TERM_SECONDS
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 10)

    def kill(self) -> None:
        """End it and what it started; a no-op for one that has been waited for."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it is left behind
                self._process.wait(_REAP_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def how(self) -> str:
        """Say how it ended."""
        status = self._process.returncode
        if status is None:
            return "it cannot be waited for"
        return f"by signal {-status}" if status < 0 else f"status {status}"

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

"""`nhc`: LBNL Node Health Check, run for what it finds and kept from acting on it.

NHC drains the node that fails, and may check in the background and answer with what it found last time. Both are
settings of its own. Its site file (/etc/sysconfig/nhc, /etc/default/nhc) is read after the command line, and would
win. But each word of the command line is a piece of shell (`eval`, nhc 1.4): one of them has the settings of this
call follow those of the site.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from segment_health.checks.health_check import Finding

from .answer import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_QUIET = "MARK_OFFLINE=0; ONLINE_NODE=:; OFFLINE_NODE=:; DETACHED_MODE=0; LOGFILE=-; SILENT=0; VERBOSE=1"
_WORDS = (
    *_QUIET.split("; "),
    # What reads the site file in nhc 1.4; where a later one calls that otherwise, the words above still count.
    'nhcmain_load_sysconfig() { [ ! -f "$SYSCONFIGDIR/$NAME" ] || . "$SYSCONFIGDIR/$NAME"; ' + _QUIET + "; }",
)
_FAILED = re.compile(r"Health check failed: *(.*\S)")
_RAN = "Running check:"
_MAX_OUTPUT = 1 << 16
_MAX_FAILED = 64
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REAP_SECONDS = 2.0
_PAUSE = 0.05


def look(program: str, environ: Mapping[str, str], seconds: float) -> Finding:
    """Run NHC, which may take so many seconds. Each check that failed is a problem, in its words.

    Raises Unknown where it is not there or does not end, and where it fails without saying what.
    """
    status, output = _run(program, environ, seconds)
    failed = tuple(dict.fromkeys(_FAILED.findall(output)))[:_MAX_FAILED]
    if status == 0:
        if _RAN in output:
            return Finding()
        return Finding(remarks=(f"{program} made no checks: is there a nhc.conf with lines for this node?",))
    if not failed:
        last = output.strip().rpartition("\n")[2][:500] or "no output"
        raise Unknown(f"{program} ended with status {status} and named no check that failed: {last}")
    return Finding(failed)


def _run(program: str, environ: Mapping[str, str], seconds: float) -> tuple[int, str]:
    deadline = time.monotonic() + seconds
    with _running(program, environ) as process:
        output = _read(process, deadline)
        if process.returncode is None:
            raise Unknown(f"{program} did not end within {seconds:g} s, and was killed")
    return process.returncode, output.decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _running(program: str, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start it, and leave nothing of it.

    Signals whose handlers raise wait until it is known: one that was just born would live on.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    process = None
    try:
        try:
            process = subprocess.Popen(
                [program, *_WORDS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**environ, "LC_ALL": "C"},
                start_new_session=True,  # all that it starts can be found by it; and nhc has no need to make one
                # This process has no threads. What is blocked would be so in nhc as well.
                preexec_fn=functools.partial(signal.pthread_sigmask, signal.SIG_SETMASK, held),  # noqa: PLW1509
            )
        except OSError as error:
            raise Unknown(f"{program} cannot be started: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        yield process
    finally:
        if process is not None:
            _end(process)


def _read(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return what the program writes until it ends or its time is over; what it left behind is not waited for."""
    assert process.stdout is not None
    number = process.stdout.fileno()
    os.set_blocking(number, False)
    output = bytearray()
    is_open = True
    while True:
        ended = process.poll() is not None
        with contextlib.suppress(BlockingIOError):
            while (is_open := bool(data := os.read(number, _MAX_OUTPUT))) and time.monotonic() < deadline:
                output += data[: _MAX_OUTPUT - len(output)]
        if ended or time.monotonic() >= deadline:
            return bytes(output)
        if is_open:
            select.select([number], [], [], _PAUSE)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PAUSE)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole session: nhc's watchdog has a process group of its own."""
    assert process.stdout is not None
    process.stdout.close()
    for _ in range(2):  # once more for what was born meanwhile
        for member in _session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it is left behind
        process.wait(_REAP_SECONDS)


def _session(leader: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(name)) == leader:
                    yield int(name)

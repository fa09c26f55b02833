"""One command of Slurm's as a process: in a session of its own, so that it dies with all that it started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError, SlurmUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Sink = Callable[[bytes], object]

MAX_OUTPUT = 1 << 29
"""Bytes of one command's answer; 100,000 nodes print some 60 MB."""
_MAX_STDERR = 1 << 16
_PIPE = 1 << 20
"""Bytes that a command may write before anybody reads; as much as Linux lets anybody have."""
_REAP_SECONDS = 2.0
"""How long a killed command may take to disappear; one stuck in the kernel never does, and is left behind."""


@dataclass(slots=True)
class Running:
    """A command that was started; `stdout` is empty where a sink takes its output."""

    argv: tuple[str, ...]
    process: subprocess.Popen[bytes]
    sink: Sink | None
    received: int = 0
    refusal: SlurmProtocolError | None = None
    """Why its output cannot be read, said once it has ended well."""
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    @property
    def name(self) -> str:
        """The command as messages call it."""
        return " ".join(self.argv[:3])

    def take(self, stream: int, data: bytes) -> None:
        """Keep what came from descriptor `stream`, within bounds."""
        assert self.process.stdout is not None
        if stream != self.process.stdout.fileno():
            self.stderr += data[: _MAX_STDERR - len(self.stderr)]
            return
        self.received += len(data)
        if self.received > MAX_OUTPUT:
            raise SlurmProtocolError(f"{self.name}: answered more than {MAX_OUTPUT} bytes")
        if self.sink is None:
            self.stdout += data
        elif self.refusal is None:
            try:
                self.sink(data)
            except (
                SlurmProtocolError
            ) as error:  # if the command fails, what it says on stderr is the better reason
                self.refusal = error

    @property
    def said(self) -> str:
        """What it wrote to stderr."""
        return self.stderr.decode("utf-8", "backslashreplace").strip()

    def check_end(self, deadline: float, timeout: float) -> None:
        """Wait for the command, whose pipes are at their end, and raise unless its status is 0."""
        try:
            status = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise overdue(self.name, timeout, self.said) from error
        if status < 0:
            raise SlurmUnavailable(f"{self.name}: killed by {signal_name(-status)}")
        if status > 0:
            raise SlurmUnavailable(f"{self.name}: ended with status {status}: {self.said or 'no word on stderr'}")

    def kill(self) -> None:
        """End the command and all that it started; a no-op for one that has ended and been waited for."""
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_REAP_SECONDS)


def start(argv: tuple[str, ...], environ: Mapping[str, str], sink: Sink | None) -> Running:
    """Start a command. Raises SlurmUnavailable."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,  # its own process group: a wrapper script dies with what it started
        )
    except FileNotFoundError as error:
        path = environ.get("PATH", "PATH is unset")
        remedy = (
            "--slurm-bin-dir names its directory" if "/" in argv[0] else f"put Slurm's commands on PATH ({path})"
        )
        raise SlurmUnavailable(f"{argv[0]}: command not found; {remedy}") from error
    except OSError as error:
        raise SlurmUnavailable(f"{argv[0]}: cannot be started: {error.strerror}") from error
    assert process.stdout is not None
    with contextlib.suppress(
        OSError
    ):  # a command whose pipe is full waits for us, who may have other things to do
        fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
    return Running(argv, process, sink)


@contextlib.contextmanager
def no_interruption() -> Iterator[None]:
    """Hold signals back whose handlers may raise: a command that was born, and is not known yet, would live on.

    Their handlers are replaced and not their signals blocked, since commands inherit what is blocked. What is
    ignored stays so, for the same reason.
    """
    held: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():  # handlers run nowhere else
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, lambda number, _: held.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in held:
            signal.raise_signal(caught)


def overdue(name: str, timeout: float, said: str) -> SlurmUnavailable:
    """Say that a command did not answer in time."""
    return SlurmUnavailable(f"{name}: no answer within {timeout:g} s; killed{': ' if said else ''}{said}")


def signal_name(number: int) -> str:
    """Name a signal as kill(1) does: SIGKILL, or `signal 99`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

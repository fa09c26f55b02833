"""Runs Slurm's commands: side by side, in a clean environment, with a deadline for all of them.

What it does not do: retry (one owner does, above), or use a shell.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Sink = Callable[[bytes], object]

MAX_OUTPUT = 1 << 29
"""Bytes of one command's answer; 100,000 nodes print some 60 MB."""
_MAX_STDERR = 1 << 16
_CHUNK = 1 << 18
_REAP_SECONDS = 2.0
"""How long a killed command may take to disappear; one stuck in the kernel never does, and is left behind."""

_SCRUBBED = (
    ("SQUEUE_", "SINFO_", "SCONTROL_", "LC_"),
    frozenset(
        {
            "LANG",
            "LANGUAGE",
            "SLURM_BITSTR_LEN",
            "SLURM_CLUSTERS",
            "SLURM_DEBUG_FLAGS",
            "SLURM_JSON",
            "SLURM_TIME_FORMAT",
            "SLURM_YAML",
            "TZ",
        }
    ),
)
"""Prefixes and names of variables that change what Slurm's commands print, or whom they ask."""


@dataclass(slots=True)
class Completed:
    """A command that ended with status 0: its output, and what it wrote to stderr (decoded, stripped).

    `stdout` is empty where a sink took it.
    """

    argv: tuple[str, ...]
    stdout: bytes
    stderr: str

    @property
    def remark(self) -> str | None:
        """What it said on stderr, in a line of its own for the log; None if nothing."""
        return f"{os.path.basename(self.argv[0])}: {self.stderr}" if self.stderr else None


class Commands:
    """Slurm's commands as this site has them.

    `timeout` is in seconds and holds for all that is asked since begin(). `directory` is where they are, else PATH
    says; `cluster` is the one that is wanted, where that may be another than slurm.conf's own.
    """

    is_remote = False
    """Whether the cluster wanted is another one, to be reached through slurmdbd (`--clusters` of squeue(1))."""

    def __init__(
        self,
        *,
        timeout: float,
        environ: Mapping[str, str],
        directory: str | None = None,
        cluster: str | None = None,
    ) -> None:
        self.timeout = timeout
        self.environ = clean_environment(environ)
        self.cluster = cluster
        self.traffic = Traffic()
        self._directory = directory
        self._deadline: float | None = None

    def begin(self) -> None:
        """Let all that is asked from here on be answered within `timeout`."""
        self._deadline = time.monotonic() + self.timeout

    def ask(self, *queries: Sequence[str], sinks: Sequence[Sink] = ()) -> list[Completed]:
        """Run queries side by side; answers in order. With sinks, one each, output goes there as it comes.

        Raises as run() does.
        """
        return run(
            [self._argv(query) for query in queries],
            timeout=self.timeout,
            environ=self.environ,
            sinks=sinks,
            deadline=self._deadline,
            traffic=self.traffic,
        )

    def _argv(self, query: Sequence[str]) -> list[str]:
        argv = [f"--clusters={self.cluster}" if self.is_remote and word == "--local" else word for word in query]
        if self._directory is not None:
            argv[0] = os.path.join(self._directory, argv[0])
        return argv


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy `environ` without what a user may have set to please their own eyes, in UTC and plain C."""
    prefixes, names = _SCRUBBED
    kept = {key: value for key, value in environ.items() if key not in names and not key.startswith(prefixes)}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def run(  # noqa: PLR0913 - what a command has, and who counts
    commands: Sequence[Sequence[str]],
    *,
    timeout: float,
    environ: Mapping[str, str],
    sinks: Sequence[Sink] = (),
    deadline: float | None = None,
    traffic: Traffic | None = None,
) -> list[Completed]:
    """Run commands at the same time and return their answers in order.

    With `sinks`, one a command, standard output is not kept but handed on while it arrives. `traffic` counts.

    `timeout` is in seconds and holds for all together; at the deadline, at the first failure and when this
    process is interrupted, every command is killed with its whole process group.

    Raises SlurmUnavailable when a command is missing, is killed, ends non-zero or does not end in time, and
    SlurmProtocolError when an answer is larger than MAX_OUTPUT, or its sink refuses it. Output on stderr with
    status 0 is no failure.
    """
    deadline = time.monotonic() + timeout if deadline is None else deadline
    running: list[_Running] = []
    try:
        with _no_interruption():
            for argv, sink in zip_longest(commands, sinks):
                running.append(_start(tuple(argv), environ, sink))
        _collect(running, deadline, timeout)
        return [Completed(command.argv, bytes(command.stdout), command.said) for command in running]
    finally:
        for command in running:
            command.kill()
            if traffic is not None:
                traffic.count(queries=1, received=command.received)


@contextlib.contextmanager
def _no_interruption() -> Iterator[None]:
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


def _start(argv: tuple[str, ...], environ: Mapping[str, str], sink: Sink | None) -> _Running:
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
    return _Running(argv, process, sink)


@dataclass(slots=True)
class _Running:
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
        return self.stderr.decode("utf-8", "backslashreplace").strip()

    def check_end(self, deadline: float, timeout: float) -> None:
        """Wait for the command, whose pipes are at their end, and raise unless its status is 0."""
        try:
            status = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise _late(self.name, timeout, self.said) from error
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


def _collect(running: list[_Running], deadline: float, timeout: float) -> None:
    """Read every pipe to its end, and every command to its status: the first that fails ends it all."""
    with selectors.DefaultSelector() as selector:
        for command in running:
            for stream in (command.process.stdout, command.process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream.fileno(), selectors.EVENT_READ, command)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                late = {key.data.name: key.data.said for key in selector.get_map().values()}
                said = "; ".join(filter(None, late.values()))
                raise _late(", ".join(sorted(late)), timeout, said)
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if data:
                    key.data.take(key.fd, data)
                    continue
                selector.unregister(key.fd)
                if all(other.data is not key.data for other in selector.get_map().values()):
                    key.data.check_end(deadline, timeout)
    for command in running:
        if command.refusal is not None:
            raise command.refusal


def _late(name: str, timeout: float, said: str) -> SlurmUnavailable:
    return SlurmUnavailable(f"{name}: no answer within {timeout:g} s; killed{': ' if said else ''}{said}")


def signal_name(number: int) -> str:
    """Name a signal as kill(1) does: SIGKILL, or `signal 99`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

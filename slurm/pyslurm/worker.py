"""A child process that answers in lines of JSON, each by a deadline, and that can be killed at any time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from slurm.commands import process
from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.fields import shown
from slurm.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm.errors import SlurmError

_CHUNK = 1 << 18
_MAX_STDERR = 1 << 16
_LAST_WORDS = 3
"""Lines of stderr that stand in a message: libslurm's last one says why it gave up."""
_END_SECONDS = 2.0
"""How long a process may take to disappear once it was killed, or has closed its answers."""


class Worker:
    """A child in a session of its own, which outlives neither kill() nor, if it sees to that, its parent.

    After any error that comes from here it is of no more use: kill() it. `name` is what messages call it, and
    `remedy` how they end. `traffic` counts.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environ: Mapping[str, str],
        *,
        remedy: str,
        traffic: Traffic | None = None,
    ) -> None:
        self._name, self._remedy = name, remedy
        self._traffic = traffic or Traffic()
        self._timeout = self._deadline = 0.0
        self._received = self._searched = 0
        self._answers, self._stderr = bytearray(), bytearray()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(environ),
                start_new_session=True,  # its own process group: what it started dies with it
            )
        except OSError as error:
            raise SlurmUnavailable(f"{name}: {argv[0]} cannot be started: {error.strerror}") from error
        self._streams = [self._process.stdin, self._process.stdout, self._process.stderr]
        self._in, self._out, self._err = (stream.fileno() for stream in self._streams if stream is not None)
        self._poll = select.poll()
        for descriptor in (self._out, self._err):
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """The last that it wrote to stderr since begin(), quoted; empty if nothing."""
        with contextlib.suppress(BlockingIOError):
            self._note(os.read(self._err, _CHUNK))  # all that a pipe holds
        lines = [line.strip() for line in self._stderr.decode("utf-8", "backslashreplace").split("\n")]
        return "; ".join(map(shown, list(filter(None, lines))[-_LAST_WORDS:]))

    def begin(self, timeout: float) -> None:
        """Let all that is asked from here on be answered within `timeout` seconds."""
        self._timeout, self._deadline = timeout, time.monotonic() + timeout
        self._received = 0
        self._stderr.clear()

    def ask(self, request: object) -> None:
        """Send a request, which is short; one that cannot be sent shows when the answer is awaited."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._in, json.dumps(request).encode() + b"\n")
            self._traffic.count(queries=1)

    def hear(self, doing: str) -> tuple[str, object]:
        """Wait for the next line, a word and what belongs to it. `doing` is what it does meanwhile, for messages.

        Raises SlurmUnavailable when it does not come in time or the worker ends, and SlurmProtocolError when it
        is garbage, or more than MAX_OUTPUT.
        """
        while (end := self._answers.find(b"\n", self._searched)) < 0:
            self._searched = len(self._answers)
            self._receive(doing)
        line = bytes(self._answers[:end])
        del self._answers[: end + 1]
        self._searched = 0
        try:
            word, value = json.loads(line)
        except (ValueError, TypeError, RecursionError) as error:
            raise self.misunderstood(doing, line.decode("utf-8", "backslashreplace")) from error
        return str(word), value

    def misunderstood(self, doing: str, said: str) -> SlurmProtocolError:
        """Make the error of an answer that has no place here."""
        return SlurmProtocolError(f"{self._name}: not an answer, {doing}: {shown(said)}; killed; {self._remedy}")

    def _receive(self, doing: str) -> None:
        ready = self._poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000)
        if time.monotonic() >= self._deadline:
            late = f"no answer within {self._timeout:g} s, {doing}; killed"
            raise SlurmUnavailable(f"{self._name}: {late}; {self._remedy}")
        for descriptor, _ in ready:
            data = os.read(descriptor, _CHUNK)
            self._received += len(data)
            if self._received > process.MAX_OUTPUT:
                excess = f"more than {process.MAX_OUTPUT} bytes, {doing}; killed"
                raise SlurmProtocolError(f"{self._name}: {excess}; {self._remedy}")
            if descriptor == self._err:
                self._note(data)
                if not data:
                    self._poll.unregister(descriptor)
            elif data:
                self._answers += data
                self._traffic.count(received=len(data))
            else:
                raise self._ended(doing)

    def _note(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-_MAX_STDERR]

    def _ended(self, doing: str) -> SlurmError:
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return SlurmUnavailable(f"{self._name}: closed its answers, {doing}; killed; {self._remedy}")
        how = f"killed by {process.signal_name(-status)}" if status < 0 else f"ended with status {status}"
        said = self.said or "no word on stderr"
        return SlurmUnavailable(f"{self._name}: {how}, {doing}: {said}; {self._remedy}")

    def kill(self) -> None:
        """End it and all that it started; it has nothing to save."""
        for stream in self._streams:
            assert stream is not None
            stream.close()
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it is left behind
            self._process.wait(_END_SECONDS)

"""The publisher's side of the page: tells a server process what happens, and hears from it who asks for a pass.

The server is a child that may crash, hang or be killed, and the publisher goes on: it never waits for it longer
than SEND_SECONDS, and starts another one. There are no threads here: the loop forks (see segment_health.bounded).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from segment_health.publish import Pass
    from segment_health.store import Change
    from segment_health.watch import Cause

SEND_SECONDS = 5.0
"""How long the server may take to read an event; it reads all the time, and that of 10,000 nodes takes 0.1 s."""
RESTART_SECONDS = 30.0
"""From one restart of the server to the next: one that cannot run at all is not started a thousand times."""
_END_SECONDS = 2.0
_PIPE = 1 << 16


class Door:
    """Keeps a server running, and tells it what the loop does (see watch.Listener, and signals.Asker).

    `listening` is the socket that it serves, and stays open here between two servers: who calls meanwhile waits.
    `traits` is how it is to serve (see server.serve). `interval` tells the seconds from pass to pass as they are
    now, `exposition` the metrics, None where there are none. `say` writes a line of the log: level, sentence.
    `remark` writes one that is not to be repeated: what anybody who calls can bring about as often as they like.
    """

    def __init__(  # noqa: PLR0913 - what it serves, and what it asks of the loop
        self,
        listening: socket.socket,
        traits: Mapping[str, Any],
        *,
        interval: Callable[[], float],
        monotonic: Callable[[], float],
        say: Callable[[str, str], None],
        remark: Callable[[str], None],
        exposition: Callable[[], bytes] | None = None,
    ) -> None:
        self._listening = listening
        self._traits = traits
        self._interval = interval
        self._exposition = exposition
        self._monotonic = monotonic
        self._say = say
        self._remark = remark
        self._complete_at: float | None = None
        self._why: str | None = "no pass was complete yet"
        self._lifted: str | None = None
        self._standby = False
        self._picture: dict[str, Any] = {}
        self._restarted = float("-inf")
        self._server: subprocess.Popen[bytes] | None = None
        self._heard = bytearray()
        self._start()

    def completed(self, done: Pass, _seconds: float) -> None:
        """Show what a complete pass saw and decided."""
        self._complete_at, self._why, self._lifted, self._standby = self._monotonic(), None, None, False
        if done.picture is not None:
            self._picture = {"nodes": done.picture.nodes, "decisions": done.picture.decisions}
        self._tell(self._picture)

    def failed(self, _cause: Cause, why: str, _seconds: float) -> None:
        """Say why there is nothing new."""
        self._why, self._standby = why, False
        self._tell({})

    def went_stale(self, changes: list[Change], silent: float) -> None:
        """Say that exclusions were lifted without evidence, and show them no more."""
        lifted = {change.decision.unit for change in changes if change.error is None}
        self._lifted = f"no complete pass for {silent:.0f} s, {len(lifted)} exclusions were lifted (fail open)"
        for unit in self._picture.get("decisions", {}).get("units", []):
            if (unit["job_id"], unit["task_id"]) in lifted:
                unit.update(excluded=False, level=None, since=None, state="stale")
        self._tell(self._picture)

    def standing_by(self) -> None:
        """Say that another publisher is at work."""
        self._why, self._standby = "standing by: another publisher of this scope is alive", True
        self._tell({})

    def fileno(self) -> int:
        """Return the descriptor on which the server asks; -1 while there is none."""
        return -1 if self._server is None or self._server.stdout is None else self._server.stdout.fileno()

    def heard(self) -> bool:
        """Read what the server says, without waiting: whether somebody asks for a pass."""
        if self._server is None:
            return False
        ended = False
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.fileno(), _PIPE):
                self._heard += data
            ended = True
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard[:] = rest[-_PIPE:]
        for line in lines:
            if line.startswith(b"error "):
                self._remark(f"the page's server: {line[6:1000].decode('ascii', 'replace')}")
        if ended:
            self._bury()
            self._revive()
        return b"refresh" in lines

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._end(self._server)
            self._server = None

    def _tell(self, news: Mapping[str, Any]) -> None:
        """Tell the server an event; one that has died or does not listen is replaced."""
        if self._server is not None and self._server.poll() is not None:
            self._bury()
        if self._server is None:
            self._revive()
        elif not self._send(self._event(news)):
            self._say("WARNING", f"the page's server did not read for {SEND_SECONDS:g} s, and is killed")
            self._bury()
            self._revive()

    def _event(self, news: Mapping[str, Any]) -> dict[str, Any]:
        now = self._monotonic()
        event = {
            **news,
            "interval": self._interval(),
            "age": None if self._complete_at is None else now - self._complete_at,
            "why": ". ".join(filter(None, [self._why, self._lifted])) or None,
            "standby": self._standby,
        }
        if self._exposition is not None:
            event["metrics"] = self._exposition().decode()
        return event

    def _start(self) -> None:
        descriptor = self._listening.fileno()
        try:
            # -I: neither the directory in which the publisher was started nor PYTHONPATH adds modules to it.
            server = subprocess.Popen(
                [sys.executable, *_isolation(), "-m", "segment_health.page", str(descriptor)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=[descriptor],
                cwd="/",
            )
        except OSError as error:
            self._say("WARNING", f"the page's server cannot be started: {error.strerror}")
            return
        for stream in (server.stdin, server.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self._server = server
        self._heard.clear()
        self._send(dict(self._traits))

    def _revive(self) -> None:
        """Start another server, unless that was tried a moment ago, and tell it all that is known."""
        now = self._monotonic()
        if now - self._restarted < RESTART_SECONDS:
            return
        self._restarted = now
        self._start()
        if self._server is not None:
            self._send(self._event(self._picture))

    def _bury(self) -> None:
        """Let go of a server that is of no use any more."""
        server, self._server = self._server, None
        if server is not None:
            status = self._end(server)
            self._say("WARNING", f"the page's server ended ({_cause(status)}); the publisher goes on")

    def _end(self, server: subprocess.Popen[bytes]) -> int | None:
        """End a server: by the end of its input, then by force. None where it could not be waited for."""
        try:
            for stream in (server.stdin, server.stdout):
                if stream is not None:
                    stream.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return server.wait(_END_SECONDS)
            server.kill()
            return server.wait(_END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None

    def _send(self, event: Mapping[str, Any]) -> bool:
        """Write an event within SEND_SECONDS; False if the server does not read it."""
        if self._server is None or self._server.stdin is None:
            return False
        descriptor = self._server.stdin.fileno()
        left = memoryview(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        deadline = self._monotonic() + SEND_SECONDS
        while left:
            if not select.select([], [descriptor], [], max(0.0, deadline - self._monotonic()))[1]:
                return False
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:
                continue
            except OSError:  # it has died
                return False
        return True


def _isolation() -> list[str]:
    """Return the option that keeps strange modules out; where this package is only on PYTHONPATH it cannot be."""
    return [] if os.environ.get("PYTHONPATH") else ["-I"]


def _cause(status: int | None) -> str:
    if status is None:
        return "it cannot be waited for"
    return f"by signal {-status}" if status < 0 else f"status {status}"

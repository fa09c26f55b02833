"""systemd's socket (sd_listen_fds(3)): takes the calls that come there to the socket that gRPC has bound.

gRPC for Python cannot serve a socket that somebody else opened. So bytes are passed on, both ways.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST = 3
"""The number of the first descriptor that is passed."""
_CHUNK = 1 << 16
_MAX_CALLS = 1000
"""Connections at a time."""
_PAUSE_SECONDS = 0.1


class ActivationError(Exception):
    """What systemd passed cannot be served; a sentence."""


def inherited(environ: Mapping[str, str]) -> socket.socket | None:
    """Return the socket that systemd passed to this process, None if it did not. Raises ActivationError."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    if environ.get("LISTEN_FDS") != "1":
        raise ActivationError(f"systemd passed {environ.get('LISTEN_FDS', 'no')!a} sockets; nvhcd serves one")
    try:
        found = socket.socket(fileno=_FIRST)
    except OSError as error:
        raise ActivationError(f"what systemd passed is no socket: {error.strerror}") from error
    listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if found.family != socket.AF_UNIX or found.type != socket.SOCK_STREAM or not listens:
        found.detach()
        raise ActivationError("what systemd passed is no UNIX socket that listens (ListenStream=/run/...)")
    os.set_inheritable(_FIRST, False)
    return found


class Relay:
    """Passes bytes between those who call at `listening` and the socket at `path`."""

    def __init__(self, listening: socket.socket, path: str) -> None:
        self._listening = listening
        self._path = path
        self._pause: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to take calls."""
        self._listening.setblocking(False)
        # Not by asyncio's server: that of Python 3.13 removes the socket's file when it ends, which is systemd's.
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def stop(self) -> None:
        """Take no further calls: those who come from here on wait for the next daemon."""
        if self._listening.fileno() >= 0:
            self._rest()
            self._listening.close()

    async def close(self) -> None:
        """End what is still passed on."""
        self.stop()
        await asyncio.sleep(0)  # a task that has not begun would not close its socket
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _accept(self) -> None:
        try:
            caller, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor is left
            self._rest()
            self._pause = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self.start)
            return
        if len(self._calls) >= _MAX_CALLS:
            caller.close()
            return
        task = asyncio.create_task(self._take(caller))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _rest(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()

    async def _take(self, caller: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=caller)
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._path)
            try:
                await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))
            finally:
                inner_writer.close()
        except OSError:  # nobody is there any more, and the caller is told so
            pass
        finally:
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end. Then, and where one side is gone, the other one is told."""
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:  # gone
        pass
    finally:
        writer.close()

"""Serves the page over HTTP, in a process of its own beside the publisher's (see door).

It knows what the publisher tells it on standard input, a line of JSON an event, and ends with that. The only thing
that it asks for is a pass, by the line `refresh` on standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .answers import application
from .board import Board

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping


_MAX_EVENT = 1 << 28
"""Bytes of one event; that of 10,000 nodes has some 3 MB."""
_MAX_CONNECTIONS = 100
CALL_SECONDS = 60.0
"""From one answer to the end of the next, on one connection: who is slower does not keep others out for ever."""
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Signals that are for the publisher; when it has ended our input ends."""


class _Server(uvicorn.Server):
    """A server that leaves signals alone: they are for the publisher."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Call(H11Protocol):
    """A connection that ends unless an answer to it ends in time: uvicorn itself waits for a request for ever."""

    _ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin."""
        super().connection_made(transport)
        self._begin()

    def on_response_complete(self) -> None:
        """Begin anew."""
        self._begin()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)

    def _begin(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = self.loop.call_later(CALL_SECONDS, self.transport.abort)


class _Lines(logging.Handler):
    """Tells the publisher, whose log it is, what went wrong here."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text.strip()}: {record.exc_info[1]!r}"
        _tell(f"error {text!a}")


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: our input is about to end too
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def serve(listening: socket.socket, told: Mapping[str, Any]) -> None:
    """Serve until standard input ends. `told` has the `token` and, for a loopback address, its `host`."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    logging.getLogger("uvicorn.error").addHandler(_Lines(logging.WARNING))
    board = Board(time.monotonic())
    host = told.get("host")
    hosts = None if host is None else _LOOPBACK_NAMES | {host}
    app = application(board, refresh=lambda: _tell("refresh"), token=told.get("token"), hosts=hosts)
    config = uvicorn.Config(
        app,
        http=Call,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    asyncio.run(_serve(_Server(config), listening, board))


async def _serve(server: _Server, listening: socket.socket, board: Board) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await _listen(board)
    server.should_exit = True
    await serving


async def _listen(board: Board) -> None:
    """Hear events until there are no more."""
    reader = asyncio.StreamReader(limit=_MAX_EVENT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        board.hear(json.loads(line), time.monotonic())

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

from segment_health import serving

from .answers import application
from .board import Board

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping


_MAX_CONNECTIONS = 100
_MAX_EVENT = 1 << 28
"""Bytes of one event; that of 10,000 nodes has some 3 MB."""
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
"""Signals that are for the publisher; when it has ended our input ends."""


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
    hosts = None if host is None else serving.LOOPBACK_NAMES | {host}
    app = application(board, refresh=lambda: _tell("refresh"), token=told.get("token"), hosts=hosts)
    asyncio.run(_serve(serving.server(app, _MAX_CONNECTIONS), listening, board))


async def _serve(server: serving.Server, listening: socket.socket, board: Board) -> None:
    answering = asyncio.create_task(server.serve(sockets=[listening]))
    await _listen(board)
    server.should_exit = True
    await answering


async def _listen(board: Board) -> None:
    """Hear events until there are no more."""
    reader = asyncio.StreamReader(limit=_MAX_EVENT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        board.hear(json.loads(line), time.monotonic())

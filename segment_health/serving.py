"""How HTTP is served here: by uvicorn, which neither takes signals nor waits for a caller for ever."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

CALL_SECONDS = 60.0
"""From one answer to the end of the next, on one connection: who is slower does not keep others out for ever."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""By which names a server may be called that is reached from this host alone."""


class Server(uvicorn.Server):
    """A server that leaves signals alone: they are for whoever runs it."""

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


def server(app: Callable[..., Any], connections: int) -> Server:
    """Return a server of `app`, of ASGI, that takes so many connections at a time. It logs as `uvicorn.error`."""
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
        limit_concurrency=connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    return Server(config)

"""nvhcd's call over gRPC, on a UNIX socket: the one part of the daemon that knows gRPC."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from segment_health.checks import message

from .outcome import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from .outcome import Outcome

_MAX_REQUEST = 1 << 16
"""Bytes of a request. A command line may be longer, but nobody's is, and each call that waits holds its own."""
_MAX_ARGS = 1000
"""Arguments of a request. An empty one is two bytes there, and many times that here, in each call that waits."""
_MAX_CALLS = 1000
"""Calls at a time; the next one is refused, which its caller takes for an unavailable check."""
_REQUEST_SECONDS = 10.0
"""From a call's beginning to its request. Whoever sends none would otherwise have one of those places for ever."""
_IDLE_MS = 60_000
"""How long a connection without calls is kept: each is a descriptor of ours."""


class Server:
    """Serves `answer`, which is called with a request's arguments; `remark` is told what goes wrong in gRPC."""

    def __init__(
        self,
        answer: Callable[[Sequence[str]], Awaitable[Outcome]],
        remark: Callable[[str], None],
        request_seconds: float = _REQUEST_SECONDS,
    ) -> None:
        self._answer = answer
        self._request_seconds = request_seconds
        logger = logging.getLogger("grpc")
        logger.addHandler(_Remarks(remark))
        logger.propagate = False
        # It gets and gives bytes: what is no request is ours to refuse, and an answer is written once. And it is
        # called before the one request has come, as for a stream: gRPC itself would wait for that without end.
        handler = grpc.method_handlers_generic_handler(
            message.SERVICE, {message.METHOD: grpc.stream_unary_rpc_method_handler(self._call)}
        )
        self._server = grpc.aio.server(
            handlers=[handler],
            options=[
                ("grpc.max_receive_message_length", _MAX_REQUEST),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=_MAX_CALLS,
        )

    async def start(self, path: str) -> None:
        """Bind a UNIX socket at a path, and serve. Raises OSError."""
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"gRPC cannot bind a socket: {error}") from error
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """Take no more calls, and let those that are being answered end within so many seconds; None: at once."""
        await self._server.stop(grace)

    async def _call(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        came = await self._answer(await _args(requests, context, self._request_seconds))
        if isinstance(came, Refusal):
            await context.abort(grpc.StatusCode[came.code], came.sentence)
        return came.content


async def _args(
    requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes], seconds: float
) -> tuple[str, ...]:
    """Wait for the request, so many seconds, and return its arguments; end the call where there is none."""
    try:
        content = await asyncio.wait_for(anext(requests), seconds)
        args = tuple(message.decode_request(content).args)
    except asyncio.TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no request within {seconds:g} s")
    except (StopAsyncIteration, message.DecodeError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
    if len(args) > _MAX_ARGS:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"more than {_MAX_ARGS} arguments")
    return args


class _Remarks(logging.Handler):
    """Hands on what gRPC logs."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._remark = remark

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on one record, as a line."""
        text = record.getMessage().strip()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        self._remark(f"gRPC: {text}")

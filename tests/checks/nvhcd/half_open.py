"""Calls that begin and send no request, beside one that does: `half_open.py SOCKET`, in a process without forks.

Writes a line of JSON: the codes of those calls, and of the one that asks when they have ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from segment_health.checks import message
from segment_health.checks.nvhcd.outcome import Answer
from segment_health.checks.nvhcd.server import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.checks.nvhcd.outcome import Outcome

PATH = f"/{message.SERVICE}/{message.METHOD}"
CALLS = 20


async def answer(args: Sequence[str]) -> Outcome:
    """Answer at once."""
    content = message.encode(message.response(success=True, exit_code=0, output=" ".join(args), error=""))
    return Answer(content, success=True, summary="")


async def asked(channel: grpc.aio.Channel) -> str:
    """Ask as a launcher does; return the code."""
    ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
    return (await ask(message.encode(message.request("a"))).code()).name


async def main(path: str) -> None:
    """Serve, hold up, and ask."""
    server = Server(answer, print, request_seconds=0.5)
    await server.start(path)
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        begin: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(PATH)
        calls = [begin() for _ in range(CALLS)]
        ended = asyncio.gather(*(call.code() for call in calls))
        codes = sorted({code.name for code in await ended})
        print(json.dumps({"half": codes, "then": await asked(channel)}))
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""Many launchers at once: `crowd.py SOCKET CLIENTS CALLS`. Each calls on and on, and anew where it failed.

Prints `half` when half of the calls were answered, and at the end a line of JSON: how many answers there were, how
many of them were wrong, and how many calls failed on the way.
"""

from __future__ import annotations

import asyncio
import json
import sys

import grpc
import grpc.aio

from segment_health.checks import message

PATH = f"/{message.SERVICE}/{message.METHOD}"
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
]


class Crowd:
    """What all of them have seen."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.answered = self.wrong = self.failed = 0

    async def one(self, socket: str, number: int, calls: int) -> None:
        """Be one launcher, who asks one of five questions."""
        asked = f"question-{number % 5}"
        async with grpc.aio.insecure_channel(f"unix://{socket}", options=OPTIONS) as channel:
            ask = channel.unary_unary(
                PATH, request_serializer=message.encode, response_deserializer=message.decode_response
            )
            while calls:
                try:
                    answer = await ask(message.request(asked), timeout=30)
                except grpc.aio.AioRpcError:
                    self.failed += 1
                    await asyncio.sleep(0.05)
                    continue
                calls -= 1
                self.answered += 1
                self.wrong += not (answer.success and json.loads(answer.output) == {"asked": asked})
                if self.answered == self.wanted // 2:
                    print("half", flush=True)


async def main(socket: str, clients: int, calls: int) -> None:
    """Call, and tell."""
    crowd = Crowd(clients * calls)
    await asyncio.gather(*(crowd.one(socket, number, calls) for number in range(clients)))
    print(json.dumps({"answered": crowd.answered, "wrong": crowd.wrong, "failed": crowd.failed}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

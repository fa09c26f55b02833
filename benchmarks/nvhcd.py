"""Times nvhcd's answers beside those of a bare gRPC server, both on UNIX sockets: p50, p99, and their ratios.

Interleaved rounds within one run: a server that says the same thing at once; nvhcd with a cached answer; nvhcd
that runs a program of one line, for all who ask at that moment or for each of them. Prints a table, or JSON.

    python benchmarks/nvhcd.py [--calls 2000] [--clients 10] [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from segment_health.checks import message

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = f"/{message.SERVICE}/{message.METHOD}"
ANSWER = '{"fail_count": 0, "failed_checks": []}\n'
PROGRAM = f"#!/bin/sh\nprintf '%s' '{ANSWER}'\n"
NVHCD = Path(sys.executable).with_name("nvhcd")


async def echo(path: str) -> None:
    """Serve what needs no thought: a request is read, an answer is written."""
    answer = message.response(success=True, exit_code=0, output=ANSWER, error="")

    async def call(_request: message.Request, _context: object) -> message.Response:
        return answer

    method = grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=message.decode_request, response_serializer=message.encode
    )
    server = grpc.aio.server(
        handlers=[grpc.method_handlers_generic_handler(message.SERVICE, {message.METHOD: method})]
    )
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await server.wait_for_termination()


async def measure(path: str, clients: int, calls: int, question: Callable[[int], str]) -> list[float]:
    """Let so many clients, each on a connection of its own, call in turn; return the milliseconds of each call."""
    took: list[float] = []

    async def one(number: int) -> None:
        async with grpc.aio.insecure_channel(
            f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            ask = channel.unary_unary(
                PATH, request_serializer=message.encode, response_deserializer=message.decode_response
            )
            request = message.request(question(number))
            await ask(request, timeout=60, wait_for_ready=True)  # connects
            for _ in range(calls // clients):
                began = time.perf_counter()
                answer = await ask(request, timeout=60)
                took.append((time.perf_counter() - began) * 1000)
                assert answer.success

    await asyncio.gather(*(one(number) for number in range(clients)))
    return took


def figures(took: list[float]) -> dict[str, float]:
    """Return the two percentiles, in milliseconds."""
    hundred = statistics.quantiles(took, n=100)
    return {"p50": round(hundred[49], 3), "p99": round(hundred[98], 3)}


def main() -> None:
    """Start the servers, measure them in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--echo", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.echo:
        asyncio.run(echo(told.echo))
        return
    with tempfile.TemporaryDirectory(prefix="nvhcd-", dir="/tmp") as directory:
        found = measured(Path(directory), told.clients, told.calls, told.rounds)
    if told.json:
        print(json.dumps(found))
        return
    print(f"{told.clients} clients, {told.calls} calls a round, {told.rounds} rounds; milliseconds")
    print(f"{'':<34}{'p50':>9}{'p99':>9}{'p50 / echo':>13}{'p99 / echo':>13}")
    for name, row in found.items():
        print(f"{name:<34}{row['p50']:>9}{row['p99']:>9}{row['p50_over_echo']:>13}{row['p99_over_echo']:>13}")


def measured(directory: Path, clients: int, calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """Measure each server, round by round."""
    program = directory / "check"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    for name, cache in (("cached", 3600), ("program", 0)):
        (directory / f"{name}.yaml").write_text(
            f"socket_path: {directory}/{name}\nhealthcheck_path: {program}\nlog_level: error\ncache: {cache}\n"
        )
    servers = {
        "echo": ([sys.executable, __file__, "--echo", f"{directory}/echo"], "same", 1),
        "cached": ([str(NVHCD), "-config", f"{directory}/cached.yaml"], "same", 1),
        "program": ([str(NVHCD), "-config", f"{directory}/program.yaml"], "same", 40),
        "program-each": ([str(NVHCD), "-config", f"{directory}/program.yaml"], "own", 40),
    }
    names = {
        "echo": "a bare gRPC server",
        "cached": "nvhcd, answer cached",
        "program": "nvhcd, a program shared by all",
        "program-each": "nvhcd, a program for each call",
    }
    started = [
        subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for name, (command, _, _) in servers.items()
        if name != "program-each"
    ]
    took: dict[str, list[float]] = {name: [] for name in servers}
    try:
        for _ in range(rounds):
            for name, (_, asked, fewer) in servers.items():
                socket = f"{directory}/{'program' if name == 'program-each' else name}"
                question = str if asked == "own" else (lambda _number: "same")
                took[name] += asyncio.run(measure(socket, clients, calls // fewer, question))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)
    base = figures(took["echo"])
    rows = {}
    for name, all_of_it in took.items():
        row = figures(all_of_it)
        rows[names[name]] = row | {f"{key}_over_echo": round(row[key] / base[key], 2) for key in base}
    return rows


if __name__ == "__main__":
    main()

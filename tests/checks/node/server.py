"""An nvhcd that answers what it is told to, and wrongly where that is wanted: a program of the tests.

    python server.py SOCKET

Each call is answered by what stands in SOCKET.answer at that moment, a JSON object:

    {"success": true, "exit_code": 0, "output": "", "error": ""}   an answer; what is missing has these values
    {"raw": "08ff"}                                                these bytes (hexadecimal) for an answer
    {"messages": N, "size": BYTES}                                 so many answers of a size, to one call
    {"abort": "UNAVAILABLE", "details": "..."}                     an error of gRPC
    {"wait": true}                                                 no answer until the caller has gone

A text may be {"repeat": "x", "times": N}; "gzip": true compresses. What it was asked is appended to
SOCKET.calls, a line of JSON each. It prints a line when it listens, and ends with stdin.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from segment_health.checks import message

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET = sys.argv[1]


def answers(content: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Answer one call as SOCKET.answer says."""
    with Path(f"{SOCKET}.calls").open("a") as calls:
        calls.write(json.dumps(list(message.decode_request(content).args)) + "\n")
    told = json.loads(Path(f"{SOCKET}.answer").read_text())
    if told.pop("gzip", False):
        context.set_compression(grpc.Compression.Gzip)
    if "abort" in told:
        context.abort(grpc.StatusCode[told["abort"]], told.get("details", ""))
    elif "raw" in told:
        yield bytes.fromhex(told["raw"])
    elif "messages" in told:
        answer = message.response(success=True, exit_code=0, output="x" * told["size"], error="")
        for _ in range(told["messages"]):
            yield message.encode(answer)
    elif "wait" in told:
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()
    else:
        usual = {"success": True, "exit_code": 0, "output": "", "error": ""}
        whole = {
            key: value["repeat"] * value["times"] if isinstance(value, dict) else value
            for key, value in told.items()
        }
        yield message.encode(message.response(**(usual | whole)))


def main() -> None:
    """Listen until stdin ends."""
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(answers)
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(message.SERVICE, {message.METHOD: method}),)
    )
    server.add_insecure_port(f"unix:{SOCKET}")
    server.start()
    print("listening", flush=True)
    sys.stdin.read()
    server.stop(None).wait()


main()

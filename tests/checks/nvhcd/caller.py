"""A launcher's side of nvhcd's call, in a process of its own: gRPC leaves threads, and tests fork.

Reads a line of JSON, {"socket": path, "calls": [{"args": [...], "timeout": seconds, "cancel": seconds or null}]},
makes the calls at the same time, and writes a list of what came of each in a line. "raw" are bytes to send.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import grpc

from segment_health.checks import message

PATH = f"/{message.SERVICE}/{message.METHOD}"


def call(channel: grpc.Channel, told: dict[str, Any]) -> dict[str, Any]:
    """Make one call; return what came of it."""
    ask = channel.unary_unary(PATH, request_serializer=bytes, response_deserializer=message.decode_response)
    content = told["raw"].encode("latin-1") if "raw" in told else message.encode(message.request(*told["args"]))
    began = time.monotonic()
    future = ask.future(content, timeout=told.get("timeout", 30))
    if told.get("cancel") is not None:
        threading.Timer(told["cancel"], future.cancel).start()
    try:
        answer = future.result()
    except grpc.FutureCancelledError:
        return {"code": "CANCELLED", "seconds": time.monotonic() - began}
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details(), "seconds": time.monotonic() - began}
    return {
        "code": "OK",
        "success": answer.success,
        "exit_code": answer.exit_code,
        "output": answer.output,
        "error": answer.error,
        "seconds": time.monotonic() - began,
    }


def together(channel: grpc.Channel, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make calls at the same time."""
    results: list[dict[str, Any]] = [{} for _ in calls]

    def work(number: int) -> None:
        results[number] = call(channel, calls[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main() -> None:
    """Do what each line says."""
    for line in sys.stdin:
        told = json.loads(line)
        with grpc.insecure_channel(f"unix://{told['socket']}") as channel:
            print(json.dumps(together(channel, told["calls"])), flush=True)


if __name__ == "__main__":
    main()

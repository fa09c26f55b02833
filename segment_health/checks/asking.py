"""Asks nvhcd over gRPC, in a process that has nothing else to do.

A launcher forks, which gRPC's threads do not survive: a call in a process that was forked just as they ended can
wait for ever. So a launcher asks through a child, of which this is the program; a command asks in its own process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from segment_health.record import brief

from .answer import read
from .health_check import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc

    from .message import Response

_MAX_ANSWER = 4 << 20
"""Bytes of an answer; more is refused before it is read, or unpacked."""
_SHOWN = 300
"""Characters of an error of gRPC that are shown: servers write them."""


def main(told: dict[str, Any]) -> None:
    """Ask as node.py tells, and print what was found, or why nothing was."""
    try:
        finding = read(ask(told["socket"], told["args"], told["seconds"]))
        found: dict[str, Any] = {"problems": finding.problems, "remarks": finding.remarks}
    except Unavailable as error:
        found = {"unavailable": str(error)}
    json.dump(found, sys.stdout)


def ask(path: str, args: Sequence[str], seconds: float) -> Response:
    """Call the service at a socket, which has so many seconds. Raises Unavailable where that brings no answer."""
    try:
        import grpc  # noqa: PLC0415 - where it cannot be imported that is told

        from . import message  # noqa: PLC0415
    except Exception as error:  # a broken installation raises what it likes
        told = f"gRPC cannot be used here ({brief(str(error), _SHOWN)}); pip install 'segment-health[nvhcd]'"
        raise Unavailable(told) from error
    try:
        content = message.encode(message.request(*args))
    except (TypeError, ValueError) as error:
        raise Unavailable(f"the arguments cannot be sent: {brief(str(error), _SHOWN)}") from error
    options = (("grpc.max_receive_message_length", _MAX_ANSWER),)
    try:
        with grpc.insecure_channel(f"unix:{quote(os.fsencode(path))}", options) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes | None] = channel.unary_unary(
                f"/{message.SERVICE}/{message.METHOD}"
            )
            answered = call(content, timeout=seconds)
    except grpc.RpcError as error:
        raise Unavailable(_why(path, error, seconds)) from error
    nothing = f"{brief(path, _SHOWN)}: what came back is no answer of nvhcd"
    if answered is None:  # a call that ended well, without a message; an empty one is the shortest failure
        raise Unavailable(nothing)
    try:
        return message.decode_response(answered)
    except message.DecodeError as error:
        raise Unavailable(nothing) from error


def _why(path: str, error: grpc.RpcError, seconds: float) -> str:
    """Say what a call that failed has failed of."""
    where, code, details = brief(path, _SHOWN), error.code(), brief(error.details() or "", _SHOWN)
    if code.name == "DEADLINE_EXCEEDED":
        return f"{where}: no answer within {seconds:g} s"
    if code.name == "UNIMPLEMENTED":
        return f"{where}: whoever listens there is no nvhcd ({details})"
    return f"{where}: no answer: {code.name}: {details}"

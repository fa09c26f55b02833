"""The client of nvhcd: asks the node's own health check service before rendezvous (seed 001).

It takes the arguments of NVRx's check of the same name, by keyword. Three things differ: the endpoint is the
first of them; the socket is looked for at each call, so that a daemon which starts later is asked; and the
answer is read by the rule of the seed (answer.py), of which NVRx 0.6 and 0.7 have a part each.

Source: seed 001, "Endpoint behavior" and "Compatible service contract".
"""

from __future__ import annotations

import math
import os
import stat
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from segment_health.record import brief

from .answer import read
from .health_check import Finding, HealthCheck, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import grpc

    from .message import Response

DEFAULT_ARGS = ("--no-slurm", "--group", "prolog", "epilog", "logs", "gpu")
"""What NVRx 0.7 asks for: groups of checks, as Base Command Manager names them. NVRx 0.6 sends the first alone."""
TIMEOUT = 60.0
"""Seconds from the call to its answer, as NVRx has them."""
_MAX_PATH = 107
"""Bytes that the address of a UNIX socket has room for (unix(7))."""
_MAX_ANSWER = 4 << 20
"""Bytes of an answer; more is refused before it is read."""
_SHOWN = 300
"""Characters of an error of gRPC that are shown: servers write them."""


class NodeHealthCheck(HealthCheck):
    """Asks the service at `endpoint`: a socket's path, or one behind `unix:` or `unix://`.

    `args` are handed to its health check; None stands for DEFAULT_ARGS, and an empty list for none.
    `request_timeout_sec` bounds each call, from connecting on; None is 60, since no call goes without a deadline.
    `socket_path` is the older name of `endpoint`, which comes first.

    A service that cannot be asked, or does not answer in time, makes no node unhealthy: that is a remark.
    Nothing of gRPC is imported before the first call, and no thread or descriptor is left after one.
    ValueError where the seconds are none.
    """

    title: ClassVar[str] = "Node health check"
    fails_open: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913, PLR0917 - what NVRx's takes
        self,
        endpoint: str | None = None,
        args: Sequence[str] | None = None,
        interval: float = 60,
        on_failure: Callable[[], Awaitable[object]] | None = None,
        request_timeout_sec: float | None = TIMEOUT,
        socket_path: str | None = None,
    ) -> None:
        super().__init__(interval, on_failure)
        seconds = TIMEOUT if request_timeout_sec is None else request_timeout_sec
        if not 0 < seconds < math.inf:
            raise ValueError(f"request_timeout_sec is no time to wait: {seconds!r}")
        self.endpoint = endpoint
        self.socket_path = socket_path
        self.args = list(DEFAULT_ARGS if args is None else args)
        self.request_timeout_sec = seconds

    def examine(self) -> Finding:
        """Ask once. Raises Unavailable where no answer came, or none that is one."""
        return read(_ask(_socket(self.endpoint, self.socket_path), self.args, self.request_timeout_sec))


def _socket(endpoint: str | None, socket_path: str | None) -> str:
    """Return the absolute path of the socket that is to be asked. Raises Unavailable where there is none."""
    told = endpoint or socket_path
    if not told:
        raise Unavailable("no endpoint is set; nobody was asked")
    path = _path(told, is_path=not endpoint)
    if path is None:
        forms = "/path, ./path, unix:/path or unix:///path"
        raise Unavailable(f"endpoint {brief(told, _SHOWN)} is no UNIX socket ({forms}); nobody was asked")
    try:
        path = os.path.abspath(path)
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise Unavailable(f"no socket {brief(path, _SHOWN)}; is nvhcd running, and visible from here?") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        why = error.strerror if isinstance(error, OSError) else error
        raise Unavailable(f"socket {brief(path, _SHOWN)}: {why}") from error
    if not stat.S_ISSOCK(mode):
        raise Unavailable(f"{brief(path, _SHOWN)} is no socket; nobody was asked")
    if len(os.fsencode(path)) > _MAX_PATH or "," in path:  # gRPC takes a comma for the end of one address
        raise Unavailable(
            f"socket {brief(path, _SHOWN)}: gRPC takes a path of {_MAX_PATH} bytes, without a comma; move it"
        )
    return path


def _path(endpoint: str, *, is_path: bool = False) -> str | None:
    """Return the path that an endpoint names, as it stands: nothing is decoded. None if it is no UNIX one."""
    for scheme in ("unix://", "unix:"):
        if endpoint.startswith(scheme):
            path = endpoint[len(scheme) :]
            return path if path.startswith(("/", "./")) else None
    return endpoint if is_path or endpoint.startswith(("/", "./")) else None


def _ask(path: str, args: Sequence[str], seconds: float) -> Response:
    """Call the service, which has so many seconds. Raises Unavailable where that brings no answer."""
    try:
        import grpc  # noqa: PLC0415 - 160 ms, which only those who ask shall wait for

        from . import message  # noqa: PLC0415
    except Exception as error:  # a broken installation raises what it likes
        told = f"gRPC cannot be used here ({brief(str(error), _SHOWN)}); pip install 'segment-health[nvhcd]'"
        raise Unavailable(told) from error
    # Of its own, and without retries: what another channel learnt of this socket, or waits for, is of no account.
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", _MAX_ANSWER),
    )
    try:
        content = message.encode(message.request(*args))
    except (TypeError, ValueError) as error:
        raise Unavailable(f"the arguments cannot be sent: {brief(str(error), _SHOWN)}") from error
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

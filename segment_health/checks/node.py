"""The client of nvhcd: asks the node's own health check service before rendezvous (seed 001).

It takes the arguments of NVRx's check of the same name, by keyword. Three things differ: the endpoint is the
first of them; the socket is looked for at each call, so that a daemon which starts later is asked; and the
answer is read by the rule of the seed (answer.py), of which NVRx 0.6 and 0.7 have a part each.

Source: seed 001, "Endpoint behavior" and "Compatible service contract".
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, ClassVar

from segment_health.record import brief

from .health_check import Finding, HealthCheck, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

DEFAULT_ARGS = ("--no-slurm", "--group", "prolog", "epilog", "logs", "gpu")
"""What NVRx 0.7 asks for: groups of checks, as Base Command Manager names them. NVRx 0.6 sends the first alone."""
TIMEOUT = 60.0
"""Seconds from the call to its answer, as NVRx has them."""
_MAX_PATH = 107
"""Bytes that the address of a UNIX socket has room for (unix(7))."""
_SHOWN = 300
"""Characters of a path that are shown."""
_START_SECONDS = 30.0
"""What the process that asks may take beside its call: Python and gRPC are read, perhaps from shared storage."""
_REAP_SECONDS = 2.0
"""How long a killed process may take to disappear; one that is stuck in the kernel is left behind."""
_PROGRAM = """\
import json, sys
told = json.load(sys.stdin)
sys.path[:] = told["path"]
from segment_health.checks.asking import main
main(told)
"""
"""Finds what we would find, wherever we were imported from."""


class NodeHealthCheck(HealthCheck):
    """Asks the service at `endpoint`: a socket's path, or one behind `unix:` or `unix://`.

    `args` are handed to its health check; None stands for DEFAULT_ARGS, and an empty list for none.
    `request_timeout_sec` bounds each call, from connecting on; None is 60, since no call goes without a deadline.
    The process that asks may take 30 s beside it, where Python lies on storage that hangs.
    `socket_path` is the older name of `endpoint`, which comes first.

    A service that cannot be asked, or does not answer in time, makes no node unhealthy: that is a remark.
    Each call asks in a process of its own, 0.3 s: of gRPC nothing is ever in this one, which may fork as it likes,
    and no thread or descriptor is left.
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
        return _ask_in_child(socket_of(self.endpoint, self.socket_path), self.args, self.request_timeout_sec)


def socket_of(endpoint: str | None, socket_path: str | None = None) -> str:
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


def _ask_in_child(path: str, args: Sequence[str], seconds: float) -> Finding:
    """Ask in a process of its own. Raises Unavailable where no answer came, or none that is one."""
    try:
        told = json.dumps(
            {"path": list(map(str, sys.path)), "socket": path, "args": list(args), "seconds": seconds}
        )
    except (TypeError, ValueError) as error:
        raise Unavailable(f"the arguments cannot be sent: {error}") from error
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"the process that asks cannot be started: {error.strerror}") from error
    try:
        answered, _ = child.communicate(told.encode(), timeout=seconds + _START_SECONDS)
        found = json.loads(answered)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"{brief(path, _SHOWN)}: no answer within {seconds:g} s; who asked was killed"
        ) from error
    except ValueError as error:
        raise Unavailable(f"the process that asks died (status {child.returncode}), and said nothing") from error
    finally:
        _end(child)
    if "unavailable" in found:
        raise Unavailable(found["unavailable"])
    return Finding(tuple(found["problems"]), tuple(found["remarks"]))


def _end(child: subprocess.Popen[bytes]) -> None:
    """Leave nothing of a child; one that has ended is no longer there to be killed."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_REAP_SECONDS)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()

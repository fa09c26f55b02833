"""What came of a program, and what the caller is told of it. Pure.

NVRx's client takes success=false for an unhealthy node, and a gRPC error for a check that is unavailable. So what
says nothing about the node, a program that is not there or half an answer, is an error: it excludes nobody.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from segment_health.checks import message

MAX_STDOUT = 1 << 20
MAX_STDERR = 1 << 16
"""Bytes that are kept; a gRPC client refuses messages of 4 MB."""
_UNKNOWN = 3
"""The status of a built-in check that could not find out."""
_UNHEALTHY = 1
_KILLED = -9
"""The status of what SIGKILL ended."""


class Ended(NamedTuple):
    """How a program ended, and what it wrote: `status` is -N for signal N, None where it cannot be killed.

    `errno` says why it could not be started; `cause` is that in words, or the name of the signal. `late`: its time
    was over. `cut`: it wrote more to stdout than is kept. `left` are processes that the kernel does not let go.
    """

    status: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    errno: int | None = None
    cause: str = ""
    late: bool = False
    cut: bool = False
    left: tuple[int, ...] = ()


class Answer(NamedTuple):
    """A HealthCheckResponse, written, and how a log speaks of it; `said` is its `error`."""

    content: bytes
    success: bool
    summary: str
    said: str = ""


class Refusal(NamedTuple):
    """A gRPC error: the name of its code, and a sentence."""

    code: str
    sentence: str


Outcome = Answer | Refusal


def outcome(ended: Ended, program: str, timeout: float, *, builtin: bool = False) -> Outcome:
    """Say what a caller is told of a program that ended. `builtin` ones can say that they do not know."""
    if ended.errno is not None:
        return _not_started(ended.errno, ended.cause, program)
    stdout, stderr = (text.decode("utf-8", "replace") for text in (ended.stdout, ended.stderr))
    if builtin and (why := _unknown(ended, stdout, stderr, timeout)):
        return Refusal("UNAVAILABLE", f"the check does not know: {why[:500]}")
    if ended.late or ended.status is None:
        return _unhealthy(_KILLED, stdout, _joined(_lateness(ended, timeout), stderr), "late")
    if ended.status != 0:
        said = stderr if ended.status > 0 else _joined(f"the health check was {_how(ended)}", stderr)
        return _unhealthy(ended.status, stdout, said, _how(ended))
    if ended.cut:
        return Refusal(
            "RESOURCE_EXHAUSTED",
            f"{program} wrote more than {MAX_STDOUT} bytes to standard output, so what it found cannot be told",
        )
    content = message.encode(message.response(success=True, exit_code=0, output=stdout, error=stderr))
    return Answer(content, success=True, summary="status 0", said=stderr)


def _unknown(ended: Ended, stdout: str, stderr: str, timeout: float) -> str:
    """Say why a built-in check knows nothing; nothing where it knows.

    Each of them bounds what it asks. So one whose own time is over is a busy node's, or one of ours that is wrong.
    """
    if ended.late or ended.status is None:
        return _lateness(ended, timeout)
    if ended.status in {0, _UNHEALTHY} and stdout.lstrip().startswith("{"):
        return ""
    return stderr.strip() or f"{_how(ended)}, without an answer"


def still_there(age: float, left: tuple[int, ...]) -> Answer:
    """Say that the program of an earlier call, begun `age` seconds ago, still hangs: it is late, as it was."""
    stuck = f"was killed, but the kernel has not let go of it: {_names(left)}"
    told = f"the health check that began {age:.0f} s ago {stuck}"
    return _unhealthy(_KILLED, "", told, "still hangs")


def again(came: Outcome) -> Outcome:
    """Return what a built-in check is answered once more, while what it asked before hangs in the kernel.

    The earlier run has said what hangs. But that all was well is said of its own time, and of no other.
    """
    if isinstance(came, Answer) and came.success:
        return Refusal("UNAVAILABLE", "what an earlier check asked hangs in the kernel; nothing newer is known")
    return came


def unfit(looked: Ended, program: str, seconds: float) -> str | None:
    """Say what is wrong with a program that test(1) looked at within so many seconds; None where it is fit."""
    if looked.errno is not None:  # then it is no fault of the program's
        return f"nothing can be run ({looked.cause}); calls fail, and launchers go on without the check"
    if looked.late or looked.status not in {0, 1}:
        return f"{program} could not be looked at within {seconds:g} s; while it is so, calls may be late"
    if looked.status == 1:
        told = f"{program} is no program that can be run; until it is, calls fail"
        return f"{told}, and launchers go on without the check"
    return None


def _unhealthy(status: int, stdout: str, stderr: str, summary: str) -> Answer:
    made = message.response(success=False, exit_code=status, output=stdout, error=stderr)
    return Answer(message.encode(made), success=False, summary=summary, said=stderr)


def _not_started(number: int, cause: str, program: str) -> Refusal:
    if number in {errno.E2BIG, errno.EINVAL}:
        return Refusal("INVALID_ARGUMENT", f"{program}: cannot be started with these arguments: {cause}")
    if number in {errno.EAGAIN, errno.ENOMEM}:
        return Refusal("RESOURCE_EXHAUSTED", f"{program}: cannot be started: {cause}")
    return Refusal("FAILED_PRECONDITION", f"{program}: cannot be started: {cause}")


def _lateness(ended: Ended, timeout: float) -> str:
    told = f"the health check did not end within {timeout:g} s and was killed"
    return f"{told}, but the kernel has not let go of it: {_names(ended.left)}" if ended.left else told


def _names(left: tuple[int, ...]) -> str:
    return f"process {', '.join(map(str, left[:10]))} (state D of ps, if it waits for storage or a device)"


def _how(ended: Ended) -> str:
    return f"killed by {ended.cause}" if ended.cause else f"status {ended.status}"


def _joined(told: str, stderr: str) -> str:
    return f"{told}\n{stderr}" if stderr else told

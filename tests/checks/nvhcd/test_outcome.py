"""What a caller is told: what says nothing of the node is an error, for it must exclude nobody."""

from __future__ import annotations

import errno

import pytest

from segment_health.checks.message import decode_response
from segment_health.checks.nvhcd.outcome import (
    MAX_STDERR,
    MAX_STDOUT,
    Answer,
    Ended,
    Refusal,
    again,
    outcome,
    still_there,
    unfit,
)

LATE = "the health check did not end within 5 s and was killed"
STUCK = "process 7, 8 (state D of ps, if it waits for storage or a device)"
JSON = b'{"fail_count": 0, "failed_checks": []}\n'


@pytest.mark.parametrize(
    ("ended", "success", "exit_code", "output", "error"),
    [
        (Ended(0, JSON), True, 0, JSON.decode(), ""),
        (Ended(0, b"", b"a word"), True, 0, "", "a word"),
        (Ended(1, b"{}", b"bad"), False, 1, "{}", "bad"),
        (Ended(255), False, 255, "", ""),
        (Ended(0, b"\xff\x00"), True, 0, "\ufffd\x00", ""),
        (Ended(-11, cause="SIGSEGV"), False, -11, "", "the health check was killed by SIGSEGV"),
        (Ended(-9, stderr=b"x", cause="SIGKILL"), False, -9, "", "the health check was killed by SIGKILL\nx"),
        (Ended(-9, b"part", late=True), False, -9, "part", LATE),
        (Ended(0, JSON, b"late", late=True), False, -9, JSON.decode(), f"{LATE}\nlate"),
        (Ended(1, b"x" * 10, cut=True), False, 1, "x" * 10, ""),
        (
            Ended(late=True, left=(7, 8)), False, -9, "",
            f"{LATE}, but the kernel has not let go of it: {STUCK}",
        ),
    ],
    ids=[
        "healthy", "no-json", "unhealthy", "255", "no-utf-8", "signal", "signal-and-words", "late", "late-with-0",
        "cut-and-unhealthy", "stuck",
    ],
)  # fmt: skip
def test_an_answer(ended: Ended, success: bool, exit_code: int, output: str, error: str) -> None:
    """Its output as it was, its status, and why."""
    came = outcome(ended, "/c", 5)
    assert isinstance(came, Answer)
    answer = decode_response(came.content)
    assert (answer.success, answer.exit_code, answer.output, answer.error) == (success, exit_code, output, error)
    assert came.success is success


@pytest.mark.parametrize(
    ("ended", "builtin", "code", "said"),
    [
        (Ended(errno=errno.ENOENT, cause="C"), False, "FAILED_PRECONDITION", "/c: cannot be started: C"),
        (Ended(errno=errno.EACCES, cause="C"), False, "FAILED_PRECONDITION", "/c: cannot be started: C"),
        (Ended(errno=errno.ENOEXEC, cause="C"), True, "FAILED_PRECONDITION", "/c: cannot be started: C"),
        (
            Ended(errno=errno.E2BIG, cause="C"), False, "INVALID_ARGUMENT",
            "/c: cannot be started with these arguments: C",
        ),
        (
            Ended(errno=errno.EINVAL, cause="C"), False, "INVALID_ARGUMENT",
            "/c: cannot be started with these arguments: C",
        ),
        (Ended(errno=errno.EAGAIN, cause="C"), False, "RESOURCE_EXHAUSTED", "/c: cannot be started: C"),
        (
            Ended(0, JSON, cut=True), False, "RESOURCE_EXHAUSTED",
            "/c wrote more than 1048576 bytes to standard output, so what it found cannot be told",
        ),
        (Ended(3, b"", b"no Slurm\n"), True, "UNAVAILABLE", "the check does not know: no Slurm"),
        (Ended(2, b"", b"usage"), True, "UNAVAILABLE", "the check does not know: usage"),
        (Ended(1, b"", b"Traceback"), True, "UNAVAILABLE", "the check does not know: Traceback"),
        (Ended(0), True, "UNAVAILABLE", "the check does not know: status 0, without an answer"),
        (
            Ended(-9, cause="SIGKILL"), True, "UNAVAILABLE",
            "the check does not know: killed by SIGKILL, without an answer",
        ),
        (
            Ended(-9, JSON, late=True), True, "UNAVAILABLE",
            "the check does not know: the health check did not end within 5 s and was killed",
        ),
    ],
    ids=[
        "missing", "not-executable", "no-format", "too-long", "nul", "no-process", "cut", "builtin-unknown",
        "builtin-usage", "builtin-traceback", "builtin-silent", "builtin-killed",
        "builtin-late",
    ],
)  # fmt: skip
def test_a_refusal(ended: Ended, builtin: bool, code: str, said: str) -> None:
    """A code, which every client takes for an unavailable check, and a sentence."""
    assert outcome(ended, "/c", 5, builtin=builtin) == Refusal(code, said)


def test_a_builtin_check_that_knows() -> None:
    """Its answer counts in both directions."""
    healthy, bad = (outcome(Ended(status, JSON), "builtin:x", 5, builtin=True) for status in (0, 1))
    assert isinstance(healthy, Answer)
    assert isinstance(bad, Answer)
    assert (healthy.success, bad.success) == (True, False)


def test_one_that_still_hangs() -> None:
    """Who asks again is told at once, and no second one is started."""
    answer = decode_response(still_there(61.2, (7,)).content)
    assert not answer.success
    assert answer.error.startswith(
        "the health check that began 61 s ago was killed, but the kernel has not let go"
    )


def test_the_largest_answer_is_one_that_clients_take() -> None:
    """Each byte that is no UTF-8 becomes three: below the 4 MB that gRPC's clients refuse."""
    came = outcome(Ended(1, b"\xff" * MAX_STDOUT, b"\xff" * MAX_STDERR, cut=True), "/c", 5)
    assert isinstance(came, Answer)
    assert len(came.content) < 4 << 20


@pytest.mark.parametrize(
    ("looked", "said"),
    [
        (Ended(status=0), None),
        (
            Ended(status=1),
            "/c is no program that can be run; until it is, calls fail, and launchers go on without the check",
        ),
        (
            Ended(errno=errno.EAGAIN, cause="no process to start it: C"),
            "nothing can be run (no process to start it: C); calls fail, and launchers go on without the check",
        ),
        (Ended(late=True), "/c could not be looked at within 7 s; while it is so, calls may be late"),
        (Ended(status=-9), "/c could not be looked at within 7 s; while it is so, calls may be late"),
    ],
    ids=["fit", "unfit", "no-process", "late", "killed"],
)
def test_what_is_said_of_a_program_before_it_is_called(looked: Ended, said: str | None) -> None:
    """It is called no program only by whoever has seen that."""
    assert unfit(looked, "/c", 7) == said


def test_a_built_in_check_whose_question_hangs() -> None:
    """What was wrong is said again, what is not known too; that all was well is not."""
    healthy, bad = (outcome(Ended(status, JSON), "builtin:x", 5, builtin=True) for status in (0, 1))
    unknown = Refusal("UNAVAILABLE", "x")
    assert again(bad) == bad
    assert again(unknown) == unknown
    told = again(healthy)
    assert isinstance(told, Refusal)
    assert (told.code, "nothing newer is known" in told.sentence) == ("UNAVAILABLE", True)

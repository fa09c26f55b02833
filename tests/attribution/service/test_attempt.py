"""What a submission makes of a log, in tables: no clock, no file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from segment_health.attribution.analysers.finding import Action, Finding
from segment_health.attribution.service.attempt import (
    HELD_SECONDS,
    MAX_EARLIER,
    UNSEEN,
    Attempt,
    Status,
    earlier_than,
    finished,
    submitted,
)
from segment_health.attribution.service.confine import FileState, Found
from segment_health.attribution.service.drain import Drain, Patience
from segment_health.attribution.service.known_logs import MAX_PENDING, KnownLogs
from segment_health.attribution.service.rates import Rate
from segment_health.attribution.service.refusal import Refusal
from segment_health.attribution.service.submission import Intent, Submission, cycle_of, series_of

PATH = "/logs/train_cycle2.log"
OLD, GROWN, OTHER = FileState(1, 2, 10, 4), FileState(1, 2, 20, 5), FileState(1, 9, 20, 5)
NOW = 1000.0


def finding(reason: str = "") -> Finding:
    """Return a finding."""
    return Finding("x", Action.RESTART, reason, "tests")


def after(
    former: Attempt | None, state: FileState | None = OLD, *, now: float = NOW, sequence: int = 5, **told: Any
) -> Attempt:
    """Return what a submission makes of a log."""
    submission = Submission(**({"log_path": PATH, "job_id": "7"} | told))
    return submitted(former, submission, Found(PATH, state), now=now, sequence=sequence)


PENDING = after(None)
FLIGHT = after(None, intent=Intent.TERMINAL)
DONE = finished(FLIGHT, finding(), "", OLD, NOW)
FAILED = finished(FLIGHT, None, "it crashed", None, NOW)


@pytest.mark.parametrize(
    ("former", "intent", "state", "status", "changes"),
    [
        (None, Intent.TRACK_ONLY, OLD, Status.PENDING, True),
        (None, Intent.PROGRESSIVE, None, Status.PENDING, True),
        (None, Intent.TERMINAL, None, Status.IN_FLIGHT, True),
        (PENDING, Intent.TRACK_ONLY, GROWN, Status.PENDING, False),
        (PENDING, Intent.PROGRESSIVE, OTHER, Status.PENDING, False),
        (PENDING, Intent.TERMINAL, OLD, Status.IN_FLIGHT, True),
        (FLIGHT, Intent.PROGRESSIVE, GROWN, Status.IN_FLIGHT, False),
        (FLIGHT, Intent.TERMINAL, GROWN, Status.IN_FLIGHT, False),
        (DONE, Intent.PROGRESSIVE, GROWN, Status.COMPLETED, False),
        (DONE, Intent.TERMINAL, OLD, Status.COMPLETED, False),
        (DONE, Intent.TERMINAL, GROWN, Status.IN_FLIGHT, True),
        (DONE, Intent.TERMINAL, OTHER, Status.IN_FLIGHT, True),
        (DONE, Intent.TERMINAL, None, Status.IN_FLIGHT, True),
        (FAILED, Intent.PROGRESSIVE, OLD, Status.FAILED, False),
        (FAILED, Intent.TERMINAL, OLD, Status.IN_FLIGHT, True),
    ],
)
def test_what_an_intent_changes(
    former: Attempt | None, intent: Intent, state: FileState | None, status: Status, changes: bool
) -> None:
    """Only a terminal submission begins an analysis, and only where there is something new to find."""
    attempt = after(former, state, intent=intent, sequence=9)
    assert attempt.status is status
    assert (attempt is not former) is changes
    if status is Status.IN_FLIGHT and changes:
        assert (attempt.sequence, attempt.finding, attempt.failure) == (9, None, "")


@pytest.mark.parametrize(
    ("former", "told", "state", "later", "refused"),
    [
        (PENDING, {"job_id": "8"}, OLD, 1, True),
        (PENDING, {"job_id": "8"}, GROWN, 1, True),
        (PENDING, {"job_id": "8"}, OTHER, 1, False),
        (PENDING, {"job_id": "8"}, OLD, HELD_SECONDS, False),
        (PENDING, {"cycle": 3}, OLD, 1, True),
        (PENDING, {"cycle": 2}, OLD, 1, None),
        (PENDING, {"job_id": ""}, OLD, 1, None),
        (FLIGHT, {"job_id": "8"}, OTHER, 10 * HELD_SECONDS, True),
        (FLIGHT, {"cycle": 3}, OTHER, 10 * HELD_SECONDS, True),
        (DONE, {"job_id": "8"}, OLD, 1, False),
        (FAILED, {"job_id": "8"}, OLD, 1, False),
    ],
)
def test_whose_a_log_is(
    former: Attempt, told: dict[str, Any], state: FileState, later: float, refused: bool | None
) -> None:
    """Another job is refused while the first one may still want its verdict, and takes the log over afterwards."""
    if refused:
        with pytest.raises(Refusal, match="registered with a different"):
            after(former, state, now=NOW + later, **told)
        return
    attempt = after(former, state, now=NOW + later, **told)
    if refused is None:
        assert attempt is former
    else:
        assert attempt == Attempt(PATH, PATH, "unknown", "8", 2, NOW + later, state=state)


def test_who_is_known_later_is_added() -> None:
    """A user and a job that only a later submission tells are taken, and a name by which the log is asked for."""
    first = after(None, job_id="")
    second = after(first, user="ann", log_path="/way/x")
    assert (second.user, second.job_id, second.given, second.path) == ("ann", "7", "/way/x", PATH)
    assert after(second, user="bob", log_path="/way/x") is second


@pytest.mark.parametrize(
    ("path", "cycle", "series"),
    [
        ("/l/train_cycle0.log", 0, "/l/train"),
        ("/l/train_cycle12.log", 12, "/l/train"),
        ("/l/a_cycle1.log/train_cycle3.log", 3, "/l/a_cycle1.log/train"),
        ("/l/train.log", None, "/l/train.log"),
        ("/l/train_cycle.log", None, "/l/train_cycle.log"),
        ("/l/train_cycle1.log.gz", None, "/l/train_cycle1.log.gz"),
        ("/l/train_cycle١.log", None, "/l/train_cycle١.log"),
        ("/l/train_cycle1.log\n", None, "/l/train_cycle1.log\n"),
    ],
)
def test_cycles_by_name(path: str, cycle: int | None, series: str) -> None:
    """A log's name says which cycle of which training it is of."""
    assert cycle_of(path) == cycle
    if cycle is not None:
        assert series_of(path) == f"{series}.log".removesuffix(".log") or series_of(path) == f"{series}.log"
    else:
        assert series_of(path) == series


def done(cycle: int | None, sequence: int, **more: object) -> Attempt:
    """Return a judged cycle."""
    attempt = replace(DONE, cycle=cycle, sequence=sequence, finding=finding(f"{cycle}@{sequence}"))
    return replace(attempt, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judged", "cycle", "reasons"),
    [
        ([], 3, [UNSEEN.reason]),
        ([], 0, []),
        ([done(0, 1), done(1, 2), done(2, 3)], 3, ["0@1", "1@2", "2@3"]),
        ([done(0, 1), done(2, 2)], 3, ["0@1", "2@2"]),
        ([done(2, 2), done(0, 1)], 3, ["0@1", "2@2"]),
        # Nobody knows how far the first cycles got.
        ([done(1, 1), done(2, 2)], 3, [UNSEEN.reason, "1@1", "2@2"]),
        # A requeued job counts from 0 again: what came before is another run.
        ([done(0, 1), done(1, 2), done(2, 3), done(0, 4)], 1, ["0@4"]),
        ([done(3, 1), done(0, 2), done(1, 3)], 3, ["0@2", "1@3"]),
        ([done(0, 1), done(1, 2)], 0, []),
        ([done(0, 1), done(1, 2)], 1, [UNSEEN.reason]),
        ([done(0, 1), done(None, 2)], 3, [UNSEEN.reason]),
        ([done(0, 1), done(1, 99)], 3, ["0@1"]),
        ([done(0, 1), done(1, 2, finding=None)], 3, ["0@1"]),
        ([done(0, 1)], None, []),
    ],
)
def test_what_is_earlier(judged: list[Attempt], cycle: int | None, reasons: list[str]) -> None:
    """Earlier cycles are those of the same run, in its order."""
    attempt = replace(FLIGHT, cycle=cycle, sequence=50)
    assert [found.reason for found in earlier_than(attempt, judged)] == reasons


def test_no_more_than_so_many_are_earlier() -> None:
    """An analysis is given the last ones of a long run."""
    found = earlier_than(replace(FLIGHT, cycle=100, sequence=500), [done(n, n + 1) for n in range(100)])
    assert [one.reason for one in found] == [f"{n}@{n + 1}" for n in range(100 - MAX_EARLIER, 100)]


def test_the_book_knows_logs_by_each_name() -> None:
    """A log is found by where it is and by how it was named last, and no more once it is forgotten."""
    known = KnownLogs([replace(PENDING, given="/way/a")], [])
    assert known.named("/way/a") is known.named(PATH) is known.get(PATH)
    known.know(replace(PENDING, given="/way/b"))
    assert known.named("/way/a") is None
    assert known.named("/way/b") is known.get(PATH)
    known.drop(PATH)
    assert (known.named("/way/b"), known.get(PATH), known.all()) == (None, None, [])
    known.drop(PATH)


def test_the_book_counts_on() -> None:
    """After a restart no number is given twice."""
    known = KnownLogs([replace(PENDING, sequence=3)], [done(0, 8)])
    assert [known.next(), known.next()] == [9, 10]


def test_announced_logs_make_room() -> None:
    """Of too many logs that nobody wants judged the oldest go, and nothing else."""
    logs = [
        replace(PENDING, path=f"/l/{number}", given=f"/l/{number}", registered=float(number))
        for number in range(MAX_PENDING)
    ]
    known = KnownLogs([DONE, *logs[1:]], [])
    assert known.to_forget() == []
    known.know(logs[0])
    assert known.to_forget() == [f"/l/{number}" for number in range(MAX_PENDING // 100)]


def test_a_rate_is_a_burst_and_then_a_trickle() -> None:
    """As many as there are in a minute may come at once; then there is one in each part of it."""
    rate = Rate(60)
    assert [rate.wait("a", 0.0) for _ in range(60)] == [0.0] * 60
    assert rate.wait("a", 0.0) == pytest.approx(1.0)
    assert rate.wait("b", 0.0) == 0.0
    assert rate.wait("a", 0.5) == pytest.approx(0.5)
    assert rate.wait("a", 1.0) == 0.0
    assert rate.wait("a", 1.0) > 0
    assert rate.wait("a", -100.0) > 0
    assert [rate.wait("a", 10_000.0) for _ in range(61)].count(0.0) == 60


def test_callers_are_forgotten() -> None:
    """Whoever comes by many addresses does not fill the memory."""
    rate = Rate(1)
    for caller in range(10_001):
        rate.wait(str(caller), 0.0)
    assert rate.wait("0", 0.0) == 0.0
    assert rate.wait("10000", 0.0) > 0


@pytest.mark.parametrize(
    ("looks", "read_at"),
    [
        ([(0, OLD), (4, OLD), (9, OLD), (10, OLD)], 10),
        ([(0, OLD), (8, GROWN), (10, GROWN), (12.9, GROWN), (13, GROWN)], 13),
        ([(0, None), (10, None), (30, None), (40, None)], 40),
        ([(0, None), (20, OLD), (24, OLD), (25, OLD)], 25),
        ([(n, FileState(1, 2, n, n)) for n in range(41)], 40),
        ([(0, OLD), (9, OLD), (9.5, None), (12, OLD), (17, OLD)], 17),
    ],
    ids=["quiet", "grown", "missing", "late", "never quiet", "replaced"],
)
def test_when_a_log_is_whole(looks: list[tuple[float, FileState | None]], read_at: float) -> None:
    """Ten seconds at least, five of which it has not changed in, and never more than forty."""
    drain = Drain(Patience(), 100.0)
    told = [drain.looked(state, 100.0 + at) for at, state in looks]
    assert told == [at == read_at for at, _ in looks]

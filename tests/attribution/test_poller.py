"""Attribution beside a launcher, against a real service in another process."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.attribution import analysis
from segment_health.attribution.client import TIMEOUT
from segment_health.attribution.poller import INTERVAL, Attribution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Service

    Until = Callable[[Callable[[], object], str], None]
    Start = Callable[..., Attribution]
    Threads = Callable[[], list[threading.Thread]]

GO_ON = {"status": "completed", "recommendation": {"action": "RESTART"}}
STOP = {"status": "completed", "recommendation": {"action": "STOP", "reason": "no such module"}}
RUNNING = {"status": "in_flight"}
AT_ONCE = 0.05
"""Seconds that a launcher may be held up in a cycle."""


@pytest.fixture
def attribution(service: Service) -> Iterator[Start]:
    """Start one, at this service or another, that asks often; it is closed when the test ends."""
    started: list[Attribution] = []

    def start(endpoint: str = service.url, **options: Any) -> Attribution:
        started.append(Attribution(endpoint, **{"environ": {}, "interval": 0.02, "seconds": 20.0, **options}))
        return started[-1]

    yield start
    for one in started:
        one.close()


def log_of(number: int) -> str:
    """Return the path of a cycle's log."""
    return f"/l/train_cycle{number}.log"


def cycle(attribution: Attribution, number: int) -> float:
    """Let a cycle begin and fail; return the seconds that this took."""
    began = time.perf_counter()
    attribution.cycle_began(log_of(number))
    attribution.cycle_failed(log_of(number))
    return time.perf_counter() - began


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return what was logged at a level."""
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.fixture
def threads() -> Threads:
    """Tell which threads are there that were not before the test."""
    before = set(threading.enumerate())
    return lambda: [thread for thread in threading.enumerate() if thread not in before]


def test_a_cycle_is_announced_then_analysed(service: Service, attribution: Start, until: Until) -> None:
    """Its log is read along while it runs, and judged when it failed, in the name of the job."""
    started = attribution(environ={"USER": "ann", "SLURM_JOB_ID": "9"})
    started.cycle_began(log_of(0))
    until(lambda: service.submitted("progressive") == [log_of(0)], "an announcement")
    assert service.asked("GET") == []
    started.cycle_failed(log_of(0))
    until(lambda: service.asked_of() == [log_of(0)], "a question")
    first, second, *_ = service.asked()
    assert (first["body"]["user"], first["body"]["job_id"]) == ("ann", "9")
    assert second["body"] == {**first["body"], "analysis_intent": "terminal"}


def test_without_a_failure_nothing_is_asked(
    service: Service, attribution: Start, until: Until, threads: Threads
) -> None:
    """A cycle that goes on has no verdict; and before the first one there is not even a thread."""
    started = attribution()
    started.request_terminal_analysis()
    assert threads() == []
    started.cycle_began(log_of(0))
    until(service.asked, "an announcement")
    started.close()
    assert [request["method"] for request in service.asked()] == ["POST"]


def test_the_log_is_accepted_before_it_is_asked_for(service: Service, attribution: Start, until: Until) -> None:
    """While a slow service takes a log in, its verdict is not asked for."""
    service.behaves(delay=0.3)
    cycle(attribution(), 0)
    until(lambda: service.asked("GET"), "a question")
    posts, gets = service.asked("POST"), service.asked("GET")
    assert gets[0]["at"] - posts[-1]["at"] >= 0.3


def test_a_stop_is_logged_by_default(
    service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture, threads: Threads
) -> None:
    """A STOP is seen and counted, and asks for nothing; the thread lives on, and the next cycle is judged too."""
    service.behaves(analysis=0)
    started = attribution()
    for number in (1, 2):
        cycle(started, number)
        until(lambda: started.stop_verdict_count() == number, "a verdict")  # noqa: B023 - called at once
        assert started.stop_verdict_observed()
        assert not started.stop_requested()
    assert service.submitted("terminal") == [log_of(1), log_of(2)]
    assert threads()
    first, second = lines(caplog, logging.ERROR)
    assert log_of(1) in first
    assert "NOT ENFORCED" in first
    assert second.endswith("STOP verdicts so far: 2")


def test_a_stop_is_obeyed_where_that_is_wanted(
    service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture, threads: Threads
) -> None:
    """The first one is for good: the thread ends, and nothing more is sent."""
    service.behaves(analysis=0)
    started = attribution(stop_action="no-restart")
    assert not started.stop_requested()
    cycle(started, 0)
    until(started.stop_requested, "a STOP")
    until(lambda: not threads(), "the end of the thread")
    cycle(started, 1)
    assert (started.stop_verdict_count(), started.stop_verdict_observed()) == (1, True)
    assert service.submitted("terminal") == [log_of(0)]
    assert len(lines(caplog, logging.ERROR)) == 1


def test_a_requeued_job_is_not_bound_by_its_predecessor(
    service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a log that it knows already a service repeats what it said then; of the next one it says more."""
    service.behaves(get=[[200, STOP], [200, STOP], [404, {}], [200, RUNNING], [200, STOP]])
    started = attribution(stop_action="no-restart", environ={"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "1"})
    cycle(started, 0)
    until(lambda: lines(caplog, logging.WARNING), "a warning")
    assert not started.stop_requested()
    assert [request["method"] for request in service.asked()][-3:] == ["GET", "POST", "GET"]
    cycle(started, 1)
    until(started.stop_requested, "a STOP")
    assert service.submitted("terminal") == [log_of(0), log_of(1)]


def test_a_log_is_kept_back_while_nobody_says_what_was_before(
    mortal_service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Else an old verdict would be taken for a new one."""
    mortal_service.stop()
    started = attribution(mortal_service.url, environ={"SLURM_RESTART_COUNT": "1"})
    started.cycle_failed(log_of(0))
    until(lambda: lines(caplog, logging.WARNING), "a warning")
    assert "was not accepted, it is not analysed" in lines(caplog, logging.WARNING)[0]


def test_a_late_stop_still_stops(service: Service, attribution: Start, until: Until) -> None:
    """The job may be some cycles further by then: a verdict is about the job."""
    service.behaves(get=[*([[200, RUNNING]] * 10), [200, STOP]])
    started = attribution(stop_action="no-restart")
    for number in range(5):
        cycle(started, number)
    until(started.stop_requested, "a STOP")
    assert service.submitted("terminal") == service.asked_of() == [log_of(0)]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([200, GO_ON], id="go-on"),
        pytest.param([200, {"status": "completed"}], id="no-recommendation"),
        pytest.param([200, ""], id="empty"),
        pytest.param([200, {"status": "failed"}], id="failed"),
    ],
)
def test_what_is_no_stop_frees_the_slot(
    service: Service, attribution: Start, until: Until, answer: list[object]
) -> None:
    """The next cycle that fails is analysed, also after an analysis that failed itself."""
    service.behaves(get=[[200, RUNNING], answer, [200, STOP]])
    started = attribution()
    cycle(started, 0)
    until(lambda: len(service.asked("GET")) >= 2, "an answer")
    until(lambda: cycle(started, 1) and len(service.submitted("terminal")) == 2, "another analysis")
    until(lambda: started.stop_verdict_count() == 1, "its verdict")
    assert service.asked_of() == [log_of(0), log_of(1)]


def test_a_lasting_404_frees_the_slot(
    service: Service,
    attribution: Start,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A service that forgot the log is not asked for it to the end of the job."""
    monkeypatch.setattr(analysis, "LASTING_SECONDS", 0.3)
    service.behaves(get=[[404, {"message": "attempt has not been submitted"}]])
    started = attribution()
    cycle(started, 0)
    until(lambda: lines(caplog, logging.WARNING), "the end of waiting")
    (line,) = lines(caplog, logging.WARNING)
    assert "told no state of it (HTTP 404: attempt has not been submitted)" in line
    cycle(started, 1)
    until(lambda: service.submitted("terminal") == [log_of(0), log_of(1)], "another analysis")


def test_a_refusal_leaves_the_slot_free(
    service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that was not accepted is not asked for, and the next one is sent."""
    service.behaves(post=[[500, {"message": "no room"}], [202, ""]])
    started = attribution()
    started.cycle_failed(log_of(0))
    until(lambda: lines(caplog, logging.WARNING), "a refusal")
    started.cycle_failed(log_of(1))
    until(lambda: service.asked_of() == [log_of(1)], "a question")
    assert service.submitted("terminal") == [log_of(0), log_of(1)]


def test_a_service_that_dies_is_waited_for(
    mortal_service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Silence decides nothing and is told once; the slot stays taken, since an answer may still come."""
    started = attribution(mortal_service.url)
    cycle(started, 0)
    until(lambda: mortal_service.asked("GET"), "a question")
    mortal_service.stop()
    until(lambda: lines(caplog, logging.WARNING), "a warning")
    for number in range(1, 4):
        cycle(started, number)
    until(lambda: len(lines(caplog, logging.WARNING)) >= 2, "the refusal of another announcement")
    assert sum("the verdict is waited for" in line for line in lines(caplog, logging.WARNING)) <= 2
    assert started.stop_verdict_count() == 0
    assert not any("it is not analysed" in line for line in lines(caplog, logging.WARNING))


def test_a_service_that_comes_back_is_heard(
    service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """That it is silent is said once, that it answers again too, and its verdict counts."""
    caplog.set_level(logging.INFO, "nvrx")
    service.behaves()
    started = attribution()
    cycle(started, 0)
    until(lambda: service.asked("GET"), "a question")
    service.behaves(delay=-4)
    until(lambda: len(service.asked("GET")) > 3, "more questions")
    service.behaves(get=[[200, STOP]])
    until(started.stop_verdict_observed, "a verdict")
    assert len([line for line in lines(caplog, logging.WARNING) if "no answer" in line]) == 1
    assert "Attribution: the service answers again" in lines(caplog, logging.INFO)


@pytest.mark.parametrize("endpoint", ["grpc://h:1", "unix:///run/attribution.sock", "localhost"])
def test_other_endpoints_are_kept_and_never_asked(
    attribution: Start, endpoint: str, caplog: pytest.LogCaptureFixture, threads: Threads
) -> None:
    """One warning, no thread, no verdict; a launcher notices nothing."""
    started = attribution(endpoint)
    for number in range(3):
        cycle(started, number)
    started.request_terminal_analysis()
    assert threads() == []
    assert started.endpoint == endpoint
    assert not started.stop_requested()
    (line,) = lines(caplog, logging.WARNING)
    assert endpoint in line


@pytest.mark.parametrize(
    ("endpoint", "options"), [("http://h:0", {}), ("http://h", {"stop_action": "restart"})], ids=["url", "action"]
)
def test_a_mistake_is_told_at_the_start(attribution: Start, endpoint: str, options: dict[str, str]) -> None:
    """Not when the first cycle has failed."""
    with pytest.raises(ValueError, match=r"port 0|not one of"):
        attribution(endpoint, **options)


def test_at_the_end_what_is_known_is_sent(
    service: Service, attribution: Start, until: Until, threads: Threads
) -> None:
    """The last failure of a job is analysed too, though nobody waits for the verdict."""
    service.behaves(delay=0.3)
    started = attribution()
    started.cycle_began(log_of(0))
    until(service.asked, "an announcement, which takes a while")
    started.cycle_failed(log_of(0))
    started.close()
    assert service.submitted("terminal") == [log_of(0)]
    assert threads() == []
    cycle(started, 1)  # too late, and no error
    assert service.submitted("terminal") == [log_of(0)]


def test_the_end_does_not_wait_for_a_service_that_hangs(service: Service, attribution: Start) -> None:
    """It lasts as long as it was told to, and the thread is left behind."""
    service.behaves(delay=-1)
    started = attribution(seconds=1.0)
    cycle(started, 0)
    began = time.monotonic()
    started.close(0.1)
    assert time.monotonic() - began < 1.0


def test_the_names_that_nvrx_calls_it_by(
    service: Service, attribution: Start, until: Until, threads: Threads
) -> None:
    """Its launcher could be handed ours."""
    started = attribution()
    started.start_poller(node_id="n1")
    started._submit_log(log_of(0))
    started()
    until(lambda: service.asked_of() == [log_of(0)], "a question")
    started.stop_poller(timeout=5.0)
    assert threads() == []


def test_a_path_is_one_of_any_kind(service: Service, attribution: Start, until: Until, tmp_path: Path) -> None:
    """A launcher may have it as a Path, or as bytes; what is none is told where it is said."""
    started = attribution()
    started.cycle_began(tmp_path)
    until(lambda: service.submitted("progressive") == [str(tmp_path)], "an announcement")
    with pytest.raises(TypeError):
        started.cycle_failed(7)  # type: ignore[arg-type]


def test_a_path_that_cannot_be_sent_costs_that_cycle_alone(
    service: Service, attribution: Start, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the client itself fails, that is one more question without an answer, and the thread lives on."""
    service.behaves(post=[[422, {"detail": []}], [200, {}]], get=[[200, STOP]])
    started = attribution()
    started.cycle_failed("/l/\ud800")
    until(lambda: lines(caplog, logging.WARNING), "a refusal")
    cycle(started, 1)
    until(started.stop_verdict_observed, "a verdict")


def test_without_threads_a_launcher_goes_on(
    service: Service,
    attribution: Start,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A process that may start no thread is told so, and with the next cycle it is tried again."""

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    started = attribution()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        cycle(started, 0)
    assert lines(caplog, logging.WARNING) == ["Attribution: no cycle is analysed: can't start new thread"] * 2
    cycle(started, 1)
    until(lambda: service.asked_of() == [log_of(0)], "a question")


def test_it_asks_every_two_seconds() -> None:
    """As NVRx does, and gives up a question after as long; these tests ask more often."""
    assert INTERVAL == TIMEOUT == 2.0


# --- a crash loop -----------------------------------------------------------------------------------------


def test_a_crash_loop_has_one_analysis(service: Service, attribution: Start, until: Until) -> None:
    """Of 20 cycles that fail before the first is judged, the first is analysed, asked for, and nothing else is."""
    service.behaves(get=[[200, RUNNING]])
    started = attribution()
    for number in range(20):
        cycle(started, number)
        until(lambda: len(service.asked("GET")) > number, "another question")  # noqa: B023 - called at once
    assert service.submitted("terminal") == [log_of(0)]
    assert service.asked_of() == [log_of(0)]


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param({"analysis": 0.05}, id="fast"),
        pytest.param({"analysis": 0.5, "delay": 0.3}, id="slow"),
    ],
)
def test_a_crash_loop_has_a_verdict(
    service: Service, attribution: Start, until: Until, behaviour: dict[str, object]
) -> None:
    """While cycles fail without pause one is judged after the other, never two at a time, and a STOP arrives."""
    service.behaves(**behaviour)
    started = attribution()
    took: list[float] = []

    def crash() -> bool:
        took.append(cycle(started, len(took)))
        return len(took) >= 20 and started.stop_verdict_observed()

    until(crash, "20 cycles, and a verdict")
    assert service.most() == 1
    assert sorted(took)[len(took) // 2] < AT_ONCE


@pytest.mark.parametrize("delay", [-1, -2, -4], ids=["hung", "dripping", "breaking-off"])
def test_a_crash_loop_is_not_held_up(service: Service, attribution: Start, delay: int, threads: Threads) -> None:
    """However a service fails, 20 cycles take no longer than without one, and no thread is added by them."""
    service.behaves(delay=delay)
    started = attribution(seconds=1.0)
    took = sorted(cycle(started, number) for number in range(20))
    assert took[10] < AT_ONCE
    assert len(threads()) <= 3
    assert not started.stop_verdict_observed()
    started.close(0)

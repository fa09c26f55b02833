"""One analysis at a time: the rules, without a service."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from segment_health.attribution.analysis import LASTING_SECONDS, Analysis, Submission
from segment_health.attribution.wire import Intent, Recommendation, Verdict

STOP = Recommendation(Verdict.STOP, "STOP", "no such module")
GO_ON = Recommendation(Verdict.CONTINUE, "RESTART")
UNDECIDED = Recommendation(Verdict.UNDECIDED, "in_flight")
FAILED = Recommendation(Verdict.FAILED, "failed")
MISSING = Recommendation(Verdict.MISSING, "HTTP 404")


def awaiting(log_path: str = "/l/0", **options: str) -> Analysis:
    """Return one whose analysis of a log was accepted."""
    analysis = Analysis(**options)  # type: ignore[arg-type]
    fail(analysis, log_path)
    return analysis


def fail(analysis: Analysis, log_path: str, refused: str | None = None) -> None:
    """Let a cycle fail, and have its log accepted or refused."""
    assert analysis.failed(log_path) is None
    assert analysis.next_submission() == Submission(log_path, Intent.TERMINAL)
    analysis.submitted(refused)


def test_log_is_the_default() -> None:
    """A job is ended by a verdict only where that was asked for."""
    assert Analysis().stop_action == "log"
    with pytest.raises(ValueError, match=r"not one of log, no-restart: 'stop'"):
        Analysis("stop")  # type: ignore[arg-type]


def test_a_cycle_that_begins_is_announced_once() -> None:
    """Nothing is waited for by that."""
    analysis = Analysis()
    assert analysis.next_submission() is None
    analysis.began("/l/0")
    assert analysis.next_submission() == Submission("/l/0", Intent.PROGRESSIVE)
    analysis.submitted(None)
    assert analysis.next_submission() is None
    assert analysis.pending is None


def test_a_cycle_that_begins_leaves_the_pending_one_alone() -> None:
    """The verdict on an earlier cycle is waited for across the later ones."""
    analysis = awaiting("/l/0")
    analysis.began("/l/1")
    assert analysis.next_submission() == Submission("/l/1", Intent.PROGRESSIVE)
    analysis.submitted(None)
    assert analysis.pending == "/l/0"


def test_a_log_is_pending_only_when_it_was_accepted() -> None:
    """Nobody asks for a log while it is being sent: what is answered then would not be its verdict."""
    analysis = Analysis()
    analysis.failed("/l/0")
    analysis.next_submission()
    assert analysis.pending is None
    analysis.submitted(None)
    assert analysis.pending == "/l/0"


def test_what_was_refused_is_not_waited_for() -> None:
    """A refusal costs that cycle its analysis, and no later one."""
    analysis = Analysis()
    fail(analysis, "/l/0", refused="HTTP 500")
    assert analysis.pending is None
    fail(analysis, "/l/1")
    assert analysis.pending == "/l/1"


def test_a_refusal_is_a_warning() -> None:
    """It says which log, and what it costs."""
    analysis = Analysis()
    analysis.failed("/l/0\n")
    analysis.next_submission()
    note = analysis.submitted("HTTP 500: no room")
    assert note == ("WARNING", r"/l/0\n was not accepted, it is not analysed: HTTP 500: no room")
    analysis.began("/l/1")
    analysis.next_submission()
    note = analysis.submitted("HTTP 500: no room")
    assert note == ("WARNING", "/l/1 was not accepted, it is not read along: HTTP 500: no room")


@pytest.mark.parametrize("stage", ["wanted", "sent", "pending"])
def test_who_comes_first_is_served(stage: str) -> None:
    """From a cycle's failure until its verdict, others that fail are passed over, and that is said."""
    analysis = Analysis()
    analysis.failed("/l/0")
    if stage != "wanted":
        analysis.next_submission()
    if stage == "pending":
        analysis.submitted(None)
    note = analysis.failed("/l/1")
    assert note == ("INFO", "/l/1 is not analysed: that of /l/0 is waited for")
    if stage == "wanted":
        assert analysis.next_submission() == Submission("/l/0", Intent.TERMINAL)
    if stage != "pending":
        analysis.submitted(None)
    assert analysis.pending == "/l/0"
    assert analysis.next_submission() is None


def test_the_same_failure_twice_is_one() -> None:
    """A launcher may say it again at its end: a verdict that is known is not counted again."""
    analysis = awaiting("/l/0")
    analysis.heard(STOP, 0)
    assert analysis.failed("/l/0") is None
    assert analysis.next_submission() is None
    analysis.began("/l/0")  # a launcher that gives all cycles one file
    analysis.next_submission()
    analysis.submitted(None)
    fail(analysis, "/l/0")
    assert analysis.pending == "/l/0"


def test_an_analysis_is_sent_before_an_announcement() -> None:
    """What a job may hang on does not wait behind what it does not."""
    analysis = Analysis()
    analysis.failed("/l/0")
    analysis.began("/l/1")
    assert analysis.next_submission() == Submission("/l/0", Intent.TERMINAL)
    analysis.submitted(None)
    assert analysis.next_submission() == Submission("/l/1", Intent.PROGRESSIVE)


def test_only_what_is_of_use_is_announced() -> None:
    """Of cycles faster than the service only the last is announced, and none that has failed by then."""
    analysis = Analysis()
    for number in range(5):
        analysis.began(f"/l/{number}")
    analysis.failed("/l/4")
    assert analysis.next_submission() == Submission("/l/4", Intent.TERMINAL)
    analysis.submitted(None)
    assert analysis.next_submission() is None


@pytest.mark.parametrize("stop_action", ["log", "no-restart"])
def test_any_other_verdict_frees_the_slot(stop_action: str) -> None:
    """The job goes on, and the next cycle that fails is analysed."""
    analysis = awaiting("/l/0", stop_action=stop_action)
    assert analysis.heard(GO_ON, 0) == ("INFO", "/l/0 is no reason to stop: RESTART")
    assert (analysis.pending, analysis.stop_count, analysis.is_over) == (None, 0, False)
    fail(analysis, "/l/1")
    assert analysis.pending == "/l/1"


def test_undecided_is_waited_for() -> None:
    """However long it takes: a late verdict is one."""
    analysis = awaiting("/l/0", stop_action="no-restart")
    for now in range(0, 100_000, 1000):
        assert analysis.heard(UNDECIDED, now) is None
        assert analysis.pending == "/l/0"
    analysis.heard(STOP, 100_000)
    assert analysis.is_over


def test_no_restart_ends_the_job() -> None:
    """The first STOP is for good: nothing more is sent, and the log that it is about stays known."""
    analysis = awaiting("/l/0", stop_action="no-restart")
    note = analysis.heard(STOP, 0)
    assert note == ("ERROR", "this job is not to be restarted, says the analysis of /l/0: STOP: no such module")
    assert (analysis.pending, analysis.stop_count, analysis.is_over) == ("/l/0", 1, True)
    analysis.began("/l/1")
    assert analysis.failed("/l/1") is None
    assert analysis.next_submission() is None


def test_log_counts_every_stop() -> None:
    """The job goes on, each failed cycle is analysed, and the count says what enforcing would have done."""
    analysis = Analysis("log")
    for number in (1, 2):
        fail(analysis, f"/l/{number}")
        note = analysis.heard(STOP, 0)
        assert note is not None
        assert note.level == "ERROR"
        assert note.text == (
            f"this job is not to be restarted, says the analysis of /l/{number}: STOP: no such module. "
            "NOT ENFORCED, the job goes on: the stop action is log; no-restart would end it. "
            f"STOP verdicts so far: {number}"
        )
        assert (analysis.pending, analysis.stop_count, analysis.is_over) == (None, number, False)


def test_a_failed_analysis_frees_the_slot() -> None:
    """There will be no verdict on it; NVRx's client waits for one to the end of the job."""
    analysis = awaiting("/l/0")
    note = analysis.heard(FAILED, 0)
    assert note == ("WARNING", "the analysis of /l/0 gave no verdict: failed")
    fail(analysis, "/l/1")
    assert analysis.pending == "/l/1"


def test_a_lasting_404_frees_the_slot() -> None:
    """A service that was restarted has forgotten the log; one that is some seconds behind is waited for."""
    analysis = awaiting("/l/0")
    assert analysis.heard(MISSING, 100) is None
    assert analysis.heard(MISSING, 100 + LASTING_SECONDS - 0.1) is None
    note = analysis.heard(MISSING, 100 + LASTING_SECONDS)
    assert note == ("WARNING", "/l/0 has no verdict: for 30 s the service has told no state of it (HTTP 404)")
    fail(analysis, "/l/1")
    assert analysis.heard(MISSING, 200) is None
    assert analysis.pending == "/l/1"


def test_a_404_that_passes_is_none() -> None:
    """Each state that is told begins the wait anew."""
    analysis = awaiting("/l/0")
    for now in range(0, 1000, 20):
        assert analysis.heard(MISSING if now % 40 else UNDECIDED, now) is None
    assert analysis.pending == "/l/0"


@pytest.mark.parametrize("said", [STOP, GO_ON, FAILED], ids=["stop", "go-on", "failed"])
def test_what_was_said_before_is_of_an_earlier_run(said: Recommendation) -> None:
    """A service that knows the log's name already, and repeats itself, has not read it: it ends nobody."""
    analysis = Analysis("no-restart")
    analysis.failed("/l/0")
    analysis.next_submission()
    analysis.submitted(None, said)
    note = analysis.heard(said, 0)
    assert note == (
        "WARNING",
        f"/l/0 has no verdict: the service repeats what it said of an earlier run's: {said}",
    )
    assert (analysis.pending, analysis.stop_count, analysis.is_over) == (None, 0, False)
    fail(analysis, "/l/1")
    assert analysis.heard(STOP, 1) is not None
    assert analysis.is_over


@pytest.mark.parametrize("before", [MISSING, UNDECIDED, GO_ON, STOP._replace(reason="another")])
def test_what_was_not_said_before_is_a_verdict(before: Recommendation) -> None:
    """Whatever else the service knew of that name."""
    analysis = Analysis("no-restart")
    analysis.failed("/l/0")
    analysis.next_submission()
    analysis.submitted(None, before)
    analysis.heard(STOP, 0)
    assert analysis.is_over


def test_a_service_that_was_at_it_again_is_believed() -> None:
    """It may well come to the same verdict."""
    analysis = Analysis("no-restart")
    analysis.failed("/l/0")
    analysis.next_submission()
    analysis.submitted(None, STOP)
    assert analysis.heard(UNDECIDED, 0) is None
    analysis.heard(STOP, 1)
    assert analysis.is_over


@pytest.mark.parametrize("state", [MISSING, UNDECIDED], ids=["missing", "undecided"])
def test_a_log_without_a_verdict_before_is_waited_for(state: Recommendation) -> None:
    """That nothing was known of it, and is not yet, is no repetition."""
    analysis = Analysis()
    analysis.failed("/l/0")
    analysis.next_submission()
    analysis.submitted(None, state)
    assert analysis.heard(state, 0) is None
    assert analysis.pending == "/l/0"


class Jobs(RuleBasedStateMachine):
    """A job whose cycles begin and fail as they like, and a service that answers as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.analysis = Analysis("log")
        self.cycle = 0
        self.sent: Submission | None = None
        self.at_service: list[str] = []
        self.stops = 0
        self.now = 0.0

    @rule()
    def begin(self) -> None:
        """Begin a cycle."""
        self.cycle += 1
        self.analysis.began(f"/l/{self.cycle}")

    @rule()
    def fail(self) -> None:
        """Let the cycle fail: it is either analysed or said not to be."""
        self.analysis.failed(f"/l/{self.cycle}")

    @precondition(lambda self: self.sent is None)
    @rule()
    def send(self) -> None:
        """Send what is to be sent."""
        self.sent = self.analysis.next_submission()

    @precondition(lambda self: self.sent is not None)
    @rule(refused=st.booleans())
    def arrive(self, refused: bool) -> None:
        """Let it arrive."""
        assert self.sent is not None
        if self.sent.intent is Intent.TERMINAL and not refused:
            self.at_service.append(self.sent.log_path)
        self.analysis.submitted("no" if refused else None)
        self.sent = None

    @precondition(lambda self: self.analysis.pending is not None)
    @rule(answer=st.sampled_from([STOP, GO_ON, UNDECIDED, FAILED, MISSING]), seconds=st.floats(0, 60))
    def answer(self, answer: Recommendation, seconds: float) -> None:
        """Let the service answer."""
        self.now += seconds
        self.stops += answer.verdict is Verdict.STOP
        self.analysis.heard(answer, self.now)
        if self.analysis.pending is None:
            self.at_service.pop()

    @invariant()
    def one_at_a_time(self) -> None:
        """One analysis is in flight at the most, it is the one waited for, and no STOP is lost."""
        assert self.at_service == ([] if self.analysis.pending is None else [self.analysis.pending])
        assert self.analysis.stop_count == self.stops


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""Which log is analysed, one at a time, and what becomes of the verdict. Pure.

A cycle's log is announced when the cycle begins, and its analysis is asked for when the cycle has failed. Only
one analysis is waited for: while it is, further failures are passed over, so that a fast crash loop does not throw
away each verdict before it arrives. Who comes first is served first, and whichever verdict comes is about the job.

A service may have judged a log of the same name in an earlier run of a job that was requeued, and repeat itself.
What it says as before, without having been at it in between, is that run's verdict, and binds nobody.

Source: seed 001, "Attribution service integration".
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from segment_health.record import brief

from .wire import Intent, Recommendation, Verdict

StopAction = Literal["log", "no-restart"]
STOP_ACTIONS: tuple[StopAction, ...] = ("log", "no-restart")
"""What a STOP does: it is counted and logged, or it ends the job."""
LASTING_SECONDS = 30.0
"""For how long a service may not know a log that it accepted, until nobody waits for it any more. One that was
restarted has forgotten all of them; behind a name there may be several, some seconds apart."""
_SHOWN = 300
"""Characters of a path that are shown."""


class Note(NamedTuple):
    """A line of the log."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    text: str


class Submission(NamedTuple):
    """A log to announce, and for what."""

    log_path: str
    intent: Intent


class Analysis:
    """The one analysis of a job that is waited for, and the verdicts so far.

    Whoever drives it sends what next_submission() says, tells submitted() what came of it, and then asks for the
    verdict on `pending` until that is None. Seconds are those of any clock that does not jump. ValueError for
    a stop action that there is not.
    """

    def __init__(self, stop_action: StopAction = "log") -> None:
        if stop_action not in STOP_ACTIONS:
            raise ValueError(f"stop action: not one of {', '.join(STOP_ACTIONS)}: {stop_action!r:.80}")
        self.stop_action = stop_action
        self.pending: str | None = None
        """The log whose verdict is waited for."""
        self.stop_count = 0
        """How many verdicts were STOP."""
        self._began: str | None = None
        self._failed: str | None = None
        self._sent: Submission | None = None
        self._accepted: str | None = None
        self._said_before: Recommendation | None = None
        self._missing_since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the job is to end, so that nothing more is asked."""
        return self.stop_count > 0 and self.stop_action == "no-restart"

    def began(self, log_path: str) -> None:
        """Take a cycle that began. Of several that nobody was told of yet only the last one matters."""
        self._began = log_path
        if self._accepted == log_path:
            self._accepted = None  # the same file, and another cycle

    def failed(self, log_path: str) -> Note | None:
        """Take a cycle that failed; say so where its log is not going to be analysed. Twice the same is once."""
        if self.is_over or log_path == self._accepted:
            return None
        awaited = self._awaited()
        if awaited is not None:
            return Note("INFO", f"{_log(log_path)} is not analysed: that of {_log(awaited)} is waited for")
        self._failed = log_path
        if self._began == log_path:
            self._began = None  # too late to be read along
        return None

    def next_submission(self) -> Submission | None:
        """Return what is to be sent now: an analysis first, since a job may hang on it."""
        assert self._sent is None, "one submission at a time"
        if self.is_over:
            self._began = self._failed = None
        if self._failed is not None:
            self._sent, self._failed = Submission(self._failed, Intent.TERMINAL), None
        elif self._began is not None:
            self._sent, self._began = Submission(self._began, Intent.PROGRESSIVE), None
        return self._sent

    def submitted(self, refused: str | None, said_before: Recommendation | None = None) -> Note:
        """Take what came of a submission: why it was refused, or None. Only what was accepted is waited for.

        `said_before` is what the service said of a log of this name before it was handed in, where that was asked.
        """
        assert self._sent is not None, "nothing was sent"
        (log_path, intent), self._sent = self._sent, None
        if refused is not None:
            lost = "it is not analysed" if intent is Intent.TERMINAL else "it is not read along"
            return Note("WARNING", f"{_log(log_path)} was not accepted, {lost}: {refused}")
        if intent is Intent.TERMINAL:
            self.pending = self._accepted = log_path
            self._missing_since = None
            self._said_before = said_before
        return Note("DEBUG", f"{_log(log_path)} was accepted ({intent.value})")

    def heard(self, answer: Recommendation, now: float) -> Note | None:
        """Take what the service says of the pending log; return what is worth a line."""
        assert self.pending is not None, "nobody was asked"
        said_before, self._said_before = self._said_before, None
        match answer.verdict:
            case Verdict.UNDECIDED:
                self._missing_since = None
                return None
            case Verdict.MISSING:
                return self._missing(answer, now)
            case _ if answer == said_before:
                told = f"the service repeats what it said of an earlier run's: {answer}"
                return Note("WARNING", f"{_log(self._let_go())} has no verdict: {told}")
            case Verdict.FAILED:
                return Note("WARNING", f"the analysis of {_log(self._let_go())} gave no verdict: {answer}")
            case Verdict.CONTINUE:
                return Note("INFO", f"{_log(self._let_go())} is no reason to stop: {answer}")
        return self._stop(answer)

    def _stop(self, answer: Recommendation) -> Note:
        assert self.pending is not None
        self.stop_count += 1
        said = f"this job is not to be restarted, says the analysis of {_log(self.pending)}: {answer}"
        if self.is_over:  # pending stays: it says whose verdict ends the job
            return Note("ERROR", said)
        self._let_go()
        return Note(
            "ERROR",
            f"{said}. NOT ENFORCED, the job goes on: the stop action is log; no-restart would end it. "
            f"STOP verdicts so far: {self.stop_count}",
        )

    def _missing(self, answer: Recommendation, now: float) -> Note | None:
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < LASTING_SECONDS:
            return None
        lost = f"for {LASTING_SECONDS:g} s the service has told no state of it ({answer})"
        return Note("WARNING", f"{_log(self._let_go())} has no verdict: {lost}")

    def _awaited(self) -> str | None:
        """Return the log that is analysed, or is about to be."""
        if self._sent is not None and self._sent.intent is Intent.TERMINAL:
            return self._sent.log_path
        return self.pending if self.pending is not None else self._failed

    def _let_go(self) -> str:
        assert self.pending is not None
        log_path, self.pending = self.pending, None
        return log_path


def _log(path: str) -> str:
    return brief(path, _SHOWN)

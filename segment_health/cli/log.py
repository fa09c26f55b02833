"""The log of a publisher that runs for weeks: a line a transition, nothing in steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lines import Lines, alike
from .report import change_document, change_line, complaints, new_exclusions, radius, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segment_health.publish import Pass
    from segment_health.store import Change
    from segment_health.watch import Cause


class Log(Lines):
    """The log of a loop, which is told of everything (see watch.Listener) and says what is new."""

    def __init__(self, format_: str, clock: Callable[[], float]) -> None:
        super().__init__(format_, clock)
        self._failures = 0
        self._cause: Cause | None = None
        self._begun = False
        self._waiting = False

    def completed(self, done: Pass, _seconds: float) -> None:
        """Say what a pass changed; sum up the first one, and the first after trouble."""
        self._waiting = False
        for change in done.changes:
            if change.decision.action.value == "foreign" and change.error is None:
                self.once("WARNING", "foreign", change_line(change))
            elif change.error is None:
                self.say("INFO", change.decision.action.value, change_line(change), change=change_document(change))
        written = any(
            change.decision.action.value == "exclude" and change.error is None for change in done.changes
        )
        if radius(done) and (written or done.outcome.held):  # what could not be written is trouble, below
            self.say("INFO", "new_exclusions", radius(done), **new_exclusions(done))
        for line in complaints(done):
            self.once("WARNING", "trouble", line)
        if not self._begun or self._failures:
            missed = "1 pass that was not" if self._failures == 1 else f"{self._failures} passes that were not"
            after = f" after {missed}" if self._failures else ""
            self.say("INFO", "complete", f"complete{after}: {summary(done)}", failed_passes=self._failures)
        self._begun, self._failures, self._cause = True, 0, None

    def failed(self, cause: Cause, why: str, _seconds: float) -> None:
        """Say why a pass was not made: when it begins, when the cause changes, and once an hour.

        The same words with other numbers, an age or a process id, are the same trouble.
        """
        if cause.value != "lift":  # which is told of beside each pass that fails
            self._failures += 1
            if cause is not self._cause:
                self._said.pop(alike(why), None)
            self._cause = cause
        self.once("ERROR", "unknown", why, alike(why), cause=cause.value)

    def went_stale(self, changes: list[Change], silent: float) -> None:
        """Say that exclusions were lifted without evidence."""
        lifted = [change for change in changes if change.error is None]
        self.say(
            "ERROR", "stale", f"no complete pass for {silent:.0f} s: {len(lifted)} exclusions lifted (fail open)"
        )
        self.list_changes("stale", changes)

    def standing_by(self) -> None:
        """Say once that another publisher is at work."""
        if not self._waiting:
            self.say("INFO", "standby", "another publisher of this scope is alive; standing by")
        self._waiting = True

    def list_changes(self, event: str, changes: Sequence[Change]) -> None:
        """Say each change."""
        for change in changes:
            level = "INFO" if change.error is None else "ERROR"
            error = f": {change.error}" if change.error else ""
            self.say(level, event, change_line(change) + error, change=change_document(change))

"""The log of a publisher that runs for weeks: a line a transition, nothing in steady state."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any

from segment_health.record import one_line, printable, utc

from .report import change_document, change_line, complaints, new_exclusions, radius, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segment_health.publish import Pass
    from segment_health.store import Change
    from segment_health.watch import Cause

REPEAT_SECONDS = 3600.0
"""How long the same trouble is not said again."""


class Log:
    """Writes to stderr, for people or as JSON lines; `clock` gives seconds since the epoch.

    It is told of everything (see watch.Listener) and says what is new.
    """

    def __init__(self, format_: str, clock: Callable[[], float]) -> None:
        self._json = format_ == "json"
        self._clock = clock
        self._said: dict[str, float] = {}
        self._failures = 0
        self._cause: Cause | None = None
        self._begun = False
        self._waiting = False

    def say(self, level: str, event: str, message: str, **further: Any) -> None:
        """Write one line. `event` is a word for programs, `message` a sentence for people."""
        now = utc(int(self._clock()))
        if self._json:
            line = one_line({"time": now, "level": level, "event": event, "message": message, **further})
        else:
            line = f"{now} {level} {printable(message)}\n".encode("utf-8", "backslashreplace")
        # A full disk or a reader that went away must not end the publisher. Written past Python's buffer: what is
        # left in that fails again when Python ends, and changes the exit status.
        with contextlib.suppress(OSError):
            os.write(2, line)

    def completed(self, done: Pass, _seconds: float) -> None:
        """Say what a pass changed; sum up the first one, and the first after trouble."""
        self._waiting = False
        for change in done.changes:
            if change.decision.action.value == "foreign" and change.error is None:
                self._once("WARNING", "foreign", change_line(change))
            elif change.error is None:
                self.say("INFO", change.decision.action.value, change_line(change), change=change_document(change))
        written = any(
            change.decision.action.value == "exclude" and change.error is None for change in done.changes
        )
        if radius(done) and (written or done.outcome.held):  # what could not be written is trouble, below
            self.say("INFO", "new_exclusions", radius(done), **new_exclusions(done))
        for line in complaints(done):
            self._once("WARNING", "trouble", line)
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
                self._said.pop(_alike(why), None)
            self._cause = cause
        self._once("ERROR", "unknown", why, _alike(why), cause=cause.value)

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

    def remark(self, event: str, message: str) -> None:
        """Say what is wrong beside the passes; the same again after an hour at the earliest."""
        self._once("WARNING", event, message)

    def list_changes(self, event: str, changes: Sequence[Change]) -> None:
        """Say each change."""
        for change in changes:
            level = "INFO" if change.error is None else "ERROR"
            error = f": {change.error}" if change.error else ""
            self.say(level, event, change_line(change) + error, change=change_document(change))

    def _once(self, level: str, event: str, message: str, like: str = "", **further: Any) -> None:
        """Say what has not been said for an hour, nor anything `like` it."""
        now, like = self._clock(), like or message
        if now - self._said.get(like, float("-inf")) >= REPEAT_SECONDS:
            if len(self._said) > 1000:  # noqa: PLR2004 - whatever is said, memory stays flat
                self._said.clear()
            self._said[like] = now
            self.say(level, event, message, **further)


def _alike(sentence: str) -> str:
    return re.sub(r"\d+(?:\.\d+)?", "#", sentence)

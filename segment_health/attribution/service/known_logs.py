"""All that is known of logs, in memory, whence questions are answered whatever hangs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attempt import MAX_EARLIER, Attempt, Status, earlier_than

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segment_health.attribution.analysers.finding import Finding

MAX_PENDING = 10_000
"""Logs that are announced and were not asked to be judged; of more the oldest are forgotten."""
_MAX_SERIES = 5000
"""Trainings whose findings are remembered for their next cycle."""


class KnownLogs:
    """Logs by where they are and by how they were named, and what was found in each training's cycles.

    `attempts` and `judged` are those of the register.
    """

    def __init__(self, attempts: Iterable[Attempt], judged: Iterable[Attempt]) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._given: dict[str, str] = {}
        self._judged: dict[tuple[str, str, str], list[Attempt]] = {}
        self._sequence = 0
        for attempt in attempts:
            self.know(attempt)
        for attempt in judged:
            self.remember(attempt)

    def __getitem__(self, path: str) -> Attempt:
        return self._attempts[path]

    def next(self) -> int:
        """Return the number of the next terminal submission; each is given once."""
        self._sequence += 1
        return self._sequence

    def get(self, path: str) -> Attempt | None:
        """Return what is known of the log that really is at a path."""
        return self._attempts.get(path)

    def named(self, given: str) -> Attempt | None:
        """Return what is known of a log by a name: where it is, or how a client called it last."""
        return self._attempts.get(self._given.get(given, given))

    def all(self) -> list[Attempt]:
        """Return all that is known, in order of registration."""
        return sorted(self._attempts.values(), key=lambda attempt: attempt.registered)

    def know(self, attempt: Attempt) -> None:
        """Take what is known of a log now."""
        self.drop(attempt.path)
        self._attempts[attempt.path] = attempt
        if attempt.given:
            self._given[attempt.given] = attempt.path
        self._sequence = max(self._sequence, attempt.sequence)

    def drop(self, path: str) -> None:
        """Forget a log."""
        attempt = self._attempts.pop(path, None)
        if attempt is not None and self._given.get(attempt.given) == path:
            del self._given[attempt.given]

    def remember(self, judged: Attempt) -> None:
        """Keep what was found for the cycles that follow."""
        self._sequence = max(self._sequence, judged.sequence)
        if judged.finding is None:
            return
        former = self._judged.pop(judged.series, [])
        self._judged[judged.series] = [*former, judged][-2 * MAX_EARLIER :]
        if len(self._judged) > _MAX_SERIES:
            del self._judged[next(iter(self._judged))]

    def earlier(self, attempt: Attempt) -> list[Finding]:
        """Return what was found in earlier cycles of the same run."""
        return earlier_than(attempt, self._judged.get(attempt.series, ()))

    def to_forget(self) -> list[str]:
        """Return which announced logs make room for another one."""
        pending = [attempt for attempt in self._attempts.values() if attempt.status is Status.PENDING]
        if len(pending) < MAX_PENDING:
            return []
        pending.sort(key=lambda attempt: attempt.registered)
        return [attempt.path for attempt in pending[: MAX_PENDING // 100]]

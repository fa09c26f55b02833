"""The loop: a pass, a wait, and what happens when passes fail for long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from .lock import AlreadyRunning, LockError
from .sources import SourceUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .publish import Pass
    from .store import Change

JITTER = 0.1
"""Part of the interval by which each wait differs, so that a thousand sidecars do not ask in step."""
STANDBY_SECONDS = 5.0
"""How often a standby looks whether the other publisher lives: that costs a small file, and asks Slurm nothing."""
FAILURES_TO_LIFT = 2
"""Passes in a row that must fail before anything is lifted: whoever was stopped for long, or starts again after a
long time, has asked only once."""
MAX_BACKOFF = 4
"""Intervals that the wait grows to while Slurm does not answer: it is asked less, and its return is noticed."""


class Cause(Enum):
    """Why a pass was not made. The values are public: metrics are labelled with them."""

    SLURM = "slurm"
    """Slurm's state is unknown."""
    LOCK = "lock"
    DIRECTORY = "directory"
    MEMORY = "memory"
    LIFT = "lift"
    """It was not even tried: exclusions that are stale could not be lifted, beside a pass that failed."""


class Bell(Protocol):
    """What the loop waits on (see Signals)."""

    ending: int | None

    def wait(self, seconds: float, until: Callable[[], bool]) -> None:
        """Return after `seconds`, as soon as any request is there, or soon after `until` says so."""

    def take_reload(self) -> bool:
        """Tell whether the settings are to be reread, and forget it."""


class Publishing(Protocol):
    """What the loop drives. Nothing here sleeps, and only `attempt` asks Slurm."""

    @property
    def interval(self) -> float:
        """Seconds from pass to pass."""

    @property
    def stale_after(self) -> float | None:
        """Seconds without a complete pass after which exclusions are lifted; None for never."""

    def stands_by(self) -> bool:
        """Whether another publisher of the same scope lives, and this one only waits for its end."""

    def attempt(self) -> Pass:
        """Make a pass. Raises SourceUnknown or OSError: then nothing was changed."""

    def lift_stale(self) -> list[Change] | None:
        """Clear the scope's exclusions, which nothing has confirmed for too long. Raises OSError.

        None, and nothing is cleared, when another process has confirmed them since.
        """

    def is_outdated(self) -> bool:
        """Whether the policy has changed, so that the next pass should not be waited for."""

    def reload(self) -> None:
        """Reread the settings; keeps the old ones, and says so, if the new ones are wrong."""


class Listener(Protocol):
    """Who is told what happens; `seconds` is how long a pass took."""

    def completed(self, done: Pass, seconds: float) -> None:
        """A complete pass was made."""

    def failed(self, cause: Cause, why: str, seconds: float) -> None:
        """A pass was not made; `why` is a sentence."""

    def went_stale(self, changes: list[Change], silent: float) -> None:
        """Exclusions were lifted because no pass was complete for so many seconds."""

    def standing_by(self) -> None:
        """Another publisher lives; this one waits."""


class Listeners:
    """Tells several listeners the same, in their order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def completed(self, done: Pass, seconds: float) -> None:
        """Tell of a complete pass."""
        for listener in self._listeners:
            listener.completed(done, seconds)

    def failed(self, cause: Cause, why: str, seconds: float) -> None:
        """Tell of a pass that was not made."""
        for listener in self._listeners:
            listener.failed(cause, why, seconds)

    def went_stale(self, changes: list[Change], silent: float) -> None:
        """Tell of lifted exclusions."""
        for listener in self._listeners:
            listener.went_stale(changes, silent)

    def standing_by(self) -> None:
        """Tell that this publisher waits."""
        for listener in self._listeners:
            listener.standing_by()


@dataclass(slots=True)
class _Failures:
    """Failed passes in a row, and when the last complete one was, by a clock that nobody sets."""

    last_complete: float
    in_a_row: int = 0
    lifted: bool = False
    standby: bool = False


def run(  # noqa: PLR0913 - the parts of a loop, each of which tests replace
    publishing: Publishing,
    bell: Bell,
    listener: Listener,
    *,
    monotonic: Callable[[], float],
    random: Callable[[], float],
    age: float = 0.0,
) -> None:
    """Make passes until asked to end; the pass in hand is finished, and exclusions stay in place.

    `age` is how many seconds ago the scope's last complete pass was, made by an earlier process. `random` gives
    numbers from 0 to 1.
    """
    failures = _Failures(monotonic() - age)
    while True:
        if bell.take_reload():
            publishing.reload()
        if publishing.stands_by():
            listener.standing_by()
            failures = _Failures(monotonic(), standby=True)  # whoever lives confirms the exclusions, or lifts them
        else:
            failures.standby = False
            _attempt(publishing, listener, failures, monotonic)
        if bell.ending is None:
            # A new policy is to judge at once what is there.
            bell.wait(_delay(publishing, failures, monotonic(), random()), publishing.is_outdated)
        if bell.ending is not None:
            return


def _attempt(
    publishing: Publishing, listener: Listener, failures: _Failures, monotonic: Callable[[], float]
) -> None:
    began = monotonic()
    try:
        done = publishing.attempt()
    except SourceUnknown as unknown:
        cause, why = Cause.SLURM, f"Slurm's state is unknown, so every decision stays: {unknown}"
    except (AlreadyRunning, LockError) as error:
        cause, why = Cause.LOCK, f"the lock of this host: {error}"
    except OSError as error:
        cause, why = Cause.DIRECTORY, f"the decision directory: {error.strerror or error}"
    except MemoryError:  # by the next pass others may have ended
        cause, why = Cause.MEMORY, "memory ran out, so every decision stays"
    else:
        failures.last_complete, failures.in_a_row, failures.lifted = monotonic(), 0, False
        listener.completed(done, failures.last_complete - began)
        return
    now = monotonic()
    listener.failed(cause, why, now - began)
    _fail(publishing, listener, failures, now)


def _fail(publishing: Publishing, listener: Listener, failures: _Failures, now: float) -> None:
    failures.in_a_row += 1
    silent = now - failures.last_complete
    if publishing.stale_after is None or failures.lifted or silent < publishing.stale_after:
        return
    if failures.in_a_row < FAILURES_TO_LIFT:
        return
    try:
        changes = publishing.lift_stale()
    except OSError as error:
        listener.failed(Cause.LIFT, f"stale exclusions could not be lifted: {error.strerror or error}", 0.0)
    else:
        if changes is not None:
            failures.lifted = all(change.error is None for change in changes)
            listener.went_stale(changes, silent)


def _delay(publishing: Publishing, failures: _Failures, now: float, random: float) -> float:
    """Return the seconds to wait: the interval with jitter, more while passes fail, never past going stale."""
    if failures.standby:
        return min(publishing.interval, STANDBY_SECONDS)
    backoff = min(float(MAX_BACKOFF), 2.0 ** max(0, failures.in_a_row - 1))
    delay = publishing.interval * backoff
    delay *= 1 + JITTER * (2 * random - 1)
    if failures.in_a_row and not failures.lifted and publishing.stale_after is not None:
        delay = min(delay, max(1.0, failures.last_complete + publishing.stale_after - now))
    return delay

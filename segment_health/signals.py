"""What a long-running publisher is told while it waits: to end, to make a pass now, to reread its settings."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType


LOOK_SECONDS = 5.0
"""How often a wait looks whether what it waits for has come without a signal."""
QUIET_SECONDS = 5.0
"""From one pass that others asked for to the next: whoever may ask must not decide how often Slurm is asked."""


class Asker(Protocol):
    """What a publisher hears requests by that are no signals: a socket, a file, a page."""

    def fileno(self) -> int:
        """Return the descriptor to wait on; -1 while there is none."""

    def heard(self) -> bool:
        """Tell whether a pass is asked for, and forget it; never wait."""


class Signals:
    """Turns signals into requests that the loop looks at between passes; inside `with` only.

    SIGTERM and SIGINT ask to end, SIGUSR1 for a pass now, SIGHUP to reread the settings. A handler only takes a
    note and rings: whatever runs goes on undisturbed, and ten rings are one. `askers` may ask for a pass too, each
    QUIET_SECONDS for one.
    """

    def __init__(self) -> None:
        self.ending: int | None = None
        """The signal that asked to end."""
        self._poked = False
        self._reload = False
        self._before: dict[int, object] = {}
        self.askers: list[Asker] = []
        self._not_before = 0.0
        # A pipe and not a threading.Event: an Event set by a handler, while the same thread is inside wait(),
        # can meet its own lock.
        self._bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Signals:  # noqa: PYI034 - Self is Python 3.11
        wanted: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGTERM: self._end,
            signal.SIGINT: self._end,
            signal.SIGUSR1: self._poke,
            signal.SIGHUP: self._reread,
        }
        for number, handler in wanted.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # Nobody is left to hear a request, and by default it would kill a process that is ending well.
            after = signal.SIG_IGN if number in {signal.SIGUSR1, signal.SIGHUP} else handler
            signal.signal(number, after)  # type: ignore[arg-type]  # what signal.signal returned
        os.close(self._bell)
        os.close(self._ring)

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Return after `seconds`, as soon as any request is there, or soon after `until` says so."""
        now = time.monotonic()
        end, asked = now + seconds, False
        while self.ending is None and not self._poked and not self._reload:
            due = min(end, self._not_before) if asked else end
            if due <= now:
                break
            listening = {number: asker for asker in self.askers if (number := asker.fileno()) >= 0}
            ready, _, _ = select.select([self._bell, *listening], [], [], min(due - now, LOOK_SECONDS))
            for number in ready:  # each is heard out, whoever was first: what is left would end the next wait
                asked |= number in listening and listening[number].heard()
            now = time.monotonic()
            if until():
                break
        if asked:
            self._not_before = now + QUIET_SECONDS
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell, 4096):
                pass
        self._poked = False

    def take_reload(self) -> bool:
        """Tell whether the settings are to be reread, and forget it."""
        wanted, self._reload = self._reload, False
        return wanted

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.ending = number
        self._sound()

    def _poke(self, _number: int, _frame: FrameType | None) -> None:
        self._poked = True
        self._sound()

    def _reread(self, _number: int, _frame: FrameType | None) -> None:
        self._reload = True
        self._sound()

    def _sound(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has rung 65,536 times already
            os.write(self._ring, b"!")

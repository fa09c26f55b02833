"""The log of a program that runs for weeks: lines for people or for programs, the same trouble once an hour."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any

from segment_health.record import brief, one_line, printable, utc

if TYPE_CHECKING:
    from collections.abc import Callable

REPEAT_SECONDS = 3600.0
"""How long the same trouble is not said again."""
BURST = 30
"""Lines in a row that callers can bring about."""
REFILL_SECONDS = 10.0
"""From one line of theirs to the next, after that: 360 an hour."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Lines:
    """Writes to stderr, for people or as JSON lines; `clock` gives seconds since the epoch.

    `least` is the lowest of LEVELS that is written.
    """

    def __init__(self, format_: str, clock: Callable[[], float]) -> None:
        self.least = "INFO"
        self._json = format_ == "json"
        self._clock = clock
        self._said: dict[str, float] = {}

    def say(self, level: str, event: str, message: str, **further: Any) -> None:
        """Write one line. `event` is a word for programs, `message` a sentence for people."""
        if LEVELS.index(level) < LEVELS.index(self.least):
            return
        now = utc(int(self._clock()))
        if self._json:
            line = one_line({"time": now, "level": level, "event": event, "message": message, **further})
        else:
            line = f"{now} {level} {printable(message)}\n".encode("utf-8", "backslashreplace")
        # A full disk or a reader that went away must not end the program. Written past Python's buffer: what is
        # left in that fails again when Python ends, and changes the exit status.
        with contextlib.suppress(OSError):
            os.write(2, line)

    def remark(self, event: str, message: str) -> None:
        """Say what is wrong; the same again after an hour at the earliest."""
        self.once("WARNING", event, message)

    def once(self, level: str, event: str, message: str, like: str = "", **further: Any) -> None:
        """Say what has not been said for an hour, nor anything `like` it."""
        now, like = self._clock(), like or message
        # A clock that was set back makes nothing wait for it.
        if not 0 <= now - self._said.get(like, float("-inf")) < REPEAT_SECONDS:
            if len(self._said) > 1000:  # noqa: PLR2004 - whatever is said, memory stays flat
                self._said.clear()
            self._said[like] = now
            self.say(level, event, message, **further)


class RationedLines(Lines):
    """Lines of a program that others ask: they must not be able to fill a disk by asking.

    BURST lines in a row can be brought about by them, and one each REFILL_SECONDS after that.
    """

    def __init__(self, format_: str, clock: Callable[[], float]) -> None:
        super().__init__(format_, clock)
        self._allowance = float(BURST)
        self._at = clock()
        self._left_out = 0

    def remark(self, event: str, message: str) -> None:
        """Say what is wrong, as far as callers may bring that about; the same again after an hour."""
        if self._may():
            self.once("WARNING", event, brief(message, 1000), alike(message))

    def ration(self, level: str, event: str, message: str, **further: Any) -> None:
        """Say what a caller brought about, or count what is left out."""
        if LEVELS.index(level) < LEVELS.index(self.least):
            return
        if self._may():
            if self._left_out:
                told = f"{self._left_out} lines about calls were left out before this one"
                super().say("WARNING", "left_out", told)
                self._left_out = 0
            super().say(level, event, message, **further)
        else:
            self._left_out += 1

    def _may(self) -> bool:
        now = self._clock()
        self._allowance = min(BURST, self._allowance + max(0.0, now - self._at) / REFILL_SECONDS)
        self._at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def alike(sentence: str) -> str:
    """Return a sentence without its numbers, an age or a process id: the same trouble has the same."""
    return re.sub(r"\d+(?:\.\d+)?", "#", sentence)

"""The log of a program that runs for weeks: lines for people or for programs, the same trouble once an hour."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any

from segment_health.record import one_line, printable, utc

if TYPE_CHECKING:
    from collections.abc import Callable

REPEAT_SECONDS = 3600.0
"""How long the same trouble is not said again."""
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


def alike(sentence: str) -> str:
    """Return a sentence without its numbers, an age or a process id: the same trouble has the same."""
    return re.sub(r"\d+(?:\.\d+)?", "#", sentence)

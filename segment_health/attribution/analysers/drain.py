"""Waits until a log is written no more: its last lines say most, and arrive after the failure."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Event

_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: how long is waited at least and at most, and for how long nothing must be written."""

    least: float = 10.0
    quiet: float = 5.0
    most: float = 40.0

    def __post_init__(self) -> None:
        """Refuse what nobody can wait for. Raises ValueError."""
        if not (0 <= self.least <= self.most and 0 <= self.quiet <= self.most < float("inf")):
            raise ValueError(f"not 0 <= least, quiet <= most: {self.least:g}, {self.quiet:g}, {self.most:g} s")


USUAL = Patience()


def wait_until_quiet(descriptor: int, ending: Event, patience: Patience = USUAL) -> bool:
    """Wait until the file that is open as `descriptor` is quiet; tell whether it is. Raises OSError.

    False: it was still being written when the time was over, or `ending` was set, which ends the wait at once.
    """
    began = changed = time.monotonic()
    seen = _stamp(descriptor)
    while True:
        now = time.monotonic()
        if now - began >= patience.least and now - changed >= patience.quiet:
            return True
        if now - began >= patience.most:
            return False
        over = min(max(began + patience.least, changed + patience.quiet), began + patience.most)
        if ending.wait(min(_POLL_SECONDS, max(over - now, 0.001))):
            return False
        found = _stamp(descriptor)
        if found != seen:
            seen, changed = found, time.monotonic()


def _stamp(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_size, state.st_mtime_ns

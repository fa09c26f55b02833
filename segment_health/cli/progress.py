"""A sign of life while a command waits: one line on a terminal, which is gone when the waiting is over."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_SECONDS = 1.0
"""What ends sooner needs no sign."""


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on standard error, once a second, what is waited for; nothing where that is no terminal.

    By a timer's signal and not by a thread: work that may hang is done in children, and a process with threads
    must not be forked. A child inherits no timer.
    """
    if not _is_terminal():
        yield
        return
    began, width = time.monotonic(), 0

    def tell(*_: object) -> None:
        nonlocal width
        line = f"segment-health: {what}, {time.monotonic() - began:.0f} s"
        width = max(width, len(line))
        _write(f"\r{line}")

    before = signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, _FIRST_SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if width:
            _write(f"\r{' ' * width}\r")


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or not a file at all
        return False


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), text.encode("ascii", "replace"))

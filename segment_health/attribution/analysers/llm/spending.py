"""Counts what is spent on models, in a file that several processes share, or in memory."""

from __future__ import annotations

import fcntl
import os
import threading

from . import budget

_MAX_CONTENT = 1000


class Spending:
    """Counts against a budget of tokens a day; in a file, at `path`, together with whoever else counts there."""

    def __init__(self, path: str | None, tokens: int) -> None:
        self._path = path
        self._budget = tokens
        self._spent = budget.Spent()
        self._lock = threading.Lock()

    def take(self, tokens: int, now: float) -> bool:
        """Spend tokens, at `now`; return whether they were there. OSError where that cannot be written down."""
        if self._path is not None:
            return self._take_in_file(self._path, tokens, now)
        with self._lock:
            after = self._spent.after(tokens, now, self._budget)
            self._spent = after or self._spent
        return after is not None

    def _take_in_file(self, path: str, tokens: int, now: float) -> bool:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # it ends with the descriptor, and with the process
            after = budget.read(os.pread(descriptor, _MAX_CONTENT, 0)).after(tokens, now, self._budget)
            if after is None:
                return False
            content = budget.written(after)
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
            return True
        finally:
            os.close(descriptor)

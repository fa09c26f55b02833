"""How much Slurm was asked, and how much came back: what a site wants to know of everybody who asks."""

from __future__ import annotations

import threading


class Traffic:
    """Counts questions and bytes of their answers, since it was made; failed questions count too.

    A question is a command that was started or a request that was sent. Whoever asks may do so in several threads.
    """

    def __init__(self) -> None:
        self.queries = 0
        self.received = 0
        self._lock = threading.Lock()

    def count(self, *, queries: int = 0, received: int = 0) -> None:
        """Add to what was counted."""
        with self._lock:
            self.queries += queries
            self.received += received

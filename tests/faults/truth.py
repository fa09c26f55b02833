"""What the harness made true on Slurm, and when which fault was in force: what promise.py judges by."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .promise import Health, Span, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .fault import Fault


class Truth:
    """Grows while a scenario runs; times are monotonic nanoseconds."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.steps: dict[str, list[Step]] = {}
        self.spans: list[Span] = []
        self._clock = clock

    def is_so(self, unit: str, health: Health) -> None:
        """Say what is true of a unit from now on."""
        self.steps.setdefault(unit, []).append(Step(self._clock(), health))

    def of(self, unit: str) -> Health:
        """Return what is true of a unit now."""
        return self.steps[unit][-1].health

    @contextmanager
    def changing(self, unit: str, to: Health) -> Iterator[None]:
        """Either is true inside; `to` afterwards. Nothing changes where it is so already, and stays so inside."""
        if self.of(unit) is to:
            yield
            return
        self.is_so(unit, Health.EITHER)
        yield
        self.is_so(unit, to)

    @contextmanager
    def in_force(self, fault: Fault) -> Iterator[None]:
        """Note that a fault is in force inside, and for whom it holds or hides decisions."""
        begin = self._clock()
        try:
            yield
        finally:
            self.spans.append(Span(fault.name, begin, self._clock(), fault.holds, fault.blinds))

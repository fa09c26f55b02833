"""How things are timed: in turn, so that what else the machine does falls on all of them, and by their medians."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Timed = Callable[[], float]
    """Does something once, and returns how many seconds that took."""


def process(command: Sequence[str], environ: Mapping[str, str]) -> Timed:
    """Return what runs a command to its end, which must be a good one; its output goes nowhere."""

    def run() -> float:
        began = time.perf_counter()
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began

    return run


def side_by_side(commands: Sequence[Sequence[str]], environ: Mapping[str, str]) -> Timed:
    """Return what starts commands together and waits until all have ended well; their output goes nowhere."""

    def run() -> float:
        began = time.perf_counter()
        running = [
            subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for command in commands
        ]
        statuses = [process.wait() for process in running]
        took = time.perf_counter() - began
        if any(statuses):
            raise RuntimeError(f"{commands} ended with {statuses}")
        return took

    return run


def call(work: Callable[[], object]) -> Timed:
    """Return what calls a function."""

    def run() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return run


def medians(cases: Mapping[str, Timed], rounds: int, fewer: Mapping[str, int] | None = None) -> dict[str, float]:
    """Time all cases in turn, so many times, after a first time that does not count; return medians in seconds.

    A case that `fewer` names is in so many rounds only, and not in the first that does not count: it takes so long
    that cold caches do not show in it.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    limits = fewer or {}
    for round_ in range(rounds + 1):
        for name, timed in cases.items():
            if name in limits and not 0 < round_ <= limits[name]:
                continue
            seconds = timed()
            if round_:
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}

"""The consumer's check against `os.stat` of the same path, and what its import and its command cost.

Processes are timed against `python -c pass` of the same Python.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fleet import SEGMENT_HEALTH
from benchmarks.timing import medians, process
from segment_health.consumer import SegmentHealthCheck

if TYPE_CHECKING:
    from benchmarks.timing import Timed

_ARTIFACTS: dict[str, bytes | None] = {"missing": None, "empty": b"", "non-empty": b"x"}


def measure(short: bool) -> dict[str, Any]:
    """Return seconds a call and a process, medians, and what they are over what each is compared to."""
    calls, rounds, starts = (2000, 9, 11) if short else (20_000, 15, 31)
    with tempfile.TemporaryDirectory(prefix="consumer-") as directory:
        checks = [_check(what, directory, calls, rounds) for what in _ARTIFACTS]
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SLURM_"))}
        environ |= {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}
        processes = {
            "python": process([sys.executable, "-c", "pass"], environ),
            "import_segment_health": process([sys.executable, "-c", "import segment_health"], environ),
            "check_process": process([SEGMENT_HEALTH, "check", "--dir", directory], environ),
        }
        took = medians(processes, starts)
    return {
        "check": checks,
        **{name: round(seconds, 5) for name, seconds in took.items()},
        "import_added": round(took["import_segment_health"] - took["python"], 5),
        "check_process_added": round(took["check_process"] - took["python"], 5),
    }


def _check(what: str, directory: str, calls: int, rounds: int) -> dict[str, Any]:
    check = SegmentHealthCheck(directory, "7", "7")
    content = _ARTIFACTS[what]
    if content is not None:
        Path(check.path).write_bytes(content)
    assert check() is (what != "non-empty")
    took = medians({"stat": _stat(check.path, calls), "check": _called(check, calls)}, rounds)
    return {
        "artifact": what,
        **{name: round(seconds / calls, 9) for name, seconds in took.items()},
        "over_stat": round(took["check"] / took["stat"], 3),
    }


def _stat(path: str, calls: int) -> Timed:
    """Return what looks at a path so many times, and goes on where there is nothing."""

    def run() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            try:  # noqa: SIM105 - contextlib.suppress would cost more than the call
                os.stat(path)
            except FileNotFoundError:
                pass
        return time.perf_counter() - began

    return run


def _called(check: SegmentHealthCheck, calls: int) -> Timed:
    def run() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            check()
        return time.perf_counter() - began

    return run

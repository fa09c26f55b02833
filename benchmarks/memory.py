"""The memory of the loop's own process, pass after pass, each asked for by SIGUSR1.

Sampled between passes (VmRSS), and its peak in the end (VmHWM). The children of a pass, Slurm's commands and the
one that touches the directory, live for a part of a second and are not in it. Growth is the median of the last
fifth of the samples less that of the second fifth: in the first one caches fill.
"""

from __future__ import annotations

import re
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fleet import fleet
from benchmarks.publisher import publishing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.publisher import Publisher

EVERY = 10
"""Passes from one sample to the next."""
SETTLING = 0.1
"""Seconds after a heartbeat, in which the process lets go of the pass."""


def measure(short: bool) -> dict[str, Any]:
    """Return MiB after each tenth pass, the peak, and the growth."""
    nodes, tasks, nodes_per_task, drained, passes = (
        (1000, 55, 18, 15, 60) if short else (10_000, 550, 18, 150, 500)
    )
    samples: list[tuple[int, float]] = []
    with fleet(nodes, tasks, nodes_per_task, drained=drained) as found, publishing(found) as publisher:
        for pass_ in range(1, passes + 1):  # beside the one by which the loop began
            _make_a_pass(publisher)
            if pass_ % EVERY == 0:
                time.sleep(SETTLING)
                samples.append((pass_, _mebibytes(publisher, "VmRSS")))
        peak = _mebibytes(publisher, "VmHWM")
    return {
        "nodes": nodes,
        "tasks": tasks,
        "passes": passes,
        "rss_mib": [list(sample) for sample in samples],
        "peak_mib": peak,
        "growth_mib": growth([mebibytes for _, mebibytes in samples]),
    }


def growth(samples: Sequence[float]) -> float:
    """Return what the median of the last fifth has more than that of the second."""
    fifth = len(samples) // 5
    return round(statistics.median(samples[-fifth:]) - statistics.median(samples[fifth : 2 * fifth]), 3)


def _make_a_pass(publisher: Publisher) -> None:
    before = publisher.beat()
    publisher.process.send_signal(signal.SIGUSR1)
    publisher.until(lambda: publisher.beat() != before, "heartbeat after SIGUSR1")


def _mebibytes(publisher: Publisher, name: str) -> float:
    """Read a figure of the process that the kernel gives in kB."""
    status = Path(f"/proc/{publisher.process.pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return round(int(found[1]) / 1024, 3)

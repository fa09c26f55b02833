"""Times what attribution adds to the cycles of a crash loop, with a service that is fast, slow, hung or dead.

Each round is a job of some cycles that fail fast: cycle_began(), the cycle, cycle_failed(), as a launcher would
call them. Beside what these two took it says how many analyses were in flight at the most, as the service saw it,
and how long after the first failure a verdict was there, at the latest. Prints a table, or JSON; ends with 1 where
a cycle was held up longer than --limit, two analyses were in flight, or a service that works gave no verdict.

    python benchmarks/attribution.py [--cycles 20] [--cycle-seconds 0.25] [--rounds 5] [--limit 0.05] [--json]
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from segment_health.attribution.poller import Attribution

SERVICE = Path(__file__).parents[1] / "tests/attribution/service.py"
SERVICES: dict[str, dict[str, Any]] = {
    "fast": {"analysis": 0.5},
    "slow": {"analysis": 1.0, "delay": 1.0},
    "hung": {"delay": -1},
    "dead": {},
}
"""How each service behaves; the dead one is killed before the first cycle."""
WORKS = ("fast", "slow")
PATIENCE = 30.0
"""Seconds after the last cycle until a verdict that is still missing is called so."""


class Service:
    """The program of the tests that plays a service, for one job."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen([sys.executable, str(SERVICE)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.is_dead = name == "dead"
        if self.is_dead:
            self.stop()
        else:
            httpx.put(f"{self.url}/behaviour", json=SERVICES[name], trust_env=False)

    def most(self) -> int:
        """Return how many analyses were in flight at the most."""
        return 0 if self.is_dead else int(httpx.get(f"{self.url}/asked", trust_env=False).json()["most"])

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate(timeout=30)


def job(service: Service, cycles: int, seconds: float, patience: float) -> dict[str, Any]:
    """Run a job; return what each of its cycles was held up, and when a verdict was there."""
    attribution = Attribution(service.url, environ={})
    held: list[float] = []
    verdict: float | None = None
    first = time.perf_counter() + seconds
    while len(held) < cycles or (verdict is None and time.perf_counter() < first + cycles * seconds + patience):
        log_path = f"/logs/train_cycle{len(held)}.log"
        began = time.perf_counter()
        attribution.cycle_began(log_path)
        running = time.perf_counter()
        time.sleep(seconds)  # the cycle
        failed = time.perf_counter()
        attribution.cycle_failed(log_path)
        held.append(time.perf_counter() - failed + running - began)
        if verdict is None and attribution.stop_verdict_observed():
            verdict = time.perf_counter() - first
    attribution.close(0)
    return {"held": held, "verdict": verdict, "most": service.most()}


def measured(name: str, rounds: int, cycles: int, seconds: float) -> dict[str, Any]:
    """Run the jobs of one kind of service; return the figures of all of them."""
    jobs = []
    for _ in range(rounds):
        service = Service(name)
        try:
            jobs.append(job(service, cycles, seconds, PATIENCE if name in WORKS else 0.0))
        finally:
            service.stop()
    held = [each for one in jobs for each in one["held"]]
    verdicts = [one["verdict"] for one in jobs]
    return {
        "median_ms": round(statistics.median(held) * 1000, 3),
        "worst_ms": round(max(held) * 1000, 3),
        "most_in_flight": max(one["most"] for one in jobs),
        "verdict_seconds": None if None in verdicts else round(max(verdicts), 1),
    }


def main() -> None:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--cycle-seconds", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.05, help="seconds that no cycle may be held up")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    logging.getLogger("nvrx").setLevel(logging.CRITICAL)
    found = {name: measured(name, told.rounds, told.cycles, told.cycle_seconds) for name in SERVICES}
    if told.json:
        print(json.dumps(found))
    else:
        print(f"{told.rounds} jobs, {told.cycles} cycles of {told.cycle_seconds:g} s; ms a cycle, and seconds")
        print(f"{'service':<10}{'median':>10}{'worst':>10}{'in flight':>12}{'verdict after':>16}")
        for name, row in found.items():
            print(
                f"{name:<10}{row['median_ms']:>10}{row['worst_ms']:>10}{row['most_in_flight']:>12}"
                f"{row['verdict_seconds'] or '-':>16}"
            )
    if any(row["worst_ms"] >= told.limit * 1000 or row["most_in_flight"] > 1 for row in found.values()):
        sys.exit(f"a cycle was held up for {told.limit:g} s, or two analyses were in flight")
    if any(found[name]["verdict_seconds"] is None for name in WORKS):
        sys.exit("a service that works gave no verdict")


if __name__ == "__main__":
    main()

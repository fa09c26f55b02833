"""Times what `segment-health preflight` adds to a command, beside what Python alone costs.

The command is `true`: bare, after `python -c pass`, after preflight with no check enabled, and after one that
looks into a decision directory. Medians of interleaved rounds, as differences to the bare command and as ratios to
Python. Prints one JSON object, and ends with 1 where preflight alone adds as much as --limit.

    python benchmarks/preflight.py [--rounds 51] [--limit 0.1]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SEGMENT_HEALTH = str(Path(sys.executable).with_name("segment-health"))
JOB = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}


class Cost(NamedTuple):
    """What a command took: seconds by the wall's clock, and of processors, which a busy machine changes less."""

    wall: float
    cpu: float


def cost(command: list[str]) -> Cost:
    """Run a command to its end, which must be a good one."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=os.environ | JOB, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def measure(rounds: int, directory: str) -> dict[str, dict[str, float]]:
    """Time all in turn; return medians, what they add to the bare command, and that beside what Python adds."""
    preflight = [SEGMENT_HEALTH, "preflight"]
    commands = {
        "true": ["true"],
        "python": ["sh", "-c", f"'{sys.executable}' -c pass && exec true"],
        "preflight": [*preflight, "--", "true"],
        "preflight_segment": [*preflight, "--ft-segment-health-check-dir", directory, "--", "true"],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            found = cost(command)
            if round_:  # the first one fills caches
                costs[name].append(found)
    walls = {name: statistics.median(each.wall for each in found) for name, found in costs.items()}
    cpus = {name: statistics.median(each.cpu for each in found) for name, found in costs.items()}
    added = {name: wall - walls["true"] for name, wall in walls.items() if name != "true"}
    return {
        "median_seconds": {name: round(wall, 4) for name, wall in walls.items()},
        "added_seconds": {name: round(each, 4) for name, each in added.items()},
        "added_cpu_seconds": {name: round(cpus[name] - cpus["true"], 4) for name in added},
        "over_python": {name: round(each / added["python"], 2) for name, each in added.items()},
    }


def main() -> None:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--limit", type=float, default=0.1, help="seconds that no check may add")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(told.rounds, directory)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
    print(json.dumps({"rounds": told.rounds, "machine": machine, **found}, indent=1))
    if found["added_seconds"]["preflight"] >= told.limit:
        sys.exit(f"preflight adds {found['added_seconds']['preflight']:.3f} s, and may add {told.limit:g} s")


if __name__ == "__main__":
    main()

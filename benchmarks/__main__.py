"""Measures everything, or what --only names: results.json, and from it docs/performance.md and its plots."""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import importlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import segment_health
from benchmarks import report

if TYPE_CHECKING:
    from benchmarks.goals import Results


def main() -> None:
    """Measure, and write what was found; a short run only prints it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few rounds, small shapes; printed, and never kept")
    parser.add_argument(
        "--only", metavar="NAMES", help=f"some of {','.join(report.PLOTS)}; others stay as they are"
    )
    told = parser.parse_args()
    names = told.only.split(",") if told.only else list(report.PLOTS)
    if unknown := set(names) - set(report.PLOTS):
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    for package in ("segment_health", "slurm", "benchmarks"):  # else every start that is timed compiles
        compileall.compile_dir(report.ROOT / package, quiet=1)
    found: Results = {}
    for name in names:
        began = time.monotonic()
        print(f"bench: {name}", file=sys.stderr, flush=True)
        found[name] = importlib.import_module(f"benchmarks.{name}").measure(told.short)
        print(f"bench: {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    found |= {"machine": _machine(), "date": _today(), "command": " ".join(["make bench", *_arguments()])}
    if told.short:
        print(json.dumps(found, indent=1))
        return
    kept = report.read()
    if told.only and kept:  # the rest is of the full run, which its date and command go on to name
        if kept["machine"] != found["machine"]:
            raise SystemExit("bench: results.json is of another machine or other versions: measure everything")
        again = dict.fromkeys(names, f"{found['date']} by `{found['command']}`")
        found = {name: found[name] for name in names} | {"again": kept.get("again", {}) | again}
    results = kept | found if told.only else found
    report.RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    report.write(results)


def _arguments() -> list[str]:
    return [f"ARGS='{' '.join(sys.argv[1:])}'"] if sys.argv[1:] else []


def _today() -> str:
    return dt.datetime.now(tz=dt.timezone.utc).date().isoformat()


def _machine() -> dict[str, str | int | None]:
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    slurm = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "slurm": slurm.removeprefix("slurm-wlm ").removeprefix("slurm "),
        "segment_health": segment_health.__version__,
    }


if __name__ == "__main__":
    main()

"""Times one pass over a large cluster, as a whole process, against the bare queries and the usual shell loop.

A real slurmctld with simulated nodes (fleet.sh); ratios within one run, medians of interleaved rounds. Needs root,
and Slurm's programs. Prints one JSON object.

    python benchmarks/one_pass.py [--nodes 10000] [--tasks 550] [--nodes-per-task 18] [--drain 150] [--rounds 9]
        [--sources text,json]

A source that is named is timed as `publish_SOURCE`; SEGMENT_HEALTH_REST_URL and the like say how to reach it.
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

HERE = Path(__file__).parent
SEGMENT_HEALTH = Path(sys.executable).with_name("segment-health")

BARE = "scontrol show nodes -o >/dev/null & squeue -h -t R -O 'JobID:|,NodeList:|' >/dev/null; wait"

SHELL_LOOP = r"""
bad=$(sinfo -h -N -t drain,down,fail,no_respond -o %N | sort -u)
squeue -h -r -t R -o '%F|%K|%N' | while IFS='|' read -r job task nodes; do
    hit=$(scontrol show hostnames "$nodes" | grep -Fxf <(printf '%s\n' "$bad"))
    [ -z "$hit" ] || printf '%s\n' "$hit" > "$DIR/segment_health_check.$job.$task"
done
"""


def seconds(command: list[str], environ: dict[str, str]) -> float:
    """Run a command to its end, which must be a good one, and return how long it took."""
    began = time.perf_counter()
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure(
    rounds: int, loop_rounds: int, sources: list[str], environ: dict[str, str], directory: Path
) -> dict[str, object]:
    """Time all in turn; return medians in seconds and ratios to the bare queries."""
    publish = [str(SEGMENT_HEALTH), "publish", "--once", "--all", "--dir", str(directory)]
    commands = {"bare": ["bash", "-c", BARE], "publish": publish, "shell_loop": ["bash", "-c", SHELL_LOOP]}
    commands |= {f"publish_{source}": [*publish, "--source", source] for source in sources}
    times: dict[str, list[float]] = {name: [] for name in commands}
    seconds(publish, environ)  # publishes; what is timed is the pass that changes nothing
    for round_ in range(rounds):
        for name, command in commands.items():
            if name != "shell_loop" or round_ < loop_rounds:
                times[name].append(seconds(command, environ))
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        "median_seconds": {name: round(median, 4) for name, median in medians.items()},
        "over_bare": {name: round(median / medians["bare"], 2) for name, median in medians.items()},
        "shell_loop_over_publish": round(medians["shell_loop"] / medians["publish"], 1),
    }


def main() -> None:
    """Start the fleet, measure, print, end the fleet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=550)
    parser.add_argument("--nodes-per-task", type=int, default=18)
    parser.add_argument("--drain", type=int, default=150, help="nodes to drain, from the first on")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--loop-rounds", type=int, default=3, help="rounds of the shell loop, which takes seconds")
    parser.add_argument("--sources", default="", help="further sources to time, with commas between them")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-") as temporary:
        fleet, directory = Path(temporary) / "fleet", Path(temporary) / "decisions"
        directory.mkdir()
        shape = [str(told.nodes), str(told.tasks), str(told.nodes_per_task)]
        subprocess.run(["bash", HERE / "fleet.sh", "start", fleet, *shape], check=True, stdout=sys.stderr)
        environ = os.environ | {"SLURM_CONF": str(fleet / "slurm.conf"), "DIR": str(directory)}
        try:
            bad = f"c[00001-{told.drain:05}]"
            drain = ["scontrol", "update", f"nodename={bad}", "state=drain", "reason=benchmark"]
            subprocess.run(drain, env=environ, check=True)
            sources = told.sources.split(",") if told.sources else []
            found = measure(told.rounds, told.loop_rounds, sources, environ, directory)
            version = subprocess.run(["scontrol", "-V"], env=environ, capture_output=True, text=True, check=True)
            machine = {
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
                "slurm": version.stdout.strip(),
            }
            print(json.dumps({"shape": vars(told), "machine": machine, **found}, indent=1))
        finally:
            subprocess.run(["bash", HERE / "fleet.sh", "stop", fleet], check=False)


if __name__ == "__main__":
    main()

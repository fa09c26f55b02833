"""Times what a hostile reason and a hostile expression cost a pass: whole processes, interleaved, medians.

A recording of one unit and a reason of 64 KiB is replayed without a policy, with one harmless rule (which loads
RE2), and with the slowest expressions that a policy file may hold. Needs no Slurm. Prints one JSON object;
`delay_ms` is what hostility adds to the harmless rule.

    python benchmarks/hostile_policy.py [--rounds 9] [--reasons 1]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEGMENT_HEALTH = Path(sys.executable).with_name("segment-health")
RULE = '[[rule]]\nname = {name}\nreason = {reason}\nlevel = "SeparateFault"\n'
HOSTILE = ["[ab]*a[ab]{900}c", "(.*a){9}.{80}x"]


def recording(reasons: int) -> str:
    """Return a recording in which so many drained nodes have a reason of 64 KiB each, none like another."""
    dice = random.Random(1)
    names = [f"n{number}" for number in range(1, reasons + 1)]
    nodes = [
        {
            "name": name,
            "state": ["ALLOCATED", "DRAIN"],
            "reason": "".join(dice.choice("ab") for _ in range(65_536)),
            "reason_user": "root",
            "reason_since": 1_796_000_000,
        }
        for name in names
    ]
    job = {
        "job_id": "7",
        "state": "RUNNING",
        "restart_count": 0,
        "start_time": 1_796_000_000,
        "user": "alice",
        "user_id": "1001",
        "partition": "main",
        "nodelist": ",".join(names),
    }
    head = {"schema": 1, "cluster": "bench", "slurm_version": "24.11.5", "visible_user": None, "source": "text"}
    return json.dumps({**head, "recorded": "", "scrubbed": False, "nodes": nodes, "allocations": [job]})


def policy(expressions: list[str]) -> str:
    """Return a policy file with a rule for each expression."""
    return "".join(
        RULE.format(name=json.dumps(f"rule {number}"), reason=json.dumps(expression))
        for number, expression in enumerate(expressions)
    )


def seconds(directory: Path, *options: str) -> float:
    """Replay the recording and return how long it took."""
    command: list[str | Path] = [
        SEGMENT_HEALTH,
        "publish",
        "--once",
        "--dry-run",
        "--all",
        "--dir",
        directory,
        *options,
    ]
    began = time.perf_counter()
    subprocess.run([*command, "--replay", directory / "recording.json"], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Time all in turn and print medians in milliseconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--reasons", type=int, default=1)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work)
        (directory / "recording.json").write_text(recording(told.reasons))
        files = {"harmless": ["xid 79"], **{expression: [expression] for expression in HOSTILE}}
        options: dict[str, list[str]] = {"no_policy": []}
        for number, (name, expressions) in enumerate(files.items()):
            (directory / f"{number}.toml").write_text(policy(expressions))
            options[name] = ["--policy", str(directory / f"{number}.toml")]
        times: dict[str, list[float]] = {name: [] for name in options}
        for _ in range(told.rounds):
            for name, given in options.items():
                times[name].append(seconds(directory, *given))
    medians = {name: round(statistics.median(found) * 1000, 1) for name, found in times.items()}
    delay = {name: round(medians[name] - medians["harmless"], 1) for name in HOSTILE}
    print(json.dumps({"rounds": told.rounds, "reasons": told.reasons, "median_ms": medians, "delay_ms": delay}))


if __name__ == "__main__":
    main()

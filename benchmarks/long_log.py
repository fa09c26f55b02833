"""Measures what judging one long log takes: memory and time of `attribution analyse`, as a whole process.

The log is text throughout: steps of a training, what NCCL says at INFO, and at its end a GPU that is lost and what
all ranks say of that. Prints one JSON object.

    python benchmarks/long_log.py [--gigabytes 10] [--directory /tmp]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEGMENT_HEALTH = Path(sys.executable).with_name("segment-health")
GIGABYTE = 10**9
RANKS = 4096


def write(path: Path, size: int) -> None:
    """Write a log of about so many bytes."""
    with path.open("wb", buffering=1 << 20) as log:
        step = 0
        while log.tell() < size:
            step += 1
            log.write(
                b" [2026-01-01 10:00:00] iteration %8d/ 9000000 | lm loss: 2.1E+00 | grad norm: 0.3 |\n" % step
            )
            for rank in range(20):
                log.write(b"n%03d:123:456 [%d] NCCL INFO Channel 00 : via P2P/IPC/read\n" % (step % 512, rank % 8))
        log.write(b"Mar  4 02:12:31 n042 kernel: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n")
        for rank in range(RANKS):
            log.write(b"[rank%d]: ncclRemoteError: a call failed possibly due to a network error\n" % rank)


def main() -> None:
    """Write, judge, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--directory")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=wanted.directory) as made:
        log = Path(made) / "train_cycle0.log"
        write(log, int(wanted.gigabytes * GIGABYTE))
        os.sync()
        began = time.monotonic()
        command = [str(SEGMENT_HEALTH), "attribution", "analyse", "--format", "json", str(log)]
        told = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds = time.monotonic() - began
        found = json.loads(told.stdout)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        result = {"bytes": log.stat().st_size, "seconds": round(seconds, 1), "peak_memory_mb": memory // 10**6}
        print(json.dumps(result | {name: found[name] for name in ("category", "nodes", "step")}))


if __name__ == "__main__":
    main()

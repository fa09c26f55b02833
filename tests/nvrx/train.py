"""The training: ranks that count steps together, until the test's files say `stop` to all or `crash` to one."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

import torch  # type: ignore[import-not-found] # only .cache/nvrx/venv has it
import torch.distributed as dist  # type: ignore[import-not-found]


def main() -> None:
    """Train; every rank ends after the same step, or the others would wait for it."""
    gate = Path(os.environ["LAB"]) / "gate"
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
    rank = dist.get_rank()
    print(f"TRAIN begins as rank {rank} of {dist.get_world_size()}", flush=True)
    step, stop = 0, torch.zeros(1)
    while not stop.item():
        crash = gate / f"crash.{rank}"
        if crash.exists():
            crash.unlink()  # once
            print(f"TRAIN crashes as rank {rank}", flush=True)
            os._exit(7)
        time.sleep(0.1)
        step += 1
        print(f"TRAIN step {step}", flush=True)
        stop.fill_((gate / "stop").exists())
        dist.all_reduce(stop)
    print(f"TRAIN ends as rank {rank}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

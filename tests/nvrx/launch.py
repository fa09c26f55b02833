"""What every process of a step runs: the ft_launcher of its node, once the test opens the unit's gate.

All nodes are this one host, so two things are said that a real cluster finds out by itself: an address of its own
for each launcher (all of 127.0.0.0/8 is loopback), and which launcher holds the rendezvous store.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import metadata
from pathlib import Path


def main() -> int:
    """Wait for the gate, then call what the wheel's console script calls.

    Not `python -m ...launcher`: that loads the module twice, and then the exception which the rendezvous raises is
    not the class that the launcher handles.
    """
    lab = Path(os.environ["LAB"])
    unit = os.environ.get("SLURM_ARRAY_TASK_ID", "job")
    while not (lab / "gate" / f"start.{unit}").exists():
        time.sleep(0.05)
    hosts_store = unit in {"0", "job"} and os.environ["SLURM_PROCID"] == "0"
    settings = {
        "is_host": str(hosts_store).lower(),
        "join_timeout": os.environ["JOIN_TIMEOUT"],
        # After a crash, how long those who trained may take to return before a spare has their place. With the
        # default, one second, that is a matter of luck on a busy machine.
        "last_call_timeout": "60",
        "store_connect_wait_seconds": "90",
    }
    sys.argv = [
        "ft_launcher",
        f"--nnodes={os.environ['NNODES']}",
        "--nproc-per-node=1",
        "--max-restarts=3",
        "--rdzv-backend=c10d",
        f"--rdzv-id={os.environ.get('SLURM_ARRAY_JOB_ID', os.environ['SLURM_JOB_ID'])}",
        f"--rdzv-endpoint=127.0.0.1:{os.environ['RDZV_PORT']}",
        f"--rdzv-conf={','.join(f'{name}={value}' for name, value in settings.items())}",
        f"--local-addr=127.0.0.{10 + int(os.environ['SLURMD_NODENAME'].lstrip('n'))}",
        "--ft-enable-nic-healthcheck=false",
        f"--ft-segment-health-check-dir={os.environ['DECISIONS']}",
        str(Path(__file__).with_name("train.py")),
    ]
    print(f"LAUNCH nvidia-resiliency-ext {metadata.version('nvidia-resiliency-ext')}", flush=True)
    (entry_point,) = metadata.entry_points(group="console_scripts", name="ft_launcher")
    code: int | None = entry_point.load()()
    return code or 0


if __name__ == "__main__":  # the launcher's own children import this file again
    sys.exit(main())

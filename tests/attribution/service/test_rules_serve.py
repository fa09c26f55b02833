"""The service with its rules, as a site has it: a launcher is watched, and a log of any size is judged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from .conftest import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Served

SCRIPT = str(Path(sys.executable).with_name("segment-health"))
FAILS = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 10, in <module>
[rank0]:     import megatorn
[rank0]: ModuleNotFoundError: No module named 'megatorn'
"""
SIZE, MEMORY = 10 << 30, 300 << 10
"""Bytes of a log; kB of memory that judging it may take."""


def test_a_watched_launcher_is_stopped(served: Callable[..., Served], tmp_path: Path) -> None:
    """A launcher that crashes for a module that is not there is ended by our watch on our service's word: 93."""
    service = served(rules=True)
    (tmp_path / "fails").write_text(FAILS)
    launcher = 'n=0; while :; do cp "$1" "$2/train_cycle$n.log"; n=$((n + 1)); sleep 0.5; done'
    flags = ("--ft-attribution-endpoint", service.url, "--ft-attribution-stop-action", "no-restart")
    prefix = ("--ft-per-cycle-applog-prefix", f"{service.logs}/train.log")
    arguments = ("sh", "-c", launcher, "sh", str(tmp_path / "fails"), str(service.logs))
    job = {"SLURM_JOB_USER": "ann", "SLURM_JOB_ID": "8", "SLURM_PROCID": "0"}
    ended = subprocess.run(
        [SCRIPT, "attribution", "watch", *flags, *prefix, "--", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **job},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ended.returncode == 93, ended.stderr
    assert "STOP: the launcher is ended" in ended.stderr
    assert "(source: rules)" in ended.stderr


def test_ten_gigabytes_take_little_memory(served: Callable[..., Served]) -> None:
    """Neither the service nor a worker of it holds a log, however long that is and wherever in it the cause."""
    service = served(rules=True)
    path = service.log("big_cycle0.log", " iteration        1/ 500000 | loss: 1.0\n" * 1000)
    os.truncate(path, SIZE)
    with open(path, "a") as log:
        log.write(f"\n{FAILS}")
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        body = {"log_path": path, "analysis_intent": "terminal"}
        assert client.post(f"{service.url}/logs", json=body).status_code == 200
        deadline = time.monotonic() + PATIENCE
        while (told := client.get(f"{service.url}/logs", params={"log_path": path}).json())[
            "status"
        ] != "completed":
            assert time.monotonic() < deadline
    assert told["result"]["analysis_outcome"] == "completed", told
    assert "megatorn" in str(told["result"]["evidence"])
    process = service.process.pid
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    assert len(children) > 2
    most = {int(other): _memory(int(other)) for other in [str(process), *children]}
    assert max(most.values()) < MEMORY
    assert sum(most.values()) < MEMORY, most


def _memory(process: int) -> int:
    """Return the kB that a process had at the most."""
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])

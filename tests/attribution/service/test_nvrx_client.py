"""NVRx 0.7.0's own client, unmodified, against this service: a log's whole life, and a job's."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Served

PATIENCE = 60.0
JOB = {"SLURM_JOB_USER": "ann", "SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": "9"}
pytestmark = pytest.mark.wheel


class Launcher:
    """A process that holds NVRx's client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def does(self, *call: str) -> dict[str, Any]:
        """Call a method; return what it gave, and how the client is then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "NVRx's client died"
        told: dict[str, Any] = json.loads(line)
        return told

    def waits(self) -> dict[str, Any]:
        """Return how the client is once it waits for no verdict any more, or wants to stop."""
        deadline = time.monotonic() + PATIENCE
        while True:
            told = self.does("stop_requested")
            if told["waits_for"] is None or told["stop"]:
                return told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)


@contextlib.contextmanager
def launcher(root: Path, url: str, action: str, stderr: Path) -> Iterator[Launcher]:
    """Start a launcher."""
    wheel = root / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
    if not wheel.is_dir():
        pytest.fail(f"{wheel} is missing: `make test` fetches it (or: sh tests/nvrx_wheel.sh)", pytrace=False)
    program = Path(__file__).with_name("nvrx_client.py")
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "http", "HTTP"))
    }
    with (
        stderr.open("w") as said,
        subprocess.Popen(
            [sys.executable, program, url, action],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environ | JOB | {"PYTHONPATH": str(wheel), "NO_PROXY": "*"},
        ) as process,
    ):
        try:
            yield Launcher(process)
        finally:
            process.kill()


def test_every_state_is_read_by_it(root: Path, served: Callable[..., Served], tmp_path: Path) -> None:
    """It reads what is pending and in flight as no decision, and each end as one."""
    service = served()
    stderr = tmp_path / "client"
    with launcher(root, service.url, "log", stderr) as client:
        path = service.log("train_cycle0.log", "sleep 1.5")
        assert client.does("_get_results", path)["returned"] is None  # unknown
        client.does("_submit_log", path)
        assert client.does("_get_results", path)["returned"] is None  # pending
        assert client.does("request_terminal_analysis")["waits_for"] == path
        assert client.does("_get_results", path)["returned"] is None  # in flight
        deadline = time.monotonic() + PATIENCE
        while (told := client.does("_get_results", path)["returned"]) is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert told is False
        for name, text, decided in (
            ("stop", "STOP now", True),
            ("restart", "RESTART", False),
            ("fail", "raise", False),
            ("crash", "crash", False),
        ):
            other = service.log(f"{name}_cycle0.log", text)
            assert client.does("_do_submit_log", other, "terminal")["returned"] is True
            while (told := client.does("_get_results", other)["returned"]) is None:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert told is decided, name
        assert client.does("_do_submit_log", "/etc/passwd", "terminal")["returned"] is False
    said = stderr.read_text()
    assert "rejected: HTTP 403" in said
    assert "returned 404" in said


def test_a_job_is_told_to_go_on_and_then_to_stop(
    root: Path, served: Callable[..., Served], tmp_path: Path
) -> None:
    """Its poller frees its one place after each verdict, a failed analysis too, and after a service's death."""
    service = served()
    with launcher(root, service.url, "log", tmp_path / "client") as client:
        client.does("start_poller")
        for cycle, text in enumerate(["RESTART", "raise", "hm"]):
            client.does("_submit_log", service.log(f"train_cycle{cycle}.log", text))
            client.does("request_terminal_analysis")
            told = client.waits()
            assert (told["observed"], told["count"]) == (False, 0)
        client.does("_submit_log", service.log("train_cycle3.log", "sleep 2 STOP"))
        client.does("request_terminal_analysis")
        service.kill()
        service.log("train_cycle3.log", "STOP")
        service.start()
        told = client.waits()
        assert (told["observed"], told["stop"], told["count"]) == (True, False, 1)


def test_an_enforced_stop_is_heard(root: Path, served: Callable[..., Served], tmp_path: Path) -> None:
    """With the stop action no-restart the first STOP ends the job."""
    service = served()
    with launcher(root, service.url, "no-restart", tmp_path / "client") as client:
        client.does("start_poller")
        for cycle, text in enumerate(["RESTART", "STOP"]):
            client.does("_submit_log", service.log(f"train_cycle{cycle}.log", text))
            client.does("request_terminal_analysis")
            told = client.waits()
            assert told["stop"] is (text == "STOP")

"""NVIDIA's own attribution service, unmodified, judges the failed cycles of a job for our client and for watch.

It runs without a language model, where a log's facts and the job's history decide: the same failure is worth some
restarts, and then none. An analysis takes 10 s at the least, since the service waits for a log to be whole.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from segment_health.attribution.client import Client, ServiceError
from segment_health.attribution.metadata import JobMetadata, job_metadata
from segment_health.attribution.poller import Attribution
from segment_health.attribution.wire import Intent, Recommendation, Verdict
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = Path(sys.executable).with_name("segment-health")
PATIENCE = 90.0
LOG = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 10, in <module>
[rank0]:     import megatorn
[rank0]: ModuleNotFoundError: No module named 'megatorn'
"""
JOB = {"SLURM_JOB_USER": "ann", "SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": "9"}


class Attrsvc:
    """The service of NVRx 0.7.0, which may read the logs of one directory."""

    def __init__(self, root: Path, directory: Path) -> None:
        wheel = root / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
        python = root / ".cache/nvrx/attrsvc/bin/python"
        if not (wheel.is_dir() and python.exists()):
            pytest.fail("no nvrx-attrsvc here: `make test-attrsvc` fetches it", pytrace=False)
        self.directory = directory
        self.url = f"http://127.0.0.1:{free_ports(1)}"
        settings = {
            "ALLOWED_ROOT": str(directory),
            "ENDPOINT": self.url,
            "RESTART_AGENT_ENRICHMENT_ENABLED": "false",
            "RESTART_AGENT_LOG_QUIET_SECONDS": "0",
            "RATE_LIMIT_ANALYZE": "6000/minute",  # 60, where it is not set: these tests ask more often than a job
        }
        self.log = directory / "service.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(python), "-m", "nvidia_resiliency_ext.services.attrsvc"],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(wheel),
                    **{f"NVRX_ATTRSVC_{key}": value for key, value in settings.items()},
                },
                cwd=directory,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait(self._is_ready, "a service that is ready")

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def cycle(self, number: int, name: str = "train") -> str:
        """Leave the log of a cycle that failed; return its path."""
        path = self.directory / f"{name}_cycle{number}.log"
        path.write_text(LOG)
        return str(path)

    def wait(self, predicate: Callable[[], object], what: str) -> None:
        """Wait until a predicate holds, or fail with what the service said."""
        deadline = time.monotonic() + PATIENCE
        while not predicate():
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"{what}: not within {PATIENCE:g} s\n{self.log.read_text()}", pytrace=False)
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", trust_env=False).is_success
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def attrsvc(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attrsvc]:
    """A service that is ready, and has been told nothing."""
    service = Attrsvc(root, tmp_path_factory.mktemp("logs"))
    yield service
    service.stop()


def test_each_state_is_understood(attrsvc: Attrsvc) -> None:
    """A log is unknown, announced, analysed and judged, and what may not be read is refused, in words."""
    asking = Client(attrsvc.url, JobMetadata("ann", "6"))
    path = attrsvc.cycle(0, "other")
    assert asking.ask(path) == (Verdict.MISSING, "HTTP 404", "attempt has not been submitted", "")
    asking.submit(path, Intent.PROGRESSIVE)
    assert asking.ask(path) == Recommendation(Verdict.UNDECIDED, "pending")
    asking.submit(path, Intent.TERMINAL)
    assert asking.ask(path) == Recommendation(Verdict.UNDECIDED, "in_flight")
    with pytest.raises(ServiceError, match=r"refused it \(HTTP 403: "):
        asking.submit("/etc/passwd", Intent.TERMINAL)
    attrsvc.wait(lambda: asking.ask(path).verdict is not Verdict.UNDECIDED, "a verdict")
    answer = asking.ask(path)
    assert (answer.verdict, answer.word, answer.source) == (Verdict.CONTINUE, "RESTART", "deterministic")
    assert answer.reason


def test_a_crash_loop_is_stopped(attrsvc: Attrsvc, caplog: pytest.LogCaptureFixture) -> None:
    """A job failed three times for one reason; then it fails every half second: one analysis, and it is over."""
    before = Client(attrsvc.url, job_metadata(JOB))
    failed = [attrsvc.cycle(number) for number in range(3)]
    for path in failed:  # side by side, to save time
        before.submit(path, Intent.TERMINAL)
    attrsvc.wait(lambda: all(before.ask(path).word == "RESTART" for path in failed), "three verdicts")

    caplog.set_level(logging.DEBUG, "nvrx")
    attribution = Attribution(attrsvc.url, stop_action="no-restart", environ=JOB)
    cycles = len(failed)

    def crash() -> bool:
        nonlocal cycles
        path = attrsvc.cycle(cycles)
        attribution.cycle_began(path)
        attribution.cycle_failed(path)
        cycles += 1
        time.sleep(0.5)  # the rate at which this job crashes
        return attribution.stop_requested()

    attrsvc.wait(crash, "a STOP")
    attribution.close()
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if line.endswith("was accepted (terminal)")] == [
        f"Attribution: {attrsvc.directory}/train_cycle3.log was accepted (terminal)"
    ]
    (stop,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"says the analysis of {attrsvc.directory}/train_cycle3.log: STOP: " in stop
    assert cycles > len(failed) + 1

    # The job is requeued, and counts from 0 again: the service repeats itself, of a log that it does not read.
    requeued = Attribution(attrsvc.url, stop_action="no-restart", environ=JOB | {"SLURM_RESTART_COUNT": "1"})
    requeued.cycle_failed(f"{attrsvc.directory}/train_cycle3.log")
    attrsvc.wait(lambda: "what it said of an earlier run's: STOP" in caplog.records[-1].getMessage(), "a warning")
    requeued.close()
    assert requeued.stop_verdict_count() == 0


def test_a_launcher_is_watched_until_a_stop(attrsvc: Attrsvc) -> None:
    """A launcher that knows nothing of the service crashes for one reason, until it is ended: 93."""
    job = {"SLURM_JOB_USER": "ann", "SLURM_JOB_ID": "8", "SLURM_PROCID": "0"}
    before = Client(attrsvc.url, job_metadata(job))
    failed = [attrsvc.cycle(number, "watched") for number in range(3)]
    for path in failed:
        before.submit(path, Intent.TERMINAL)
    attrsvc.wait(lambda: all(before.ask(path).word == "RESTART" for path in failed), "three verdicts")

    log = "$1/watched_cycle$n.log"
    launcher = f'n=3; while :; do cp "$1/watched_cycle0.log" "{log}"; n=$((n + 1)); sleep 0.5; done'
    flags = ("--ft-attribution-endpoint", attrsvc.url, "--ft-attribution-stop-action", "no-restart")
    prefix = ("--ft-per-cycle-applog-prefix", f"{attrsvc.directory}/watched.log")
    with subprocess.Popen(
        [
            COMMAND,
            "attribution",
            "watch",
            *flags,
            *prefix,
            "--",
            "sh",
            "-c",
            launcher,
            "sh",
            str(attrsvc.directory),
        ],
        env={"PATH": os.environ["PATH"], **job},
        stderr=subprocess.PIPE,
        text=True,
    ) as watch:
        said = watch.communicate(timeout=PATIENCE)[1]
    assert watch.returncode == 93, said
    assert f"says the analysis of {attrsvc.directory}/watched_cycle3.log: STOP: " in said
    assert "STOP: the launcher is ended" in said
    assert (attrsvc.directory / "segment_health_stop.8").exists()

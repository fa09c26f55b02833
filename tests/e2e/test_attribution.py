"""An array of launchers under `segment-health attribution watch` on a real Slurm, by the template's job script."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Site

pytestmark = pytest.mark.slurm

SERVICE = Path(__file__).parents[1] / "attribution" / "service.py"

# Process 0 of the array's first task writes the log of a cycle as soon as a test lets it. All end at SIGTERM:
# process 0 of a task with a status, the other one by the signal.
LAUNCHER = """#!/bin/bash
task=${SLURM_ARRAY_TASK_ID-job}
run=$task.${SLURM_RESTART_COUNT-0}
trap 'echo "$SLURM_PROCID" >> "$PWD/told.$run"; [ "$SLURM_PROCID" = 0 ] && exit 11; trap - TERM; kill $$' TERM
touch "$PWD/began.$run.$SLURM_PROCID"
cycle=0
while [ ! -e "$PWD/end.$run" ]; do
    if [ "$task.$SLURM_PROCID" = "${FIRST-0}.0" ] && [ -e "$PWD/cycle.$cycle" ]; then
        echo "cycle $cycle of $run" > "$PWD/train_cycle$cycle.log"
        cycle=$((cycle + 1))
    fi
    sleep 0.1
done
exit "$(cat "$PWD/end.$run")"
"""


class Array:
    """The array template with watch before its launcher, as its comment says."""

    def __init__(self, site: Site, endpoint: str, *flags: str, name: str = "sbatch-array") -> None:
        self.site = site
        self.work = site.work
        shown = site.call("template", "show", name).stdout
        watch = f"    segment-health attribution watch --ft-attribution-endpoint {endpoint} {' '.join(flags)}\n"
        watch += '    --ft-per-cycle-applog-prefix "$PWD/train.log" --\n'
        script = shown.replace("\nstop_dir=\n", "\nstop_dir=$PWD\n").replace(
            "\n    ft_launcher\n", f"\n{watch}    ft_launcher\n"
        )
        assert watch in script
        assert "\nstop_dir=$PWD\n" in script
        (self.work / "train.sbatch").write_text(script)
        (self.work / "ft_launcher").write_text(LAUNCHER)
        (self.work / "ft_launcher").chmod(0o755)
        self.job = ""

    def submit(self, *options: str, **environ: str) -> str:
        """Submit it; each task has two nodes."""
        site = self.site
        scripts = site.command.rpartition("/")[0]
        path = f"{self.work}:{scripts}:{site.cluster.env['PATH']}"
        env = {"PATH": path, "SEGMENT_HEALTH_DIR": str(site.directory), "SEGMENT_HEALTH_INTERVAL": "60", **environ}
        call = ("sbatch", "--parsable", f"--chdir={self.work}", "--output=out.%A_%a", "--nodes=2", *options)
        self.job = site.cluster.run(*call, "train.sbatch", env=env).stdout.strip()
        return self.job

    def until_began(self, *runs: str) -> None:
        """Wait until both launchers of each run, TASK.RESTARTS, are there."""
        for run in runs:
            for process in range(2):
                path = self.work / f"began.{run}.{process}"
                self.site.cluster.wait_until(path.exists, 90, f"{path.name}; {self.output()}")

    def cycle(self, number: int) -> None:
        """Let a cycle begin."""
        (self.work / f"cycle.{number}").touch()
        self.site.cluster.wait_until((self.work / f"train_cycle{number}.log").exists, 60, f"cycle {number}")

    def output(self) -> str:
        """Return what all tasks said."""
        return "\n".join(path.read_text() for path in sorted(self.work.glob("out.*")))

    def said(self, words: str) -> int:
        """Tell how often all tasks said this."""
        return self.output().count(words)

    def statuses(self) -> set[str]:
        """Wait until the job has ended; return the exit codes of its tasks as Slurm keeps them."""

        def shown() -> list[str]:
            text: str = self.site.cluster.run("scontrol", "show", "job", "-o", self.job).stdout
            return text.splitlines()

        ended = re.compile(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)")
        self.site.cluster.wait_until(lambda: all(map(ended.search, shown())), 120, f"end; {self.output()}")
        return {re.search(r" ExitCode=(\S+)", line)[1] for line in shown()}  # type: ignore[index]


class Service:
    """The service of tests/attribution, which says STOP to every cycle."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(SERVICE)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"
        with httpx.Client(trust_env=False) as client:
            client.put(f"{self.url}/behaviour", json={"analysis": 0, "action": "STOP"}).raise_for_status()

    def analysed(self) -> list[str]:
        """Return the logs whose analysis was asked for."""
        with httpx.Client(trust_env=False) as client:
            asked = client.get(f"{self.url}/asked").json()["asked"]
        bodies = [request["body"] for request in asked if request["method"] == "POST"]
        return [body["log_path"] for body in bodies if body["analysis_intent"] == "terminal"]

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate(timeout=30)


@pytest.fixture
def service() -> Iterator[Service]:
    """A service that says STOP."""
    service = Service()
    yield service
    service.stop()


@pytest.mark.parametrize("keeps_codes", [True, False], ids=["codes", "no-codes"])
def test_no_restart_ends_every_task(site: Site, service: Service, keeps_codes: bool) -> None:
    """Three tasks of two launchers each, of which one is told STOP: every batch script ends with 93.

    Also where launchers cannot leave their status, so that srun's 143 is all that the script has: it asks.
    """
    array = Array(site, service.url, "--ft-attribution-stop-action", "no-restart")
    if not keeps_codes:
        (array.work / "mktemp").write_text("#!/bin/sh\nexit 1\n")
        (array.work / "mktemp").chmod(0o755)
    array.submit("--array=0-2")
    array.until_began("0.0", "1.0", "2.0")
    array.cycle(0)
    array.cycle(1)
    assert array.statuses() == {"93:0"}
    for task in range(3):
        assert "0" in (array.work / f"told.{task}.0").read_text().split()
    assert service.analysed() == [f"{array.work}/train_cycle0.log"]
    assert array.said("STOP of task 0, left on ") == 2
    assert array.said(f"STOP for job {array.job}, of task 0 on ") == (0 if keeps_codes else 3)


def test_log_ends_nothing(site: Site, service: Service) -> None:
    """Every cycle is a STOP, each is told, and the tasks end by themselves."""
    array = Array(site, service.url)
    array.submit("--array=0-2")
    array.until_began("0.0", "1.0", "2.0")
    array.cycle(0)
    for number in (1, 2):
        array.cycle(number)
        site.cluster.wait_until(lambda: array.said(" ERROR ") == number, 60, "a STOP")  # noqa: B023 - called at once
    assert not list(array.work.glob("told.*"))
    assert not list(array.work.glob("segment_health_stop.*"))
    for task in range(3):
        (array.work / f"end.{task}.0").write_text("0")
    assert array.statuses() == {"0:0"}
    assert not list(array.work.glob("told.*"))


def test_a_requeued_job_is_not_bound(site: Site, service: Service, cluster: Sandbox) -> None:
    """It had a STOP, ended with 93, and is requeued by a person: the new run begins, and goes on."""
    array = Array(site, service.url, "--ft-attribution-stop-action", "no-restart", name="sbatch-regular")
    job = array.submit("--requeue", "--open-mode=append", FIRST="job")
    array.until_began("job.0")
    array.cycle(0)
    array.cycle(1)
    assert array.statuses() == {"93:0"}
    stop = array.work / f"segment_health_stop.{job}"
    assert stop.exists()
    for number in range(2):
        (array.work / f"cycle.{number}").unlink()
    cluster.requeue(job)
    array.until_began("job.1")
    cluster.wait_until(lambda: not stop.exists(), 60, f"no STOP any more; {array.output()}")
    (array.work / "cycle.0").touch()
    log = array.work / "train_cycle0.log"
    cluster.wait_until(lambda: "of job.1" in log.read_text(), 60, "its first cycle")
    (array.work / "end.job.1").write_text("0")
    assert array.statuses() == {"0:0"}
    assert not (array.work / "told.job.1").exists()

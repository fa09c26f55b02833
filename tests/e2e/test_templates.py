"""The job scripts that `template show` prints, on a real Slurm, with a small launcher in ft_launcher's place."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Site  # type: ignore[import-not-found]  # pytest's own

pytestmark = pytest.mark.slurm

# What the tests need to know of each launcher, and a way to tell each how to end.
LAUNCHER = """#!/bin/bash
me=$SLURM_JOB_ID.${SLURM_RESTART_COUNT-0}.$SLURM_PROCID
segment-health check > "$PWD/looking.$me" 2>&1
echo $? >> "$PWD/looking.$me"
mv "$PWD/looking.$me" "$PWD/looked.$me"
while [ ! -e "$PWD/end.$SLURM_PROCID" ]; do sleep 0.1; done
exit "$(cat "$PWD/end.$SLURM_PROCID")"
"""


class Script:
    """A template, submitted in a directory of its own."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.work: Path = site.work
        shown = site.call("template", "show", name)
        assert shown.returncode == 0
        self.path = self.work / f"{name}.sbatch"
        self.path.write_text(shown.stdout)
        launcher = self.work / "ft_launcher"
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        self.job = ""

    def submit(self, *options: str, interval: str = "60") -> str:
        """Submit it, with options that stand for those that a reader would edit."""
        site = self.site
        scripts = site.command.rpartition("/")[0]
        environ = {
            "PATH": f"{self.work}:{scripts}:{site.cluster.env['PATH']}",
            "SEGMENT_HEALTH_DIR": str(site.directory),
            "SEGMENT_HEALTH_INTERVAL": interval,
        }
        submitted = ("sbatch", "--parsable", f"--chdir={self.work}", "--output=out.%j", "--nodes=2", *options)
        self.job = site.cluster.run(*submitted, str(self.path), env=environ).stdout.strip()
        return self.job

    def looked(self, job: str, run: int = 0, process: int = 0) -> list[str]:
        """Wait until a launcher has asked the consumer; return what it was told, and the status."""
        path = self.work / f"looked.{job}.{run}.{process}"
        self.site.cluster.wait_until(path.exists, 60, f"{path.name}; {self.output(job)}")
        return path.read_text().splitlines()

    def output(self, job: str) -> str:
        """Read the job's output."""
        path = self.work / f"out.{job}"
        return path.read_text() if path.exists() else ""

    def status(self, job: str) -> str:
        """Wait until the job has ended; return its exit code as Slurm keeps it."""

        def shown() -> str:
            text: str = self.site.cluster.run("scontrol", "show", "job", "-o", job).stdout
            return text

        ended = re.compile(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)")
        self.site.cluster.wait_until(lambda: ended.search(shown()), 60, f"end of job {job}; {self.output(job)}")
        found = re.search(r" ExitCode=(\S+)", shown())
        assert found is not None
        return found[1]


@pytest.mark.parametrize("name", ["sbatch-array", "sbatch-regular"])
def test_it_is_a_good_shell_script(site: Site, name: str) -> None:
    """The printed script parses, names its settings, and an unknown template is a one-line mistake."""
    shown = site.call("template", "show", name).stdout
    subprocess.run(["bash", "-n"], input=shown, text=True, check=True)
    assert "--kill-on-bad-exit=1" in shown
    assert ("--no-requeue" in shown) == (name == "sbatch-array")
    ended = site.call("template", "show", "no-such")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        pytest.param(("0", "0"), "0:0", id="all-well"),
        pytest.param(("93", None), "93:0", id="no-restart"),
        pytest.param((None, "93"), "93:0", id="no-restart-by-another"),
        pytest.param(("1", None), "1:0", id="failed"),
    ],
)
def test_the_launchers_own_status_is_kept(site: Site, codes: tuple[str | None, ...], status: str) -> None:
    """One launcher ends and takes the others along: the job ends with what that one said, not with srun's 143."""
    script = Script(site, "sbatch-regular")
    job = script.submit("--exclusive")
    assert script.looked(job)[-1] == script.looked(job, process=1)[-1] == "0"
    for process, code in enumerate(codes):
        if code is not None:
            (script.work / f"end.{process}").write_text(code)
    assert script.status(job) == status
    assert not list(script.work.glob(".exit.*"))
    assert "starting all the same" not in script.output(job)
    ps = subprocess.run(["pgrep", "-f", f"publish.*{site.directory}"], capture_output=True, text=True, check=False)
    assert ps.stdout == ""


def test_an_unknown_slurm_does_not_keep_it_from_starting(site: Site) -> None:
    """The pass before the start may fail; the script says so and starts all the same."""
    script = Script(site, "sbatch-regular")
    fake = script.work / "squeue"
    fake.write_text("#!/bin/sh\necho no answer >&2\nexit 1\n")
    fake.chmod(0o755)
    job = script.submit("--exclusive")
    script.looked(job)
    assert "status 3 of the pass before the start; starting all the same" in script.output(job)
    for process in range(2):
        (script.work / f"end.{process}").write_text("0")
    assert script.status(job) == "0:0"


def test_a_requeued_job_is_never_refused_for_its_predecessor(site: Site) -> None:
    """Drained, excluded, requeued onto other nodes: the new run's process 0 passes, 20 times of 20."""
    script = Script(site, "sbatch-regular")
    job = script.submit("--exclusive", "--requeue", "--open-mode=append")
    unit = f"{job}.{job}"
    for run in range(20):
        assert script.looked(job, run)[-1] == "0", run
        node = min(site.nodes_of()[unit])
        site.cluster.set_node(node, "drain", f"bad in run {run}")
        site.publish()
        assert site.excluded() == {unit}
        site.cluster.requeue(job)
        assert script.looked(job, run + 1)[-1] == "0", run
        assert node not in site.nodes_of()[unit]
        assert site.excluded() == set()
        site.resume(node)
    site.end(job)


def test_the_next_task_takes_over(site: Site) -> None:
    """When the task whose publisher runs is gone, another task's publishes for the array."""
    script = Script(site, "sbatch-array")
    array = script.submit("--exclusive", "--array=0-2", interval="10")
    site.cluster.wait_running(array, 3)

    def heartbeat() -> tuple[str, str] | None:
        for path in (site.directory / ".segment-health/heartbeat").glob(f"job:{array}@*.json"):
            found = re.search(r'"pid": (\d+).*"last_complete_pass": "([^"]+)".*"loop": true', path.read_text())
            return (found[1], found[2]) if found else None
        return None

    site.cluster.wait_until(heartbeat, 60, "a publisher in the job")
    first = heartbeat()
    assert first is not None
    site.cluster.run("scancel", owner_of(first[0]))
    site.cluster.wait_until(lambda: (beat := heartbeat()) is not None and beat[0] != first[0], 90, "a takeover")
    left = sorted(site.nodes_of())
    assert len(left) == 2
    site.cluster.set_node(min(site.nodes_of()[left[0]]), "drain", "bad")
    site.cluster.wait_until(lambda: site.excluded() == {left[0]}, 60, "an exclusion by the second publisher")
    site.end(array)


def owner_of(pid: str) -> str:
    """Return the array task in which a process runs; the last task's own job id would mean the whole array."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        environ = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    return f"{environ[b'SLURM_ARRAY_JOB_ID'].decode()}_{environ[b'SLURM_ARRAY_TASK_ID'].decode()}"

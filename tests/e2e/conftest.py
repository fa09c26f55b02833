"""A real cluster for the tests here, and the installed command on it."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.consumer import SegmentHealthCheck
from slurm.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COMMAND = Path(sysconfig.get_path("scripts")) / "segment-health"
SLEEP = "#!/bin/sh\nexec sleep 300\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    """Eight idle nodes; a node that a test sets DOWN stays so until the test resumes it."""
    with Sandbox(nodes=8, return_to_service=0) as sandbox:
        yield sandbox


class Site:
    """A cluster, a decision directory and the installed `segment-health`.

    Units are written as Slurm's users do: `123_7` for an array task, `123` for a job.
    """

    command = str(COMMAND)

    def __init__(self, cluster: Sandbox, root: Path) -> None:
        self.cluster = cluster
        self.directory = root / "decisions"
        self.work = root / "work"
        self.directory.mkdir()
        self.work.mkdir()

    def submit(self, *options: str, script: str = SLEEP, count: int = 1) -> str:
        """Submit a batch job that runs in `work`, and wait until `count` tasks of it are RUNNING."""
        job = self.cluster.submit(script, f"--chdir={self.work}", *options)
        self.cluster.wait_running(job, count)
        return job

    def nodes_of(self) -> dict[str, set[str]]:
        """Ask Slurm which nodes each running unit has."""
        listed = self.cluster.run("squeue", "-h", "-a", "-r", "-t", "R,S", "-o", "%i|%N").stdout.split()
        return {
            unit: set(self.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split())
            for unit, nodes in (line.split("|") for line in listed)
        }

    def resume(self, name: str) -> None:
        """Resume a node and wait until it has registered: until then it shows NOT_RESPONDING."""
        self.cluster.set_node(name, "resume")
        sick = ("DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN")
        self.cluster.wait_until(
            lambda: not any(word in self.cluster.node_state(name) for word in sick), what=f"{name} in service"
        )

    def end(self, job: str) -> None:
        """Cancel a job and wait until nothing of it is left in the queue."""
        self.cluster.run("scancel", job)
        gone = ("squeue", "--noheader", f"--jobs={job}")
        self.cluster.wait_until(lambda: not self.cluster.run(*gone, check=False).stdout, what=f"end of job {job}")

    def call(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `segment-health` as the cluster's user."""
        return self.cluster.run(self.command, *arguments, check=False, env=env)

    def arguments(self, *options: str) -> list[str]:
        """Return the arguments of one pass; of everything, unless `options` name a scope."""
        scoped = any(option in {"--job", "--user", "--partition", "--all"} for option in options)
        scope = [] if scoped else ["--all"]
        return ["publish", "--dir", str(self.directory), "--once", "--format", "json", *scope, *options]

    def publish(self, *options: str, code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Make one pass, which must end with `code`, and return what it printed."""
        done = self.call(*self.arguments(*options), env=env)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr, done
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["pass"] == ("unknown" if code == 3 else "complete"), done
        return document

    def changes(self, *options: str) -> list[str]:
        """Make one complete pass and name its changes, `exclude 123_7`."""
        return [
            f"{change['action']} {self._unit(change['job_id'], change['task_id'])}"
            for change in self.publish(*options)["changes"]
        ]

    def excluded(self) -> set[str]:
        """Ask the consumer about every unit that has an artifact."""
        ids = [path.name.split(".")[1:] for path in self.directory.glob("segment_health_check.*")]
        return {self._unit(job, task) for job, task in ids if not SegmentHealthCheck(self.directory, job, task)()}

    def path(self, unit: str) -> Path:
        """Return where a unit's artifact is."""
        job, _, task = unit.partition("_")
        return self.directory / f"segment_health_check.{job}.{task or job}"

    def artifact(self, unit: str) -> dict[str, Any]:
        """Read a unit's artifact."""
        document: dict[str, Any] = json.loads(self.path(unit).read_bytes())
        return document

    def files(self) -> dict[str, tuple[int, int, bytes]]:
        """Return inode, time and content of everything in the decision directory, the ledger too."""
        found = {}
        for path in (self.directory, *self.directory.rglob("*")):
            status = path.stat()
            content = path.read_bytes() if path.is_file() else "\n".join(sorted(os.listdir(path))).encode()
            found[str(path.relative_to(self.directory))] = (status.st_ino, status.st_mtime_ns, content)
        return found

    @staticmethod
    def _unit(job: str, task: str) -> str:
        return job if job == task else f"{job}_{task}"


@pytest.fixture
def site_on(tmp_path: Path) -> Callable[[Sandbox], Site]:
    """An empty decision directory for a cluster of the test's own."""
    return lambda cluster: Site(cluster, tmp_path)


@pytest.fixture
def site(cluster: Sandbox, site_on: Callable[[Sandbox], Site]) -> Iterator[Site]:
    """An empty decision directory on idle nodes without jobs, which are so again for the next test."""
    yield site_on(cluster)
    cluster.run("scancel", "--me")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h", "-a").stdout, what="empty queue")
    for name in cluster.nodes:
        if cluster.node_state(name) != "IDLE":
            cluster.set_node(name, "resume")
    cluster.wait_until(lambda: {cluster.node_state(name) for name in cluster.nodes} == {"IDLE"}, what="idle nodes")

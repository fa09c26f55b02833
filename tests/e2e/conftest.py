"""A real cluster for the tests here, and the installed command on it."""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.consumer import SegmentHealthCheck
from slurm.sandbox import Sandbox

if TYPE_CHECKING:
    import subprocess
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

    Units are written as their artifacts end: `123.7` for an array task, `123.123` for a job.
    """

    command = str(COMMAND)

    def __init__(self, cluster: Sandbox, root: Path) -> None:
        self.cluster = cluster
        self.directory = root / "decisions"
        self.work = root / "work"
        self.directory.mkdir()
        self.work.mkdir()

    def start(self, *jobs: tuple[str, ...], script: str = SLEEP) -> list[str]:
        """Submit batch jobs that run in `work`, by their options, and wait until every task of each is RUNNING."""
        ids = [self.cluster.submit(script, f"--chdir={self.work}", *options) for options in jobs]
        self.cluster.wait_until(
            lambda: all(set(self.cluster.job_states(job)) == {"RUNNING"} for job in ids),
            what=f"running jobs {ids}",
        )
        return ids

    def submit(self, *options: str, script: str = SLEEP) -> str:
        """Start one job."""
        (job,) = self.start(options, script=script)
        return job

    def nodes_of(self) -> dict[str, set[str]]:
        """Ask Slurm which nodes each running unit has."""
        query = ("squeue", "--noheader", "--array", "--states=R,S", "--format=%F.%K|%A|%N")
        found = {}
        for unit, job, nodes in (line.split("|") for line in self.cluster.run(*query).stdout.split()):
            names = self.cluster.run("scontrol", "show", "hostnames", nodes).stdout
            found[unit.replace("N/A", job)] = set(names.split())
        return found

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
        """Make one complete pass and name its changes, `exclude 123.7`."""
        changes = self.publish(*options)["changes"]
        return [f"{change['action']} {change['job_id']}.{change['task_id']}" for change in changes]

    def artifacts(self) -> set[str]:
        """Return the units that have an artifact, empty or not."""
        return {path.name.partition(".")[2] for path in self.directory.glob("segment_health_check.*")}

    def excluded(self) -> set[str]:
        """Ask the consumer about every unit that has an artifact."""
        return {u for u in self.artifacts() if not SegmentHealthCheck(self.directory, *u.split("."))()}

    def path(self, unit: str) -> Path:
        """Return where a unit's artifact is."""
        return self.directory / f"segment_health_check.{unit}"

    def artifact(self, unit: str) -> dict[str, Any]:
        """Read a unit's artifact."""
        document: dict[str, Any] = json.loads(self.path(unit).read_bytes())
        return document

    def forget(self) -> None:
        """Begin with an empty decision directory again."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()

    def files(self) -> dict[str, tuple[int, int, bytes]]:
        """Return inode, time and content of everything in the decision directory, the ledger too."""
        found = {}
        for path in (self.directory, *self.directory.rglob("*")):
            status = path.stat()
            content = path.read_bytes() if path.is_file() else "\n".join(sorted(os.listdir(path))).encode()
            found[str(path.relative_to(self.directory))] = (status.st_ino, status.st_mtime_ns, content)
        return found


@pytest.fixture
def site_on(tmp_path: Path) -> Callable[[Sandbox], Site]:
    """An empty decision directory for a cluster of the test's own."""
    return lambda cluster: Site(cluster, tmp_path)


@pytest.fixture
def site(cluster: Sandbox, site_on: Callable[[Sandbox], Site]) -> Iterator[Site]:
    """An empty decision directory on idle nodes without jobs, which are so again for the next test."""
    yield site_on(cluster)
    cluster.continue_controller()
    cluster.run("scancel", "--me")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h", "-a").stdout, what="empty queue")
    for name in cluster.nodes:
        if any(word in cluster.node_state(name) for word in ("DOWN", "DRAIN", "FAIL")):
            cluster.set_node(name, "resume")
    cluster.wait_until(lambda: {cluster.node_state(name) for name in cluster.nodes} == {"IDLE"}, what="idle nodes")

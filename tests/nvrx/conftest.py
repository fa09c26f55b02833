"""A real cluster, the real ft_launcher on it, and the files by which a test steers both."""

from __future__ import annotations

import json
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm.sandbox.cluster import Sandbox
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# `make test` passes by: these tests want 1 GB of torch. `make test-nvrx` names the files, and a file that is named
# is collected nonetheless.
collect_ignore_glob = ["test_*.py"]

HERE = Path(__file__).parent
COMMAND = str(Path(sysconfig.get_path("scripts")) / "segment-health")
PATIENCE = 90.0  # seconds; six launchers need 10 to start on two idle cores, and the cores may be busy


class Lab:
    """One job whose units run ft_launcher, fed by `segment-health publish` from the states of its nodes.

    A unit is named as the launcher names its group: by its task of the array, or `job`. Its launchers wait for the
    unit's gate, so that nodes can be drained, and decisions published, before the first rendezvous of a job that
    runs: Slurm would start none on drained nodes.
    """

    def __init__(self, cluster: Sandbox, root: Path, wheel: Path, python: Path) -> None:
        self.cluster = cluster
        self.decisions = root / "decisions"
        self.root = root
        self.job = ""
        # Launchers put UNIX sockets into TMPDIR, whose path must be short; that of the cluster is.
        temporary = cluster.directory / "tmp"
        for directory in (temporary, self.decisions, root / "gate", root / "log"):
            directory.mkdir(exist_ok=True)
        self._env = {
            "HERE": str(HERE),
            "LAB": str(root),
            "DECISIONS": str(self.decisions),
            "NVRX_PYTHON": str(python),
            "PYTHONPATH": str(wheel),
            "TMPDIR": str(temporary),
            # One process a worker less. It watches the worker's heartbeats, which ours does not send.
            "NVRX_DISABLE_RANK_MONITORS": "1",
            "JOIN_TIMEOUT": "60",
            "KILL_ON_BAD_EXIT": "1",
            "REJOIN": "",
        }

    def submit(self, *options: str, nnodes: str, units: int = 1, **env: str) -> None:
        """Submit the job, with `nnodes` for its launchers, and wait until all its units hold their nodes."""
        env |= {"NNODES": nnodes, "RDZV_PORT": str(free_ports(1))}
        name = "%a" if any(option.startswith("--array") for option in options) else "job"
        output = f"--output={self.root}/log/{name}"
        submit = ("sbatch", "--parsable", output, *options, str(HERE / "job.sh"))
        self.job = self.cluster.run(*submit, env={**self._env, **env}).stdout.strip()
        self.cluster.wait_running(self.job, units, PATIENCE)

    def open(self, *gates: str) -> None:
        """Open gates: start.UNIT, again.UNIT, crash.RANK, stop."""
        for gate in gates:
            (self.root / "gate" / gate).touch()

    def node(self, unit: str, process: int = 0) -> str:
        """Ask Slurm on which node a process of a running unit is."""
        job = self.job if unit == "job" else f"{self.job}_{unit}"
        nodes = self.cluster.run("squeue", "--noheader", "--format=%N", f"--jobs={job}").stdout.strip()
        return self.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()[process]

    def drain(self, unit: str, process: int = 0) -> None:
        """Drain a node of a unit, and publish: exactly this unit becomes excluded, for this node."""
        node = self.node(unit, process)
        self.cluster.set_node(node, "drain", "nvlink errors")
        assert self._publish() == [("exclude", unit)]
        artifact = json.loads(self.artifact(unit).read_text())
        assert [(bad["name"], bad["reason"]) for bad in artifact["nodes"]] == [(node, "nvlink errors")]

    def resume(self, node: str) -> str:
        """Resume a node, and publish; return the unit that is cleared by it."""
        self.cluster.set_node(node, "resume")
        # Until a resumed node has registered, it may show NOT_RESPONDING.
        fit = {"ALLOCATED", "IDLE"}
        self.wait(lambda: self.cluster.node_state(node) in fit, f"{node} in service")
        ((action, unit),) = self._publish()
        assert action == "clear"
        assert self.artifact(unit).stat().st_size == 0
        return unit

    def artifact(self, unit: str) -> Path:
        """Return where the unit's artifact is."""
        return self.decisions / f"segment_health_check.{self.job}.{self.job if unit == 'job' else unit}"

    def log(self, unit: str) -> str:
        """Return what the unit's launchers, workers and job script said; `0: ` begins the lines of process 0."""
        path = self.root / "log" / unit
        return path.read_text(errors="replace") if path.exists() else ""

    def steps(self, unit: str) -> int:
        """Count the steps that the ranks of a unit have trained."""
        return self.log(unit).count("TRAIN step")

    def wait_log(self, unit: str, text: str, count: int = 1) -> None:
        """Wait until a unit's log holds a text so many times."""
        self.wait(lambda: self.log(unit).count(text) >= count, f"{count} x {text!r} in the log of {unit}")

    def wait_trained(self, unit: str, steps: int) -> None:
        """Wait until a unit has trained so many steps more than now."""
        wanted = self.steps(unit) + steps
        self.wait(lambda: self.steps(unit) >= wanted, f"{wanted} steps trained by {unit}")

    def wait_end(self) -> dict[str, str]:
        """Wait until the job is over; return each unit's state by Slurm, and the code of its last step by srun."""
        self.wait(self._is_over, f"end of job {self.job}")
        return {unit: f"{state} {self.code(unit)}" for unit, state in self._states().items()}

    def code(self, unit: str) -> int:
        """Return the exit status of a unit's last step."""
        return int(self.log(unit).rpartition("STEP ended with ")[2].split()[0])

    def wait(self, predicate: Callable[[], object], what: str) -> None:
        """Wait until `predicate` is true, or fail with the end of every log; at once if the job is over."""
        began = asked = time.monotonic()
        while not predicate():
            now, over = time.monotonic(), False
            if now > asked + 2:
                asked, over = now, self._is_over()
            if now > began + PATIENCE or (over and not predicate()):
                logs = sorted((self.root / "log").iterdir())
                ends = ("\n".join((f"--- {path.name}", *self.log(path.name).splitlines()[-25:])) for path in logs)
                pytest.fail("\n".join((f"{what}: not within {now - began:.0f} s", *ends)), pytrace=False)
            time.sleep(0.1)

    def _states(self) -> dict[str, str]:
        query = ("squeue", "--noheader", "--array", "--states=all", "--format=%K %T", f"--jobs={self.job}")
        rows = (line.split() for line in self.cluster.run(*query).stdout.splitlines())
        return {unit.replace("N/A", "job"): state for unit, state in rows}

    def _is_over(self) -> bool:
        return set(self._states().values()) <= {"COMPLETED", "FAILED"}

    def _publish(self) -> list[tuple[str, str]]:
        argv = (COMMAND, "publish", "--once", "--job", self.job, "--dir", str(self.decisions), "--format", "json")
        document = json.loads(self.cluster.run(*argv, timeout=PATIENCE).stdout)
        assert document["pass"] == "complete", document
        own = {change["task_id"] for change in document["changes"] if change["job_id"] == self.job}
        assert len(own) == len(document["changes"]), document
        changes = ((change["action"], change["task_id"]) for change in document["changes"])
        return [(action, "job" if task == self.job else task) for action, task in changes]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    """Six idle nodes; a launcher has 10 s to leave on SIGTERM, of which it needs one or two."""
    with Sandbox(nodes=6, extra_conf=["KillWait=10"]) as sandbox:
        yield sandbox


@pytest.fixture
def lab(cluster: Sandbox, root: Path, tmp_path: Path) -> Iterator[Lab]:
    """A launch that is yet to be submitted, on idle nodes without jobs, which are so again for the next test."""
    wheel = root / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
    python = root / ".cache/nvrx/venv/bin/python"
    if not (wheel.is_dir() and python.exists()):
        pytest.fail("no ft_launcher here: `make test-nvrx` fetches it", pytrace=False)
    yield Lab(cluster, tmp_path, wheel, python)
    cluster.run("scancel", "--me")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h", "-a").stdout, PATIENCE, "empty queue")
    for name in cluster.nodes:
        if "DRAIN" in cluster.node_state(name):
            cluster.set_node(name, "resume")
    cluster.wait_until(lambda: {cluster.node_state(name) for name in cluster.nodes} == {"IDLE"}, what="idle nodes")

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm.errors import SlurmUnavailable
from slurm.sandbox import cluster as sandbox
from slurm.sandbox.cluster import Sandbox
from slurm.sandbox.processes import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
SLEEP = "#!/bin/sh\nsleep 300 & srun sleep 300\n"  # one process of the batch step, two of another step
ARRAY = ("--array=0-1", "--nodes=2", "--exclusive", "--requeue")


def processes_of(conf: Path) -> list[str]:
    """Return pid and command line of each living process with this SLURM_CONF or a file of its cluster open."""
    wanted = os.fsencode(f"SLURM_CONF={conf}")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's; a zombie has no environment
            files = [link for link in folder.glob("fd/*") if conf.parent in link.readlink().parents]
            if files or wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
    return found


def assert_gone(cluster: Sandbox) -> None:
    """Assert that nothing of a cluster is left: no process, no file."""
    assert processes_of(cluster.conf) == []
    assert not cluster.directory.exists()


@pytest.fixture(autouse=True)
def idle(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the next test of the shared cluster idle nodes and no jobs."""
    yield
    if "cluster" not in request.fixturenames:
        return
    cluster: Sandbox = request.getfixturevalue("cluster")
    cluster.run("scancel", "--partition=main")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h").stdout, what="empty queue")
    for name in cluster.nodes:
        if cluster.node_state(name) != "IDLE":
            cluster.set_node(name, "resume")
    cluster.wait_until(lambda: {cluster.node_state(name) for name in cluster.nodes} == {"IDLE"}, what="idle nodes")


def test_all_nodes_are_idle_from_the_start(cluster: Sandbox) -> None:
    """Inside `with` every node has registered, and the queue is empty."""
    assert [cluster.node_state(name) for name in cluster.nodes] == ["IDLE"] * 8
    assert cluster.run("squeue", "-h").stdout == ""


def test_an_array_job_runs(cluster: Sandbox) -> None:
    """Each task of an array gets its nodes and runs its script where the sandbox keeps its files."""
    job = cluster.submit("#!/bin/sh\nsrun hostname > task-$SLURM_ARRAY_TASK_ID; sleep 300\n", *ARRAY)
    cluster.wait_running(job, 2)
    outputs = [cluster.directory / "work" / f"task-{task}" for task in (0, 1)]
    cluster.wait_until(lambda: all(path.exists() and len(path.read_text().split()) == 2 for path in outputs))
    assert cluster.job_states(f"{job}_1") == ["RUNNING"]


def test_draining_a_busy_node_shows_both_states(cluster: Sandbox) -> None:
    """A drained node keeps its job until it ends."""
    cluster.wait_running(cluster.submit(SLEEP, "--nodelist=n3"))
    cluster.set_node("n3", "drain", "bad GPU")
    assert cluster.node_state("n3") in {"MIXED+DRAIN", "ALLOCATED+DRAIN"}
    assert "Reason=bad GPU [" in cluster.run("scontrol", "show", "node", "n3").stdout


def test_a_node_set_down_stays_down(cluster: Sandbox) -> None:
    """ReturnToService=0 holds a node DOWN though its slurmd lives."""
    cluster.set_node("n8", "down", "broken")
    time.sleep(1.5)
    assert cluster.node_state("n8") == "DOWN"


def test_requeue_runs_again_at_once(cluster: Sandbox) -> None:
    """A requeued array runs again, without Slurm's two minutes, and counts its restart."""
    job = cluster.submit(SLEEP, *ARRAY)
    cluster.wait_running(job, 2)
    cluster.requeue(job)
    assert cluster.job_states(job) == ["RUNNING"] * 2
    cluster.requeue(f"{job}_1")
    restarts = cluster.run("squeue", "-h", "-r", "-O", "ArrayTaskID:9,RestartCnt:9").stdout.splitlines()
    assert sorted(line.split() for line in restarts) == [["0", "1"], ["1", "2"]]


def test_jobs_outlive_the_controller() -> None:
    """A stopped or killed slurmctld answers nothing; a new one knows the jobs and drains that were saved."""
    with Sandbox(nodes=2) as cluster:
        job = cluster.submit(SLEEP, "--nodelist=n1")
        cluster.wait_running(job)
        cluster.set_node("n2", "drain", "kept")
        for kill in (False, True):  # the first saves what the second does not
            cluster.stop_controller(kill=kill)
            assert cluster.run("scontrol", "ping", check=False).returncode != 0
            cluster.start_controller()
            assert cluster.job_states(job) == ["RUNNING"]
            assert cluster.node_state("n2").endswith("+DRAIN")


def test_a_paused_controller_hangs_its_clients(cluster: Sandbox) -> None:
    """A command meets its deadline while slurmctld is stopped, and works once it goes on."""
    cluster.pause_controller()
    with pytest.raises(SlurmUnavailable, match="squeue: no end within 1 s"):
        cluster.run("squeue", timeout=1)
    cluster.continue_controller()
    assert cluster.run("squeue", "-h").stdout == ""


def test_a_slurmd_can_be_killed_and_started(cluster: Sandbox) -> None:
    """A node whose slurmd died runs jobs again once it has a new one."""
    cluster.kill_slurmd("n5")
    cluster.start_slurmd("n5")
    cluster.wait_running(cluster.submit(SLEEP, "--nodelist=n5"))


def test_a_failing_command_says_why(cluster: Sandbox) -> None:
    """Slurm's own words are in the error."""
    with pytest.raises(SlurmUnavailable, match=r"scontrol update .* exit 1: .*[Ii]nvalid"):
        cluster.set_node("n1", "no-such-state")


def test_two_clusters_do_not_see_each_other(cluster: Sandbox) -> None:
    """A drain and a job on one leave no trace on the other."""
    with Sandbox(nodes=2, cluster_name="other") as other:
        cluster.wait_running(cluster.submit(SLEEP))
        cluster.set_node("n2", "drain", "here")
        assert [other.node_state(name) for name in other.nodes] == ["IDLE", "IDLE"]
        assert other.run("squeue", "-h").stdout == ""
    assert_gone(other)
    assert cluster.node_state("n2") == "IDLE+DRAIN"


def test_a_taken_port_is_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that another takes between the look and the start costs a second try with other ports."""
    with Sandbox(nodes=1) as first:
        blocks = iter([first._port, first._port - 1, first._port + 10])
        monkeypatch.setattr(sandbox, "free_ports", lambda _: next(blocks))
        with Sandbox(nodes=2) as second:
            assert second._port == first._port + 10
            assert second.node_state("n2") == "IDLE"
            assert first.node_state("n1") == "IDLE"


def test_root_alone_can_run_a_cluster_as_another_user() -> None:
    """Root's daemons, jobs and commands all are `nobody`'s; anyone else is refused before anything starts."""
    if os.geteuid() != 0:
        with pytest.raises(SlurmUnavailable, match="only root"):
            Sandbox(user="nobody").__enter__()
        return
    with Sandbox(nodes=2, user="nobody") as cluster:
        cluster.submit("#!/bin/sh\nsrun id -un > who; sleep 300\n", "--nodes=2")
        who = cluster.directory / "work" / "who"
        cluster.wait_until(lambda: who.exists() and who.read_text() == "nobody\n" * 2, what="output of two tasks")
        assert who.owner() == cluster.directory.owner() == "nobody"
        assert cluster.run("id", "-G").stdout.split() == cluster.run("id", "-g").stdout.split()
    assert_gone(cluster)


def test_the_caller_names_directory_and_settings(tmp_path: Path) -> None:
    """The directory given is used and removed, and a setting given replaces the sandbox's."""
    directory = Path(os.path.relpath("/tmp")) / f"sb-{tmp_path.stat().st_ino}"
    with Sandbox(nodes=1, directory=directory, extra_conf=["KillWait=7", "PartitionName=b Nodes=n1"]) as cluster:
        assert cluster.directory == directory.resolve()
        assert "KillWait                = 7 sec" in cluster.run("scontrol", "show", "config").stdout
        assert cluster.run("sinfo", "-h", "-o", "%P").stdout.split() == ["main*", "b"]
        with pytest.raises(FileExistsError), Sandbox(directory=directory):
            pass
        assert cluster.node_state("n1") == "IDLE"
    assert_gone(cluster)


def test_a_daemon_that_does_not_come_up_is_named(tmp_path: Path) -> None:
    """What the daemon said is in the error, and nothing of the cluster is left."""
    directory = Path("/tmp") / f"sb-{tmp_path.stat().st_ino}"
    cluster = Sandbox(nodes=1, directory=directory, extra_conf=["SelectType=select/none-such"])
    with (
        pytest.raises(SlurmUnavailable, match=r"slurmctld ended with 1; its log ends:\n[^$]*none-such"),
        cluster,
    ):
        pass
    assert_gone(cluster)


def test_missing_slurm_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Slurm the error says what to install."""
    monkeypatch.setattr(sandbox, "_PROGRAMS", ("slurmctld", "no-such-daemon"))
    with pytest.raises(SlurmUnavailable, match="not installed: no-such-daemon; Debian has them in slurmctld"):
        Sandbox().__enter__()


def test_nothing_is_left_after_the_end() -> None:
    """Jobs, steps, and a job's process without environment end with the cluster, even if it is paused."""
    script = "#!/bin/sh\nenv -i sleep 300 & setsid sleep 300 & trap '' TERM; srun sleep 300\n"
    with Sandbox(nodes=2) as cluster:
        cluster.wait_running(cluster.submit(script, "--nodes=2"))
        cluster.wait_until(lambda: len(processes(cluster.conf, cluster._sessions)) >= 12, what="job's processes")
        pids = processes(cluster.conf, cluster._sessions)
        cluster.pause_controller()
    assert_gone(cluster)
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z")


def test_nothing_is_left_after_an_exception() -> None:
    """An exception inside `with` passes through, and takes the cluster along."""
    cluster = Sandbox(nodes=2)

    def fail() -> None:
        with cluster:
            cluster.wait_running(cluster.submit(SLEEP, "--nodes=2"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert_gone(cluster)


HOLDER = """\
import signal, sys, time
from slurm.sandbox.cluster import Sandbox
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)
with Sandbox(nodes=2) as cluster:
    cluster.wait_running(cluster.submit("#!/bin/sh\\nsrun sleep 300\\n", "--nodes=2"))
    print(cluster.conf, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_nothing_is_left_after_a_signal(number: signal.Signals, code: int) -> None:
    """A signal that ends the program which holds the cluster ends the cluster, and bystanders live."""
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        conf = Path(holder.stdout.readline().strip())
        assert conf.name == "slurm.conf"
        with subprocess.Popen(["sleep", "60"], env={**os.environ, "SLURM_CONF": str(conf)}) as bystander:
            deadline = time.monotonic() + 20  # slurmctld, slurmscriptd, two slurmds, three slurmstepds, ...
            while len(processes_of(conf)) < 12:
                assert time.monotonic() < deadline, processes_of(conf)
                time.sleep(0.05)
            holder.send_signal(number)
            assert holder.wait(20) == code
            assert [line.partition(" ")[0] for line in processes_of(conf)] == [str(bystander.pid)]
            assert not conf.parent.exists()
            bystander.kill()

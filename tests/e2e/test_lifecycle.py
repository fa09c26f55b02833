"""What becomes of a unit: sent back, preempted, shrunk, throttled; its id given away, its scope left, its end.

A new run never meets its predecessor's exclusion if a blocking `publish --once` comes before it (the job templates
see to that), and nothing of a unit that is gone stays for ever.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.history import MAX_HISTORY
from segment_health.ledger import BURY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Site

    RunCluster = Callable[..., AbstractContextManager[Sandbox]]
    SiteOn = Callable[[Sandbox], Site]

pytestmark = pytest.mark.slurm

PAIR = ("--nodes=2", "--exclusive")
ONE = ("--nodes=1", "--exclusive")
QUEUE = "JobArrayID:|,State:|,RestartCnt:|,NodeList:|"


def unit_of(job: str) -> str:
    """Name the unit that a regular job is."""
    return f"{job}.{job}"


def slurm_version() -> tuple[int, int]:
    """Return the release of Slurm that is installed."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    said = subprocess.run(["slurmctld", "-V"], env={"PATH": path}, stdout=subprocess.PIPE, check=True, text=True)
    major, minor, *_ = said.stdout.split()[-1].split(".")
    return int(major), int(minor)


def queue(cluster: Sandbox) -> dict[str, tuple[str, int, str]]:
    """Return state, restart count and node list of every job (of its leader, if heterogeneous) and array task."""
    query = ("squeue", "--noheader", "--all", "--array", "--states=all", f"--Format={QUEUE}")
    rows = [line.split("|") for line in cluster.run(*query).stdout.splitlines()]
    return {job.removesuffix("+0"): (state, int(restarts), nodes) for job, state, restarts, nodes, _ in rows}


def wait_for(cluster: Sandbox, job: str, state: str) -> None:
    """Wait until a job, or a task written 7_1, is in a state."""
    cluster.wait_until(lambda: queue(cluster).get(job, ("",))[0] == state, what=f"job {job} {state}")


def hurry(cluster: Sandbox, job: str) -> None:
    """Let a job that was sent back begin in a second, not in two minutes (see Sandbox.requeue)."""
    wait_for(cluster, job, "PENDING")
    cluster.run("scontrol", "update", f"jobid={job}", "starttime=now+1")


def history(site: Site) -> list[dict[str, Any]]:
    """Read what the history says, the older half first."""
    folder = site.directory / ".segment-health"
    files = [folder / name for name in ("history.jsonl.1", "history.jsonl") if (folder / name).exists()]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def told(site: Site, unit: str) -> list[str]:
    """Name what the history says was done to a unit, in order."""
    return [row["action"] for row in history(site) if f"{row['job_id']}.{row['task_id']}" == unit]


def remembered(site: Site, scope: str = "all") -> set[str]:
    """Name the units that a scope remembers."""
    state = json.loads((site.directory / f".segment-health/state/{scope}@sandbox.json").read_text())
    return {f"{row['job_id']}.{row['task_id']}" for row in state["units"]}


def launching(*sites: Site, unit: str = "$SLURM_JOB_ID.$SLURM_JOB_ID") -> str:
    """Write a batch script that does in each directory as the templates do: a pass, and only then the check.

    `UNIT.RUN` says, for each run, whether the artifact of the run before still lay there (1) before the pass, and
    what check said after it (0: to be used).
    """
    lines = ["#!/bin/sh"]
    for site in sites:
        lines += [
            f"out={site.work}/{unit}.${{SLURM_RESTART_COUNT:-0}}",
            f"check() {{ {site.command} check --dir {site.directory} >/dev/null; echo $?; }}",
            f"pass() {{ {site.command} publish --once --wait --dir {site.directory} >&2; }}",
            "{ check; pass; check; } > $out.part 2>> $out.err && mv $out.part $out",
        ]
    return "\n".join([*lines, "exec sleep 300", ""])


def before_and_after(site: Site, unit: str, run: int) -> list[str]:
    """Wait for what a run's script says: the check's status before its pass, and after."""
    path = site.work / f"{unit}.{run}"
    site.cluster.wait_until(path.exists, what=f"the checks of run {run} of {unit}")
    return path.read_text().split()


# ── sent back ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_a_task_whose_prolog_fails_begins_anew(
    site_on: SiteOn, run_cluster: RunCluster, tmp_path: Path, passes: int
) -> None:
    """However many passes see it wait, its next run meets no exclusion of the first; its neighbours lose nothing.

    Slurm sends it back although it asked not to be (ForceRequeueOnFail, from 23.02 on).
    """
    gate, prolog = tmp_path / "gate", tmp_path / "prolog"
    prolog.write_text(
        f"#!/bin/sh\n[ $SLURMD_NODENAME = n1 ] || exit 0\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexit 1\n"
    )
    prolog.chmod(0o755)
    conf = [f"Prolog={prolog}", "SchedulerParameters=batch_sched_delay=0,bf_interval=1,nohold_on_prolog_fail"]
    forced = slurm_version() >= (23, 2)
    conf.append(f"PrologFlags={'ForceRequeueOnFail' if forced else 'Alloc'}")
    again = "--no-requeue" if forced else "--requeue"
    with run_cluster(nodes=6, return_to_service=0, extra_conf=conf) as cluster:
        site = site_on(cluster)
        script = launching(site, unit="$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID")
        array = cluster.submit(script, f"--chdir={site.work}", "--array=0-2", *PAIR, again)
        cluster.wait_until(lambda: len(site.nodes_of()) == 3, what="three tasks with nodes")
        (unit,) = (unit for unit, nodes in site.nodes_of().items() if "n1" in nodes)
        task = unit.replace(".", "_")
        others = {f"{array}.{number}" for number in range(3)} - {unit}
        assert all(before_and_after(site, other, 0) == ["0", "0"] for other in others)
        cluster.set_node("n1", "drain", "on its last legs")
        assert site.changes("--job", array) == [f"exclude {unit}"]
        gate.touch()
        wait_for(cluster, task, "PENDING")
        seen = [site.changes("--job", array) for _ in range(passes)]
        assert seen == [[], [f"retire {unit}"]][:passes]
        assert site.excluded() == ({unit} if passes < 2 else set())
        cluster.run("scancel", min(others).replace(".", "_"))
        hurry(cluster, task)
        wait_for(cluster, task, "RUNNING")
        assert before_and_after(site, unit, 1) == ["1" if passes < 2 else "0", "0"]
        assert site.excluded() == set()
        assert queue(cluster)[task][1] == 1
        assert "n1" not in site.nodes_of()[unit]
        assert not any("exclude" in told(site, other) for other in others)
        assert told(site, unit) == ["exclude", "clear" if passes < 2 else "retire"]


def test_a_run_that_completes_for_long_is_no_unit(
    site_on: SiteOn, run_cluster: RunCluster, tmp_path: Path
) -> None:
    """While an epilog holds the old run's nodes the job is COMPLETING: two passes take what it said away."""
    gate, epilog = tmp_path / "gate", tmp_path / "epilog"
    epilog.write_text(f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\n")
    epilog.chmod(0o755)
    with run_cluster(nodes=4, return_to_service=0, extra_conf=[f"Epilog={epilog}"]) as cluster:
        site = site_on(cluster)
        job = site.submit(*PAIR, "--requeue", script=launching(site))
        unit = unit_of(job)
        assert before_and_after(site, unit, 0) == ["0", "0"]
        cluster.set_node(min(site.nodes_of()[unit]), "drain")
        assert site.changes("--job", job) == [f"exclude {unit}"]
        cluster.run("scontrol", "requeue", job)
        wait_for(cluster, job, "COMPLETING")
        assert [site.changes("--job", job) for _ in range(3)] == [[], [f"retire {unit}"], []]
        assert queue(cluster)[job][0] == "COMPLETING"
        gate.touch()
        hurry(cluster, job)
        assert before_and_after(site, unit, 1) == ["0", "0"]
        assert site.changes("--job", job) == []
        assert site.excluded() == set()


# ── preempted ──────────────────────────────────────────────────────────────────────────────────────────────────


def preempting(mode: str) -> list[str]:
    """Write what lets the partition `high` take the nodes of `main`."""
    high = "PartitionName=high Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP PreemptMode=OFF"
    return ["PreemptType=preempt/partition_prio", f"PreemptMode={mode}", high]


def test_a_preempted_job_that_is_sent_back_begins_anew(site_on: SiteOn, run_cluster: RunCluster) -> None:
    """Its exclusion is not the preemptor's, who has the other node, nor its own next run's elsewhere."""
    with run_cluster(nodes=4, return_to_service=0, extra_conf=preempting("REQUEUE")) as cluster:
        site = site_on(cluster)
        low = site.submit(*PAIR, "--nodelist=n[1-2]", "--requeue", script=launching(site))
        unit = unit_of(low)
        assert before_and_after(site, unit, 0) == ["0", "0"]
        cluster.set_node("n1", "drain")
        assert site.changes() == [f"exclude {unit}"]
        cluster.run("scontrol", "update", "nodename=n[3-4]", "state=drain", "reason=kept free")
        high = cluster.submit("#!/bin/sh\nexec sleep 300\n", *ONE, "--partition=high")
        wait_for(cluster, high, "RUNNING")
        assert site.nodes_of() == {unit_of(high): {"n2"}}
        assert site.changes() == []
        assert site.excluded() == {unit}
        cluster.run("scontrol", "update", f"jobid={low}", "reqnodelist=")
        for name in ("n3", "n4"):
            site.resume(name)
        hurry(cluster, low)
        assert before_and_after(site, unit, 1) == ["1", "0"]
        assert site.nodes_of()[unit] == {"n3", "n4"}
        assert site.changes() == []
        assert site.excluded() == set()


def test_a_preempted_job_that_is_suspended_keeps_its_word(site_on: SiteOn, run_cluster: RunCluster) -> None:
    """Both jobs have the node, whoever runs there: it excludes both, before, while and after one stands still."""
    with run_cluster(nodes=3, return_to_service=0, extra_conf=preempting("SUSPEND,GANG")) as cluster:
        site = site_on(cluster)
        low = site.submit(*PAIR, "--nodelist=n[1-2]")
        high = site.submit(*PAIR, "--nodelist=n[1-2]", "--partition=high")
        wait_for(cluster, low, "SUSPENDED")
        both = {unit_of(low), unit_of(high)}
        assert site.publish()["units"] == {"total": 2, "excluded": 0}
        cluster.set_node("n2", "drain")
        assert set(site.changes()) == {f"exclude {unit}" for unit in both}
        generation = site.artifact(unit_of(low))["generation"]
        cluster.run("scancel", high)
        wait_for(cluster, low, "RUNNING")
        assert [site.changes() for _ in range(3)] == [[], [f"retire {unit_of(high)}"], []]
        assert site.excluded() == {unit_of(low)}
        assert site.artifact(unit_of(low))["generation"] == generation
        again = site.submit(*ONE, "--nodelist=n1", "--partition=high")
        wait_for(cluster, low, "SUSPENDED")
        site.resume("n2")
        assert site.changes() == [f"clear {unit_of(low)}"]
        assert queue(cluster)[low][0] == "SUSPENDED"
        assert site.publish()["units"] == {"total": 2, "excluded": 0}
        assert unit_of(again) not in site.artifacts()


# ── shrunk ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_shrunk_unit_that_is_sent_back_is_whole_again(site_on: SiteOn, run_cluster: RunCluster) -> None:
    """With other nodes, or the same ones mended, the next run has lost nothing."""
    with run_cluster(nodes=3, return_to_service=0) as cluster:
        site = site_on(cluster)
        job = site.submit(*PAIR, "--no-kill", "--requeue", "--nodelist=n[1-2]", script=launching(site))
        unit = unit_of(job)
        assert before_and_after(site, unit, 0) == ["0", "0"]
        cluster.set_node("n2", "down", "lost")
        cluster.wait_until(lambda: site.nodes_of()[unit] == {"n1"}, what="job without its DOWN node")
        assert site.changes("--job", job) == [f"exclude {unit}"]
        assert site.artifact(unit)["level"] == "SeparateFault"
        site.resume("n2")
        assert site.changes("--job", job) == []
        cluster.run("scontrol", "requeue", job)
        hurry(cluster, job)
        assert before_and_after(site, unit, 1) == ["1", "0"]
        assert site.nodes_of()[unit] == {"n1", "n2"}
        assert site.changes("--job", job) == []
        cluster.set_node("n2", "drain")
        assert site.changes("--job", job) == [f"exclude {unit}"]
        artifact = site.artifact(unit)
        assert (artifact["level"], artifact["nodes"][0]["rule"]) == ("PreSeparateFault", "state:DRAIN")


def test_a_component_that_shrinks_excludes_the_whole_job(site_on: SiteOn, run_cluster: RunCluster) -> None:
    """A heterogeneous job whose second component loses a DOWN node has shrunk, by the leader's id."""
    with run_cluster(nodes=4, return_to_service=0) as cluster:
        site = site_on(cluster)
        keep = (*PAIR, "--no-kill")
        job = site.submit(*keep, "--nodelist=n[1-2]", ":", *keep, "--nodelist=n[3-4]")
        unit = unit_of(job)
        assert site.changes() == []
        cluster.set_node("n3", "down", "lost")
        cluster.wait_until(
            lambda: "n3" not in cluster.run("squeue", "-h", "-o", "%N").stdout, what="component without n3"
        )
        assert site.changes() == [f"exclude {unit}"]
        artifact = site.artifact(unit)
        assert (artifact["level"], artifact["unavailable"]) == ("SeparateFault", "n3")
        assert artifact["nodes"][0]["rule"] == "unit:shrunk"
        assert artifact["generation"]["nodelist"] == "n[1-4]"
        cluster.set_node("n1", "drain")
        assert site.changes() == [f"update {unit}"]
        assert site.artifact(unit)["unavailable"] == "n[1,3]"
        site.resume("n3")
        assert site.changes() == []
        assert site.artifacts() == site.excluded() == {unit}


def test_a_heterogeneous_job_is_sent_back_whole(site_on: SiteOn, run_cluster: RunCluster) -> None:
    """One component's DOWN node sends all of it back; the next run of the leader's id inherits nothing."""
    with run_cluster(nodes=6, return_to_service=0) as cluster:
        site = site_on(cluster)
        back = (*PAIR, "--requeue")
        job = site.submit(*back, ":", *back, script=launching(site))
        unit = unit_of(job)
        assert before_and_after(site, unit, 0) == ["0", "0"]
        second = str(int(job) + 1)
        components = {part: queue_nodes(cluster, part) for part in (job, second)}
        cluster.set_node(min(components[job]), "drain")
        assert site.changes("--job", job) == [f"exclude {unit}"]
        cluster.set_node(min(components[second]), "down", "lost")
        hurry(cluster, job)
        assert before_and_after(site, unit, 1) == ["1", "0"]
        assert site.changes("--job", job) == []
        lost = {min(nodes) for nodes in components.values()}
        assert not lost & (queue_nodes(cluster, job) | queue_nodes(cluster, second))
        cluster.set_node(max(queue_nodes(cluster, second)), "fail")
        assert site.changes("--job", job) == [f"exclude {unit}"]
        assert site.artifacts() == site.excluded() == {unit}


def queue_nodes(cluster: Sandbox, job: str) -> set[str]:
    """Ask Slurm which nodes a job, or one component of a heterogeneous one, has."""
    rows = cluster.run("squeue", "--noheader", "--format=%A|%N").stdout.split()
    (nodes,) = (row.partition("|")[2] for row in rows if row.startswith(f"{job}|"))
    return set(cluster.run("scontrol", "show", "hostnames", nodes).stdout.split())


# ── arrays ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_throttled_array_leaves_nothing_of_the_tasks_that_ended(site: Site) -> None:
    """Two tasks at a time: each is judged while it runs, and two passes after its end only the history has it."""
    script = "#!/bin/sh\nuntil [ -e go.$SLURM_ARRAY_TASK_ID ]; do sleep 0.05; done\n"
    array = site.cluster.submit(script, f"--chdir={site.work}", "--array=0-5%2", *PAIR)
    excluded: list[str] = []
    for first in (0, 2, 4):
        pair = {f"{array}.{first}", f"{array}.{first + 1}"}
        site.cluster.wait_until(lambda pair=pair: site.nodes_of().keys() == pair, what=f"tasks {pair} alone")  # type: ignore[misc]
        sick = min(pair)
        node = min(site.nodes_of()[sick])
        site.cluster.set_node(node, "drain")
        gone = excluded[-1:]
        assert site.changes() == [f"exclude {sick}"]
        assert site.excluded() == {sick, *gone}
        assert site.changes() == [f"retire {unit}" for unit in gone]
        assert site.artifacts() == site.excluded() == {sick}
        assert remembered(site) == pair
        for unit in pair:
            (site.work / f"go.{unit.partition('.')[2]}").touch()
        excluded.append(sick)
    site.cluster.wait_until(lambda: not site.nodes_of(), what="end of the array")
    assert [site.changes() for _ in range(3)] == [[], [f"retire {excluded[-1]}"], []]
    assert site.artifacts() == remembered(site) == set()
    assert {unit: told(site, unit) for unit in excluded} == {unit: ["exclude", "retire"] for unit in excluded}


# ── an id that is given away again ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_that_gets_an_old_id_inherits_nothing(
    run_cluster: RunCluster, site_on: SiteOn, tmp_path: Path, restarts: int
) -> None:
    """Whoever wrote the exclusion, and however often the job before was sent back: another run is another run."""
    few_ids = ["FirstJobId=1", "MaxJobId=3", "MinJobAge=2"]  # 1 and 2; free again within 12 s of their job's end
    writers = {"ours": ("--job", "1"), "a dead sidecar's": ("--job", "1", "--job", "2"), "a living service's": ()}
    with run_cluster(nodes=2, return_to_service=0, extra_conf=few_ids) as cluster:
        site = site_on(cluster)
        sites = {
            writer: type(site)(cluster, made(tmp_path / str(number))) for number, writer in enumerate(writers)
        }
        job = site.submit(*PAIR, "--requeue")
        unit = unit_of(job)
        if restarts:
            cluster.requeue(job)
        cluster.set_node("n1", "drain")
        for writer, scope in writers.items():
            assert sites[writer].changes(*scope) == [f"exclude {unit}"]
        (beat,) = (sites["a dead sidecar's"].directory / ".segment-health/heartbeat").iterdir()
        beat.unlink()
        site.end(job)
        site.resume("n1")
        script = launching(*sites.values())
        assert cluster.submit(script, f"--chdir={site.work}", "--hold") != job
        assert cluster.submit(script, f"--chdir={site.work}", *PAIR) == job
        found = {writer: before_and_after(where, unit, 0) for writer, where in sites.items()}
        assert found == {writer: ["1", "0"] for writer in writers}
        assert all(where.changes() == where.changes("--job", job) == [] for where in sites.values())


def made(directory: Path) -> Path:
    """Make a directory."""
    directory.mkdir()
    return directory


# ── out of scope ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_leaves_a_partition_leaves_its_exclusion_behind(
    site_on: SiteOn, run_cluster: RunCluster
) -> None:
    """Sent back and moved, it is nobody's there and inherits nothing here, whoever makes the next pass."""
    other = "PartitionName=other Nodes=ALL MaxTime=INFINITE State=UP"
    with run_cluster(nodes=4, return_to_service=0, extra_conf=[other]) as cluster:
        site = site_on(cluster)
        job, stays = site.start((*PAIR, "--requeue"), ONE)
        unit = unit_of(job)
        here, there = ("--partition", "main"), ("--partition", "other")
        cluster.set_node(min(site.nodes_of()[unit]), "drain")
        assert site.changes(*here) == [f"exclude {unit}"]
        assert site.changes(*there) == []
        cluster.run("scontrol", "requeue", job)
        wait_for(cluster, job, "PENDING")
        assert site.changes(*here) == []
        cluster.run("scontrol", "update", f"jobid={job}", "partition=other", "starttime=now+1", "numnodes=1")
        wait_for(cluster, job, "RUNNING")
        assert site.changes(*here) == [f"clear {unit}"]
        assert site.excluded() == set()
        cluster.set_node(min(site.nodes_of()[unit]), "drain")
        assert site.changes(*here) == []
        assert site.changes(*there) == [f"exclude {unit}"]
        assert site.changes(*here) == []
        site.end(job)
        assert [site.changes(*here) for _ in range(3)] == [[], [], []]
        assert [site.changes(*there) for _ in range(3)] == [[], [f"retire {unit}"], []]
        assert site.artifacts() == set()
        assert remembered(site, "partition:other") == set()
        assert remembered(site, "partition:main") == {unit_of(stays)}


# ── what is left ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_does_not_grow_with_the_jobs_that_ran(site: Site) -> None:
    """Sixteen units a round, each excluded and ended: after every round the same files are there, and as small."""
    left = []
    for _ in range(3):
        array = site.submit("--array=0-15", "--ntasks=1")
        site.cluster.set_node("n[1-8]", "drain")
        assert site.publish()["units"] == {"total": 16, "excluded": 16}
        site.end(array)
        site.cluster.set_node("n[1-8]", "resume")
        # slurmctld takes them for not responding until they have answered, which a pass may be too quick for.
        site.cluster.wait_until(
            lambda: {site.cluster.node_state(name) for name in site.cluster.nodes} == {"IDLE"}, what="idle nodes"
        )
        assert [len(site.changes()) for _ in range(3)] == [0, 16, 0]
        assert (site.artifacts(), remembered(site)) == (set(), set())
        files = {str(path.relative_to(site.directory)): path for path in site.directory.rglob("*")}
        left.append(files.keys())
        state = files[".segment-health/state/all@sandbox.json"]
        assert state.stat().st_size < 200
    assert left[0] == left[1] == left[2]
    assert len(history(site)) == 3 * 2 * 16


def test_a_history_has_two_halves_and_no_third(site: Site) -> None:
    """The pass that finds it full puts it aside, once; nothing that was said since then is lost."""
    folder = site.directory / ".segment-health"
    job = site.submit(*ONE, "--nodelist=n1")
    actions = []
    for number in range(3):
        site.cluster.set_node("n1", "drain")
        actions += site.changes()
        with (folder / "history.jsonl").open("r+b") as file:
            line = file.readlines()[-1]
            file.write(line * (MAX_HISTORY // len(line) + 1))
        site.resume("n1")
        actions += site.changes()
        assert not (folder / "history.jsonl").exists(), number
        (full,) = (path for path in folder.iterdir() if path.name.startswith("history"))
        assert json.loads(full.read_bytes().splitlines()[-1])["action"] == "clear"
        assert full.stat().st_size < 2 * MAX_HISTORY
    assert actions == [f"exclude {unit_of(job)}", f"clear {unit_of(job)}"] * 3


def test_what_ended_sidecars_left_is_buried(site: Site) -> None:
    """A week after its last pass nothing of a job's own publisher is there, nor a person's word on the job."""
    job, lives = site.start((*ONE, "--nodelist=n1"), (*ONE, "--nodelist=n2"))
    site.cluster.set_node("n[1-2]", "drain")
    for one in (job, lives):
        assert site.changes("--job", one) == [f"exclude {unit_of(one)}"]
        assert site.call("clear", "--dir", str(site.directory), one, "--reason", "fine").returncode == 0
    site.end(job)
    folder = site.directory / ".segment-health"

    def files() -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    mine = {f"heartbeat/job:{job}@sandbox.json", f"state/job:{job}@sandbox.json", f"override/{job}.{job}.json"}
    assert mine < files()
    week = time.time() - BURY_SECONDS
    for name in files():
        os.utime(folder / name, (week + 60, week + 60))
    site.publish()
    assert mine < files()
    for name in files():
        os.utime(folder / name, (week - 60, week - 60))
    assert [site.changes() for _ in range(2)] == [[], []]
    assert not mine & files()
    assert f"override/{lives}.{lives}.json" in files()
    assert site.excluded() == set()


# ── two hosts ──────────────────────────────────────────────────────────────────────────────────────────────────

LATE = """\
#!/bin/sh
answer=$(mktemp) && "{real}" "$@" >"$answer" && touch {seen} &&
until [ -e {gate} ]; do sleep 0.05; done && exec cat "$answer"
"""


@pytest.mark.root
def test_a_pass_that_looked_before_a_run_does_not_keep_it_excluded(site: Site, tmp_path: Path) -> None:
    """Another host's pass that was under way before a run began is no newer than the run's own first pass."""
    job = site.submit(*PAIR, "--requeue")
    unit = unit_of(job)
    site.cluster.set_node(min(site.nodes_of()[unit]), "drain")
    assert site.changes("--job", job) == [f"exclude {unit}"]
    beside = late_answers(site, made(tmp_path / "there"))
    here = late_answers(site, made(tmp_path / "here"))
    command = [site.command, *site.arguments("--job", job)]
    elsewhere = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh", *command]
    with subprocess.Popen(elsewhere, env=beside, stdout=subprocess.DEVNULL) as other:
        try:
            site.cluster.wait_until((tmp_path / "there/seen").exists, what="the answer to the pass elsewhere")
            site.cluster.requeue(job)
            with subprocess.Popen(command, env=here, stdout=subprocess.PIPE, text=True) as own:
                try:
                    site.cluster.wait_until((tmp_path / "here/seen").exists, what="the answer to the run's pass")
                    (tmp_path / "there/gate").touch()
                    assert other.wait(30) == 0
                    (tmp_path / "here/gate").touch()
                    said = own.communicate(timeout=30)[0]
                    assert own.returncode == 0, said
                finally:
                    own.kill()
        finally:
            other.kill()
    assert site.excluded() == set(), said


def late_answers(site: Site, directory: Path) -> dict[str, str]:
    """Return an environment in which squeue's answer, seen when `seen` is there, arrives when `gate` is."""
    real = site.cluster.run("sh", "-c", "command -v squeue").stdout.strip()
    squeue = made(directory / "bin") / "squeue"
    squeue.write_text(LATE.format(real=real, seen=directory / "seen", gate=directory / "gate"))
    squeue.chmod(0o755)
    for conf in site.cluster.directory.glob("*.conf"):  # of another path: the lock there is not the one here
        shutil.copy(conf, directory)
    env = site.cluster.env | {"SLURM_CONF": str(directory / "slurm.conf")}
    return env | {"PATH": f"{squeue.parent}{os.pathsep}{site.cluster.env['PATH']}"}

"""What `segment-health publish` and `check` do on a real Slurm: jobs, arrays, nodes and slurmctld are real."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from slurm.commands.job_rows import parse_jobs
from slurm.commands.text import SHOW_JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Site

    RunCluster = Callable[..., AbstractContextManager[Sandbox]]

pytestmark = pytest.mark.slurm

# Three tasks that need three CPUs on two nodes of two: the first two tasks share a node.
ARRAY = ("--array=0-2", "--nodes=2", "--ntasks=3")
PAIR = ("--nodes=2", "--exclusive")
ONE = ("--nodes=1", "--exclusive")


@pytest.fixture(scope="module", params=["text", "json", "rest"])
def door(request: pytest.FixtureRequest) -> str:
    """Every test here goes through every door that this machine's Slurm has."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(run_cluster: RunCluster) -> Iterator[Sandbox]:
    """Eight nodes as elsewhere, in a hidden partition too."""
    hidden = "PartitionName=hidden Nodes=ALL Hidden=YES MaxTime=INFINITE State=UP"
    with run_cluster(nodes=8, return_to_service=0, extra_conf=[hidden]) as sandbox:
        yield sandbox


def unit_of(job: str) -> str:
    """Name the unit that a regular job is."""
    return f"{job}.{job}"


def only(names: set[str]) -> str:
    """Return the one name of a set."""
    (name,) = names
    return name


def without_writer(artifact: dict[str, Any]) -> dict[str, Any]:
    """Leave out who wrote an artifact, and when."""
    return {
        key: value for key, value in artifact.items() if key not in {"first_published", "updated", "publisher"}
    }


def start_of(site: Site, job: str) -> int:
    """Ask Slurm for a job's start, in seconds since the epoch."""
    query = ("squeue", "--noheader", f"--jobs={job}", "--format=%S")
    return int(site.cluster.run(*query, env={"SLURM_TIME_FORMAT": "%s"}).stdout)


# ── drained and failing nodes ──────────────────────────────────────────────────────────────────────────────────


def test_exactly_the_units_that_hold_a_bad_node_are_excluded(site: Site) -> None:
    """Whoever holds the node, alone or shared, and nobody else; once it is fit the artifact is empty."""
    array, job = site.start(ARRAY, PAIR)
    first, second, last, regular = (*(f"{array}.{task}" for task in range(3)), unit_of(job))
    assert f"{last}={array}" in site.cluster.run("squeue", "-h", "-o", "%F.%K=%A").stdout.split()
    held = site.nodes_of()
    assert held.keys() == {first, second, last, regular}
    shared = held[first] & held[second]
    spare = set(site.cluster.nodes).difference(*held.values())
    written = set[str]()
    for node, state, units in (
        (only(held[first] - shared), "drain", [first]),
        (only(shared), "drain", [first, second]),
        (min(held[last]), "drain", [last]),
        (max(held[regular]), "fail", [regular]),
        (only(spare), "drain", []),
    ):
        case = f"{state} of {node}, {held}"
        site.cluster.set_node(node, state)
        done = site.publish()
        assert site.excluded() == set(units), case
        assert done["nodes"] == {"total": 8, "unavailable": 1}, case
        assert done["units"] == {"total": 4, "excluded": len(units)}, case
        level = "PreSeparateFault" if state == "drain" else "SeparateFault"
        assert [site.artifact(unit)["level"] for unit in units] == [level] * len(units), case
        written.update(units)
        assert site.artifacts() == written, case
        site.resume(node)
        assert site.changes() == [f"clear {unit}" for unit in units], case
        assert {site.path(unit).stat().st_size for unit in written} == {0}, case


@pytest.mark.parametrize(
    ("state", "flag", "level"), [("drain", "DRAIN", "PreSeparateFault"), ("fail", "FAIL", "SeparateFault")]
)
def test_an_artifact_says_what_slurm_says(site: Site, state: str, flag: str, level: str) -> None:
    """Node, state, reason, its author and time, the unit's generation and the publisher all are Slurm's own."""
    job = site.submit(*PAIR, "--nodelist=n[2-3]")
    before = int(time.time())
    site.cluster.set_node("n3", state, "Xid 79: GPU has fallen off the bus")
    after = time.time()
    assert site.cluster.node_state("n3") == f"ALLOCATED+{flag}"
    assert site.publish()["changes"] == [
        {
            "action": "exclude",
            "job_id": job,
            "task_id": job,
            "level": level,
            "nodes": "n3",
            "path": f"{site.directory}/segment_health_check.{job}.{job}",
            "error": None,
        }
    ]
    artifact = site.artifact(unit_of(job))
    (node,) = artifact["nodes"]
    since = datetime.fromisoformat(node.pop("reason_since"))
    assert since.utcoffset() == timedelta(0)
    assert before <= since.timestamp() <= after
    assert node == {
        "name": "n3",
        "state": ["ALLOCATED", flag],
        "reason": "Xid 79: GPU has fallen off the bus",
        "reason_user": site.cluster.run("id", "-un").stdout.strip(),
        "level": level,
        "rule": f"state:{flag}",
    }
    assert (artifact["job_id"], artifact["task_id"], artifact["level"]) == (job, job, level)
    assert artifact["unavailable"] == "n3"
    assert artifact["generation"] == {"restart_count": 0, "start_time": start_of(site, job), "nodelist": "n[2-3]"}
    assert artifact["publisher"]["cluster"] == "sandbox"
    assert artifact["publisher"]["scope"] == "all"


def test_check_refuses_process_0_of_the_excluded_unit_alone(site: Site) -> None:
    """In the processes that Slurm starts, `check` ends with 1 where a rendezvous must not be joined, else 0."""
    unit = "${SLURM_ARRAY_JOB_ID-$SLURM_JOB_ID}.${SLURM_ARRAY_TASK_ID-$SLURM_JOB_ID}"
    check = site.work / "check"
    check.write_text(
        "#!/bin/sh\n"
        f"{site.command} check --dir {site.directory} --format json > {unit}.$1$SLURM_PROCID\n"
        f"echo $? >> {unit}.$1$SLURM_PROCID\n"
    )
    check.chmod(0o755)
    script = (
        "#!/bin/sh\n"
        "until [ -e go ]; do sleep 0.05; done\n"
        "./check batch\n"
        "srun ./check step\n"
        f"touch {unit}.done && exec sleep 300\n"
    )
    layout = ("--nodes=2", "--ntasks=2", "--exclusive")
    array, job = site.start(("--array=0-1", *layout), layout, script=script)
    units = (f"{array}.0", f"{array}.1", unit_of(job))
    site.cluster.set_node(min(site.nodes_of()[f"{array}.1"]), "drain")
    site.publish()
    (site.work / "go").touch()
    site.cluster.wait_until(
        lambda: all((site.work / f"{unit}.done").exists() for unit in units), what="three checks"
    )
    for unit in units:
        for process, looks in (("batch0", True), ("step0", True), ("step1", False)):
            document, code = (site.work / f"{unit}.{process}").read_text().splitlines()
            excluded = looks and unit == f"{array}.1"
            path = f"{site.directory}/segment_health_check.{unit}" if looks else None
            assert code == str(int(excluded)), (unit, process)
            assert json.loads(document) == {
                "installed": looks,
                "healthy": not excluded,
                "path": path,
                "warning": None,
            }


# ── units that change, and units that end ──────────────────────────────────────────────────────────────────────


def test_a_shrunk_unit_is_excluded_until_it_ends(
    site_on: Callable[[Sandbox], Site], run_cluster: RunCluster
) -> None:
    """A --no-kill job loses its DOWN node at once; fit again, that node does not come back to the job."""
    # A cluster of its own: after this slurmctld 22.05 may fail to start a heterogeneous job on that node.
    with run_cluster(nodes=4, return_to_service=0) as cluster:
        site = site_on(cluster)
        job, neighbour = site.start(
            *((*PAIR, "--no-kill", f"--nodelist={nodes}") for nodes in ("n[1-2]", "n[3-4]"))
        )
        unit = unit_of(job)
        assert site.changes() == []
        cluster.set_node("n2", "down", "lost")
        cluster.wait_until(lambda: site.nodes_of()[unit] == {"n1"}, what="job without its DOWN node")
        assert site.changes() == [f"exclude {unit}"]
        artifact = site.artifact(unit)
        assert (artifact["level"], artifact["unavailable"]) == ("SeparateFault", "n2")
        (node,) = artifact["nodes"]
        assert (node["name"], node["state"][0], node["rule"]) == ("n2", "DOWN", "unit:shrunk")
        assert artifact["generation"]["nodelist"] == "n[1-2]"
        site.resume("n2")
        assert site.changes() == []
        assert site.excluded() == {unit}
        site.end(job)
        assert [site.changes() for _ in range(3)] == [[], [f"retire {unit}"], []]
        assert site.artifacts() == set()
        assert site.nodes_of() == {unit_of(neighbour): {"n3", "n4"}}


def test_a_requeued_job_inherits_nothing(site: Site) -> None:
    """On other nodes the same ids are a new generation: one pass clears, and only its own nodes exclude it."""
    job = site.submit(*PAIR, "--requeue")
    unit = unit_of(job)
    node = min(site.nodes_of()[unit])
    site.cluster.set_node(node, "drain")
    assert site.changes("--job", job) == [f"exclude {unit}"]
    first = site.artifact(unit)["generation"]
    site.cluster.requeue(job)
    nodes = site.nodes_of()[unit]
    assert node not in nodes
    assert site.cluster.node_state(node) == "IDLE+DRAIN"
    assert site.changes("--job", job) == [f"clear {unit}"]
    assert site.excluded() == set()
    site.cluster.set_node(max(nodes), "drain")
    assert site.changes("--job", job) == [f"exclude {unit}"]
    second = site.artifact(unit)["generation"]
    assert (first["restart_count"], second["restart_count"]) == (0, 1)
    assert first["start_time"] < second["start_time"] == start_of(site, job)


def test_a_suspended_job_is_a_unit(site: Site) -> None:
    """Its nodes look idle and its processes stand still; they are its nodes all the same."""
    job = site.submit(*PAIR, "--nodelist=n[4-5]")
    unit = unit_of(job)
    site.cluster.run("scontrol", "suspend", job)
    site.cluster.set_node("n5", "drain")
    assert [site.changes() for _ in range(3)] == [[f"exclude {unit}"], [], []]
    assert site.cluster.job_states(job) == ["SUSPENDED"]
    site.cluster.run("scontrol", "resume", job)
    assert site.changes() == []
    assert site.excluded() == {unit}
    site.resume("n5")
    assert site.changes() == [f"clear {unit}"]


def test_a_configuring_job_is_a_unit(
    tmp_path: Path, site_on: Callable[[Sandbox], Site], run_cluster: RunCluster
) -> None:
    """While slurmctld prepares its nodes a job has them, and is judged by them."""
    hold, prolog = tmp_path / "hold", tmp_path / "prolog"
    hold.touch()
    prolog.write_text(f"#!/bin/sh\nwhile [ -e {hold} ]; do sleep 0.05; done\n")
    prolog.chmod(0o755)
    with run_cluster(nodes=2, extra_conf=[f"PrologSlurmctld={prolog}"]) as cluster:
        site = site_on(cluster)
        job = cluster.submit("#!/bin/sh\nexec sleep 300\n", *PAIR)
        unit = unit_of(job)
        cluster.wait_until(lambda: cluster.job_states(job) == ["CONFIGURING"], what="configuring job")
        cluster.set_node("n2", "drain")
        assert [site.changes() for _ in range(3)] == [[f"exclude {unit}"], [], []]
        site.resume("n2")
        assert site.changes() == [f"clear {unit}"]
        assert cluster.job_states(job) == ["CONFIGURING"]
        hold.unlink()
        cluster.wait_running(job)
        assert site.publish()["units"] == {"total": 1, "excluded": 0}


def test_a_heterogeneous_job_is_one_unit(site: Site) -> None:
    """A bad node of any component excludes the leader's id, which all its processes have."""
    job = site.submit(*ONE, "--nodelist=n1", ":", *ONE, "--nodelist=n2")
    unit = unit_of(job)
    site.cluster.set_node("n2", "drain")
    done = site.publish("--job", job)
    assert done["units"] == {"total": 1, "excluded": 1}
    assert site.artifacts() == site.excluded() == {unit}
    assert site.artifact(unit)["unavailable"] == "n2"
    assert site.artifact(unit)["generation"]["nodelist"] == "n[1-2]"
    site.resume("n2")
    assert site.changes("--job", job) == [f"clear {unit}"]


def test_a_scope_covers_its_own_units(site: Site) -> None:
    """Those of a hidden partition too, which a plain squeue passes over; a job that is gone is no unit."""
    job = site.submit(*PAIR, "--partition=hidden", "--nodelist=n[1-2]")
    site.cluster.set_node("n1", "drain")
    for scope, total in (
        (["--job", "999999"], 0),
        (["--partition", "main"], 0),
        (["--user", "daemon"], 0),
        (["--partition", "hidden"], 1),
        (["--user", site.cluster.run("id", "-un").stdout.strip()], 1),
        (["--job", "999999", "--job", job], 1),
    ):
        done = site.publish(*scope)
        assert done["units"] == {"total": total, "excluded": total}, scope
        assert site.artifacts() == site.excluded() == ({unit_of(job)} if total else set()), scope
    assert site.artifact(unit_of(job))["publisher"]["scope"] == "partition:hidden"
    if os.geteuid() == 0:  # SlurmUser sees hidden partitions unasked; root can ask as somebody else
        as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        plain, ours = (site.cluster.run(*as_nobody, *query).stdout for query in (("squeue", "-h"), SHOW_JOBS))
        assert plain == ""
        assert [allocation.job_id for allocation in parse_jobs(ours.encode())] == [job]


def test_inside_a_job_the_scope_is_that_job(site: Site) -> None:
    """Without a scope, a task of an array publishes for the whole array, and for nobody else."""
    script = (
        "#!/bin/sh\n"
        '[ "$SLURM_ARRAY_TASK_ID" = 0 ] || exec sleep 300\n'
        "until [ -e go ]; do sleep 0.05; done\n"
        f"{site.command} publish --dir {site.directory} --once --format json > out 2> err\n"
        "echo $? > code.part && mv code.part code && exec sleep 300\n"
    )
    array, job = site.start(("--array=0-1", *PAIR), PAIR, script=script)
    held = site.nodes_of()
    for unit in (f"{array}.1", unit_of(job)):
        site.cluster.set_node(min(held[unit]), "drain")
    (site.work / "go").touch()
    site.cluster.wait_until((site.work / "code").exists, what="end of the publisher in the job")
    assert (site.work / "code").read_text() == "0\n", (site.work / "err").read_text()
    assert json.loads((site.work / "out").read_text())["units"] == {"total": 2, "excluded": 1}
    assert site.artifacts() == site.excluded() == {f"{array}.1"}
    assert site.artifact(f"{array}.1")["publisher"]["scope"] == f"job:{array}"


# ── a slurmctld in trouble ─────────────────────────────────────────────────────────────────────────────────────


def test_while_slurmctld_hangs_nothing_is_touched(site: Site) -> None:
    """No answer in time: exit status 3, and every byte and inode stays; once it goes on, so do the passes."""
    job = site.submit(*PAIR, "--nodelist=n[1-2]")
    site.cluster.set_node("n1", "drain")
    assert site.changes() == [f"exclude {unit_of(job)}"]
    before = site.files()
    site.cluster.pause_controller()
    done = site.publish("--timeout", "2", code=3)
    assert done["changes"] == []
    assert re.search("no (whole )?answer within 2 s", done["error"])
    assert site.files() == before
    site.cluster.continue_controller()
    assert site.changes() == []
    assert site.excluded() == {unit_of(job)}


def test_what_a_restarted_slurmctld_does_not_know_is_no_evidence(
    site_on: Callable[[Sandbox], Site], run_cluster: RunCluster
) -> None:
    """Dead, it leaves every decision; back, it says UNKNOWN until a node registers, which lifts and makes none."""
    with run_cluster(nodes=2) as cluster:
        site = site_on(cluster)
        first, second = map(unit_of, site.start(*((*ONE, f"--nodelist={node}") for node in cluster.nodes)))

        def states() -> list[str]:
            return [cluster.node_state(node) for node in cluster.nodes]

        cluster.set_node("n1", "drain")
        assert site.changes() == [f"exclude {first}"]
        before = site.files()
        cluster.stop_controller()
        assert site.publish("--timeout", "2", code=3)["error"]
        assert site.files() == before
        for node in cluster.nodes:
            cluster.kill_slurmd(node)  # so that they stay UNKNOWN for as long as is wanted
        cluster.start_controller()
        assert site.changes() == []
        assert states() == ["UNKNOWN+DRAIN", "UNKNOWN"]
        cluster.stop_controller()
        for saved in (cluster.directory / "state").glob("node_state*"):
            saved.unlink()  # as if it had died before it saved the drain
        cluster.start_controller()
        assert site.changes() == []
        assert states() == ["UNKNOWN", "UNKNOWN"]
        assert site.excluded() == {first}
        cluster.set_node("n2", "drain")
        assert site.changes() == [f"exclude {second}"]
        assert states() == ["UNKNOWN", "UNKNOWN+DRAIN"]
        for node in cluster.nodes:
            cluster.start_slurmd(node)
        cluster.wait_until(lambda: states() == ["ALLOCATED", "ALLOCATED+DRAIN"], what="registered nodes")
        assert site.changes() == [f"clear {first}"]
        assert site.excluded() == {second}


# ── hostile surroundings ───────────────────────────────────────────────────────────────────────────────────────


def test_what_a_user_set_for_their_eyes_changes_nothing(site: Site) -> None:
    """Formats, filters, other clusters and zones in the environment: the same decision, its times in UTC."""
    hostile = {
        "SINFO_FORMAT": "%N",
        "SLURM_BITSTR_LEN": "1",
        "SLURM_CLUSTERS": "nowhere",
        "SLURM_TIME_FORMAT": "relative",
        "SQUEUE_FORMAT": "%i",
        "SQUEUE_FORMAT2": "JobID:3",
        "SQUEUE_PARTITION": "none",
        "SQUEUE_STATES": "PENDING",
        "SQUEUE_USERS": "nobody",
        "TZ": "Asia/Tokyo",
    }
    job = site.submit(*PAIR, "--nodelist=n[2-3]")
    before = int(time.time())
    site.cluster.set_node("n2", "drain", "sparks")
    after = time.time()
    plain = site.publish()
    artifact = site.artifact(unit_of(job))
    site.forget()
    told = site.publish(env=hostile)
    assert told | {"duration_ms": 0} == plain | {"duration_ms": 0}
    assert without_writer(site.artifact(unit_of(job))) == without_writer(artifact)
    since = datetime.fromisoformat(artifact["nodes"][0]["reason_since"])
    assert before <= since.timestamp() <= after
    assert since.utcoffset() == timedelta(0)
    assert artifact["generation"]["start_time"] == start_of(site, job)


NODE_TEXTS = [
    # <n1> is n1's record as Slurm prints it, but IDLE
    ("n1", "reason", 'x"}],"level":"NotHandleFault"} State=IDLE Reason=none'),
    ("n1", "reason", "\x1b[2J\x07\x7f\u202e\x85\u2028 \udcff\udcc3 [me@2026-01-01T00:00:00]"),
    ("n3", "reason", "fine\n<n1>\n"),
    ("n1", "comment", "fine Reason=none [root@2026-01-01T00:00:00] State=IDLE"),
    ("n1", "comment", "fine\n<n3>"),
    ("n3", "comment", "fine\n<n1>"),
]


def test_no_text_of_a_node_hides_a_bad_one(site_on: Callable[[Sandbox], Site], run_cluster: RunCluster) -> None:
    """Whatever stands in a reason or comment, both bad nodes exclude their units, or the answer counts as none."""
    with run_cluster(nodes=3) as cluster:
        site = site_on(cluster)
        jobs = site.start(*((*ONE, f"--nodelist={node}") for node in cluster.nodes))
        first, _, third = map(unit_of, jobs)
        fine = cluster.run("scontrol", "show", "nodes", "-o").stdout.replace(" State=ALLOCATED ", " State=IDLE ")
        records = {f"<{record.split()[0].removeprefix('NodeName=')}>": record for record in fine.splitlines()}
        cluster.set_node("n[1,3]", "drain")
        for node, field, template in NODE_TEXTS:
            text = re.sub("<n[13]>", lambda found: records[found[0]], template)
            case = f"{field} of {node}: {template!a}"
            hostile = ("scontrol", "update", f"nodename={node}", f"{field}={text}")
            harmless = ("scontrol", "update", f"nodename={node}", "reason=test", "comment=")
            site.forget()
            cluster.run(*hostile)
            done = site.call(*site.arguments())
            assert done.returncode in {0, 3}, (case, done)
            assert re.fullmatch(r"[ -~\n]+", done.stdout + done.stderr), (case, done)
            cluster.run(*harmless)
            if done.returncode == 3:
                assert site.artifacts() == set(), case
                assert site.publish()["units"] == {"total": 3, "excluded": 2}, case
                before = site.files()
                cluster.run(*hostile)
                site.publish(code=3)
                assert site.files() == before, case
                cluster.run(*harmless)
            assert site.artifacts() == site.excluded() == {first, third}, case
            assert all(re.fullmatch(rb"[ -~]+\n", site.path(unit).read_bytes()) for unit in (first, third)), case


def test_no_text_of_a_job_hides_a_bad_unit(
    site_on: Callable[[Sandbox], Site], run_cluster: RunCluster, tmp_path: Path
) -> None:
    """Names and comments with forged records: a living Slurm is not asked for them, a saved answer is refused."""
    with run_cluster(nodes=4) as cluster:
        site = site_on(cluster)
        victim = site.submit(*PAIR, "--nodelist=n[1-2]")
        record = f"JobId={victim} JobName=x JobState=PENDING NodeList=n5"
        forged = f"x JobState=PENDING NodeList=n5\n{record}\n{victim}|PENDING|\n"
        hostile = site.submit(*PAIR, "--nodelist=n[3-4]", f"--job-name={forged}", f"--comment={forged}")
        assert site.publish()["units"] == {"total": 2, "excluded": 0}
        cluster.set_node("n[1,3]", "drain")
        assert site.changes() == [f"exclude {unit_of(victim)}", f"exclude {unit_of(hostile)}"]
        assert site.artifact(unit_of(hostile))["generation"]["nodelist"] == "n[3-4]"
        before = site.files()
        nodes, jobs = tmp_path / "nodes", tmp_path / "jobs"
        nodes.write_text(cluster.run("scontrol", "show", "nodes", "-o").stdout)
        for layout in (["-o"], []):
            jobs.write_text(cluster.run("scontrol", "show", "jobs", *layout).stdout)
            site.publish("--nodes-from", str(nodes), "--jobs-from", str(jobs), code=3)
        assert site.files() == before


# ── cost, company, replay ──────────────────────────────────────────────────────────────────────────────────────


def questions(cluster: Sandbox) -> dict[str, int]:
    """Return how many questions of each kind slurmctld has answered since it started."""
    counted = re.compile(r"^\s+(REQUEST_\w+_INFO\w*)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)
    return {name: int(count) for name, count in counted.findall(cluster.run("sdiag").stdout)}


@pytest.mark.parametrize("tasks", [1, 16])
def test_a_pass_asks_once_however_many_jobs_run(site: Site, tasks: int) -> None:
    """One question for the nodes, one for the jobs; the door may precede each by one for the partitions."""
    site.submit(f"--array=1-{tasks}", "--ntasks=1")
    before = questions(site.cluster)
    assert site.publish()["units"]["total"] == tasks
    asked = {name: count - before.get(name, 0) for name, count in questions(site.cluster).items()}
    asked.pop("REQUEST_STATS_INFO")  # is sdiag's own
    once_a_process, partitions = asked.pop("REQUEST_BUILD_INFO", 0), asked.pop("REQUEST_PARTITION_INFO", 0)
    assert once_a_process <= 1
    assert partitions <= 2
    assert {name: count for name, count in asked.items() if count} == {
        "REQUEST_JOB_INFO": 1,
        "REQUEST_NODE_INFO": 1,
    }


def test_saved_answers_give_the_same_decisions(site: Site, tmp_path: Path) -> None:
    """What scontrol printed, saved and replayed in an empty directory, says what the living cluster said."""
    het, suspended, array = site.start(
        (*ONE, "--nodelist=n6", ":", *ONE, "--nodelist=n7"), (*ONE, "--nodelist=n8"), ARRAY
    )
    site.cluster.run("scontrol", "suspend", suspended)
    site.cluster.submit("#!/bin/sh\n", "--begin=tomorrow", "--array=0-9")
    held = site.nodes_of()
    site.cluster.set_node(only(held[f"{array}.0"] & held[f"{array}.1"]), "drain", "smoke")
    site.cluster.set_node("n[7-8]", "fail", "fire")
    shown = ("scontrol", "show", "nodes", "-o")
    # The backfill scheduler flags the nodes of a heterogeneous job until its next round.
    site.cluster.wait_until(lambda: "PLANNED" not in site.cluster.run(*shown).stdout, what="no node planned")
    live = site.publish()
    units = site.excluded()
    assert units == {f"{array}.0", f"{array}.1", unit_of(het), unit_of(suspended)}
    artifacts = {unit: without_writer(site.artifact(unit)) for unit in units}
    nodes, jobs = tmp_path / "nodes", tmp_path / "jobs"
    for layout, zone in (["-o"], "UTC"), ([], "UTC"), ([], "Asia/Tokyo"):
        case, env = f"{layout} {zone}", {"TZ": zone}
        nodes.write_text(site.cluster.run(*shown, env=env).stdout)
        jobs.write_text(site.cluster.run("scontrol", "show", "jobs", *layout, env=env).stdout)
        site.forget()
        saved = site.publish("--nodes-from", str(nodes), "--jobs-from", str(jobs), env=env)
        assert {key: saved[key] for key in ("nodes", "units", "changes")} == {
            key: live[key] for key in ("nodes", "units", "changes")
        }, case
        assert {unit: without_writer(site.artifact(unit)) for unit in site.excluded()} == artifacts, case

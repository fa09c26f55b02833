"""The publisher that runs: real signals, a real slurmctld that comes and goes, two hosts' worth of publishers."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.contract import Artifact, Generation, Publisher, UnitId, encode
from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.scope import EVERYTHING, of_jobs
from segment_health.service import Plan, Service
from segment_health.sources import Access, ask_slurm

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm


def submit(site: Site, nodes: str) -> str:
    """Run a job alone on its nodes; return its unit."""
    job = site.submit(nodes, "--exclusive")
    return f"{job}.{job}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_by_a_signal_and_leaves_exclusions(
    site: Site, start: Callable[..., Running], number: signal.Signals
) -> None:
    """A drain is published by the next pass; asked to end it ends with 0, and the exclusion stays."""
    job = submit(site, "--nodes=2")
    publisher = start()
    site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
    publisher.poked_until(lambda: site.excluded() == {job})
    assert publisher.end(number) == 0
    assert site.excluded() == {job}
    assert "Traceback" not in publisher.log.read_text()


@pytest.mark.parametrize(
    ("source", "name", "why"),
    [("auto", "text", "pyslurm is not installed"), ("text", "text", "asked for"), ("json", "json", "asked for")],
)
def test_its_first_line_names_the_source(start: Callable[..., Running], source: str, name: str, why: str) -> None:
    """What is asked, and why that, stands in the first line of the log."""
    publisher = start("--all", "--source", source)
    first = json.loads(publisher.log.read_text().splitlines()[0])
    assert first["event"] == "start"
    assert first["message"].endswith(f"; source {name}: {why}")


def test_a_second_loop_names_the_first(site: Site, start: Callable[..., Running]) -> None:
    """Exit status 2 and the first one's process id; a single pass steps back with 0; another scope's may run."""
    publisher = start()
    second = site.call("publish", "--dir", str(site.directory), "--all")
    assert second.returncode == 2
    assert f"process {publisher.process.pid}" in second.stderr
    assert site.call("publish", "--once", "--dir", str(site.directory), "--all").returncode == 0
    start("--job", "1")


def test_a_single_pass_comes_between_those_of_a_loop(site: Site, start: Callable[..., Running]) -> None:
    """A job's first pass must not be skipped because a publisher of its scope runs on the same host."""
    start()
    job = submit(site, "--nodes=1")
    site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
    assert site.changes("--wait") == [f"exclude {job}"]


def test_a_log_that_cannot_be_written_ends_no_publisher(site: Site) -> None:
    """A full /var, or a reader that goes away, is no reason to stop; it still ends well by a signal."""
    job = submit(site, "--nodes=1")
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [site.command, "publish", "--dir", str(site.directory), "--all"], env=site.cluster.env, stderr=full
        )
    try:
        site.cluster.wait_until(lambda: list(site.directory.glob(".segment-health/heartbeat/*")))
        site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
        process.send_signal(signal.SIGUSR1)
        site.cluster.wait_until(lambda: site.excluded() == {job})
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_closed_streams_are_nobodys(site: Site) -> None:
    """Started without standard streams, it opens no file of its own under their numbers: a log would go there."""
    job = submit(site, "--nodes=1")
    argv = [site.command, "publish", "--dir", str(site.directory), "--all"]
    process = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *argv], env=site.cluster.env)
    try:
        site.cluster.wait_until(lambda: list(site.directory.glob(".segment-health/heartbeat/*")))
        assert {os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)} == {"/dev/null"}
        site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
        process.send_signal(signal.SIGUSR1)
        site.cluster.wait_until(lambda: site.excluded() == {job})
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_settings_are_reread(site: Site, start: Callable[..., Running]) -> None:
    """SIGHUP takes a new file, and refuses a wrong one aloud."""
    job = submit(site, "--nodes=1")
    site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
    config = site.work / "c.toml"
    config.write_text('all = true\npublish_at = "SeparateFault"\n')
    publisher = start("--config", str(config))
    assert site.excluded() == set()
    config.write_text("all = true\npublish_ad = 1\n")
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: "the settings in force stay" in publisher.log.read_text())
    config.write_text("all = true\n")
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: site.excluded() == {job})


def test_what_a_restart_alone_changes_is_named(
    start: Callable[..., Running], site: Site, short_path: Path
) -> None:
    """SIGHUP after a change of the page's address says that it stays where it was; the rest is read again."""
    config = site.work / "c.toml"
    config.write_text("all = true\n")
    publisher = start("--config", str(config))
    config.write_text(f'all = true\nlisten = "unix:{short_path}/page.sock"\n')
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: "settings read again" in publisher.log.read_text())
    assert "listen: as it was, changes by a restart only" in publisher.log.read_text()


def test_slurmctld_and_the_directory_come_and_go(site: Site, start: Callable[..., Running]) -> None:
    """Whether slurmctld hangs, ends or restarts, or the directory vanishes: decisions stay, and it recovers."""
    job = submit(site, "--nodes=2")
    site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
    publisher = start("--all", "--timeout", "2")
    assert site.excluded() == {job}
    before = site.path(job).stat()

    def fails_once_more() -> bool:
        publisher.poke()
        return publisher.said("unknown") >= 1

    site.cluster.pause_controller()
    publisher.until(fails_once_more)
    site.cluster.continue_controller()
    site.cluster.stop_controller()
    publisher.poke()
    time.sleep(1)
    site.cluster.start_controller()
    site.cluster.stop_controller(kill=True)  # what it keeps was written by the orderly end before
    publisher.poke()
    site.cluster.start_controller()
    completes = publisher.said("complete")
    publisher.poked_until(lambda: publisher.said("complete") > completes)
    after = site.path(job).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    aside = site.work / "aside"
    site.directory.rename(aside)
    publisher.poked_until(lambda: "No such file" in publisher.log.read_text())
    aside.rename(site.directory)
    completes = publisher.said("complete")
    publisher.poked_until(lambda: publisher.said("complete") > completes)
    assert site.excluded() == {job}


def test_a_standby_takes_over(site: Site, start: Callable[..., Running]) -> None:
    """It waits while the first lives; when that is killed it publishes within two intervals, asked by nobody."""
    first = start("--all", "--interval", "5")
    job = submit(site, "--nodes=1")
    # The same host would refuse it by the lock; another cluster path stands for another host.
    link = site.work / "other.conf"
    shutil.copy(site.cluster.conf, link)
    for extra in site.cluster.directory.glob("cgroup.conf"):
        shutil.copy(extra, site.work / "cgroup.conf")
    os.environ["SLURM_CONF"] = str(link)
    before = site.cluster.env["SLURM_CONF"]
    site.cluster.env["SLURM_CONF"] = str(link)
    try:
        second = start("--all", "--interval", "5", "--standby", wait="standby")
    finally:
        site.cluster.env["SLURM_CONF"] = before
        del os.environ["SLURM_CONF"]
    assert second.said("complete") == 0
    first.process.kill()
    killed = time.monotonic()
    site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
    second.until(lambda: site.excluded() == {job}, seconds=30)
    assert time.monotonic() - killed < 2 * 5 + 6  # two intervals, a jittered wait's rest, and a pass


def test_clear_and_prune(site: Site) -> None:
    """A person's word holds against the next pass; prune waits for the publisher's death."""
    job = submit(site, "--nodes=1")
    site.cluster.set_node(min(site.nodes_of()[job]), "drain", "bad")
    site.publish()
    number = job.partition(".")[0]
    ended = site.call("clear", "--dir", str(site.directory), number, "--reason", "it is fine")
    assert (ended.returncode, ended.stdout.split()[:2]) == (0, ["clear", number])
    assert site.changes() == []
    assert site.excluded() == set()
    assert site.call("clear", "--dir", str(site.directory), "x", "--reason", "y").returncode == 2
    for path in (site.directory / ".segment-health/override").iterdir():
        path.unlink()
    site.publish()
    assert site.excluded() == {job}
    assert site.call("prune", "--dir", str(site.directory), "--max-age", "0s").stdout == ""
    beat = next((site.directory / ".segment-health/heartbeat").iterdir())
    beat.write_text(beat.read_text().replace('"interval": 300.0', '"interval": 0.001'))
    time.sleep(1.1)
    assert site.call("prune", "--dir", str(site.directory), "--max-age", "0s").stdout.startswith(f"clear {number}")
    assert site.call("prune", "--dir", str(site.directory), "--max-age", "soon").returncode == 2
    assert site.excluded() == set()


def test_two_sidecars_and_a_site_wide_publisher_never_flap(site: Site) -> None:
    """In 200 passes with drains and resumes nothing is lifted while a node is bad, nor set while all are fit."""
    units = [submit(site, "--nodes=2") for _ in range(2)]
    nodes = {unit: min(site.nodes_of()[unit]) for unit in units}
    jobs = [unit.partition(".")[0] for unit in units]
    publishers = [
        Service(
            Plan(
                Publication(str(site.directory), scope, Policy(), "0.1.0", interval=300.0),
                ask_slurm("text", Access(timeout=30, environ=site.cluster.env)),
                stale_after=None,
                standby=False,
                on_separate=None,
            ),
            time.time,
        )
        for scope in (of_jobs((jobs[0],)), of_jobs((jobs[1],)), EVERYTHING)
    ]
    chance = random.Random(7)
    bad: set[str] = set()
    for number in range(200):
        if number % 10 == 0:
            unit = chance.choice(units)
            if unit in bad:
                site.resume(nodes[unit])
                bad.discard(unit)
            else:
                site.cluster.set_node(nodes[unit], "drain", "bad")
                bad.add(unit)
            for publisher in chance.sample(publishers, 3):  # the writer may be any of them
                publisher.attempt()
        assert site.excluded() == bad
        assert chance.choice(publishers).attempt().changes == []
        assert site.excluded() == bad


def test_kill_9_while_200_exclusions_are_updated(site: Site) -> None:
    """Killed at random instants, with a reader that never pauses: none is ever empty, torn or gone."""
    nodes_file, jobs_file = site.work / "nodes", site.work / "jobs"
    state = {False: "DOWN", True: "ALLOCATED+DRAIN"}
    units = [UnitId("7", str(task)) for task in range(200)]
    record = (
        "JobId={job} ArrayJobId=7 ArrayTaskId={task} JobName=x UserId=u(1) GroupId=u(1) MCS_label=N/A Priority=1 "
        "Nice=0 Account=a QOS=q JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 "
        "StartTime=2026-11-29T19:50:05 Partition=main ReqNodeList=(null) ExcNodeList=(null) NodeList=m{task} "
        "BatchHost=m{task} NumNodes=1\n"
    )
    jobs_file.write_text("".join(record.format(job=8 + task, task=task) for task in range(200)))

    def write_nodes(drained: bool) -> None:
        nodes_file.write_text("".join(f"NodeName=m{t} State={state[drained]}\n" for t in range(200)))

    arguments = ["--nodes-from", str(nodes_file), "--jobs-from", str(jobs_file)]
    publisher = Publisher("host", 1, "0", "saved", "all")
    for unit in units:
        artifact = Artifact(unit, FaultLevel.SeparateFault, (), "m", Generation(0, 1), "m", 1, 1, publisher)
        (site.directory / unit.artifact_name).write_bytes(encode(artifact))
    chance = random.Random(3)
    reads = 0
    for kill in range(200):
        write_nodes(kill % 2 == 0)
        process = subprocess.Popen(
            [site.command, "publish", "--once", "--all", "--dir", str(site.directory), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=site.cluster.env,
        )
        deadline = time.monotonic() + chance.uniform(0.15, 0.6)
        while time.monotonic() < deadline and process.poll() is None:
            content = (site.directory / chance.choice(units).artifact_name).read_bytes()
            assert content.startswith(b'{"schema"')
            assert content.endswith(b"}\n")
            reads += 1
        process.kill()
        process.wait()
    assert reads > 1000
    write_nodes(drained=True)
    assert site.publish(*arguments)["units"] == {"total": 200, "excluded": 200}
    assert site.publish(*arguments)["changes"] == []
    assert not [name for name in os.listdir(site.directory) if ".tmp." in name]


def test_a_second_publisher_of_a_scope_leaves_at_once(site: Site) -> None:
    """While one waits for Slurm the other ends with 0; another scope's goes its way; kill -9 frees the lock."""
    submit(site, "--nodes=2")
    site.cluster.pause_controller()
    arguments = site.arguments("--timeout", "300")
    with subprocess.Popen([site.command, *arguments], env=site.cluster.env, stderr=subprocess.DEVNULL) as first:
        try:
            children = Path(f"/proc/{first.pid}/task/{first.pid}/children")
            site.cluster.wait_until(children.read_text, what="questions of the first publisher")
            before = site.files()
            second = site.call(*arguments)
            assert second.returncode == 0, second
            (line,) = second.stderr.splitlines()
            assert f"another publisher of all in {site.directory} is running on this host" in line
            site.publish("--job", "1", "--timeout", "1", code=3)
        finally:
            first.kill()
    site.publish("--timeout", "1", code=3)
    assert site.files() == before
    site.cluster.continue_controller()
    assert site.publish()["units"]["total"] == 1

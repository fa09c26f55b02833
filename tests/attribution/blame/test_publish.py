"""`publish --attribution-blame`: what logs say against a node excludes its units for a time, and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.attribution.blame.directory import Blames
from segment_health.attribution.blame.grade import Bar
from segment_health.attribution.blame.record import MARKER, Blame, encode
from segment_health.cli import main
from segment_health.consumer import SegmentHealthCheck
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.scope import EVERYTHING
from segment_health.service import Plan, Service
from segment_health.sources import recording
from segment_health.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSTHROUGH = Path(__file__).parents[2] / "faults/passthrough.py"


@dataclass
class Site:
    """Job 7 on n1 and n2, job 8 on n3, all healthy as Slurm says; a directory of decisions, one of blames."""

    path: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)

    @property
    def blames(self) -> Path:
        """Where blames are."""
        return self.path / "blame"

    def recorded(self) -> str:
        """Record the cluster as it is now; return the path."""
        source, path = self.cluster.source, self.path / "recording.json"
        path.write_text(recording(source.observe(), source, now=datetime.now(timezone.utc), scrubbed=False))
        return str(path)

    def blame(self, node: str, job: str, age: int = 0, **further: Any) -> Path:
        """Let a job's log blame a node; return the file."""
        blame = Blame(node, "xid-hardware", job, int(time.time()) - age, **further)
        path = self.blames / blame.name
        path.write_bytes(encode(blame))
        path.chmod(0o644)
        return path

    def call(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Run a command on the recorded cluster; return its status and what it said."""
        where = ["--dir", str(self.path / "decisions"), "--replay", self.recorded()]
        done = CliRunner().invoke(main, [*command.split(), *where, *arguments])
        return done.exit_code, done.stdout, done.stderr

    def publish(self, *arguments: str, blame: bool = True, status: int = 0) -> tuple[list[str], str]:
        """Make a complete pass that ends so; return its changes, and what it complained of."""
        asked = ["--attribution-blame", str(self.blames)] if blame else []
        code, told, complaints = self.call("publish --once --all --format json", *asked, *arguments)
        assert code == status, complaints
        changes = json.loads(told)["changes"]
        return [f"{one['action']} {one['job_id']} {one['level']} {one['nodes']}" for one in changes], complaints

    def excluded(self, job: str) -> bool:
        """Ask the consumer."""
        return not SegmentHealthCheck(self.path / "decisions", job, job)()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Nobody blames any node."""
    made = Site(tmp_path)
    (tmp_path / "decisions").mkdir()
    made.blames.mkdir(mode=0o755)
    (made.blames / MARKER).touch(mode=0o644)
    made.cluster.run("7", "n[1-2]")
    made.cluster.run("8", "n3")
    return made


def test_a_job_that_blames_its_node_leaves_it(site: Site) -> None:
    """The artifact says whose word it is; the end of its time lifts it, and nothing before that."""
    assert site.publish() == ([], "")
    site.blame("n2", "7", 3000)
    assert site.publish() == (["exclude 7 PreSeparateFault n2"], "")
    artifact = json.loads((site.path / "decisions/segment_health_check.7.7").read_text())
    assert [node["rule"] for node in artifact["nodes"]] == ["attribution:xid-hardware"]
    assert site.publish() == ([], "")
    assert site.publish("--blame-max-age", "2999")[0] == ["clear 7 PreSeparateFault n2"]
    assert not site.excluded("7")


def test_health_after_a_blame_has_to_last(site: Site) -> None:
    """The end of a blame is the beginning of health, as that of a drain is: `clear_after` is waited for."""
    path = site.blame("n2", "7")
    site.publish()
    path.unlink()
    assert site.publish("--clear-after", "2 passes")[0] == []
    assert site.publish("--clear-after", "2 passes")[0] == ["clear 7 PreSeparateFault n2"]


def test_one_job_decides_for_no_other(site: Site) -> None:
    """A node that a job has left is another's until a second job's log blames it too."""
    site.blame("n3", "5")
    site.blame("n3", "5", cycle=2)
    assert site.publish()[0] == []
    site.blame("n3", "6")
    assert site.publish("--blame-jobs", "3")[0] == []
    assert site.publish()[0] == ["exclude 8 PreSeparateFault n3"]


def test_all_tasks_of_an_array_are_one_job(site: Site) -> None:
    """A launcher tells the service the array's id."""
    site.cluster.run("20_4", "n[5-6]")
    site.blame("n6", "20")
    assert site.publish()[0] == ["exclude 20 PreSeparateFault n6"]


def test_a_strangers_log_in_the_jobs_name(site: Site) -> None:
    """The log belongs to another user than Slurm says the job does: it says nothing for the job."""
    site.blame("n2", "7", owner=4711)
    assert site.publish()[0] == []
    site.blame("n2", "7", owner=1001)
    assert site.publish()[0] == ["exclude 7 PreSeparateFault n2"]


def test_a_blame_makes_nothing_better_and_nothing_worse(site: Site) -> None:
    """A node is as bad as the worst word; a blame is below what a site excludes at SeparateFault only."""
    site.cluster.set_node("n2", "DOWN")
    site.blame("n2", "7")
    site.blame("n3", "8")
    assert site.publish("--publish-at", "SeparateFault")[0] == ["exclude 7 SeparateFault n2"]


def test_too_many_at_once_are_held(site: Site) -> None:
    """The policy's limit is for blames too."""
    site.blame("n1", "7")
    site.blame("n3", "8")
    code, _, complaints = site.call(
        "publish --once --all", "--max-new-exclusions", "1", "--attribution-blame", str(site.blames)
    )
    assert code == 1
    assert "held: 2 new exclusions" in complaints
    assert [site.excluded(job) for job in "78"] == [False, False]


def test_a_damaged_blame_neither_excludes_nor_lifts(site: Site) -> None:
    """What was decided stays, and a person is told which file it is."""
    path = site.blame("n2", "7")
    path.write_text("{")
    changes, complaints = site.publish()
    assert (changes, path.name in complaints) == ([], True)
    site.blame("n2", "7")
    site.publish()
    path.write_text("{")
    assert site.publish()[0] == []
    assert site.excluded("7")


def test_a_pass_that_is_not_told_of_blames_lifts_none(site: Site) -> None:
    """Slurm alone is no evidence against them; it says why it does not, and what would."""
    site.blame("n2", "7")
    site.publish()
    changes, complaints = site.publish(blame=False)
    assert changes == []
    assert "a blame of attribution's excluded it, and --attribution-blame is not given: n2" in complaints
    assert site.excluded("7")
    _, told, _ = site.call("explain 7")
    assert "lifted by   a pass that is given --attribution-blame: a blame of attribution's names n2" in told


def test_an_unread_directory_lifts_nothing_and_hides_no_fault(site: Site) -> None:
    """It is no all-clear, of whatever source; what Slurm calls bad is excluded all the same."""
    site.blame("n2", "7")
    site.cluster.run("9", "n9")
    site.cluster.set_node("n9", "ALLOCATED+DRAIN")
    site.publish()
    (site.blames / MARKER).unlink()
    site.cluster.set_node("n9", "ALLOCATED")
    site.cluster.set_node("n3", "DOWN")
    changes, complaints = site.publish(status=1)
    assert changes == ["exclude 8 SeparateFault n3"]
    assert "cannot be read: it has no segment-health-blame" in complaints
    assert "nothing is lifted" in complaints
    asked = ("--attribution-blame", str(site.blames))
    assert "nothing is lifted" in site.call("explain n2", *asked)[2]
    assert [site.excluded(job) for job in "789"] == [True, True, True]
    (site.blames / MARKER).touch(mode=0o644)
    assert site.publish()[0] == ["clear 9 PreSeparateFault n9"]


def test_a_directory_of_everybodys_is_refused(site: Site) -> None:
    """At the start, with who else may write there: exit status 2, and nothing is done."""
    site.blame("n2", "7")
    site.blames.chmod(0o777)
    code, _, complaints = site.call("publish --once --all", "--attribution-blame", str(site.blames))
    assert code == 2
    assert f"--attribution-blame: everybody may write to {site.blames} (mode 0777)" in complaints
    assert list((site.path / "decisions").iterdir()) == []


def test_it_is_explained(site: Site) -> None:
    """Whose word it is, and what ends it."""
    site.blame("n2", "7")
    asked = ("--attribution-blame", str(site.blames))
    site.publish()
    _, told, _ = site.call("explain n2", *asked)
    assert "attribution:xid-hardware" in told
    ends = "n2 without attribution:xid-hardware: its age (--blame-max-age), or the removal of its file"
    assert f"lifted by   {ends}" in told


def test_it_is_off_by_default(site: Site) -> None:
    """Nobody looks for a directory that nobody named."""
    site.blame("n2", "7")
    assert site.publish(blame=False) == ([], "")


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A directory of blames that answers nobody, beyond any signal, until the test ends."""
    backing, point, mode = tmp_path / "backing", tmp_path / "hanging", tmp_path / "mode"
    for path in (backing, point):
        path.mkdir()
    command = [sys.executable, str(PASSTHROUGH), str(backing), str(point), str(mode)]
    daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not os.path.ismount(point):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    mode.write_text("* hang\n")
    try:
        yield point
    finally:
        daemon.kill()
        daemon.wait()
        subprocess.run(["umount", "--lazy", str(point)], check=True)


@pytest.mark.root
def test_a_directory_that_hangs_stops_no_pass(site: Site, hanging: Path) -> None:
    """A child waits for it, for a part of the time that storage may take; what Slurm says is published."""
    site.cluster.set_node("n3", "DOWN")
    publication = Publication(
        str(site.path / "decisions"),
        EVERYTHING,
        Policy(),
        "0.1.0",
        300.0,
        storage_timeout=8.0,
        reports=(Blames(str(hanging), Bar(86400, 2)),),
    )
    service = Service(Plan(publication, site.cluster.source, None, standby=False, on_separate=None), time.time)
    done = service.attempt()
    assert [str(change.decision.unit) for change in done.changes if change.error is None] == ["8"]
    assert any(failure.startswith("no answer within 2 s from") for failure in done.failures)
    status = CliRunner().invoke(main, ["status", "--dir", publication.directory])
    assert "no answer within 2 s from" in status.output
    site.cluster.set_node("n3", "ALLOCATED")
    again = service.attempt()
    assert again.changes == []
    assert site.excluded("8")

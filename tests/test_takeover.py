"""Several publishers of one directory: which one's word a reader is told, and that none of them flaps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.consumer import SegmentHealthCheck
from segment_health.contract import Generation
from segment_health.level import FaultLevel
from segment_health.lift import override, prune
from segment_health.observe import Observation, observe
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import Pass, publish, run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs
from segment_health.store import DecisionDirectory
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from pathlib import Path

LAX = Policy(publish_at=FaultLevel.SeparateFault)
JOB = of_jobs(("123",))


@dataclass
class Site:
    """A directory, a cluster in which 123_7 runs on n[3-4], and hosts that publish."""

    directory: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=FakeClock)

    def publication(self, scope: Scope, **options: Any) -> Publication:
        """What a publisher is told."""
        return Publication(str(self.directory), scope, Policy(), "0.1.0", interval=300.0)._replace(**options)

    def run(self, host: str = "a", scope: Scope = EVERYTHING, **options: Any) -> Pass:
        """Make a pass."""
        return run_once(self.publication(scope, host=host, **options), self.cluster.source, self.clock)

    def actions(self, host: str = "a", scope: Scope = EVERYTHING, **options: Any) -> list[str]:
        """Make a pass and name its changes."""
        return [c.decision.action.value for c in self.run(host, scope, **options).changes]

    def look(self, host: str, *, seconds: int = 2) -> Observation:
        """Ask Slurm, which answers after some seconds."""
        began = observe(self.publication(EVERYTHING, host=host), self.cluster.source, self.clock)
        self.clock.advance(seconds)
        return replace(began, now=int(self.clock()))

    def write(self, seen: Observation) -> Pass:
        """Publish what was seen."""
        return publish(seen, self.publication(EVERYTHING), self.clock)

    def excluded(self) -> bool:
        """Ask the consumer."""
        return not SegmentHealthCheck(self.directory, "123", "7")()

    def files(self) -> dict[str, bytes]:
        """Return all that the directory holds, the ledger too."""
        return {str(path): path.read_bytes() for path in self.directory.rglob("*") if path.is_file()}

    def writer(self) -> str:
        """Say whose the artifact is: level and scope."""
        found = self.directory / "segment_health_check.123.7"
        words = found.read_text().split('"')
        return f"{words[words.index('level') + 2]} {words[words.index('scope') + 2]}"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A healthy cluster and an empty directory."""
    made = Site(tmp_path)
    made.cluster.run("123_7", "n[3-4]")
    return made


# --- one scope on two hosts ------------------------------------------------------------------------------------


def test_two_hosts_take_turns_without_a_change(site: Site) -> None:
    """Whoever makes the next pass finds the decision made, and leaves it."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions("a") == ["exclude"]
    for host in "babba":
        site.clock.advance(5)
        assert site.actions(host) == []
    site.cluster.set_node("n4", "ALLOCATED")
    site.clock.advance(5)
    assert site.actions("b") == ["clear"]
    site.clock.advance(5)
    assert site.actions("a") == []


def test_an_older_view_lifts_nothing(site: Site) -> None:
    """A pass that asked before a drain does not lift what a newer one has excluded meanwhile."""
    fit = site.look("a")
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions("b") == ["exclude"]
    done = site.write(fit)
    assert (done.changes, done.outcome.superseded_by) == ([], "b")
    assert site.excluded()
    site.clock.advance(5)
    assert site.actions("a") == []


def test_an_older_view_excludes_nothing(site: Site) -> None:
    """A pass that asked before a resume does not exclude what a newer one has lifted meanwhile."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions("a") == ["exclude"]
    site.clock.advance(5)
    bad = site.look("a")
    site.cluster.set_node("n4", "ALLOCATED")
    assert site.actions("b") == ["clear"]
    assert site.write(bad).outcome.superseded_by == "b"
    assert not site.excluded()


@pytest.mark.parametrize("resumed", [False, True], ids=["confirmed", "lifted"])
def test_an_answer_that_came_late_changes_nothing(site: Site, *, resumed: bool) -> None:
    """Of two passes that overlap the one that began later counts: what it confirmed or lifted stays so."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions("a") == ["exclude"]
    site.clock.advance(300)
    if not resumed:
        site.cluster.set_node("n4", "ALLOCATED")
    slow = site.look("b", seconds=0)
    site.cluster.set_node("n4", "ALLOCATED" if resumed else "ALLOCATED+DRAIN")
    site.clock.advance(3)
    assert site.actions("a") == (["clear"] if resumed else [])
    site.clock.advance(19)
    done = site.write(replace(slow, now=int(site.clock())))
    assert (done.changes, done.outcome.superseded_by) == ([], "a")
    assert site.excluded() is not resumed


def test_a_word_counts_for_a_policy_that_thinks_less_of_it(site: Site) -> None:
    """Another scope that sees fewer faults does not undo what a person said; one that sees a new one does."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions(scope=JOB) == ["exclude"]
    override(str(site.directory), "0", lambda _: True, "fine", int(site.clock()))
    for _ in range(2):
        assert site.actions(policy=LAX) == []
        assert site.actions(scope=JOB) == []
    assert not site.excluded()
    site.cluster.set_node("n3", "DOWN")
    assert site.actions(policy=LAX) == ["exclude"]
    site.cluster.set_node("n3", "ALLOCATED")
    assert site.actions(policy=LAX) == ["clear"]
    assert site.actions(scope=JOB) == ["exclude"]


def test_an_artifact_of_a_newer_view_stays_before_its_heartbeat_is_there(site: Site) -> None:
    """The other pass may still be writing: what it has written by a newer view is left to it."""
    fit = site.look("a")
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run("b")
    (site.directory / ".segment-health/heartbeat/all@fake.json").unlink()
    done = site.write(fit)
    assert (done.changes, done.outcome.superseded_by) == ([], None)
    assert site.excluded()


def test_a_clock_that_was_ahead_blocks_nobody(site: Site) -> None:
    """What seems to come from an hour to come was written by a clock that has been set back since."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.clock.advance(3600)
    assert site.actions("b") == ["exclude"]
    site.clock.advance(-3600)
    site.cluster.set_node("n4", "ALLOCATED")
    assert site.actions("a") == ["clear"]


# --- two scopes with different policies ------------------------------------------------------------------------


def test_a_raised_exclusion_is_handed_back(site: Site) -> None:
    """Where the stricter scope's exclusion was raised by another, it stands again once that one lifts its own."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions(scope=JOB) == ["exclude"]
    site.cluster.set_node("n4", "DOWN")
    assert site.actions(policy=LAX) == ["update"]
    assert site.writer() == "SeparateFault all"
    assert site.actions(scope=JOB) == []
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions(policy=LAX) == ["update"]
    assert site.writer() == "PreSeparateFault job:123"
    for scope, policy in ((JOB, Policy()), (EVERYTHING, LAX)):
        assert site.actions(scope=scope, policy=policy) == []
    site.cluster.set_node("n4", "ALLOCATED")
    assert site.actions(policy=LAX) == []
    assert site.actions(scope=JOB) == ["clear"]


def test_nothing_is_handed_back_to_the_dead(site: Site) -> None:
    """The exclusion of a publisher that died meanwhile is nobody's, and is lifted with the one above it."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run(scope=JOB)
    site.cluster.set_node("n4", "DOWN")
    site.run(policy=LAX)
    site.clock.advance(601)
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions(policy=LAX) == ["clear"]


def test_nothing_is_handed_back_over_a_requeue(site: Site) -> None:
    """A new run of the unit inherits neither decision."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run(scope=JOB)
    site.cluster.set_node("n4", "DOWN")
    site.run(policy=LAX)
    site.cluster.requeue("123_7", "n[1-2]")
    assert site.actions(policy=LAX) == ["clear"]


def test_nothing_is_handed_back_against_a_persons_word(site: Site) -> None:
    """Whoever was killed between the word and the clearing, the next pass clears for every scope."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run(scope=JOB)
    site.cluster.set_node("n4", "DOWN")
    site.run(policy=LAX)
    artifact = site.directory / "segment_health_check.123.7"
    raised = artifact.read_bytes()
    override(str(site.directory), "0.1.0", lambda _: True, "fine", int(site.clock()))
    artifact.write_bytes(raised)
    assert site.actions(policy=LAX) == ["clear"]
    assert not site.excluded()
    assert site.actions(scope=JOB) == []


@pytest.mark.parametrize(
    ("before", "after", "older"),
    [
        ((0, 100), (1, 200), True),
        ((0, 200), (1, 100), True),
        ((3, 100), (0, 200), True),
        ((1, 100), (1, 100), False),
        ((1, 200), (0, 100), False),
    ],
    ids=["requeued", "requeued-and-the-clock-set-back", "job-id-used-again", "the-same", "newer"],
)
def test_which_generation_is_older(before: tuple[int, int], after: tuple[int, int], *, older: bool) -> None:
    """A job id that is used again begins with no restarts, and is newer all the same."""
    assert Generation(*before).is_older_than(Generation(*after)) is older


def test_a_job_id_that_is_used_again_inherits_nothing_of_a_living_writer(site: Site) -> None:
    """Another scope than the writer's lifts what a predecessor with more restarts has left."""
    site.cluster.requeue("123_7", "n[3-4]")
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run(scope=JOB)
    site.cluster.run("123_7", "n[5-6]", start_time=1_795_900_000)
    assert site.actions() == ["clear"]


# --- somebody else's -------------------------------------------------------------------------------------------


def test_the_reference_producer_is_recognised(site: Site) -> None:
    """A list of nodes is what NVRx's own producer writes: left alone, and named."""
    (site.directory / "segment_health_check.123.7").write_bytes(b"n3,n4")
    (site.directory / "segment_health_check.9.9").write_bytes(b"a person's words\n")
    done = site.run()
    assert [c.decision.action.value for c in done.changes] == ["foreign"]
    (remark,) = done.remarks
    assert "scheduler_segment_health.sh" in remark
    assert "another producer: 123_7;" in remark


# --- what is left ----------------------------------------------------------------------------------------------


def test_an_empty_artifact_for_each_unit(site: Site) -> None:
    """With precreate a unit has an artifact before it is excluded, and none after its end."""
    site.cluster.run("55", "n[5-6]")
    assert site.actions(precreate=True) == ["precreate", "precreate"]
    assert {path.name: path.stat().st_size for path in site.directory.glob("segment_*")} == {
        "segment_health_check.123.7": 0,
        "segment_health_check.55.55": 0,
    }
    assert site.actions(precreate=True) == []
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.actions(precreate=True) == ["exclude"]
    site.cluster.end("55")
    site.cluster.set_node("n4", "ALLOCATED")
    assert site.actions(precreate=True) == ["clear"]
    assert site.actions(precreate=True) == ["retire"]
    assert [path.name for path in site.directory.glob("segment_*")] == ["segment_health_check.123.7"]


def test_what_a_killed_pass_left_is_removed(site: Site) -> None:
    """An artifact that a killed pass did not remember, and that a person emptied, goes with its unit."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run()
    (site.directory / ".segment-health/state/all@fake.json").unlink()
    override(str(site.directory), "0", lambda _: True, "fine", int(site.clock()))
    assert (site.directory / "segment_health_check.123.7").stat().st_size == 0
    assert site.actions() == []
    site.cluster.end("123_7")
    assert [site.actions() for _ in range(3)] == [[], ["retire"], []]
    assert list(site.directory.glob("segment_*")) == []


def test_an_empty_artifact_never_takes_the_place_of_a_decision(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody put there between reading and writing stays."""
    listed = site.look("a")
    path = site.directory / "segment_health_check.123.7"

    def put(_: object) -> None:
        path.write_bytes(b"bad\n")

    monkeypatch.setattr(DecisionDirectory, "tidy", put)
    done = publish(listed, site.publication(EVERYTHING, precreate=True), site.clock)
    assert [(c.decision.action.value, c.error is not None) for c in done.changes] == [("precreate", True)]
    assert path.read_bytes() == b"bad\n"


def test_prune_removes_what_nobody_needs(site: Site) -> None:
    """An empty artifact that a dead publisher left is removed after a week; what a living one watches stays."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run(scope=JOB)
    now = int(site.clock())
    path = site.directory / "segment_health_check.123.7"
    assert [c.decision.action.value for c in prune(str(site.directory), "0", 3600, now + 4000)] == ["clear"]
    cleared = int(path.stat().st_mtime)
    assert prune(str(site.directory), "0", 3600, cleared + 6 * 86_400) == []
    site.clock.now = cleared + 8 * 86_400
    site.cluster.set_node("n4", "ALLOCATED")
    site.run(scope=JOB)
    assert prune(str(site.directory), "0", 3600, int(site.clock())) == []
    site.clock.advance(1000)
    assert [c.decision.action.value for c in prune(str(site.directory), "0", 3600, int(site.clock()))] == [
        "retire"
    ]
    assert not path.exists()


# --- time that passes within a pass ----------------------------------------------------------------------------


def test_a_view_that_time_has_overtaken_changes_nothing(site: Site) -> None:
    """A process that was stopped between asking and writing does not act on what it knew."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.run()
    site.cluster.set_node("n4", "ALLOCATED")
    seen = site.look("a")
    site.clock.advance(61)
    before = site.files()
    with pytest.raises(TimeoutError, match="what Slurm said is 61 s old, too old to act on"):
        site.write(seen)
    assert site.files() == before
    site.clock.advance(-1)
    assert [c.decision.action.value for c in site.write(seen).changes] == ["clear"]

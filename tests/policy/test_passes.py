"""What a policy does from pass to pass: rules that wait, health that must last, exclusions that are held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segment_health.consumer import SegmentHealthCheck
from segment_health.level import FaultLevel
from segment_health.lift import override
from segment_health.policy.assess import Assessment, Policy
from segment_health.policy.limits import ClearAfter, MaxNewExclusions
from segment_health.policy.pattern import Pattern
from segment_health.policy.rule import Rule
from segment_health.publication import Publication
from segment_health.publish import Pass, run_once
from segment_health.scope import EVERYTHING
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from pathlib import Path

_OK, _PRE, _SEPARATE = FaultLevel
QUIET = Rule("not responding for a minute", _PRE, frozenset({"NOT_RESPONDING"}), min_duration=60)
PLANNED = Rule("planned", _OK, frozenset({"DRAIN"}), reason=Pattern("maintenance"))


class Site:
    """A cluster, a directory, a clock and a policy; every pass is a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = FakeCluster()
        self.clock = FakeClock()
        self.policy = Policy()
        self.reports: dict[str, Assessment] = {}

    def rules(self, *rules: Rule, **further: Any) -> None:
        """Put a policy in force."""
        self.policy = Policy(rules=rules, **further)

    def publish(self, **options: Any) -> Pass:
        """Make a pass."""
        publication = Publication(str(self.directory), EVERYTHING, self.policy, "0.1.0", interval=300.0)._replace(
            **options
        )
        return run_once(publication, self.cluster.source, self.clock)

    def after(self, seconds: float, **options: Any) -> list[str]:
        """Make a pass some time later and name its changes, `exclude 7`."""
        self.clock.advance(seconds)
        return [f"{c.decision.action.value} {c.decision.unit}" for c in self.publish(**options).changes]

    def excluded(self, job: str) -> bool:
        """Ask the consumer."""
        return not SegmentHealthCheck(self.directory, job, job)()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Jobs 7 on n[3-4], 8 on n[5-6] and 9 on n[7-8]."""
    made = Site(tmp_path)
    made.cluster.run("7", "n[3-4]")
    made.cluster.run("8", "n[5-6]")
    made.cluster.run("9", "n[7-8]")
    return made


# ── rules ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rule_lowers_one_fault_and_no_other(site: Site) -> None:
    """Maintenance is no fault; a node that goes DOWN during maintenance is."""
    site.rules(PLANNED)
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "Maintenance on Monday")
    assert site.after(0) == []
    site.cluster.set_node("n4", "DOWN+DRAIN", "Maintenance on Monday")
    assert site.after(300) == ["exclude 7"]


def test_a_new_policy_judges_what_is_there(site: Site) -> None:
    """An exclusion is lifted by the first pass whose policy no longer asks for it, and comes back with the old."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "maintenance")
    assert site.after(0) == ["exclude 7"]
    site.rules(PLANNED)
    assert site.after(300) == ["clear 7"]
    site.policy = Policy()
    assert site.after(300) == ["exclude 7"]


def test_the_artifact_names_the_rule(site: Site) -> None:
    """Whoever reads the artifact finds the rule that decided."""
    site.rules(Rule("Xid", _SEPARATE, reason=Pattern("xid [0-9]+")))
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "NHC: GPU 3 Xid 79")
    (change,) = site.publish().changes
    assert change.decision.artifact is not None
    assert [(fault.level, fault.rule) for fault in change.decision.artifact.nodes] == [(_SEPARATE, "rule:Xid")]


def test_no_verdict_keeps_what_was_decided(site: Site) -> None:
    """A rule that says no verdict neither excludes nor lifts."""
    site.rules(Rule("flaky", None, frozenset({"DRAIN"}), nodes=frozenset({"n4"})))
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    done = site.publish()
    assert (done.changes, done.outcome.unsettled) == ([], {"n4": "rule 'flaky' () says no-verdict"})
    site.cluster.set_node("n4", "DOWN")
    assert site.after(300) == ["exclude 7"]
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.after(300) == []
    assert site.excluded("7")


def test_a_rule_of_a_partition_is_about_the_jobs_in_it(site: Site) -> None:
    """The same node counts for a job of one partition and not for a job of another."""
    site.rules(Rule("tests", _OK, partitions=frozenset({"test"})))
    site.cluster.run("10", "n4", partition="test")
    site.cluster.set_node("n4", "MIXED+DRAIN")
    assert site.after(0) == ["exclude 7"]


def test_a_node_that_was_worse_stays_so_while_slurm_is_not_sure(site: Site) -> None:
    """A slurmctld that has just started shows UNKNOWN+DRAIN for a node that was DOWN: it is no better for that."""
    site.policy = Policy(publish_at=_SEPARATE)
    site.cluster.set_node("n4", "DOWN+DRAIN")
    assert site.after(0) == ["exclude 7"]
    site.cluster.set_node("n4", "UNKNOWN+DRAIN")
    assert site.after(300) == []
    assert site.excluded("7")
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.after(300) == ["clear 7"]


# ── min_duration ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rule_waits_from_the_first_pass_that_saw_it(site: Site) -> None:
    """Every pass is a process of its own, and the time goes on between them; health begins it anew."""
    site.rules(QUIET)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    done = site.publish()
    assert (done.changes, list(done.outcome.unsettled)) == ([], ["n4"])
    assert site.after(59) == []
    assert site.after(1) == ["exclude 7"]
    site.cluster.set_node("n4", "ALLOCATED")
    assert site.after(300) == ["clear 7"]
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    assert site.after(300) == []
    assert site.after(60) == ["exclude 7"]


def test_what_waits_lifts_nothing(site: Site) -> None:
    """A drained node that is resumed and does not respond is not explicitly fit."""
    site.rules(QUIET)
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.after(0) == ["exclude 7"]
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    assert site.after(300) == []
    assert site.excluded("7")


def test_a_pass_that_is_unknown_does_not_begin_it_anew(site: Site) -> None:
    """Slurm's silence, and a node of which a new slurmctld knows nothing yet, leave the time as it is."""
    site.rules(QUIET)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    site.publish()
    site.cluster.set_node("n4", "UNKNOWN")
    assert site.after(30) == []
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    assert site.after(30) == ["exclude 7"]


@pytest.mark.parametrize(
    ("age", "earlier_pass", "expected"),
    [(600, None, ["exclude 7"]), (10, None, []), (600, 5, []), (100, 1000, ["exclude 7"])],
    ids=["old-reason", "new-reason", "older-than-a-pass-that-saw-nothing", "newer-than-it"],
)
def test_slurms_own_time_counts(site: Site, age: int, earlier_pass: int | None, expected: list[str]) -> None:
    """A drain is as old as its reason, unless an earlier pass saw the node without it."""
    site.rules(Rule("settled", _PRE, frozenset({"DRAIN"}), min_duration=60))
    if earlier_pass is not None:
        site.publish()
        site.clock.advance(earlier_pass)
    node = "n4"
    site.cluster.set_node(node, "ALLOCATED+DRAIN", "NHC", since=int(site.clock.now) - age)
    assert site.after(0) == expected


def test_a_rule_about_a_reason_is_as_young_as_the_reason(site: Site) -> None:
    """A node that has been draining for an hour has had its new reason for a minute only."""
    site.rules(Rule("lasting", _SEPARATE, frozenset({"DRAIN"}), reason=Pattern("link"), min_duration=600))
    begun = int(site.clock.now)
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "something", since=begun)
    assert site.after(0) == ["exclude 7"]
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "link down", since=begun + 3000)
    assert site.after(3300) == []
    assert site.after(299) == []
    assert site.after(1) == ["update 7"]


def test_a_new_rule_knows_what_was_seen_before_it(site: Site) -> None:
    """A fault that an earlier policy did not wait for is as old as it is, also when another one ran in between."""
    site.policy = Policy(publish_at=_SEPARATE)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    assert site.after(0) == []
    site.rules(QUIET)
    assert site.after(60) == ["exclude 7"]


def test_a_ladder_of_rules(site: Site) -> None:
    """After a minute the node is not used again; after ten the job has surely lost it."""
    site.rules(Rule("lost", _SEPARATE, frozenset({"NOT_RESPONDING"}), min_duration=600), QUIET)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    assert site.after(0) == []
    assert site.after(60) == ["exclude 7"]
    assert site.after(539) == []
    assert site.after(1) == ["update 7"]


def test_what_raises_later_leaves_the_default_at_once(site: Site) -> None:
    """While a rule waits to make it worse, a drain is what it always is."""
    site.rules(Rule("lost", _SEPARATE, frozenset({"DRAIN"}), min_duration=600))
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    (change,) = site.publish().changes
    assert change.decision.level == _PRE


def test_a_clock_that_is_set_back_is_no_future(site: Site) -> None:
    """What was seen an hour from now was seen now."""
    site.rules(QUIET)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    site.publish()
    assert site.after(-3600) == []
    assert site.after(60) == ["exclude 7"]


# ── clear_after ────────────────────────────────────────────────────────────────────────────────────────────────


def test_health_must_last_for_passes(site: Site) -> None:
    """Three passes in a row lift; a fault in between begins the count anew."""
    site.rules(clear_after=ClearAfter(passes=3))
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.set_node("n4", "ALLOCATED")
    assert [site.after(300), site.after(300)] == [[], []]
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert site.after(300) == []
    site.cluster.set_node("n4", "ALLOCATED")
    assert [site.after(300), site.after(300), site.after(300)] == [[], [], ["clear 7"]]


def test_health_must_last_for_seconds(site: Site) -> None:
    """So long after the first pass that saw it, however many passes come between."""
    site.rules(clear_after=ClearAfter(seconds=600))
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.set_node("n4", "ALLOCATED")
    assert [site.after(300), site.after(1), site.after(598)] == [[], [], []]
    assert site.publish().outcome.clearing != []
    assert site.after(1) == ["clear 7"]


def test_a_new_generation_does_not_wait_for_health(site: Site) -> None:
    """A requeued unit never inherits, and a person's word is heard at once."""
    site.rules(clear_after=ClearAfter(passes=9))
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.requeue("7", "n[1-2]")
    assert site.after(300) == ["clear 7"]
    site.cluster.set_node("n5", "ALLOCATED+DRAIN")
    assert site.after(300) == ["exclude 8"]
    override(str(site.directory), "0.1.0", lambda unit: unit.job_id == "8", "it is fine", int(site.clock.now))
    assert site.after(300) == []
    assert not site.excluded("8")


def test_somebody_elses_artifact_changes_no_state_of_ours(site: Site) -> None:
    """Health is counted no further than it is asked for, or the state would be written with every pass."""
    (site.directory / "segment_health_check.7.7").write_text("n3\n")
    state = site.directory / ".segment-health/state/all@fake.json"
    assert site.after(0) == ["foreign 7"]
    written = state.stat().st_ino
    assert [site.after(300), site.after(300)] == [["foreign 7"], ["foreign 7"]]
    assert state.stat().st_ino == written


# ── what is too much at once ───────────────────────────────────────────────────────────────────────────────────


def test_too_many_at_once_are_held_and_let_go(site: Site) -> None:
    """Two passes hold, the third publishes; what was fit is lifted in the meantime."""
    site.rules(max_new_exclusions=MaxNewExclusions(1), hold_passes=2)
    site.cluster.set_node("n8", "ALLOCATED+DRAIN")
    assert site.after(0) == ["exclude 9"]
    site.cluster.set_node("n8", "ALLOCATED")
    site.cluster.set_node("n4", "DOWN")
    site.cluster.set_node("n5", "DOWN")
    site.clock.advance(300)
    done = site.publish()
    assert [c.decision.action.value for c in done.changes] == ["clear"]
    assert [str(decision.unit) for decision in done.outcome.held] == ["7", "8"]
    assert (done.outcome.blast_radius(), done.outcome.excluded, done.wrote_everything) == ((2, 4), 0, False)
    assert done.outcome.separated == []
    assert site.after(300) == []
    done = site.publish()
    assert sorted(str(artifact.unit) for artifact in done.outcome.separated) == ["7", "8"]
    assert done.wrote_everything
    assert [site.excluded(job) for job in "789"] == [True, True, False]


def test_force_publishes_at_once(site: Site) -> None:
    """A person has looked."""
    site.rules(max_new_exclusions=MaxNewExclusions(1))
    site.cluster.set_node("n4", "DOWN")
    site.cluster.set_node("n5", "DOWN")
    assert site.after(0) == []
    assert site.after(0, force=True) == ["exclude 7", "exclude 8"]


def test_a_storm_that_ends_is_forgotten(site: Site) -> None:
    """Passes that were held count only in a row."""
    site.rules(max_new_exclusions=MaxNewExclusions(1), hold_passes=1)
    site.cluster.set_node("n4", "DOWN")
    site.cluster.set_node("n5", "DOWN")
    assert site.after(0) == []
    site.cluster.set_node("n5", "ALLOCATED")
    assert site.after(300) == ["exclude 7"]
    site.cluster.set_node("n5", "DOWN")
    site.cluster.set_node("n8", "DOWN")
    assert site.after(300) == []
    assert site.after(300) == ["exclude 8", "exclude 9"]


def test_what_is_excluded_already_is_not_new(site: Site) -> None:
    """More bad nodes of an excluded unit, and its next generation, are written whatever the limit."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.rules(max_new_exclusions=MaxNewExclusions(0))
    site.cluster.set_node("n3", "DOWN")
    assert site.after(300) == ["update 7"]
    site.cluster.requeue("7", "n[3-4]")
    assert site.after(300) == ["update 7"]


def test_a_dry_run_holds_and_counts_nothing(site: Site) -> None:
    """It shows what would be held, as often as it is asked."""
    site.rules(max_new_exclusions=MaxNewExclusions(0), hold_passes=1)
    site.cluster.set_node("n4", "DOWN")
    assert [site.after(0, dry_run=True) for _ in range(3)] == [[], [], []]
    assert [site.after(0), site.after(0)] == [[], ["exclude 7"]]


# ── another source ─────────────────────────────────────────────────────────────────────────────────────────────


class Told:
    """What another source says."""

    def __init__(self, **assessments: Assessment) -> None:
        self.assessments = assessments
        self.remarks = ["a remark"]
        self.path = "/noded"
        self.mark = "noded:"
        self.is_essential = True

    def read(self, _names: object, _now: int) -> Told:
        """Say it."""
        return self


def test_another_source_adds_faults_and_takes_none_away(site: Site) -> None:
    """A node is as bad as the worse of two sources says; one that does not know keeps the last decision."""
    site.cluster.set_node("n5", "DOWN")
    bad = Assessment(_PRE, "noded:0000001D")
    fit = Assessment(_OK, "noded:0300000D")
    assert site.after(0, reports=(Told(n4=bad, n5=fit),)) == ["exclude 7", "exclude 8"]
    site.cluster.set_node("n5", "ALLOCATED")
    unsure = Assessment(None, "noded:stale", final=False)
    assert site.after(300, reports=(Told(n4=unsure, n8=unsure),)) == ["clear 8"]
    assert [site.excluded(job) for job in "789"] == [True, False, False]
    assert site.after(300, reports=(Told(),)) == ["clear 7"]


def test_a_pass_that_does_not_ask_the_other_source_lifts_nothing_of_its(site: Site) -> None:
    """Slurm alone is no evidence against what NodeD reported."""
    assert site.after(0, reports=(Told(n4=Assessment(_PRE, "noded:0000001D")),)) == ["exclude 7"]
    done = site.publish()
    assert (done.changes, list(done.outcome.unsettled)) == ([], ["n4"])
    site.cluster.set_node("n4", "DOWN")
    assert site.after(300) == ["update 7"]

"""Sequences of passes: what a reader is told while nodes, jobs, queries and publishers come and go."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.consumer import SegmentHealthCheck
from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import Pass, run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs, of_partition, of_user
from segment_health.sources import SourceUnknown
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass
class Scene:
    """A cluster, a directory and a clock; publishers are named by their scope."""

    directory: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=FakeClock)

    def publish(self, scope: Scope = EVERYTHING, **options: Any) -> Pass:
        """Make one pass, as a process of its own would."""
        publication = Publication(str(self.directory), scope, Policy(), "0.1.0", interval=300.0)._replace(
            **options
        )
        done = run_once(publication, self.cluster.source, self.clock)
        assert done.wrote_everything
        return done

    def actions(self, scope: Scope = EVERYTHING, **options: Any) -> list[str]:
        """Make one pass and name its changes, `exclude 123_7`."""
        return [f"{c.decision.action.value} {c.decision.unit}" for c in self.publish(scope, **options).changes]

    def excluded(self, unit: str) -> bool:
        """Ask the consumer."""
        job, _, task = unit.partition("_")
        return not SegmentHealthCheck(self.directory, job, task or job)()

    def path(self, unit: str) -> Path:
        """Return where a unit's artifact is."""
        job, _, task = unit.partition("_")
        return self.directory / f"segment_health_check.{job}.{task or job}"

    def artifact(self, unit: str) -> dict[str, Any]:
        """Read a unit's artifact."""
        document: dict[str, Any] = json.loads(self.path(unit).read_text())
        return document

    def files(self) -> dict[str, bytes]:
        """Return every artifact of the directory."""
        return {p.name: p.read_bytes() for p in self.directory.iterdir() if p.is_file()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A cluster of n1 to n9 with array tasks 123_0 and 123_7 and job 55, all healthy."""
    made = Scene(tmp_path)
    made.cluster.run("123_0", "n[1-2]")
    made.cluster.run("123_7", "n[3-4]")
    made.cluster.run("55", "n[5-7]")
    return made


def test_a_healthy_cluster_gets_no_artifact(scene: Scene) -> None:
    """Nothing is written for a unit that never was excluded."""
    assert scene.actions() == []
    assert scene.files() == {}


def test_a_drained_node_excludes_its_unit_and_no_other(scene: Scene) -> None:
    """The artifact names unit, node, state and reason; a drained node without a job changes nothing."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.cluster.set_node("n9", "IDLE+DRAIN", "spare")
    done = scene.publish()
    assert list(scene.files()) == ["segment_health_check.123.7"]
    assert scene.path("123_7").stat().st_mode & 0o7777 == 0o644
    assert (done.outcome.units, done.outcome.excluded, done.outcome.unavailable_nodes) == (3, 1, 2)
    artifact = scene.artifact("123_7")
    assert list(artifact) == [
        "schema", "job_id", "task_id", "level", "nodes", "unavailable", "generation", "first_published", "updated",
        "publisher",
    ]  # fmt: skip
    assert artifact["level"] == "PreSeparateFault"
    assert artifact["nodes"] == [
        {
            "name": "n4",
            "state": ["ALLOCATED", "DRAIN"],
            "reason": "Xid 79",
            "reason_user": "root",
            "reason_since": "1970-01-01T00:00:00+00:00",
            "level": "PreSeparateFault",
            "rule": "state:DRAIN",
        }
    ]
    assert artifact["generation"] == {"restart_count": 0, "start_time": 1_795_000_000, "nodelist": "n[3-4]"}
    assert artifact["publisher"]["scope"] == "all"
    assert artifact["publisher"]["cluster"] == "fake"


def test_an_unchanged_decision_is_not_rewritten(scene: Scene) -> None:
    """A second pass that sees the same leaves the file, its inode and its time alone."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    before = scene.path("123_7").stat()
    scene.clock.advance(300)
    scene.cluster.set_node("n4", "MIXED+DRAIN", "another reason")
    assert scene.actions() == []
    after = scene.path("123_7").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_change_of_level_or_nodes_updates_in_one_step(scene: Scene) -> None:
    """An update keeps when it was first published, and says when it was updated."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    first = scene.artifact("123_7")
    scene.clock.advance(300)
    scene.cluster.set_node("n4", "DOWN")
    assert scene.actions() == ["update 123_7"]
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN")
    assert scene.actions() == ["update 123_7"]
    artifact = scene.artifact("123_7")
    assert (artifact["level"], artifact["unavailable"]) == ("SeparateFault", "n[3-4]")
    assert artifact["first_published"] == first["first_published"] != artifact["updated"]


def test_evidence_clears(scene: Scene) -> None:
    """One complete pass in which every node is fit leaves a zero-byte file, which means healthy."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    scene.cluster.set_node("n4", "ALLOCATED")
    assert scene.actions() == ["clear 123_7"]
    assert scene.files() == {"segment_health_check.123.7": b""}
    assert scene.actions() == []


def test_unknown_keeps(scene: Scene) -> None:
    """A failed query touches nothing, is no evidence, and is no miss."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    scene.cluster.end("123_7")
    scene.publish()  # the first miss
    before = snapshot_of(scene.directory)
    scene.cluster.unknown = "slurmctld does not answer"
    for _ in range(5):
        scene.clock.advance(300)
        with pytest.raises(SourceUnknown, match="does not answer"):
            scene.publish()
    assert snapshot_of(scene.directory) == before
    scene.cluster.unknown = None
    scene.cluster.run("123_7", "n[3-4]")
    assert scene.actions() == []
    assert scene.excluded("123_7")


def snapshot_of(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file below a directory: inode, time and content."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "hide",
    [
        pytest.param(lambda cluster: cluster.set_node("n4", "UNKNOWN"), id="base-unknown"),
        pytest.param(lambda cluster: cluster.set_node("n4", "BANANA"), id="base-unrecognised"),
        pytest.param(lambda cluster: cluster.set_node("n4", ""), id="empty-state"),
        pytest.param(lambda cluster: cluster.forget_node("n4"), id="no-row"),
    ],
)
def test_a_node_without_a_verdict_keeps_its_part_of_the_decision(
    scene: Scene, hide: Callable[[FakeCluster], None]
) -> None:
    """What is not understood neither lifts nor makes an exclusion, and the pass goes on for the others."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "bad")
    scene.publish()
    hide(scene.cluster)
    scene.cluster.set_node("n5", "DOWN")
    assert scene.actions() == ["exclude 55"]
    assert scene.artifact("123_7")["nodes"][0]["reason"] == "bad"
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN")
    assert scene.actions() == ["update 123_7"]
    assert scene.artifact("123_7")["unavailable"] == "n[3-4]"
    scene.cluster.set_node("n3", "ALLOCATED")
    assert scene.actions() == ["update 123_7"]
    assert scene.artifact("123_7")["unavailable"] == "n4"


def test_a_node_without_a_verdict_holds_the_exclusion_of_another(scene: Scene) -> None:
    """An exclusion is not lifted while any node of the unit is not explicitly fit."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    scene.cluster.set_node("n4", "ALLOCATED")
    scene.cluster.set_node("n3", "UNKNOWN")
    assert scene.actions() == []
    assert scene.excluded("123_7")
    scene.cluster.set_node("n3", "ALLOCATED")
    assert scene.actions() == ["clear 123_7"]


def test_a_node_without_a_verdict_excludes_nothing(scene: Scene) -> None:
    """A cluster that slurmctld does not know yet is not a bad one."""
    for name in ("n3", "n4", "n5"):
        scene.cluster.set_node(name, "UNKNOWN+NOT_RESPONDING")
    done = scene.publish()
    assert done.changes == []
    assert done.outcome.no_verdict == {"n3", "n4", "n5"}


def test_a_new_generation_inherits_nothing(scene: Scene) -> None:
    """A requeued unit on fit nodes is cleared, and on nodes that are not understood it is cleared as well."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.cluster.requeue("123_7", "n[8-9]")
    assert scene.actions() == ["clear 123_7"]
    scene.cluster.set_node("n8", "DOWN")
    assert scene.actions() == ["exclude 123_7"]
    scene.cluster.set_node("n1", "UNKNOWN")
    scene.cluster.requeue("123_7", "n[1-2]")
    assert scene.actions() == ["clear 123_7"]


def test_a_new_generation_on_bad_nodes_is_excluded_for_itself(scene: Scene) -> None:
    """The artifact of a new run names the new generation, nodes and time."""
    scene.cluster.set_node("n4", "DOWN")
    scene.cluster.set_node("n8", "ALLOCATED+DRAIN")
    scene.publish()
    scene.clock.advance(900)
    scene.cluster.requeue("123_7", "n[8-9]")
    assert scene.actions() == ["update 123_7"]
    artifact = scene.artifact("123_7")
    assert (artifact["unavailable"], artifact["level"]) == ("n8", "PreSeparateFault")
    assert artifact["generation"]["restart_count"] == 1
    assert artifact["first_published"] == artifact["updated"]


def test_generations_are_compared_as_numbers(scene: Scene) -> None:
    """Restart 10 is newer than restart 9, for a scope that only may replace older decisions of others."""
    scene.cluster.change("123_7", restart_count=9)
    scene.cluster.set_node("n4", "DOWN")
    scene.publish(of_jobs(("123",)))
    scene.cluster.change("123_7", restart_count=10)
    scene.cluster.set_node("n4", "ALLOCATED")
    assert scene.actions(EVERYTHING) == ["clear 123_7"]


def test_a_shrunk_unit_is_excluded_until_its_generation_changes(scene: Scene) -> None:
    """A `--no-kill` job that lost a node is excluded at SeparateFault, even when the node is fit again."""
    scene.publish()
    scene.cluster.shrink("55", "n[5-6]")
    scene.cluster.set_node("n7", "DOWN", "lost")
    assert scene.actions() == ["exclude 55"]
    artifact = scene.artifact("55")
    assert (artifact["level"], artifact["unavailable"]) == ("SeparateFault", "n7")
    assert artifact["nodes"][0]["rule"] == "unit:shrunk"
    assert artifact["generation"]["nodelist"] == "n[5-7]"
    scene.cluster.set_node("n7", "IDLE")
    assert scene.actions() == []
    assert scene.excluded("55")
    scene.cluster.requeue("55", "n[5-6]")
    assert scene.actions() == ["clear 55"]


def test_a_shrunk_unit_is_remembered_by_its_artifact_too(scene: Scene) -> None:
    """A publisher that lost its state still knows from the artifact what the unit was."""
    scene.cluster.set_node("n7", "ALLOCATED+DRAIN")
    scene.publish()
    (scene.directory / ".segment-health/state/all@fake.json").unlink()
    scene.cluster.shrink("55", "n[5-6]")
    assert scene.actions() == ["update 55"]
    assert scene.artifact("55")["level"] == "SeparateFault"


def test_a_unit_that_grew_is_not_shrunk(scene: Scene) -> None:
    """Nodes that join an allocation are part of it from then on."""
    scene.publish()
    scene.cluster.change("55", nodelist="n[5-8]", nodes=("n5", "n6", "n7", "n8"))
    assert scene.actions() == []
    scene.cluster.change("55", nodelist="n[5-7]", nodes=("n5", "n6", "n7"))
    assert scene.actions() == ["exclude 55"]


def test_one_miss_is_tolerated_and_two_retire(scene: Scene) -> None:
    """A unit that slurmctld forgets for one pass keeps its decision; after two its artifact is gone."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.cluster.end("123_7")
    assert scene.actions() == []
    assert scene.excluded("123_7")
    scene.cluster.run("123_7", "n[3-4]")
    assert scene.actions() == []
    scene.cluster.end("123_7")
    assert scene.actions() == []
    assert scene.actions() == ["retire 123_7"]
    assert scene.files() == {}


def test_a_cleared_unit_that_ends_leaves_no_empty_file(scene: Scene) -> None:
    """The zero-byte file that a clear left is removed when the unit is retired."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.cluster.set_node("n4", "ALLOCATED")
    scene.publish()
    scene.cluster.end("123_7")
    assert scene.actions() + scene.actions() == ["retire 123_7"]
    assert scene.files() == {}


def test_an_ending_unit_whose_state_is_not_known_is_no_miss(scene: Scene) -> None:
    """A job state of a newer Slurm keeps the decision, however often it is seen."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.cluster.change("123_7", state="HIBERNATING")
    scene.cluster.set_node("n4", "ALLOCATED")
    assert [scene.actions() for _ in range(3)] == [[], [], []]
    assert scene.excluded("123_7")
    assert scene.publish().outcome.not_understood == [("123", "7")]


def test_a_suspended_unit_is_judged(scene: Scene) -> None:
    """A suspended job holds its nodes, and will meet the next rendezvous on them."""
    scene.cluster.change("123_7", state="SUSPENDED")
    scene.cluster.set_node("n4", "IDLE+DRAIN")
    assert scene.actions() == ["exclude 123_7"]


def test_heterogeneous_components_are_one_unit(scene: Scene) -> None:
    """A bad node of any component excludes the leader's artifact, and that alone."""
    scene.cluster.run("80", "n8", het_job_id="80")
    scene.cluster.run("81", "n9", het_job_id="80")
    scene.cluster.set_node("n9", "ALLOCATED+DRAIN")
    assert scene.actions(of_jobs(("80",))) == ["exclude 80"]
    assert scene.artifact("80")["generation"]["nodelist"] == "n[8-9]"


SCOPES = [
    pytest.param(of_jobs(("123",)), ["exclude 123_0", "exclude 123_7"], id="array"),
    pytest.param(of_jobs(("55",)), ["exclude 55"], id="job"),
    pytest.param(of_jobs(("123", "55")), ["exclude 55", "exclude 123_0", "exclude 123_7"], id="jobs"),
    pytest.param(of_user("bob"), ["exclude 55"], id="user"),
    pytest.param(of_user("1002"), ["exclude 55"], id="uid"),
    pytest.param(of_partition("gpu"), ["exclude 123_7"], id="partition"),
    pytest.param(EVERYTHING, ["exclude 55", "exclude 123_0", "exclude 123_7"], id="all"),
    pytest.param(of_jobs(("7",)), [], id="nobody"),
]


@pytest.mark.parametrize(("scope", "expected"), SCOPES)
def test_a_publisher_serves_its_own_scope(scene: Scene, scope: Scope, expected: list[str]) -> None:
    """Units outside the scope get no artifact, and are no units of the pass."""
    scene.cluster.change("55", user="bob", user_id="1002")
    scene.cluster.change("123_7", partition="gpu")
    for name in ("n1", "n3", "n5"):
        scene.cluster.set_node(name, "DOWN")
    assert scene.actions(scope) == expected


def test_two_scopes_in_one_directory_never_touch_each_other(scene: Scene) -> None:
    """A sidecar neither clears nor retires what another one published, though it sees nothing of that job."""
    one, other = of_jobs(("123",)), of_jobs(("55",))
    scene.cluster.set_node("n4", "DOWN")
    scene.cluster.set_node("n5", "DOWN")
    assert scene.actions(one) == ["exclude 123_7"]
    assert scene.actions(other) == ["exclude 55"]
    scene.cluster.end("123_7")
    assert [scene.actions(other) for _ in range(4)] == [[], [], [], []]
    scene.clock.advance(86_400)
    assert [scene.actions(other) for _ in range(4)] == [[], [], [], []]
    assert scene.excluded("123_7")
    assert scene.excluded("55")


def test_only_the_writer_lifts_while_it_lives(scene: Scene) -> None:
    """Where scopes overlap, an exclusion is lifted by the scope that wrote it; by another once that is dead."""
    sidecar = of_jobs(("123",))
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert scene.actions(sidecar) == ["exclude 123_7"]
    assert scene.actions(EVERYTHING) == []
    scene.cluster.set_node("n4", "ALLOCATED")
    assert scene.actions(EVERYTHING) == []
    scene.clock.advance(599)
    assert scene.actions(EVERYTHING) == []
    scene.clock.advance(1)  # twice the interval
    assert scene.actions(EVERYTHING) == ["clear 123_7"]
    assert scene.actions(sidecar) == []


def test_a_second_scope_only_raises(scene: Scene) -> None:
    """A second scope leaves what it agrees with, takes it over to a higher level, and hands it back from there."""
    sidecar, strict = of_jobs(("123",)), Policy(FaultLevel.SeparateFault)
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish(sidecar)
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN")
    assert scene.actions(EVERYTHING) == []
    scene.cluster.set_node("n4", "DOWN")
    assert scene.actions(EVERYTHING, policy=strict) == ["update 123_7"]
    assert scene.artifact("123_7")["publisher"]["scope"] == "all"
    assert scene.actions(sidecar) == []
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert scene.actions(EVERYTHING, policy=strict) == ["update 123_7"]
    assert (scene.artifact("123_7")["publisher"]["scope"], scene.artifact("123_7")["unavailable"]) == (
        "job:123",
        "n4",
    )
    assert scene.actions(sidecar) == ["update 123_7"]
    assert scene.artifact("123_7")["unavailable"] == "n[3-4]"
    assert scene.actions(EVERYTHING, policy=strict) == []


def test_a_dead_publishers_leftovers_are_retired_by_whoever_covers_them(scene: Scene) -> None:
    """A site-wide publisher retires what a job left that ended with its sidecar, once that counts as dead."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish(of_jobs(("123",)))
    scene.cluster.end("123_7")
    assert [scene.actions() for _ in range(3)] == [[], [], []]
    scene.clock.advance(600)
    assert scene.actions(of_user("alice")) == []
    assert scene.actions() + scene.actions() == ["retire 123_7"]
    assert scene.files() == {}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"n3,n4", id="reference-producer"),
        pytest.param(b"Ben: do not use, ticket 4711\n", id="a-person"),
        pytest.param(b"\n", id="newline"),
        pytest.param(b'{"schema": 1}\n', id="other-json"),
        pytest.param(b"\xff\x00", id="bytes"),
        pytest.param(b"[" * 100_000, id="deep-json"),
    ],
)
def test_a_foreign_artifact_is_reported_and_left_alone(scene: Scene, content: bytes) -> None:
    """What somebody else wrote is neither lifted, overwritten nor retired, unless we are told to adopt it."""
    scene.path("123_7").write_bytes(content)
    assert scene.actions() == ["foreign 123_7"]
    scene.cluster.set_node("n4", "DOWN")
    assert scene.actions() == ["foreign 123_7"]
    assert scene.publish().outcome.excluded == 1
    assert scene.path("123_7").read_bytes() == content
    assert scene.actions(adopt=True) == ["update 123_7"]
    scene.path("123_0").write_bytes(content)
    assert scene.actions(adopt=True) == ["clear 123_0"]
    scene.path("55").write_bytes(content)
    scene.cluster.end("55")
    assert [scene.actions() for _ in range(3)] == [[], [], []]
    assert scene.path("55").read_bytes() == content


def test_an_artifact_of_another_unit_is_foreign(scene: Scene) -> None:
    """A copy of our own artifact under another unit's name is not ours to lift."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.path("123_0").write_bytes(scene.path("123_7").read_bytes())
    assert scene.actions() == ["foreign 123_0"]


def test_another_clusters_artifact_is_foreign(scene: Scene) -> None:
    """Two clusters number their jobs alike; one never lifts what the other published."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.clock.advance(10_000)
    scene.cluster.name = "other"
    scene.cluster.set_node("n4", "ALLOCATED")
    assert scene.actions() == ["foreign 123_7"]
    assert scene.excluded("123_7")


def test_not_seen_is_not_absent_under_private_data(scene: Scene) -> None:
    """With PrivateData=jobs another user's unit that is not listed may well run: its artifact stays."""
    scene.cluster.set_node("n4", "DOWN")
    scene.cluster.set_node("n5", "DOWN")
    scene.cluster.change("55", user_id="1002")
    scene.publish()
    scene.cluster.visible_user = "1002"
    scene.cluster.end("55")
    scene.cluster.end("123_7")
    assert [scene.actions() for _ in range(3)] == [[], ["retire 55"], []]
    assert scene.excluded("123_7")


def test_an_answer_without_the_job_in_which_we_run_is_unknown(scene: Scene) -> None:
    """Inside a job, an empty job list is not the truth; outside one it is."""
    for unit in ("123_0", "123_7", "55"):
        scene.cluster.end(unit)
    for scope in (of_jobs(("55",)), EVERYTHING, of_user("alice"), of_partition("main")):
        with pytest.raises(SourceUnknown, match="job 55, in which this runs"):
            scene.publish(scope, own_job="55")
    assert not (scene.directory / ".segment-health").exists()
    assert scene.publish().outcome.units == 0


def test_levels_below_the_published_one_do_not_exclude(scene: Scene) -> None:
    """With publish_at SeparateFault a drain is left to the next level, and lifting follows the same bar."""
    strict = Policy(FaultLevel.SeparateFault)
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    assert scene.actions(policy=strict) == []
    scene.cluster.set_node("n3", "DOWN")
    assert scene.actions(policy=strict) == ["exclude 123_7"]
    assert scene.artifact("123_7")["unavailable"] == "n[3-4]"
    scene.cluster.set_node("n3", "ALLOCATED")
    assert scene.actions(policy=strict) == ["clear 123_7"]


def test_a_large_unit_lists_64_nodes_and_names_all(scene: Scene) -> None:
    """The entries are bounded, the hostlist is not, and a node beyond the entries keeps its part as well."""
    cluster = FakeCluster("m[001-200]")
    cluster.run("9", "m[001-200]")
    scene.cluster = cluster
    for number in range(1, 101):
        cluster.set_node(f"m{number:03}", "ALLOCATED+DRAIN")
    scene.publish()
    artifact = scene.artifact("9")
    assert len(artifact["nodes"]) == 64
    assert artifact["unavailable"] == "m[001-100]"
    cluster.set_node("m100", "UNKNOWN")
    assert scene.actions() == []


def test_a_hostile_reason_is_escaped(scene: Scene) -> None:
    """No control character of a reason reaches whoever prints the artifact."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "\x1b[2J\x07\x7f\u202e\n\x9b31m" + "x" * 5000)
    scene.publish()
    content = scene.path("123_7").read_bytes()
    assert content.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in content[:-1])
    assert len(content) < 2500


def test_a_dry_run_changes_nothing(scene: Scene) -> None:
    """It names what would happen and leaves no trace, not even a ledger."""
    scene.cluster.set_node("n4", "DOWN")
    assert scene.actions(dry_run=True) == ["exclude 123_7"]
    assert list(scene.directory.iterdir()) == []


def test_a_publisher_that_lost_its_state_converges(scene: Scene) -> None:
    """An unreadable state file is set aside and said, and what is published is read back from the directory."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    state = scene.directory / ".segment-health/state/all@fake.json"
    state.write_text("{half")
    scene.cluster.end("123_7")
    assert any("garbled" in remark for remark in scene.publish().remarks)
    assert state.with_name("all@fake.json.unreadable").read_text() == "{half"
    assert scene.actions() == ["retire 123_7"]


def test_a_ledger_that_cannot_be_read_stops_no_exclusion(scene: Scene) -> None:
    """Exclusions are published all the same, nobody counts as dead, and the pass says what it could not do."""
    (scene.directory / ".segment-health").write_text("not a folder")
    scene.cluster.set_node("n4", "DOWN")
    publication = Publication(str(scene.directory), EVERYTHING, Policy(), "0.1.0", interval=300.0)
    done = run_once(publication, scene.cluster.source, scene.clock)
    assert not done.wrote_everything
    assert "the ledger could not be read" in done.failures[0]
    assert scene.excluded("123_7")
    scene.cluster.set_node("n4", "ALLOCATED")
    sidecar = publication._replace(scope=of_jobs(("123",)))
    assert run_once(sidecar, scene.cluster.source, scene.clock).changes == []


def test_one_failed_unit_never_blocks_another(scene: Scene) -> None:
    """Where a unit's artifact cannot be written the others' are; the failure is told, and tried again."""
    scene.path("123_0").mkdir()
    scene.cluster.set_node("n1", "ALLOCATED+DRAIN")
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    publication = Publication(str(scene.directory), EVERYTHING, Policy(), "0.1.0", interval=300.0)
    done = run_once(publication, scene.cluster.source, scene.clock)
    assert {str(c.decision.unit): c.error for c in done.changes} == {"123_0": "Is a directory", "123_7": None}
    assert not done.wrote_everything
    assert done.outcome.excluded == 1
    assert scene.excluded("123_7")
    scene.path("123_0").rmdir()
    assert scene.actions() == ["exclude 123_0"]


def test_a_state_that_cannot_be_read_is_not_written_over(scene: Scene) -> None:
    """What a failing disk hides for one pass is what the next one remembers by: here that a unit has shrunk."""
    scene.publish()
    state = scene.directory / ".segment-health/state/all@fake.json"
    aside = state.with_name("aside")
    state.rename(aside)
    state.symlink_to(aside)  # refused (ELOOP), as a failing read would be
    publication = Publication(str(scene.directory), EVERYTHING, Policy(), "0.1.0", interval=300.0)
    scene.cluster.shrink("55", "n[5-6]")
    assert not run_once(publication, scene.cluster.source, scene.clock).wrote_everything
    assert state.is_symlink()
    state.unlink()
    aside.rename(state)
    assert scene.actions() == ["exclude 55"]


def test_a_dry_run_leaves_a_garbled_state_where_it_is(scene: Scene) -> None:
    """Nothing on disk is touched, not even what a real pass would set aside."""
    scene.publish()
    (scene.directory / ".segment-health/state/all@fake.json").write_text("{half")
    before = snapshot_of(scene.directory)
    scene.publish(dry_run=True)
    assert snapshot_of(scene.directory) == before


def test_an_unchanged_pass_touches_only_the_heartbeat(scene: Scene) -> None:
    """A quiet cluster costs its storage one small file a pass."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    before = snapshot_of(scene.directory)
    scene.clock.advance(300)
    scene.publish()
    changed = {path for path, found in snapshot_of(scene.directory).items() if before[path] != found}
    assert changed == {str(scene.directory / ".segment-health/heartbeat/all@fake.json")}


def test_the_history_says_what_happened(scene: Scene) -> None:
    """Each change is one line: what, which unit, which nodes, and which rule decided."""
    scene.cluster.set_node("n4", "DOWN", "fell over")
    scene.publish()
    scene.cluster.set_node("n4", "ALLOCATED")
    scene.publish()
    lines = (scene.directory / ".segment-health/history.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [(e["action"], e["job_id"], e["task_id"], e["nodes"]) for e in entries] == [
        ("exclude", "123", "7", "n4"),
        ("clear", "123", "7", "n4"),
    ]
    assert entries[0]["faults"] == [
        {"name": "n4", "rule": "state:DOWN", "reason": "fell over", "reason_user": "root"}
    ]


def test_the_ledger_opens_to_whoever_may_publish(scene: Scene) -> None:
    """In a directory that several users share, the ledger's folders are as open as the directory."""
    scene.directory.chmod(0o1777)
    scene.cluster.set_node("n4", "DOWN")
    umask = os.umask(0o077)
    try:
        scene.publish()
    finally:
        os.umask(umask)
    ledger = scene.directory / ".segment-health"
    assert [p.stat().st_mode & 0o7777 for p in (ledger, ledger / "state", ledger / "heartbeat")] == [0o1777] * 3
    assert (ledger / "history.jsonl").stat().st_mode & 0o777 == 0o666
    assert scene.path("123_7").stat().st_mode & 0o777 == 0o644


def test_an_unknown_flag_is_named_and_ignored(scene: Scene) -> None:
    """A flag of a newer Slurm beside a known base excludes nobody and hides nothing."""
    scene.cluster.set_node("n3", "ALLOCATED+SHINY")
    scene.cluster.set_node("n4", "ALLOCATED+SHINY+DRAIN")
    done = scene.publish()
    assert done.outcome.unknown_flags == {"SHINY": "n3"}
    assert [str(c.decision.unit) for c in done.changes] == ["123_7"]

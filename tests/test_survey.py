"""The decision directory as it stands: whose word each exclusion is, and who is there to confirm it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.level import FaultLevel
from segment_health.lift import override
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs, of_partition
from segment_health.survey import Survey, UnitView, survey
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from pathlib import Path


class Scene:
    """A directory, a cluster of n1 to n9 with array tasks 123_0 and 123_7 and job 55, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.cluster = FakeCluster()
        self.cluster.run("123_0", "n[1-2]")
        self.cluster.run("123_7", "n[3-4]")
        self.cluster.run("55", "n[5-7]")

    def publish(self, scope: Scope = EVERYTHING, **options: Any) -> None:
        """Make one pass."""
        publication = Publication(str(self.directory), scope, Policy(), "0.1.0", interval=300.0)._replace(
            **options
        )
        run_once(publication, self.cluster.source, self.clock)

    def look(self) -> Survey:
        """Survey the directory."""
        return survey(str(self.directory), int(self.clock()))

    def view(self, unit: str) -> UnitView:
        """Survey the directory, and return one unit of it."""
        (view,) = [view for view in self.look().units if str(view.unit) == unit]
        return view

    def states(self) -> dict[str, tuple[bool, str]]:
        """Survey the directory, and return whether each unit is excluded, and whose word it is."""
        return {str(view.unit): (view.excluded, view.state) for view in self.look().units}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """All is healthy, and nothing published."""
    return Scene(tmp_path)


def test_an_empty_directory_has_nothing(scene: Scene) -> None:
    """Nobody ever published there, and that is no error."""
    assert scene.look() == Survey(int(scene.clock()), (), (), (), ())
    assert list(scene.directory.iterdir()) == []


def test_a_directory_that_is_not_there_is_an_error(scene: Scene) -> None:
    """No empty survey stands for what could not be looked at."""
    with pytest.raises(FileNotFoundError):
        survey(str(scene.directory / "elsewhere"), 0)


def test_an_exclusion_is_told_whole(scene: Scene) -> None:
    """Since when, at which level, for which nodes and reasons, by whom; the healthy units are there too."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.cluster.set_node("n3", "DOWN+NOT_RESPONDING", "Not responding")
    scene.publish()
    began = int(scene.clock())
    scene.clock.advance(100)
    told = scene.look()
    view = scene.view("123_7")
    assert (view.excluded, view.level, view.since, view.nodes) == (True, "SeparateFault", began, "n[3-4]")
    assert view.reasons == ("Not responding", "Xid 79")
    assert [fault.rule for fault in view.faults] == ["state:DOWN", "state:DRAIN"]
    assert (view.nodelist, view.state, view.override) == ("n[3-4]", "fresh", None)
    assert view.publisher is not None
    assert view.publisher.scope == "all"
    assert [str(view.unit) for view in told.units] == ["55", "123_0", "123_7"]
    assert [str(view.unit) for view in told.excluded()] == ["123_7"]
    assert (scene.view("55").nodelist, scene.view("55").level, scene.view("55").since) == ("n[5-7]", None, None)
    assert [beat.publisher.scope for beat in told.living()] == ["all"]
    assert (told.unreadable, told.remarks) == ((), ())


def test_a_reason_that_many_nodes_share_is_told_once(scene: Scene) -> None:
    """Reasons are distinct, in the order of the nodes."""
    for name, reason in (("n5", "b"), ("n6", "a"), ("n7", "b")):
        scene.cluster.set_node(name, "ALLOCATED+DRAIN", reason)
    scene.publish()
    assert scene.view("55").reasons == ("b", "a")


def test_what_a_dead_publisher_said_is_stale(scene: Scene) -> None:
    """Once the heartbeat is older than two intervals, what it said is nobody's living word."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    scene.clock.advance(599)
    assert scene.states()["123_7"] == (True, "fresh")
    scene.clock.advance(1)
    assert scene.states() == {"55": (False, "stale"), "123_0": (False, "stale"), "123_7": (True, "stale")}
    assert scene.look().living() == ()


def test_what_nobody_alive_wrote_but_somebody_watches_is_fresh(scene: Scene) -> None:
    """A living publisher that leaves a dead one's exclusion standing has confirmed it."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish(of_partition("main"))
    scene.clock.advance(1000)
    assert scene.states()["123_7"] == (True, "stale")
    scene.publish()
    view = scene.view("123_7")
    assert view.state == "fresh"
    assert view.publisher is not None
    assert view.publisher.scope == "partition:main"


def test_the_living_watcher_of_a_unit_is_named(scene: Scene) -> None:
    """Of two scopes that know a healthy unit, the one that lives counts, whatever their names."""
    scene.publish(of_partition("main"))
    scene.clock.advance(1000)
    scene.publish(of_jobs(("55",)))
    watchers = {str(view.unit): (view.publisher and view.publisher.scope) for view in scene.look().units}
    assert watchers == {"55": "job:55", "123_0": "partition:main", "123_7": "partition:main"}
    assert scene.states() == {"55": (False, "fresh"), "123_0": (False, "stale"), "123_7": (False, "stale")}


def test_a_unit_that_a_pass_missed_is_not_among_the_living(scene: Scene) -> None:
    """What ended is gone from the survey with the first pass that misses it."""
    scene.publish()
    scene.cluster.end("55")
    scene.publish()
    assert sorted(scene.states()) == ["123_0", "123_7"]


@pytest.mark.parametrize("content", [b"n3,n4", b"{}", b"\xff"], ids=["reference", "json", "bytes"])
def test_a_strangers_artifact_is_foreign(scene: Scene, content: bytes) -> None:
    """It excludes since it was written, at no level, by nobody that we know."""
    scene.publish()
    path = scene.directory / "segment_health_check.123.7"
    path.write_bytes(content)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    view = scene.view("123_7")
    assert (view.excluded, view.state, view.level, view.since) == (True, "foreign", None, 1_700_000_000)
    assert (view.publisher, view.nodelist) == (None, "n[3-4]")


def test_the_reference_producer_is_remarked_on(scene: Scene) -> None:
    """That another producer publishes here is worth a person's look."""
    (scene.directory / "segment_health_check.9.9").write_bytes(b"n3,n4")
    assert "scheduler_segment_health.sh" in scene.look().remarks[0]


def test_an_artifact_that_cannot_be_read_is_named(scene: Scene) -> None:
    """One too large to be ours excludes all the same, and its path and the cause are told."""
    path = scene.directory / "segment_health_check.9.9"
    path.write_bytes(b"x" * ((4 << 20) + 1))
    assert scene.states() == {"9": (True, "foreign")}
    assert scene.look().unreadable == (f"{path}: File too large",)


def test_a_persons_word_is_told_with_who_and_why(scene: Scene) -> None:
    """The unit is not excluded, and the override that made it so stands beside it."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    scene.clock.advance(10)
    now = int(scene.clock())
    override(str(scene.directory), "0.1.0", lambda unit: str(unit) == "123_7", "it is fine", now)
    scene.publish()
    view = scene.view("123_7")
    assert (view.excluded, view.state, view.since, view.nodes) == (False, "override", now, "n4")
    assert view.override is not None
    assert view.override.reason == "it is fine"
    assert view.publisher is not None


def test_a_garbled_state_is_left_out_and_named(scene: Scene) -> None:
    """What one scope lost hides nothing of the others."""
    scene.publish(of_jobs(("55",)))
    scene.publish(of_jobs(("123",)))
    (scene.directory / ".segment-health/state/job:123@fake.json").write_text('{"schema": 1, "units": 5}')
    told = scene.look()
    assert [str(view.unit) for view in told.units] == ["55"]
    assert told.remarks == (".segment-health/state/job:123@fake.json is left out: it is garbled",)


def test_a_garbled_heartbeat_is_left_out_and_named(scene: Scene) -> None:
    """Where nobody seems to publish it is said that somebody did, and what became of the sign of it."""
    scene.publish()
    heartbeat = scene.directory / ".segment-health/heartbeat"
    (heartbeat / "job:9@fake.json").write_bytes((heartbeat / "all@fake.json").read_bytes())
    (heartbeat / "all@fake.json").write_text("{")
    (heartbeat / ".segment-health.tmp.host.1.0").write_text("{")
    told = scene.look()
    assert told.publishers == ()
    assert told.remarks == (
        ".segment-health/heartbeat/all@fake.json is left out: it is garbled",
        ".segment-health/heartbeat/job:9@fake.json is left out: another's",
    )


def test_a_state_that_is_no_file_is_left_out_and_named(scene: Scene) -> None:
    """A link into somebody's home is not followed."""
    scene.publish(of_jobs(("55",)))
    (scene.directory / ".segment-health/state/job:9@fake.json").symlink_to("/etc/passwd")
    assert scene.look().remarks == (
        ".segment-health/state/job:9@fake.json is left out: Too many levels of symbolic links",
    )


@pytest.mark.root
def test_a_strangers_state_for_everybodys_units_does_not_count(scene: Scene) -> None:
    """Who may write here cannot speak for the publisher of all jobs; of his own scope he may."""
    scene.publish()
    scene.publish(of_jobs(("55",)))
    for name in ("all@fake.json", "job:55@fake.json"):
        os.chown(scene.directory / ".segment-health/state" / name, 12345, 12345)
    told = scene.look()
    assert [str(view.unit) for view in told.units] == ["55"]
    assert told.remarks == (".segment-health/state/all@fake.json is left out: belongs to uid 12345",)


def test_what_is_set_aside_and_temporaries_are_no_states(scene: Scene) -> None:
    """Only files that a publisher reads back are read."""
    scene.publish()
    state = scene.directory / ".segment-health/state"
    (state / "all@fake.json.unreadable").write_text("{")
    (state / ".segment-health.tmp.host.1.0").write_text("{")
    assert scene.look().remarks == ()


def test_two_clusters_share_a_directory(scene: Scene) -> None:
    """Their publishers are two, each with the units of its own."""
    scene.publish()
    scene.cluster.name = "other"
    scene.cluster.end("123_0")
    scene.publish()
    told = scene.look()
    assert [beat.publisher.cluster for beat in told.publishers] == ["fake", "other"]
    assert len(told.units) == 3


def test_levels_have_the_names_of_the_contract(scene: Scene) -> None:
    """A level is told by its name, as the artifact has it."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    level = json.loads((scene.directory / "segment_health_check.123.7").read_text())["level"]
    assert scene.view("123_7").level == level == FaultLevel.PreSeparateFault.name

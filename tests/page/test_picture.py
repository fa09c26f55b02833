"""What a picture of the cluster holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from segment_health.contract import UnitId
from segment_health.lift import override
from segment_health.page.picture import HISTORY, MAX_REASON
from segment_health.page.portrait import portrait
from segment_health.scope import of_jobs

if TYPE_CHECKING:
    from segment_health.page.picture import Picture

    from .conftest import Scene


def nodes_of(picture: Picture) -> dict[str, dict[str, Any]]:
    """Return a picture's nodes by name."""
    return {node["name"]: node for node in picture.nodes["nodes"]}


def units_of(picture: Picture) -> dict[str, dict[str, Any]]:
    """Return a picture's units by `job.task`."""
    return {f"{unit['job_id']}.{unit['task_id']}": unit for unit in picture.decisions["units"]}


def test_every_node_is_there_with_its_level(scene: Scene) -> None:
    """Nodes inside and outside units are judged alike; why they are so is told in Slurm's words."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan", since=1_795_990_000)
    scene.cluster.set_node("n8", "DOWN")
    scene.cluster.set_node("n9", "UNKNOWN")
    nodes = nodes_of(scene.picture())
    assert sorted(nodes) == [f"n{i}" for i in range(1, 10)]
    assert nodes["n3"] == {
        "name": "n3",
        "level": "PreSeparateFault",
        "state": ["ALLOCATED", "DRAIN"],
        "reason": "bad fan",
        "reason_user": "root",
        "reason_since": "2026-11-29T22:06:40+00:00",
        "rule": "state:DRAIN",
        "unit": "123_7",
    }
    assert (nodes["n1"]["level"], nodes["n1"]["unit"]) == ("NotHandleFault", "123_0")
    assert (nodes["n8"]["level"], nodes["n8"]["unit"]) == ("SeparateFault", None)
    assert nodes["n9"]["level"] is None


def test_both_documents_are_json_of_one_instant(scene: Scene) -> None:
    """Time and cluster stand in both, and nothing in them is anything but JSON."""
    picture = scene.picture()
    for document in (picture.nodes, picture.decisions):
        assert (document["time"], document["cluster"]) == ("2026-11-30T00:53:20+00:00", "fake")
        assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_units_are_told_as_status_does(scene: Scene) -> None:
    """An excluded unit has its level, since when, nodes, reasons and publisher; a healthy one is there as well."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    units = units_of(scene.picture())
    assert sorted(units) == ["123.0", "123.7", "55.55"]
    bad = units["123.7"]
    assert (bad["excluded"], bad["level"], bad["nodes"], bad["reasons"]) == (
        True,
        "PreSeparateFault",
        "n3",
        ["bad fan"],
    )
    assert (bad["since"], bad["state"], bad["nodelist"]) == ("2026-11-30T00:53:20+00:00", "fresh", "n[3-4]")
    assert bad["publisher"]["scope"] == "all"
    assert (units["55.55"]["excluded"], units["55.55"]["since"]) == (False, None)


def test_it_shows_the_directory_as_it_is_after_the_pass(scene: Scene) -> None:
    """An exclusion is in the picture of the pass that published it, and not in that of the one that lifted it."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    assert units_of(scene.picture())["123.7"]["excluded"]
    scene.clock.advance(300)
    scene.cluster.set_node("n3", "ALLOCATED")
    picture = scene.picture()
    assert not units_of(picture)["123.7"]["excluded"]
    history = [
        (entry["action"], entry["unit"], entry["nodes"], entry["who"]) for entry in picture.decisions["history"]
    ]
    assert history == [("exclude", "123_7", "n3", "all@fake"), ("clear", "123_7", "n3", "all@fake")]


def test_the_history_is_bounded(scene: Scene) -> None:
    """Of a long history the newest entries are in the picture, the oldest of them first."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    path = scene.directory / ".segment-health" / "history.jsonl"
    line = json.loads(path.read_text())
    times = [f"2026-11-{day:02d}T{hour:02d}:00:00+00:00" for day in range(1, 29) for hour in range(24)]
    path.write_text("".join(json.dumps({**line, "time": time}) + "\n" for time in times))
    history = scene.picture().decisions["history"]
    assert [entry["time"] for entry in history] == times[-HISTORY:]


def test_the_word_of_a_person_is_shown(scene: Scene) -> None:
    """A unit that is used by somebody's word is no exclusion, and says whose word and why."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    override(str(scene.directory), "0.1.0", UnitId("123", "7").__eq__, "false alarm", int(scene.clock()))
    unit = units_of(scene.picture())["123.7"]
    assert (unit["excluded"], unit["state"]) == (False, "override")
    assert unit["override"]["reason"] == "false alarm"
    assert "@" in unit["override"]["who"]


def test_a_node_that_a_unit_lost_stays_in_it(scene: Scene) -> None:
    """A `--no-kill` job that lost a DOWN node is excluded for it: on the map it is still that unit's."""
    scene.publish()
    scene.cluster.set_node("n4", "DOWN", "dead")
    scene.cluster.run("123_7", "n3")
    picture = scene.picture()
    assert units_of(picture)["123.7"]["excluded"]
    assert (nodes_of(picture)["n4"]["level"], nodes_of(picture)["n4"]["unit"]) == ("SeparateFault", "123_7")
    scene.cluster.forget_node("n4")
    lost = nodes_of(scene.picture())["n4"]
    assert (lost["level"], lost["rule"], lost["unit"]) == ("SeparateFault", "unit:shrunk", "123_7")


def test_a_shared_node_is_in_each_of_its_units(scene: Scene) -> None:
    """Where jobs share a node the first unit is its unit, and the others are told too."""
    scene.cluster.run("77", "n[6-7]")
    nodes = nodes_of(scene.picture())
    assert (nodes["n6"]["unit"], nodes["n6"]["further_units"]) == ("55", ["77"])
    assert "further_units" not in nodes["n7"]


def test_a_sidecar_shows_its_own_units(scene: Scene) -> None:
    """Nodes of other jobs are drawn, as nobody's: what becomes of those jobs is not this publisher's affair."""
    nodes = nodes_of(scene.picture(of_jobs(("55",))))
    assert (nodes["n5"]["unit"], nodes["n1"]["unit"]) == ("55", None)


def test_of_the_directory_alone(scene: Scene) -> None:
    """Without Slurm's answer nodes are known by their units: the bad ones as published, the others by name."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    picture = portrait(str(scene.directory), int(scene.clock()) + 601, None)
    nodes = nodes_of(picture)
    assert sorted(nodes) == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert (nodes["n3"]["level"], nodes["n3"]["reason"], nodes["n3"]["unit"]) == (
        "PreSeparateFault",
        "bad fan",
        "123_7",
    )
    assert (nodes["n4"]["level"], nodes["n4"]["state"], nodes["n4"]["unit"]) == (None, [], "123_7")
    assert picture.nodes["cluster"] == "fake"
    assert [one["alive"] for one in picture.decisions["publishers"]] == [False]
    assert units_of(picture)["123.7"]["state"] == "stale"


def test_more_bad_nodes_than_an_artifact_has_entries_for(scene: Scene) -> None:
    """A directory tells the level of every bad node, also of those beyond the 64 that it tells all about."""
    scene.cluster.nodelist = "n[1-100]"
    scene.cluster.__post_init__()
    scene.cluster.run("200", "n[1-100]")
    for number in range(1, 101):
        scene.cluster.set_node(f"n{number}", "ALLOCATED+DRAIN", "rack")
    scene.publish()
    nodes = nodes_of(portrait(str(scene.directory), int(scene.clock()), None))
    assert {node["level"] for node in nodes.values()} == {"PreSeparateFault"}
    assert len(nodes) == 100


def test_a_garbled_node_list_names_nobody(scene: Scene) -> None:
    """Whoever wrote nonsense into a file of ours gets no node drawn, and stops no picture."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    path = scene.directory / "segment_health_check.123.7"
    document = json.loads(path.read_text())
    document["generation"]["nodelist"] = "@all,n[1-99999999]"
    path.write_text(json.dumps(document))
    assert "n3" in nodes_of(portrait(str(scene.directory), int(scene.clock()), None))


def test_what_cannot_be_read_is_told(scene: Scene) -> None:
    """An artifact that nobody can read excludes, and is named; so is what is garbled in the ledger."""
    scene.publish()
    (scene.directory / "segment_health_check.9.9").symlink_to("segment_health_check.9.9")
    (scene.directory / ".segment-health" / "state" / "job:9@fake.json").write_text("garbled")
    remarks = portrait(str(scene.directory), int(scene.clock()), None).decisions["remarks"]
    assert any("segment_health_check.9.9" in remark for remark in remarks)
    assert any("job:9@fake.json" in remark for remark in remarks)


def test_long_texts_are_cut(scene: Scene) -> None:
    """10,000 pasted novels are not sent to every browser."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "x" * 5000)
    picture = scene.picture()
    assert nodes_of(picture)["n3"]["reason"] == "x" * MAX_REASON + "..."
    assert len(json.dumps(picture.decisions)) < 5000

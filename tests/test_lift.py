"""`segment-health clear` and `prune` as they are called: by whom, on what, with which status."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.cli import main
from segment_health.consumer import SegmentHealthCheck
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING
from segment_health.testing import FakeCluster

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Scene:
    """A directory in which 123_0, 123_7 and 55 are excluded, in real time."""

    directory: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)

    def publish(self, *, ago: int = 0) -> None:
        """Make a pass, so many seconds ago."""
        publication = Publication(str(self.directory), EVERYTHING, Policy(), "0.1.0", interval=300.0)
        run_once(publication, self.cluster.source, lambda: time.time() - ago)

    def call(self, *arguments: str) -> tuple[int, list[str], str]:
        """Call a command on the directory; return its status, its lines and its complaints."""
        name, *options = arguments
        ended = CliRunner().invoke(main, [name, "--dir", str(self.directory), *options])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended.exit_code, ended.stdout.splitlines(), ended.stderr

    def excluded(self) -> set[str]:
        """Ask the consumer about each unit."""
        units = {"123_0": ("123", "0"), "123_7": ("123", "7"), "55": ("55", "55")}
        return {name for name, unit in units.items() if not SegmentHealthCheck(self.directory, *unit)()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Nodes n1, n3 and n5 of three units are drained."""
    made = Scene(tmp_path)
    for unit, nodes, bad in (("123_0", "n[1-2]", "n1"), ("123_7", "n[3-4]", "n3"), ("55", "n[5-6]", "n5")):
        made.cluster.run(unit, nodes)
        made.cluster.set_node(bad, "DRAIN", "Xid 79")
    return made


@pytest.mark.parametrize(
    ("units", "left"),
    [
        pytest.param(["123_7"], {"123_0", "55"}, id="a-task"),
        pytest.param(["123"], {"55"}, id="all-tasks-of-an-array"),
        pytest.param(["55", "123_0"], {"123_7"}, id="several"),
    ],
)
def test_clear(scene: Scene, units: list[str], left: set[str]) -> None:
    """What is named is used again, also after the next pass; a line each, and the rest stays."""
    scene.publish()
    code, lines, complaints = scene.call("clear", *units, "--reason", "false alarm")
    assert (code, complaints) == (0, "")
    assert all(line.startswith("clear ") for line in lines)
    assert len(lines) == 3 - len(left)
    scene.publish()
    assert scene.excluded() == left


def test_clear_what_is_not_excluded(scene: Scene) -> None:
    """It says so, and that is no failure."""
    assert scene.call("clear", "9", "--reason", "x") == (0, ["nothing to clear: 9 not excluded"], "")


def test_clear_what_somebody_else_wrote(scene: Scene) -> None:
    """Status 1 and its path: it is theirs to lift, and stays."""
    path = scene.directory / "segment_health_check.55.55"
    path.write_text("n5")
    code, lines, complaints = scene.call("clear", "55", "--reason", "x")
    assert (code, lines) == (1, [])
    assert str(path) in complaints
    assert scene.excluded() == {"55"}


@pytest.mark.parametrize("unit", ["../../etc", "12;rm", "1_", "_7", "１２", "123.7", ""])
def test_clear_what_is_no_unit(scene: Scene, unit: str) -> None:
    """Status 2, and nothing is touched."""
    scene.publish()
    code, lines, complaints = scene.call("clear", unit, "--reason", "x")
    assert (code, lines) == (2, [])
    assert "not a unit" in complaints
    assert len(scene.excluded()) == 3


def test_clear_is_recorded(scene: Scene) -> None:
    """The history says who wanted it, and why."""
    scene.publish()
    scene.call("clear", "55", "--reason", "replaced \x1b[2J")
    last = json.loads((scene.directory / ".segment-health/history.jsonl").read_text().splitlines()[-1])
    assert (last["action"], last["job_id"], last["why"]) == ("manual", "55", "replaced \x1b[2J")


def test_prune(scene: Scene) -> None:
    """What nobody confirmed for so long, and nobody living watches, is lifted; what is younger stays."""
    scene.publish(ago=7200)
    assert scene.call("prune", "--max-age", "3h") == (0, [], "")
    assert len(scene.excluded()) == 3
    code, lines, complaints = scene.call("prune", "--max-age", "90m")
    assert (code, len(lines), complaints) == (0, 3, "")
    assert scene.excluded() == set()


def test_prune_spares_the_living(scene: Scene) -> None:
    """A publisher that lives answers for its own."""
    scene.publish()
    assert scene.call("prune", "--max-age", "0") == (0, [], "")
    assert len(scene.excluded()) == 3


@pytest.mark.parametrize("age", ["", "1w", "-1", "1.5h", "h", "9" * 20])
def test_prune_by_what_is_no_time(scene: Scene, age: str) -> None:
    """Status 2, and nothing is touched."""
    scene.publish(ago=7200)
    code, lines, complaints = scene.call("prune", "--max-age", age)
    assert (code, lines) == (2, [])
    assert "not a time" in complaints
    assert len(scene.excluded()) == 3


@pytest.mark.parametrize("arguments", [("clear", "55", "--reason", "x"), ("prune", "--max-age", "1h")])
def test_a_directory_that_is_not_there(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Status 2: it is never created."""
    code, lines, complaints = Scene(tmp_path / "missing").call(*arguments)
    assert (code, lines) == (2, [])
    assert "No such file" in complaints
    assert not (tmp_path / "missing").exists()

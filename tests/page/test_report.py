"""`segment-health report`: the page as a file, from a directory, a recording, or both."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from segment_health.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Scene

DATA = "tests/data/samples"


def report(*options: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["report", *options], env={"NVRX_SEGMENT_HEALTH_CHECK_DIR": ""})


def embedded(path: Path) -> dict[str, Any]:
    """Return the documents in a page."""
    found = re.findall(r'<script type="application/json" id="(\w+)">(.*?)</script>', path.read_text())
    return {name: json.loads(text) for name, text in found}


def test_of_a_directory_alone(scene: Scene, tmp_path: Path) -> None:
    """From a directory alone the page has its units, their nodes, its publishers and its history."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    out = tmp_path / "page.html"
    told = report("--dir", str(scene.directory), "--out", str(out))
    assert (told.exit_code, told.output) == (0, "written: 6 nodes, 3 units, 1 excluded\n")
    documents = embedded(out)
    nodes = {node["name"]: node for node in documents["nodes"]["nodes"]}
    assert sorted(nodes) == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert (nodes["n3"]["level"], nodes["n3"]["reason"], nodes["n3"]["unit"]) == (
        "PreSeparateFault",
        "bad fan",
        "123_7",
    )
    assert nodes["n4"]["level"] is None  # nobody says so in the directory
    assert [entry["action"] for entry in documents["decisions"]["history"]] == ["exclude"]
    assert documents["decisions"]["publishers"][0]["scope"] == "all"
    assert documents["traits"] == {"live": False, "whole": False}


def test_it_is_replaced_whole(scene: Scene, tmp_path: Path) -> None:
    """A page that is there already is replaced in one step, and nothing else is left in its directory."""
    scene.publish()
    out = tmp_path / "pages" / "page.html"
    out.parent.mkdir()
    out.write_text("old")
    before = out.stat().st_ino
    assert report("--dir", str(scene.directory), "--out", str(out)).exit_code == 0
    assert out.stat().st_ino != before
    assert os.listdir(out.parent) == ["page.html"]


def test_to_standard_output(scene: Scene) -> None:
    """`--out -` prints the page and nothing else."""
    scene.publish()
    told = CliRunner().invoke(main, ["report", "--dir", str(scene.directory), "--out", "-"])
    assert told.exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ((), 2, "of what?"),
        (("--dir", "/no/such/directory"), 2, "No such file"),
        (("--dir", "relative"), 2, "not an absolute path"),
        (("--replay", "/no/such/recording"), 3, "nothing was written"),
        (("--nodes-from", "/dev/null"), 2, "--jobs-from"),
        (("--replay", "/no/such", "--policy", "/no/such/policy"), 2, "policy"),
    ],
)
def test_what_cannot_be_reported(tmp_path: Path, options: tuple[str, ...], code: int, told: str) -> None:
    """A line says why, the exit code is the contract's, and no file is written."""
    done = report("--out", str(tmp_path / "page.html"), *options)
    assert done.exit_code == code, done.output
    assert told in done.output
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_written(scene: Scene) -> None:
    """A directory that is not there is told, with exit code 1."""
    scene.publish()
    done = report("--dir", str(scene.directory), "--out", "/no/such/folder/page.html")
    assert done.exit_code == 1
    assert "nothing was written" in done.output


FORMS = "tests/data/samples/forms/24.11"


@pytest.fixture
def saved(root: Path) -> list[str]:
    """Answers of a real Slurm 24.11, in which two busy nodes are bad, as options."""
    return ["--nodes-from", str(root / FORMS / "nodes.txt"), "--jobs-from", str(root / FORMS / "squeue.txt")]


def test_of_saved_answers_alone(saved: list[str], tmp_path: Path) -> None:
    """Without a directory it shows every node, and what a first pass would exclude."""
    out = tmp_path / "page.html"
    told = report(*saved, "--cluster", "sandbox", "--out", str(out))
    assert told.exit_code == 0, told.output
    documents = embedded(out)
    where = ["--dir", str(tmp_path), "--allow-shared-dir", "--cluster", "sandbox", *saved]
    dry = CliRunner().invoke(main, ["publish", "--once", "--all", "--dry-run", "--format", "json", *where])
    changes = json.loads(dry.output)["changes"]
    wanted = {(change["job_id"], change["task_id"]) for change in changes if change["action"] == "exclude"}
    units = documents["decisions"]["units"]
    assert wanted
    assert {(unit["job_id"], unit["task_id"]) for unit in units if unit["excluded"]} == wanted
    assert len(documents["nodes"]["nodes"]) >= 8
    assert documents["decisions"]["publishers"] == documents["decisions"]["history"] == []
    assert documents["traits"]["whole"]


def test_of_a_directory_and_saved_answers(saved: list[str], scene: Scene, tmp_path: Path) -> None:
    """With both, units are those of the directory, and nodes those that were saved; nothing is written."""
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    scene.publish()
    before = {path: path.stat().st_mtime_ns for path in scene.directory.rglob("*")}
    out = tmp_path / "page.html"
    told = report(*saved, "--cluster", "fake", "--dir", str(scene.directory), "--out", str(out))
    assert told.exit_code == 0, told.output
    documents = embedded(out)
    assert [unit["task_id"] for unit in documents["decisions"]["units"] if unit["excluded"]] == ["7"]
    assert len(documents["nodes"]["nodes"]) >= 8
    assert {path: path.stat().st_mtime_ns for path in scene.directory.rglob("*")} == before


def test_the_policy_is_the_one_that_is_given(saved: list[str], tmp_path: Path) -> None:
    """What `--publish-at` and `--policy` say is what is drawn."""
    counts = {}
    for level in ("PreSeparateFault", "SeparateFault"):
        out = tmp_path / f"{level}.html"
        assert report(*saved, "--cluster", "x", "--publish-at", level, "--out", str(out)).exit_code == 0
        counts[level] = sum(unit["excluded"] for unit in embedded(out)["decisions"]["units"])
    assert counts["PreSeparateFault"] > counts["SeparateFault"] > 0

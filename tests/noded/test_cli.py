"""`segment-health noded`: export and show, with their exit codes."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.cli.noded import noded
from segment_health.noded.codes import MARKER
from segment_health.noded.config import FILE
from segment_health.noded.report import Device, Report, decode, encode

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

LENIENT = """\
[[rule]]
name = "all is well"
state = ["DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"]
level = "NotHandleFault"
"""
CPU = encode(Report((Device("CPU", 1, ("0000001D",), "PreSeparateFault"),), "PreSeparate"))
UNLISTED = encode(Report((Device("CPU", 1, ("00000011",), "PreSeparateFault"),), "PreSeparate"))


def run(*arguments: str) -> Result:
    """Run `segment-health noded`."""
    return CliRunner().invoke(noded, arguments)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A directory for reports."""
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


@pytest.fixture
def saved(root: Path) -> list[str]:
    """The options that name saved answers of a real Slurm."""
    samples = root / "tests" / "data" / "samples" / "22.05"
    return [
        "--nodes-from", str(samples / "scontrol_show_nodes_oneline.txt"),
        "--jobs-from", str(samples / "scontrol_show_jobs.txt"),
    ]  # fmt: skip


def test_export_of_saved_answers(reports: Path, saved: list[str]) -> None:
    """Every node above NotHandleFault of what a real Slurm said has a report, and no other node."""
    done = run("export", "--dir", str(reports), *saved)
    assert done.exit_code == 0, done.output
    written = [line.split() for line in done.stdout.splitlines() if line.startswith("report ")]
    assert written
    names = {path.name for path in reports.iterdir()} - {MARKER}
    assert names == {f"mindx-dl-nodeinfo-{words[1]}" for words in written}
    for _, name, status, codes in written:
        report = decode((reports / f"mindx-dl-nodeinfo-{name}").read_bytes())
        assert report.status == status
        assert [",".join(device.codes or ()) for device in report.devices or ()] == [codes]


def test_export_obeys_a_policy(reports: Path, saved: list[str], tmp_path: Path) -> None:
    """A site's rules count for the export as for a publisher."""
    (tmp_path / "policy.toml").write_text(LENIENT)
    done = run("export", "--dir", str(reports), *saved, "--policy", str(tmp_path / "policy.toml"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert os.listdir(reports) == [MARKER]


def test_export_is_shown_without_trouble(reports: Path, saved: list[str]) -> None:
    """What was exported is read back as a publisher would, and nothing is wrong with it."""
    run("export", "--dir", str(reports), *saved)
    shown = run("show", "--dir", str(reports))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert len(shown.stdout.splitlines()) == len(os.listdir(reports)) - 1


def test_export_names_what_it_left(reports: Path, saved: list[str]) -> None:
    """A report of somebody else in the place of ours needs a person."""
    run("export", "--dir", str(reports), *saved)
    name = next(name for name in sorted(os.listdir(reports)) if name != MARKER)
    (reports / name).write_bytes(CPU)
    done = run("export", "--dir", str(reports), *saved)
    assert done.exit_code == 1
    assert "somebody else wrote its report; left as it is" in done.stderr
    assert (reports / name).read_bytes() == CPU


def test_export_removes_and_says_so(reports: Path, saved: list[str], tmp_path: Path) -> None:
    """Reports of nodes that are fit now go, each with a line."""
    run("export", "--dir", str(reports), *saved)
    (tmp_path / "policy.toml").write_text(LENIENT)
    done = run("export", "--dir", str(reports), *saved, "--policy", str(tmp_path / "policy.toml"))
    assert (done.exit_code, done.stdout) == (0, "remove d004\nremove d006\nremove n1\n")
    left = ["mindx-dl-nodeinfo-d003", "mindx-dl-nodeinfo-d005"]
    assert sorted(os.listdir(reports)) == [MARKER, *left], "whose bases are UNKNOWN"
    assert done.stderr.startswith("segment-health: no verdict on d001, d002, d003, d005, ")


def test_unknown_state_of_slurm_changes_nothing(reports: Path, saved: list[str], tmp_path: Path) -> None:
    """An answer that is none is no evidence of health."""
    run("export", "--dir", str(reports), *saved)
    before = sorted(os.listdir(reports))
    (tmp_path / "nodes").write_text("")
    done = run("export", "--dir", str(reports), "--nodes-from", str(tmp_path / "nodes"), *saved[2:])
    assert done.exit_code == 3
    assert "Slurm's state is unknown, so nothing was exported" in done.stderr
    assert sorted(os.listdir(reports)) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "--dir", "relative"], "not an absolute path"),
        (["export", "--dir", "/nowhere/at/all"], "not a directory; it is never created"),
        (["export", "--dir", "/", "--policy", "/nowhere/policy.toml"], "/nowhere/policy.toml"),
        (["export", "--dir", "/", "--nodes-from", "x"], "go together"),
        (["export"], "--dir"),
        (["show", "--dir", "relative"], "not an absolute path"),
        (["show", "--dir", "/", "--max-age", "soon"], "--max-age: not a time"),
        (["show", "--dir", "/", "--format", "yaml"], "yaml"),
    ],
    ids=["relative", "missing", "policy", "half-saved", "no-dir", "show-relative", "max-age", "format"],
)
def test_usage_errors(arguments: list[str], message: str) -> None:
    """A usage error is exit status 2, and says what is wrong."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_show_as_text(reports: Path) -> None:
    """A line a report: node, status, level, codes, age, and what is wrong."""
    for name, content in (("n1", CPU), ("n2", UNLISTED), ("n3", b"x"), ("n4", CPU)):
        (reports / f"mindx-dl-nodeinfo-{name}").write_bytes(content)
    long_ago = time.time() - 7200
    os.utime(reports / "mindx-dl-nodeinfo-n4", (long_ago, long_ago))
    done = run("show", "--dir", str(reports), "--max-age", "1h")
    assert done.exit_code == 1
    first, second, third, fourth = done.stdout.splitlines()
    assert first.startswith("n1 PreSeparate PreSeparateFault 0000001D ")
    assert "#" not in first
    assert second.startswith("n2 PreSeparate PreSeparateFault 00000011 ")
    assert second.endswith("# fault code 00000011 is in no list of the configuration: taken for PreSeparateFault")
    assert third.startswith("n3 - no-verdict - -  # not JSON: ")
    assert fourth.startswith("n4 PreSeparate no-verdict 0000001D 720")
    assert "is stale" in fourth


def test_show_as_json(reports: Path) -> None:
    """The same for programs."""
    (reports / "mindx-dl-nodeinfo-n1").write_bytes(CPU)
    done = run("show", "--dir", str(reports), "--format", "json", "--max-age", "never")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    (told,) = document["reports"]
    assert document["remarks"] == []
    assert 0 <= told.pop("age_seconds") < 300
    assert told == {
        "node": "n1",
        "status": "PreSeparate",
        "level": "PreSeparateFault",
        "final": True,
        "rule": "noded:0000001D",
        "codes": ["0000001D"],
        "wrong": [],
    }


def test_show_of_what_moves_a_cursor(reports: Path) -> None:
    """Nothing that a report says reaches a terminal as it stands."""
    report = Report((Device("CPU", 1, ("\x1b[2J",), "\x1b[2J"),), "\x1b[2J")
    (reports / "mindx-dl-nodeinfo-n\x1b").write_bytes(encode(report))
    done = run("show", "--dir", str(reports))
    assert done.exit_code == 1
    assert "\x1b" not in done.output


def test_show_of_an_empty_directory_is_unknown(reports: Path) -> None:
    """No entry, no answer: exit status 3."""
    done = run("show", "--dir", str(reports))
    assert done.exit_code == 3
    assert "nothing of NodeD's" in done.stderr


def test_show_of_a_missing_directory_is_unknown(reports: Path) -> None:
    """So is no directory."""
    assert run("show", "--dir", str(reports / "missing")).exit_code == 3


def test_show_with_a_bad_configuration(reports: Path) -> None:
    """A configuration that cannot be used is exit status 2, with its path and the problem."""
    (reports / FILE).write_text('{"FaultTypeCode":{"SeparateFaultCode":[]}}')
    done = run("show", "--dir", str(reports))
    assert done.exit_code == 2
    assert f"{reports}/{FILE}: unknown member `SeparateFaultCode` of FaultTypeCode" in done.stderr

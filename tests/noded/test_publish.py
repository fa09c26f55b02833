"""`publish --noded-dir`: what NodeD reports excludes, and what it cannot say changes nothing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.cli import main
from segment_health.consumer import SegmentHealthCheck
from segment_health.noded.report import Device, Report, encode
from segment_health.sources import recording
from segment_health.testing import FakeCluster

if TYPE_CHECKING:
    from pathlib import Path

FAULT = encode(Report((Device("CPU", 1, ("0000001D",), "PreSeparateFault"),), "PreSeparate"))
LOST = encode(Report((Device("CPU", 1, ("2C000031",), "SeparateFault"),), "UnHealthy"))


@dataclass
class Site:
    """Job 7 on GPU1 and gpu2, all healthy as Slurm says; a directory of decisions, one of reports."""

    path: Path
    cluster: FakeCluster = field(default_factory=lambda: FakeCluster("GPU1,gpu[2-3]"))

    def recorded(self) -> str:
        """Record the cluster as it is now; return the path."""
        source, path = self.cluster.source, self.path / "recording.json"
        path.write_text(recording(source.observe(), source, now=datetime.now(timezone.utc), scrubbed=False))
        return str(path)

    def report(self, node: str, content: bytes, age: int = 0) -> None:
        """Put a report of a node."""
        file = self.path / "noded" / f"mindx-dl-nodeinfo-{node}"
        file.write_bytes(content)
        os.utime(file, (time.time() - age,) * 2)

    def publish(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        """Make a pass; return its exit code, its JSON and what it complained of."""
        where = ["--dir", str(self.path / "decisions"), "--noded-dir", str(self.path / "noded")]
        command = ["publish", "--once", "--all", "--format", "json", "--replay", self.recorded()]
        done = CliRunner().invoke(main, [*command, *where, *arguments])
        return done.exit_code, json.loads(done.stdout) if done.stdout else {}, done.stderr

    def actions(self, *arguments: str) -> list[str]:
        """Make a pass that must be a good one, and name its changes."""
        code, document, complaints = self.publish(*arguments)
        assert code == 0, complaints
        return [f"{change['action']} {change['level']} {change['nodes']}" for change in document["changes"]]

    def excluded(self) -> bool:
        """Ask the consumer."""
        return not SegmentHealthCheck(self.path / "decisions", "7", "7")()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Nothing is wrong with any node."""
    for folder in ("decisions", "noded"):
        (tmp_path / folder).mkdir()
    (tmp_path / "noded" / "NodeDConfiguration.json").write_text(
        '{"FaultTypeCode": {"PreSeparateFaultCodes": ["0000001D"], "SeparateFaultCodes": ["2C000031"]}}'
    )
    made = Site(tmp_path)
    made.cluster.run("7", "GPU1,gpu2")
    return made


def test_a_report_excludes_and_its_end_lifts(site: Site) -> None:
    """The artifact names the code; Kubernetes' lower-case name is Slurm's node; a worse report raises."""
    assert site.actions() == []
    site.report("gpu1", FAULT)
    assert site.actions() == ["exclude PreSeparateFault GPU1"]
    artifact = json.loads((site.path / "decisions/segment_health_check.7.7").read_text())
    assert [node["rule"] for node in artifact["nodes"]] == ["noded:0000001D"]
    site.report("gpu1", LOST)
    assert site.actions() == ["update SeparateFault GPU1"]
    (site.path / "noded/mindx-dl-nodeinfo-gpu1").unlink()
    assert site.actions() == ["clear SeparateFault GPU1"]
    assert not site.excluded()


UNSURE = [
    pytest.param(FAULT.replace(b"230d", b"230e"), 0, (), id="wrong-check-code"),
    pytest.param(FAULT, 4000, (), id="stale"),
    pytest.param(FAULT, 61, ("--max-age", "60"), id="stale-by-max-age"),
    pytest.param(b"", 0, (), id="empty"),
]


@pytest.mark.parametrize(("content", "age", "arguments"), UNSURE)
def test_a_report_that_tells_nothing_neither_excludes_nor_lifts(
    site: Site, content: bytes, age: int, arguments: tuple[str, ...]
) -> None:
    """It is no fault and no health: what was decided stays, and a person is told."""
    site.report("gpu2", content, age)
    code, document, complaints = site.publish(*arguments)
    assert (code, document["changes"]) == (0, [])
    assert "NodeD: report of gpu2" in complaints
    site.report("gpu2", FAULT)
    assert site.actions() == ["exclude PreSeparateFault gpu2"]
    site.report("gpu2", content, age)
    assert site.actions(*arguments) == []
    assert site.excluded()


def test_an_unlisted_code_is_never_silently_healthy(site: Site) -> None:
    """It has the level that the site gives such codes, with a warning; the override lists it and decides."""
    site.report("gpu2", encode(Report((Device("CPU", 1, ("00000011",), "NotHandleFault"),), "Healthy")))
    assert site.actions("--noded-unknown-level", "SeparateFault") == ["exclude SeparateFault gpu2"]
    assert "00000011" in site.publish()[2]
    (site.path / "noded/mindx-dl-node-fault-config").write_text(
        '{"FaultTypeCode": {"NotHandleFaultCodes": ["00000011"]}}'
    )
    assert site.actions() == ["clear PreSeparateFault gpu2"]


def test_a_directory_that_is_gone_is_no_all_clear(site: Site) -> None:
    """Exit status 3, and nothing is changed; the same for one that looks as if it were not mounted."""
    site.report("gpu2", FAULT)
    site.actions()
    for name in ("mindx-dl-nodeinfo-gpu2", "NodeDConfiguration.json"):
        (site.path / "noded" / name).unlink()
    assert site.publish()[0] == 3
    (site.path / "noded").rmdir()
    code, document, complaints = site.publish()
    assert (code, document["pass"]) == (3, "unknown")
    assert "NodeD's directory" in complaints
    assert site.excluded()


@pytest.mark.parametrize("stray", [".nfs001", "README", "lost+found"])
def test_what_lies_in_a_bare_mount_point_is_no_all_clear(site: Site, stray: str) -> None:
    """Only what NodeD, or our own export, writes shows that this is the directory."""
    site.report("gpu2", FAULT)
    site.actions()
    for name in ("mindx-dl-nodeinfo-gpu2", "NodeDConfiguration.json"):
        (site.path / "noded" / name).unlink()
    (site.path / "noded" / stray).touch()
    assert site.publish()[0] == 3
    assert site.excluded()


def test_a_bad_configuration_is_refused_at_the_start(site: Site) -> None:
    """Exit status 2, and the line names the code that stands in two lists."""
    twice = '{"FaultTypeCode": {"NotHandleFaultCodes": ["0000001D"], "SeparateFaultCodes": ["0000001D"]}}'
    (site.path / "noded/mindx-dl-node-fault-config").write_text(twice)
    code, _, complaints = site.publish()
    assert code == 2
    assert "0000001D" in complaints
    assert list((site.path / "decisions").iterdir()) == []


def test_what_we_export_we_read(site: Site) -> None:
    """A report of ours counts at its own level: Slurm's drain on one cluster, read beside another's Slurm."""
    site.cluster.set_node("gpu2", "ALLOCATED+DRAIN")
    export = ["noded", "export", "--dir", str(site.path / "noded"), "--replay", site.recorded()]
    written = CliRunner().invoke(main, export)
    assert written.exit_code == 0, written.output
    site.cluster.set_node("gpu2", "ALLOCATED")
    assert site.actions() == ["exclude PreSeparateFault gpu2"]

"""Reports that we write: for whom, what in them, and what is never touched."""

from __future__ import annotations

import json
import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from segment_health import atomic
from segment_health.level import FaultLevel
from segment_health.noded import export as exporting
from segment_health.noded.codes import MARKER
from segment_health.noded.directory import NodeReports
from segment_health.noded.export import export
from segment_health.noded.report import PREFIX, Device, Report, decode, encode
from segment_health.policy.assess import Assessment, Policy
from segment_health.policy.limits import seconds
from segment_health.policy.rule import Rule
from slurm.node import Node, parse_state

if TYPE_CHECKING:
    from pathlib import Path

OK, PRE, SEPARATE = FaultLevel
NOW = 1_796_000_000
THEIRS = encode(Report((Device("CPU", 1, ("0000001D",), "PreSeparateFault"),), "PreSeparate"))


def graded(**states: str) -> dict[str, Assessment]:
    """What nodes in these states are worth."""
    return {name: Policy().assess(Node(name, *parse_state(state))) for name, state in states.items()}


def put(directory: Path, **states: str) -> exporting.Exported:
    """Export nodes in these states."""
    return export(str(directory), graded(**states), NOW)


def found(directory: Path) -> list[str]:
    """The reports that are there, by node."""
    return sorted(path.name.removeprefix(PREFIX) for path in directory.iterdir() if path.name != MARKER)


def test_reports_are_of_nodes_above_not_handle_fault(tmp_path: Path) -> None:
    """A node that is fit has no report, as from NodeD."""
    done = put(tmp_path, n1="IDLE", n2="MIXED+DRAIN", n3="DOWN", n4="ALLOCATED+COMPLETING")
    assert list(done.written) == ["n2", "n3"]
    assert found(tmp_path) == ["n2", "n3"]


def test_bytes_of_a_report(tmp_path: Path) -> None:
    """A report has one device, our codes, and a CheckCode over all of it."""
    put(tmp_path, n3="DOWN+DRAIN+INVALID_REG")
    inner = (
        '{"FaultDevList":[{"DeviceType":"Slurm","DeviceId":0,"FaultCode":["FE000001","FE000011","FE000014"],'
        '"FaultLevel":"SeparateFault"}],"NodeStatus":"UnHealthy"}'
    )
    code = sha256(inner.encode()).hexdigest()
    content = (tmp_path / "mindx-dl-nodeinfo-n3").read_text()
    assert content == f'{{"NodeInfo":{inner},"CheckCode":"{code}"}}'


STATES = {
    "drain": ("ALLOCATED+DRAIN", PRE, "PreSeparate", ("FE000011",)),
    "down": ("DOWN", SEPARATE, "UnHealthy", ("FE000001",)),
    "down-drain": ("DOWN+DRAIN", SEPARATE, "UnHealthy", ("FE000001", "FE000011")),
    "fail": ("IDLE+FAIL", SEPARATE, "UnHealthy", ("FE000012",)),
    "silent": ("IDLE+NOT_RESPONDING", PRE, "PreSeparate", ("FE000013",)),
    "unknown-drain": ("UNKNOWN+DRAIN", PRE, "PreSeparate", ("FE000011",)),
    "harmless-beside": ("MIXED+DRAIN+PLANNED+COMPLETING", PRE, "PreSeparate", ("FE000011",)),
}


@pytest.mark.parametrize("name", STATES)
def test_what_a_report_says(name: str, tmp_path: Path) -> None:
    """Level and status are the node's, and the codes those of its faults."""
    state, level, status, codes = STATES[name]
    put(tmp_path, n1=state)
    report = decode((tmp_path / "mindx-dl-nodeinfo-n1").read_bytes())
    assert report == Report((Device("Slurm", 0, codes, level.name),), status)


def test_rule_of_a_site_on_a_harmless_word(tmp_path: Path) -> None:
    """A word that is a fault by a site's rule alone has the code that says so."""
    policy = Policy(rules=(Rule("maintenance", PRE, frozenset({"MAINTENANCE"})),))
    export(str(tmp_path), {"n1": policy.assess(Node("n1", "IDLE", frozenset({"MAINTENANCE"})))}, NOW)
    report = decode((tmp_path / "mindx-dl-nodeinfo-n1").read_bytes())
    assert report == Report((Device("Slurm", 0, ("FE0000FF",), "PreSeparateFault"),), "PreSeparate")


def test_rule_that_waits_is_no_verdict(tmp_path: Path) -> None:
    """A rule with a min_duration remembers nothing here: its node is called neither faulty nor fit."""
    policy = Policy(rules=(Rule("blip", PRE, frozenset({"NOT_RESPONDING"}), min_duration=seconds("5m")),))
    node = Node("n1", "IDLE", frozenset({"NOT_RESPONDING"}))
    seen = policy.first_seen(node, {}, previous_pass=None, now=NOW)
    done = export(str(tmp_path), {"n1": policy.assess(node, seen=seen, now=NOW)}, NOW)
    assert done.kept == ["n1"]
    assert found(tmp_path) == []


def test_what_we_write_we_read(tmp_path: Path) -> None:
    """Export and reader agree on every node, and an export of a fit cluster is an all-clear."""
    states = {"n1": "IDLE", "n2": "MIXED+DRAIN", "n3": "DOWN"}
    put(tmp_path, **states)
    told = NodeReports(str(tmp_path), None).read(list(states), NOW)
    assert {name: (each.level, each.final) for name, each in told.assessments.items()} == {
        "n2": (PRE, True),
        "n3": (SEPARATE, True),
    }
    assert told.remarks == []
    put(tmp_path, **dict.fromkeys(states, "IDLE"))
    assert NodeReports(str(tmp_path), None).read(list(states), NOW).assessments == {}


def test_report_of_a_node_that_is_fit_again_is_removed(tmp_path: Path) -> None:
    """As NodeD deletes its ConfigMap."""
    put(tmp_path, n1="DOWN", n2="DOWN")
    done = put(tmp_path, n1="IDLE", n2="DOWN")
    assert (done.removed, list(done.written)) == (["n1"], ["n2"])
    assert found(tmp_path) == ["n2"]


def test_report_is_written_anew_every_time(tmp_path: Path) -> None:
    """The time of the file is the age of what it says, whether it changed or not."""
    put(tmp_path, n1="DOWN")
    path = tmp_path / "mindx-dl-nodeinfo-n1"
    os.utime(path, (0, 0))
    put(tmp_path, n1="DOWN")
    assert path.stat().st_mtime > 0


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_mode(mask: int, tmp_path: Path) -> None:
    """Everybody may read a report, whatever the umask."""
    before = os.umask(mask)
    try:
        put(tmp_path, n1="DOWN")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mindx-dl-nodeinfo-n1").stat().st_mode) == 0o644


@pytest.mark.parametrize("state", ["UNKNOWN", "SOMETHING_NEW"])
def test_node_without_a_verdict_keeps_its_report(state: str, tmp_path: Path) -> None:
    """What is not understood is neither fit nor a new fault, and the file keeps its age."""
    put(tmp_path, n1="DOWN")
    path = tmp_path / "mindx-dl-nodeinfo-n1"
    os.utime(path, (1, 1))
    done = put(tmp_path, n1=state, n2=state)
    assert done.kept == ["n1", "n2"]
    assert path.stat().st_mtime == 1
    assert found(tmp_path) == ["n1"]


def test_half_a_verdict_never_lowers_a_report(tmp_path: Path) -> None:
    """A restarted slurmctld shows UNKNOWN+DRAIN for a node that was DOWN: its report stays, or is raised."""
    put(tmp_path, n1="DOWN+DRAIN", n2="IDLE+DRAIN")
    done = put(tmp_path, n1="UNKNOWN+DRAIN", n2="UNKNOWN+FAIL")
    assert (done.kept, list(done.written)) == (["n1"], ["n2"])
    told = NodeReports(str(tmp_path), None).read(["n1", "n2"], NOW)
    assert [told.assessments[name].level for name in ("n1", "n2")] == [SEPARATE, SEPARATE]


def test_node_that_slurm_no_longer_lists_keeps_its_report(tmp_path: Path) -> None:
    """No row is no evidence of health; a person hears of it."""
    put(tmp_path, n1="DOWN")
    done = put(tmp_path, n2="IDLE")
    assert done.kept == ["n1"]
    assert found(tmp_path) == ["n1"]


FOREIGN = {
    "nodeD": THEIRS,
    "empty": b"",
    "damaged": THEIRS[:50],
    "our-type-with-their-code": encode(
        Report((Device("Slurm", 0, ("0000001D",), "PreSeparateFault"),), "PreSeparate")
    ),
    "our-type-without-a-code": encode(Report((Device("Slurm", 0, (), "PreSeparateFault"),), "PreSeparate")),
    "our-type-with-another-level": encode(Report((Device("Slurm", 0, ("FE000001",), "Worst"),), "UnHealthy")),
    "ours-beside-theirs": encode(
        Report(
            (
                Device("Slurm", 0, ("FE000001",), "SeparateFault"),
                Device("CPU", 1, ("0000001D",), "PreSeparateFault"),
            ),
            "UnHealthy",
        )
    ),
    "no-device": encode(Report((), "PreSeparate")),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_report_of_somebody_else_is_never_touched(name: str, tmp_path: Path) -> None:
    """What an export did not write it neither overwrites nor removes, and says so of a node with faults."""
    path = tmp_path / "mindx-dl-nodeinfo-n1"
    path.write_bytes(FOREIGN[name])
    done = put(tmp_path, n1="DOWN")
    assert (done.foreign, done.written) == (["n1"], {})
    done = put(tmp_path, n1="IDLE")
    assert (done.foreign, done.removed) == ([], [])
    assert path.read_bytes() == FOREIGN[name]


def test_link_and_folder_are_somebody_elses(tmp_path: Path) -> None:
    """A link is not followed, and a mounted ConfigMap is NodeD's."""
    folder = tmp_path / "there"
    folder.mkdir()
    put(folder, good="DOWN")
    (folder / "mindx-dl-nodeinfo-n1").symlink_to("mindx-dl-nodeinfo-good")
    (folder / "mindx-dl-nodeinfo-n2").mkdir()
    os.mkfifo(folder / "mindx-dl-nodeinfo-n3")
    done = put(folder, n1="DOWN", n2="DOWN", n3="DOWN", good="DOWN")
    assert done.foreign == ["n1", "n2", "n3"]
    assert put(folder, n1="IDLE", n2="IDLE", n3="IDLE", good="DOWN").removed == []
    assert (folder / "mindx-dl-nodeinfo-n1").is_symlink()


NAMES = {
    "underscore": "n_1",
    "leading-dash": "-n1",
    "trailing-dash": "n1-",
    "two-dots": "n1..x",
    "slash": "n/1",
    "up": "../n1",
    "empty": "",
    "newline": "n1\n",
    "too-long": "n" * 231,
    "other-script": "ñ1",
}


@pytest.mark.parametrize("name", NAMES)
def test_name_that_kubernetes_could_not_have(name: str, tmp_path: Path) -> None:
    """Such a node is skipped and named; while it is fit there is nothing to say."""
    node = NAMES[name]
    assert export(str(tmp_path), {node: graded(x="IDLE")["x"]}, NOW).misnamed == []
    done = export(str(tmp_path), {node: graded(x="DOWN")["x"]}, NOW)
    assert (done.misnamed, done.written) == ([node], {})
    assert os.listdir(tmp_path) == [MARKER]


@pytest.mark.parametrize("node", ["n" * 230, "gpu-01.rack.example", "0"])
def test_name_that_kubernetes_could_have(node: str, tmp_path: Path) -> None:
    """Names up to 230 characters, with dots and dashes within."""
    assert list(export(str(tmp_path), {node: graded(x="DOWN")["x"]}, NOW).written) == [node]


def test_name_is_written_in_lower_case(tmp_path: Path) -> None:
    """Kubernetes knows no capitals; nodes that it could not tell apart share a report, of the worse."""
    put(tmp_path, GPU1="IDLE+DRAIN", gpu1="DOWN")
    assert found(tmp_path) == ["gpu1"]
    assert NodeReports(str(tmp_path), None).read(["GPU1"], NOW).assessments["GPU1"].level is SEPARATE


def test_one_failed_file_never_blocks_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full for one report leaves the old one, and the next ones are written."""
    put(tmp_path, n1="IDLE+DRAIN")
    before = (tmp_path / "mindx-dl-nodeinfo-n1").read_bytes()
    usual = atomic.replace_file

    def failing(directory: int, name: str, content: bytes, *, mode: int) -> None:
        if name.endswith("-n1"):
            raise OSError(28, "No space left on device")
        usual(directory, name, content, mode=mode)

    monkeypatch.setattr(exporting, "replace_file", failing)
    done = put(tmp_path, n1="DOWN", n2="DOWN")
    assert done.failed == {"n1": "No space left on device"}
    assert list(done.written) == ["n2"]
    assert (tmp_path / "mindx-dl-nodeinfo-n1").read_bytes() == before


def test_removal_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream takes a failed delete for done; here the next export removes it."""
    put(tmp_path, n1="DOWN")

    def failing(path: str, *, dir_fd: int | None = None) -> None:
        raise OSError(30, f"Read-only file system {path} {dir_fd}")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", failing)
        assert list(put(tmp_path, n1="IDLE").failed) == ["n1"]
    assert put(tmp_path, n1="IDLE").removed == ["n1"]


def test_nothing_else_is_left(tmp_path: Path) -> None:
    """No temporary stays, those of a dead process are swept, and the marker says when."""
    put(tmp_path, n1="DOWN")
    put(tmp_path, n1="IDLE")
    assert os.listdir(tmp_path) == [MARKER]
    assert json.loads((tmp_path / MARKER).read_text()) == {"exported": "2026-11-30T00:53:20+00:00"}


@pytest.mark.parametrize("what", ["missing", "file"])
def test_directory_is_never_created(what: str, tmp_path: Path) -> None:
    """Where there is no directory there is no export."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"No such file|Not a directory"):
        put(tmp_path / what, n1="DOWN")

"""What an analysis leaves of its words against nodes: which it does, where, and what it never becomes."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.attribution.analysers import kind
from segment_health.attribution.analysers.finding import Action, Finding, Line
from segment_health.attribution.analysers.table import BY_CATEGORY
from segment_health.attribution.blame.directory import Blames
from segment_health.attribution.blame.grade import Bar
from segment_health.attribution.blame.record import MARKER, Evidence, decode
from segment_health.attribution.service import blame
from segment_health.attribution.service.blame import BlameDirectory, Failed, blames_of
from segment_health.publication import Holder

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000
FAILED = Failed("/shared/logs/train_cycle3.log", "4711", 3, 1001)


def finding(**further: Any) -> Finding:
    """A GPU fell off the bus on gpu-017."""
    told: dict[str, Any] = {
        "category": "xid-hardware",
        "action": Action.RESTART,
        "reason": "a GPU failed",
        "source": "rules",
        "evidence": (Line(12, "gpu-017: NVRM: Xid (PCI:0000:8d:00): 79"),),
        "nodes": ("gpu-017",),
    }
    return Finding(**told | further)


def test_what_is_written_of_a_finding() -> None:
    """Node, category, job, cycle, the log's name without folders, its owner and the lines."""
    (told,), why = blames_of(finding(), FAILED, NOW)
    assert (told.node, told.category, told.job_id, told.cycle, told.time) == (
        "gpu-017",
        "xid-hardware",
        "4711",
        3,
        NOW,
    )
    assert (told.log, told.owner) == ("train_cycle3.log", 1001)
    assert told.evidence == (Evidence(12, "gpu-017: NVRM: Xid (PCI:0000:8d:00): 79"),)
    assert why == ""
    assert blames_of(finding(source="rules+llm"), FAILED, NOW) == ([told], "")


def test_the_table_knows_what_is_blamed() -> None:
    """Each category is one of the rules', and one in which a log can name a node."""
    assert all(BY_CATEGORY[category].blame is not kind.Blame.NOBODY for category in blame.HARDWARE)


NOBODY: list[Any] = [
    pytest.param(finding(nodes=()), FAILED, "", id="no-node"),
    pytest.param(finding(category="nccl-timeout"), FAILED, "", id="a-time-out-of-the-network"),
    pytest.param(finding(category="host-oom"), FAILED, "", id="the-jobs-own-memory"),
    pytest.param(finding(category="node-failure"), FAILED, "", id="what-slurm-knows-itself"),
    pytest.param(finding(category="unknown"), FAILED, "", id="nobody-knows-what"),
    pytest.param(finding(source="llm+rules"), FAILED, "is not believed", id="whatever-it-calls-itself"),
    pytest.param(finding(source="llm"), FAILED, "llm is not believed", id="a-language-model"),
    pytest.param(finding(nodes=tuple("abcde")), FAILED, "5 nodes at once", id="what-nodes-share"),
    pytest.param(finding(), FAILED._replace(job_id=None), "its job has no id of Slurm's", id="nobodys-job"),
    pytest.param(finding(), FAILED._replace(job_id="mine"), "its job has no id of Slurm's", id="no-job-of-slurms"),
    pytest.param(finding(nodes=("../n1",)), FAILED, "no name of a node", id="a-path"),
    pytest.param(finding(nodes=("n1", "n 2")), FAILED, "no name of a node", id="one-name-of-two"),
]


@pytest.mark.parametrize(("found", "failed", "why"), NOBODY)
def test_whom_nobody_blames(tmp_path: Path, found: Finding, failed: Failed, why: str) -> None:
    """Nothing is written; where hardware is meant all the same, the service's log says why not."""
    told = marked(tmp_path).record(found, failed, NOW)
    assert why in told
    assert bool(why) == bool(told)
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def marked(path: Path) -> BlameDirectory:
    """Prepare a directory."""
    path.chmod(0o755)
    made = BlameDirectory(str(path))
    made.prepare(int(time.time()))
    return made


def test_a_failure_is_written_once(tmp_path: Path) -> None:
    """A second analysis of the same log replaces the file; another cycle adds one. Everybody may read."""
    directory = marked(tmp_path)
    directory.record(finding(), FAILED, NOW)
    assert directory.record(finding(), FAILED, NOW + 5) == "blamed for xid-hardware by job 4711: gpu-017"
    (path,) = tmp_path.glob("*.blame")
    assert decode(path.read_bytes(), path.name).time == NOW + 5
    assert path.stat().st_mode & 0o777 == 0o644
    directory.record(finding(), FAILED._replace(cycle=4), NOW)
    assert len(list(tmp_path.glob("*.blame"))) == 2


def test_a_publisher_reads_it(tmp_path: Path) -> None:
    """What the service wrote is what counts there, for the job that it is of."""
    marked(tmp_path).record(finding(), FAILED, NOW)
    held = {"gpu-017": {Holder("4711", "1001")}, "gpu-018": {Holder("4711", "1001")}}
    told = Blames(str(tmp_path), Bar(3600, 2)).read(held, NOW + 1)
    assert ({name: one.rule for name, one in told.assessments.items()}, told.remarks) == (
        {"gpu-017": "attribution:xid-hardware"},
        [],
    )


def test_who_may_write_there(tmp_path: Path) -> None:
    """A directory of everybody's is refused, with what to do; one that is not there is not made."""
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="everybody may write"):
        BlameDirectory(str(tmp_path)).prepare(NOW)
    tmp_path.chmod(0o755)
    with pytest.raises(FileNotFoundError):
        BlameDirectory(str(tmp_path / "none")).prepare(NOW)
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_the_way_is_replaced_and_never_followed(tmp_path: Path) -> None:
    """A link under the name of a blame leads nowhere."""
    directory, victim = marked(tmp_path), tmp_path / "victim"
    victim.write_text("precious")
    directory.record(finding(), FAILED, NOW)
    (path,) = tmp_path.glob("*.blame")
    path.unlink()
    path.symlink_to(victim)
    directory.record(finding(), FAILED, NOW)
    assert victim.read_text() == "precious"
    assert decode(path.read_bytes(), path.name).node == "gpu-017"


def test_a_node_has_not_more_than_its_share(tmp_path: Path) -> None:
    """Of a node that fails and fails the newest are kept; other nodes' stay."""
    directory = marked(tmp_path)
    directory.record(finding(nodes=("gpu-018",)), FAILED, NOW)
    for cycle in range(blame.MAX_FILES_OF_A_NODE + 5):
        directory.record(finding(), FAILED._replace(cycle=cycle), NOW + cycle)
        (newest,) = (path for path in tmp_path.glob("gpu-017*") if b'"cycle": %d,' % cycle in path.read_bytes())
        os.utime(newest, (NOW + cycle, NOW + cycle))
    kept = sorted(decode(path.read_bytes(), path.name).cycle or 0 for path in tmp_path.glob("gpu-017*"))
    assert kept == list(range(5, blame.MAX_FILES_OF_A_NODE + 5))
    assert len(list(tmp_path.glob("gpu-018*"))) == 1


def test_a_directory_has_not_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full one takes nothing more, until what is old has gone; what is not ours is never removed."""
    monkeypatch.setattr(blame, "MAX_FILES", 6)
    directory, now = marked(tmp_path), int(time.time())
    (tmp_path / "README").touch()
    for number in range(5):
        directory.record(finding(nodes=(f"n{number}",)), FAILED, now)
    with pytest.raises(OSError, match="has 7 files") as raised:
        directory.record(finding(), FAILED, now)
    assert raised.value.errno == errno.ENOSPC
    for path in tmp_path.iterdir():
        os.utime(path, (now - blame.KEEP_SECONDS - 10,) * 2)
    directory.record(finding(), FAILED, now)
    assert sorted(path.name.partition("@")[0] for path in tmp_path.iterdir()) == ["README", "gpu-017", MARKER]


def test_a_start_removes_what_is_old(tmp_path: Path) -> None:
    """No service need have blamed for a month for that."""
    directory, now = marked(tmp_path), int(time.time())
    directory.record(finding(), FAILED, now)
    (path,) = tmp_path.glob("*.blame")
    directory.prepare(now)
    assert path.exists()
    os.utime(path, (now - blame.KEEP_SECONDS - 10,) * 2)
    directory.prepare(now)
    assert not path.exists()


def test_many_at_once(tmp_path: Path) -> None:
    """Threads that blame the same node at once leave whole files, all of them, and nothing else."""
    directory = marked(tmp_path)

    def work(number: int) -> None:
        for cycle in range(3):
            directory.record(finding(), FAILED._replace(job_id=str(number), cycle=cycle), NOW)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(b.job_id, b.cycle) for b in (decode(p.read_bytes(), p.name) for p in tmp_path.glob("*.blame"))} == {
        (str(number), cycle) for number in range(8) for cycle in range(3)
    }
    assert len(list(tmp_path.iterdir())) == 25

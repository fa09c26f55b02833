"""Saved answers of any door are told apart by what stands in them, and put together whatever their doors."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm.commands import job_rows as _job_rows
from slurm.errors import SlurmError, SlurmProtocolError
from slurm.saved import SavedReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm.snapshot import Snapshot

SAMPLES = Path(__file__).parent / "data/samples"
V25 = SAMPLES / "25.11"
NODES = ("scontrol_show_nodes_oneline.txt", "nodes.v42.json", "nodes.v44.json", "pyslurm_nodes.json")
JOBS = (
    "scontrol_show_jobs.txt",
    "squeue.v42.json",
    "squeue.v44.json",
    "rest_v0.0.42_jobs.json",
    "pyslurm_jobs.json",
)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read times of saved text in the zone of those who saved it."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def read(nodes: Path | str, jobs: Path | str, cluster: str | None = None) -> Snapshot:
    """Read two saved answers."""
    return SavedReader(str(nodes), str(jobs), cluster=cluster).read()


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("nodes", NODES)
def test_doors_mix(nodes: str, jobs: str) -> None:
    """Nodes of one door and jobs of another make one snapshot, the same for every pair."""
    told, expected = read(V25 / nodes, V25 / jobs), read(V25 / NODES[0], V25 / JOBS[0])
    assert {name: node for name, node in told.nodes.items() if name[0] == "n"} == {
        name: node for name, node in expected.nodes.items() if name[0] == "n"
    }  # tests/test_doors.py has the others, which changed between two recordings
    by_id = {allocation.job_id: allocation for allocation in expected.allocations}
    assert {allocation.job_id: allocation for allocation in told.allocations} == by_id


def test_what_the_answers_tell_of_themselves() -> None:
    """Cluster and version are the answers' own where they tell them, else what is said beside them."""
    json = read(V25 / "nodes.v44.json", V25 / "squeue.v44.json")
    assert (json.cluster, json.slurm_version) == ("feas", "25.11.7")
    text = read(V25 / NODES[0], V25 / JOBS[0])
    assert (text.cluster, text.slurm_version) == ("saved", None)
    assert read(V25 / NODES[0], V25 / JOBS[0], "alpha").cluster == "alpha"
    assert read(V25 / NODES[0], V25 / "squeue.v44.json").cluster == "feas"
    assert read(V25 / NODES[0], V25 / "pyslurm_jobs.json").cluster == "feas"


@pytest.mark.parametrize("told", ["alpha", "FEAS"])
def test_answers_of_another_cluster(told: str) -> None:
    """Answers that name a cluster are not taken for those of another one."""
    with pytest.raises(SlurmProtocolError, match=r"more than one cluster: .*feas"):
        read(V25 / "nodes.v44.json", V25 / JOBS[0], told)


def test_rows_of_the_live_query(tmp_path: Path) -> None:
    """What our own squeue query prints can be saved and read."""
    rows = (SAMPLES / "22.05-hostile/squeue.txt").read_bytes()
    saved = tmp_path / "jobs"
    saved.write_bytes(rows)
    told = read(SAMPLES / "22.05-hostile/scontrol_show_nodes_oneline.txt", saved)
    assert told.allocations == _job_rows.parse_jobs(rows)


@pytest.mark.parametrize(
    ("nodes", "jobs", "complaint"),
    [
        pytest.param("squeue.v44.json", "squeue.v44.json", "no nodes", id="jobs-for-nodes"),
        pytest.param("nodes.v44.json", "nodes.v44.json", "no jobs", id="nodes-for-jobs"),
        pytest.param("scontrol_show_jobs.txt", "squeue.v44.json", "not a node", id="text-jobs-for-nodes"),
        pytest.param("pyslurm_jobs.json", "squeue.v44.json", "pyslurm: reason", id="pyslurm-jobs-for-nodes"),
        pytest.param("nodes.v44.json", "pyslurm_nodes.json", "pyslurm: id", id="pyslurm-nodes-for-jobs"),
        pytest.param("nodes.v44.json", "scontrol_show_nodes_oneline.txt", "not begin with a job", id="text-nodes"),
    ],
)
def test_files_swapped(nodes: str, jobs: str, complaint: str) -> None:
    """A file of the other kind is refused, whatever its door."""
    with pytest.raises(SlurmProtocolError, match=complaint):
        read(V25 / nodes, V25 / jobs)


@pytest.mark.parametrize("name", ["nodes.v44.json", "squeue.v44.json"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_cut_short(tmp_path: Path, name: str, part: float) -> None:
    """A file that was not written to its end is no answer."""
    whole = (V25 / name).read_bytes()
    cut = tmp_path / name
    cut.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(SlurmError):
        read(*((cut, V25 / JOBS[0]) if name.startswith("nodes") else (V25 / NODES[0], cut)))


@pytest.mark.parametrize("name", ["../../../tmp/x", "a/b", "a\nb", "x" * 65, "\x1b[2J"])
@pytest.mark.parametrize("form", ["slurm", "pyslurm"])
def test_a_name_of_a_cluster_that_leads_elsewhere(tmp_path: Path, form: str, name: str) -> None:
    """What an answer calls its cluster becomes a part of file names: what cannot be one is refused."""
    nodes = {"nodes": [{"name": "n1", "state": ["IDLE"]}], "meta": {"slurm": {"cluster": name}}}
    row = {"name": "n1", "state": "IDLE", "reason": None, "reason_user": None, "reason_time": None}
    (tmp_path / "nodes").write_text(json.dumps(nodes if form == "slurm" else {"n1": {**row, "cluster": name}}))
    with pytest.raises(SlurmProtocolError, match="not the name of a cluster") as refused:
        read(tmp_path / "nodes", V25 / JOBS[0])
    assert str(refused.value).isprintable()


def test_a_recording_has_its_own_flag(tmp_path: Path) -> None:
    """A recording given as a saved answer is refused with the flag that plays it."""
    recording = tmp_path / "a"
    recording.write_text('{"schema": 1, "nodes": [], "allocations": []}')
    with pytest.raises(SlurmProtocolError, match="--replay"):
        read(recording, recording)


def test_standard_input() -> None:
    """`-` is standard input, a pipe or a file; what comes in pieces is read to its end."""
    program = (
        "import sys; from slurm.saved import SavedReader;"
        "told = SavedReader(sys.argv[1], sys.argv[2], cluster=None).read();"
        "print(len(told.nodes), len(told.allocations), told.cluster)"
    )
    nodes, jobs = V25 / "nodes.v44.json", V25 / "squeue.v44.json"
    for arguments, source in ((["-", str(jobs)], nodes), ([str(nodes), "-"], jobs)):
        argv = [sys.executable, "-c", program, *arguments]
        with source.open("rb") as file:
            ended = subprocess.run(argv, stdin=file, capture_output=True, text=True, check=True)
        assert ended.stdout == "16 14 feas\n"
        ended = subprocess.run(
            argv, input=source.read_text(encoding="utf-8"), capture_output=True, text=True, check=True
        )
        assert ended.stdout == "16 14 feas\n"

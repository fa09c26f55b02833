"""Recordings: what was recorded plays as it was, scrubbed ones name nobody, and nothing else is taken for one."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmError, SlurmProtocolError
from slurm.job import Allocation
from slurm.node import Node
from slurm.recording import RecordingReader, dump, load, scrub
from slurm.saved import SavedReader
from slurm.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = Path(__file__).parent / "data/samples"
V25 = SAMPLES / "25.11"
NODES, JOBS = str(V25 / "nodes.v44.json"), str(V25 / "squeue.v44.json")
COMMAND = str(Path(sysconfig.get_path("scripts")) / "segment-health")
ALICE = Allocation(
    job_id="12",
    state="RUNNING",
    restart_count=1,
    start_time=1_795_000_000,
    nodelist="n[1-2]",
    nodes=("n1", "n2"),
    array_job_id="10",
    array_task_id="0",
    user="alice",
    user_id="1001",
    partition="main",
)
BOB = ALICE._replace(job_id="13", array_task_id="1", user="bob", user_id="1002", nodelist="n3", nodes=("n3",))
SMALL = Snapshot(
    cluster="alpha",
    slurm_version="25.11.2",
    nodes={
        "n1": Node("n1", "MIXED", frozenset({"DRAIN"}), "alice said: it burns", "alice", 1_795_000_100),
        "n2": Node("n2", "IDLE", frozenset(), "checked by root", "root", 1_795_000_200),
        "n3": Node("n3", "DOWN", frozenset({"NOT_RESPONDING", "X+Y"}), "alice said: it burns", "bob", None),
    },
    allocations=(ALICE, BOB),
    visible_user="1001",
)


def recorded(snapshot: Snapshot, *, scrubbed: bool = False) -> bytes:
    """Write a recording."""
    return dump(snapshot, source="text", recorded="2026-11-30T00:00:00+00:00", scrubbed=scrubbed).encode()


def played(text: bytes, *, piece: int = 100) -> Snapshot:
    """Play a recording that arrives in pieces."""
    return load((text[start : start + piece] for start in range(0, len(text), piece)), "a recording")


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the installed command."""
    return subprocess.run([COMMAND, *arguments], input=stdin, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("nodes", "jobs"),
    [
        pytest.param("22.05/sinfo.json", "22.05/squeue.json", id="22.05"),
        pytest.param("24.11/nodes.v40.json", "24.11/squeue.v40.json", id="24.11"),
        pytest.param("25.11/nodes.v44.json", "25.11/rest_v0.0.42_jobs.json", id="25.11"),
        pytest.param("26.05/nodes.v42.json", "26.05/squeue.v42.json", id="26.05"),
    ],
)
def test_a_recording_plays_as_it_was(nodes: str, jobs: str) -> None:
    """Whatever Slurm said, its recording is the same snapshot."""
    snapshot = SavedReader(str(SAMPLES / nodes), str(SAMPLES / jobs), cluster=None).read()
    assert snapshot.allocations
    assert played(recorded(snapshot)) == snapshot


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
WORDS = st.text("ABCXYZ_+*", max_size=6)
REASONS = TEXT | st.sampled_from(["", " ", "(null)", "a\nb", "\n"])  # a blank one has a user and a time
HOSTILE_NODES = st.builds(
    Node,
    name=st.sampled_from(["n1", "n2", "gpu-07"]),
    base=WORDS,
    flags=st.frozensets(WORDS, max_size=3),
    reason=REASONS,
    reason_user=TEXT | st.none(),
    reason_since=st.integers(1, 253_402_300_799) | st.none(),
)


@given(st.lists(HOSTILE_NODES, min_size=1, unique_by=lambda node: node.name), TEXT, TEXT)
def test_any_text_survives(nodes: list[Node], user: str, state: str) -> None:
    """Free text of every kind plays as it was."""
    allocation = ALICE._replace(user=user, state=state, partition=user)
    snapshot = replace(SMALL, nodes={node.name: node for node in nodes}, allocations=(allocation,))
    assert played(recorded(snapshot)) == snapshot


def test_scrubbed_recordings_name_nobody() -> None:
    """Users and reasons become words, the same for the same; root, nodes, states and generations stay."""
    text = recorded(scrub(SMALL), scrubbed=True)
    for word in (b"alice", b"bob", b"burns", b"1001", b"1002", b"checked"):
        assert word not in text
    told = played(text)
    assert [allocation.user for allocation in told.allocations] == ["user1", "user2"]
    assert [allocation.user_id for allocation in told.allocations] == ["100001", "100002"]
    assert told.visible_user == "100001"
    assert told.nodes["n1"].reason == told.nodes["n3"].reason != told.nodes["n2"].reason
    assert [told.nodes[name].reason_user for name in ("n1", "n2", "n3")] == ["user1", "root", "user2"]
    assert {n: node.state for n, node in told.nodes.items()} == {n: node.state for n, node in SMALL.nodes.items()}
    same = ("job_id", "array_task_id", "restart_count", "start_time", "nodelist", "nodes", "partition")
    for before, after in zip(SMALL.allocations, told.allocations, strict=True):
        assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]


def edited(edit: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a recording that somebody changed."""
    document = json.loads(recorded(SMALL))
    edit(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        pytest.param(lambda d: d.update(schema=2), "schema", id="newer"),
        pytest.param(lambda d: d.pop("schema"), "schema", id="no-schema"),
        pytest.param(lambda d: d.update(more=1), "more", id="unknown-member"),
        pytest.param(lambda d: d.update(cluster="../x"), "cluster", id="cluster"),
        pytest.param(lambda d: d.update(nodes=[]), "nodes and allocations", id="no-node"),
        pytest.param(lambda d: d.pop("allocations"), "nodes and allocations", id="no-allocations"),
        pytest.param(lambda d: d["nodes"].append(d["nodes"][0]), "twice", id="node-twice"),
        pytest.param(lambda d: d["allocations"].append(d["allocations"][0]), "twice", id="allocation-twice"),
        pytest.param(lambda d: d["nodes"][0].update(name="a b"), "name of a node", id="node-name"),
        pytest.param(lambda d: d["nodes"][0].update(state=[]), "state", id="no-state"),
        pytest.param(lambda d: d["nodes"][0].update(state="IDLE"), "state", id="state-of-another-form"),
        pytest.param(lambda d: d["allocations"][0].update(job_id="../1"), "number", id="job-id"),
        pytest.param(lambda d: d["allocations"][0].update(job_id=12), "job_id", id="job-id-of-another-form"),
        pytest.param(lambda d: d["allocations"][0].update(start_time=0), "start", id="no-start"),
        pytest.param(lambda d: d["allocations"][0].update(nodelist="n[1-"), "hostlist", id="nodelist"),
        pytest.param(lambda d: d["allocations"][0].pop("array_task_id"), "which", id="task-lost"),
        pytest.param(lambda d: d["allocations"][0].pop("state"), "state", id="no-job-state"),
    ],
)
def test_an_edited_recording_is_refused(edit: Callable[[dict[str, Any]], object], complaint: str) -> None:
    """What is not as we write it is refused, naming what is wrong."""
    with pytest.raises(SlurmProtocolError, match=complaint):
        played(edited(edit))


def test_a_recording_cut_short_is_refused() -> None:
    """No beginning of a recording is one."""
    text = recorded(SMALL).rstrip()
    for length in range(len(text)):
        with pytest.raises(SlurmProtocolError):
            played(text[:length], piece=500)


def test_a_saved_answer_is_no_recording() -> None:
    """An answer of Slurm is refused; so is a file that is not there."""
    with pytest.raises(SlurmProtocolError, match="no recording of ours"):
        RecordingReader(JOBS).read()
    with pytest.raises(SlurmError, match="No such file"):
        RecordingReader("/nonexistent").read()


# --- the commands -----------------------------------------------------------------------------------------


def test_record_and_replay(tmp_path: Path) -> None:
    """A recording decides elsewhere what the answers themselves decide, and is readable by its owner alone."""
    file = tmp_path / "recording"
    ended = run("record", "--nodes-from", NODES, "--jobs-from", JOBS, str(file))
    assert (ended.returncode, ended.stdout) == (0, b"recorded: 16 nodes, 14 allocations of feas\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    passes = []
    for name, source in (
        ("a", ["--nodes-from", NODES, "--jobs-from", JOBS]),
        ("b", ["--replay", str(file)]),
        ("c", ["--replay", "-"]),
    ):
        directory = tmp_path / name
        directory.mkdir()
        ended = run("publish", "--once", "--all", "--dir", str(directory), *source, stdin=file.read_bytes())
        assert ended.returncode == 0, ended
        passes.append({path.name for path in directory.glob("segment*")})
    assert passes == [{f"segment_health_check.{unit}" for unit in EXCLUDED}] * 3


EXCLUDED = {"1.0", "1.2", "1.3", "1.4", "1.5", "3.1", "3.5"}  # the units on n1, which drains


def test_the_source_is_named(tmp_path: Path) -> None:
    """`--format json` says what was asked, and why."""
    arguments = ["publish", "--once", "--all", "--dir", str(tmp_path), "--dry-run", "--format", "json"]
    told = json.loads(run(*arguments, "--nodes-from", NODES, "--jobs-from", JOBS).stdout)
    assert (told["source"], told["source_reason"]) == ("saved", f"{NODES}, {JOBS}")
    assert told["slurm_version"] == "25.11.7"


def test_record_scrubbed_to_standard_output() -> None:
    """`-` is standard output; what is scrubbed says so and names no file."""
    ended = run("record", "--scrub", "--nodes-from", NODES, "--jobs-from", JOBS, "-")
    assert ended.returncode == 0
    document = json.loads(ended.stdout)
    assert (document["scrubbed"], document["source"]) == (True, "saved")
    assert b"manual down" not in ended.stdout
    assert os.fsencode(SAMPLES.parent) not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        pytest.param(["{here}/none/file"], 1, "No such file", id="no-directory"),
        pytest.param(["{here}"], 1, "directory", id="a-directory"),
        pytest.param(["{here}/file", "--replay", "{here}/missing"], 2, "not together", id="two-sources"),
        pytest.param([], 2, "FILE", id="no-file"),
    ],
)
def test_record_fails(tmp_path: Path, arguments: list[str], code: int, complaint: str) -> None:
    """A recording that cannot be made ends with one line, and leaves nothing."""
    given = [argument.format(here=tmp_path) for argument in arguments]
    ended = run("record", "--nodes-from", NODES, "--jobs-from", JOBS, *given)
    assert ended.returncode == code
    assert complaint in ended.stderr.decode()
    assert b"Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_record_writes_through_what_is_no_file(tmp_path: Path) -> None:
    """A symbolic link is followed; a fifo is written to, and stays one."""
    file, link, fifo = tmp_path / "file", tmp_path / "link", tmp_path / "fifo"
    link.symlink_to(file)
    os.mkfifo(fifo)
    source = ["--nodes-from", NODES, "--jobs-from", JOBS]
    assert run("record", *source, str(link)).returncode == 0
    assert link.is_symlink()
    keeper = os.open(fifo, os.O_RDWR)  # so that writing to it waits for nobody; larger than a recording
    fcntl.fcntl(keeper, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert run("record", *source, str(fifo)).returncode == 0
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    text = os.read(keeper, 1 << 20)
    os.close(keeper)
    assert played(text) == played(file.read_bytes())


@pytest.mark.parametrize("file", ["-", "/dev/full"])
def test_record_onto_a_full_device(file: str) -> None:
    """What could not be written is a failure, on standard output too."""
    argv = [COMMAND, "record", "--nodes-from", NODES, "--jobs-from", JOBS, file]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert b"No space left on device; nothing was recorded" in ended.stderr
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_replay_vouches_for_nothing(tmp_path: Path) -> None:
    """It leaves no heartbeat, and refuses a directory in which somebody publishes, unless nothing is changed."""
    recording, directory = tmp_path / "recording", tmp_path / "decisions"
    recording.write_bytes(run("record", "--nodes-from", NODES, "--jobs-from", JOBS, "-").stdout)
    directory.mkdir()
    publish = ["publish", "--once", "--all", "--dir", str(directory)]
    for _ in range(2):
        assert run(*publish, "--replay", str(recording)).returncode == 0
    assert list(directory.glob(".segment-health/heartbeat/*")) == []
    assert run(*publish, "--nodes-from", NODES, "--jobs-from", JOBS).returncode == 0
    refused = run(*publish, "--replay", str(recording))
    assert (refused.returncode, b"is in use (all by process" in refused.stderr) == (2, True), refused
    assert run(*publish, "--replay", str(recording), "--dry-run").returncode == 0
    other = run(*publish, "--replay", str(recording), "--dry-run", "--cluster", "beta")
    assert (other.returncode, b"a recording of feas, not of beta" in other.stderr) == (3, True), other


@pytest.mark.parametrize("source", ["json", "replay"])
def test_a_reason_of_no_calendar_spoils_nothing(tmp_path: Path, source: str) -> None:
    """A time past the year 9999 beside a reason is none; its node excludes all the same."""
    if source == "json":
        document = json.loads(Path(NODES).read_bytes())
        for node in document["nodes"]:
            node["reason_changed_at"] = {"set": True, "infinite": False, "number": 10**15}
        (tmp_path / "nodes").write_text(json.dumps(document))
        given = ["--nodes-from", str(tmp_path / "nodes"), "--jobs-from", JOBS]
    else:
        document = json.loads(run("record", "--nodes-from", NODES, "--jobs-from", JOBS, "-").stdout)
        for node in document["nodes"]:
            node["reason_since"] = 10**15
        (tmp_path / "recording").write_text(json.dumps(document))
        given = ["--replay", str(tmp_path / "recording")]
    ended = run("publish", "--once", "--all", "--dir", str(tmp_path), *given)
    assert ended.returncode == 0, ended
    assert {path.name for path in tmp_path.glob("segment_*")} == {
        f"segment_health_check.{unit}" for unit in EXCLUDED
    }


@pytest.mark.parametrize("name", ["--rest-jwt-file", "--rest-url"])
def test_a_token_in_the_wrong_place_is_not_repeated(tmp_path: Path, name: str) -> None:
    """Whoever gives the token where its file belongs does not find it in a log."""
    ended = run("publish", "--once", "--all", "--dir", str(tmp_path), "--source", "rest", name, "eyJhbGci.secret")
    assert (ended.returncode, b"secret" in ended.stderr) == (2, False), ended
    assert name.encode() in ended.stderr


def test_record_of_an_unknown_slurm_keeps_the_file(tmp_path: Path) -> None:
    """Half an answer is not recorded, over an earlier recording least of all."""
    file = tmp_path / "recording"
    file.write_text("earlier")
    ended = run("record", "--nodes-from", JOBS, "--jobs-from", JOBS, str(file))
    assert ended.returncode == 3
    assert b"nothing was recorded" in ended.stderr
    assert file.read_text() == "earlier"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--once", "--nodes-from", "-", "--jobs-from", "-"], "only once", id="twice"),
        pytest.param(["--nodes-from", "-", "--jobs-from", JOBS], "add --once", id="loop"),
        pytest.param(["--replay", "-"], "add --once", id="loop-of-a-replay"),
        pytest.param(["--once", "--replay", "x", "--nodes-from", "x"], "not together", id="replay-and-saved"),
        pytest.param(["--once", "--source", "rest"], "--rest-url", id="rest-without-url"),
        pytest.param(["--once", "--rest-url", "http://x"], "add --source rest", id="url-without-rest"),
        pytest.param(["--once", "--source", "rest", "--rest-url", "ftp://x"], "--rest-url", id="no-such-url"),
        pytest.param(["--once", "--source", "sinfo"], "--source", id="no-such-source"),
        pytest.param(["--once", "--slurm-conf", "slurm.conf"], "--slurm-conf", id="relative"),
    ],
)
def test_sources_that_make_no_sense(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """A source that cannot be is a usage error, before anything is done."""
    ended = run("publish", "--all", "--dir", str(tmp_path), *arguments)
    assert (ended.returncode, complaint in ended.stderr.decode()) == (2, True), ended
    assert list(tmp_path.iterdir()) == []

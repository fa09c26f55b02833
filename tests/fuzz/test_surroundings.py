"""What a publisher finds where it starts: entries of its directory, files of its ledger, its environment."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segment_health.consumer import SegmentHealthCheck
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import Pass, run_once
from segment_health.scope import EVERYTHING
from segment_health.testing import FakeClock, FakeCluster

from .targets import TARGETS
from .test_fuzz import EDITS, TIMES, Edit, spoilt

if TYPE_CHECKING:
    from collections.abc import Callable

ARTIFACT = "segment_health_check."
FIT, DRAINED = "100", "200"
"""Two jobs in whose way nothing lies."""
IN_THE_WAY = [str(job) for job in range(1, 13)]
"""Jobs with a drained node, under whose artifact's name something lies."""


def publish(directory: Path) -> Pass:
    """Make a pass, which must end soon, over jobs of which all but one have a drained node."""
    cluster = FakeCluster("n[1-300]")
    for job in (*IN_THE_WAY, FIT, DRAINED):
        cluster.run(job, f"n{job}")
        if job != FIT:
            cluster.set_node(f"n{job}", "ALLOCATED+DRAIN", "Xid 79")
    start = time.monotonic()
    done = run_once(
        Publication(str(directory), EVERYTHING, Policy(), "0", interval=300.0), cluster.source, FakeClock()
    )
    assert time.monotonic() - start < 30
    assert not SegmentHealthCheck(directory, DRAINED, DRAINED)()
    assert SegmentHealthCheck(directory, FIT, FIT)()
    return done


def lie_of(place: Path) -> dict[str, tuple[int, ...]]:
    """Tell what lies in a place, without following anything."""
    found: dict[str, tuple[int, ...]] = {}
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            told = os.lstat(path)
            found[path] = (
                told.st_ino,
                told.st_mode,
                told.st_size,
                0 if stat.S_ISDIR(told.st_mode) else told.st_mtime_ns,
            )
    return found


def bind(path: Path) -> None:
    """Leave a socket there."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def sparse(path: Path, size: int) -> None:
    """Leave a large file of nothing there."""
    path.touch()
    os.truncate(path, size)


def test_hostile_entries(tmp_path: Path) -> None:
    """A pass ends, publishes what is not in anybody's way, and leaves alone whatever is not a publisher's."""
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "decisions"
    elsewhere.mkdir()
    directory.mkdir()
    theirs = elsewhere / "theirs"
    theirs.write_text("theirs")
    foreign = [directory / f"{ARTIFACT}{job}.{job}" for job in IN_THE_WAY]
    foreign[0].mkdir()
    foreign[1].symlink_to(foreign[1].name)
    foreign[2].symlink_to(theirs)
    foreign[3].hardlink_to(theirs)
    sparse(foreign[4], 5 << 20)
    sparse(foreign[5], 1 << 40)
    foreign[6].write_bytes(os.urandom(5000))
    foreign[6].chmod(0)
    (foreign[7]).mkdir()
    (foreign[7] / "x").touch()
    in_nobodys_way = [
        f"{ARTIFACT}{'9' * 20}.{'9' * 20}", f"{ARTIFACT}{'9' * 200}.1", f"{ARTIFACT}1.2\n", f"{ARTIFACT}１.１",
        f"{ARTIFACT}1.1.1", f"{ARTIFACT}.", ARTIFACT, f"{ARTIFACT}-1.1", f"{ARTIFACT}1.\udcff", "\x1b[2J\udcfe",
        f".segment-health.tmp.{'x' * 64}.1.1", ".segment-health.tmp..999999999999.1", ".segment-health.tmp.\n.1.1",
        "x" * 255,
    ]  # fmt: skip
    for name in in_nobodys_way:
        (directory / name).write_text("n1,n2\n")
    before = lie_of(tmp_path)
    # What a reader takes for healthy is in nobody's way, and is replaced: the decision has to be seen.
    os.mkfifo(directory / f"{ARTIFACT}9.9")
    bind(directory / f"{ARTIFACT}10.10")
    (directory / f"{ARTIFACT}11.11").symlink_to(elsewhere / "nothing")
    (directory / f"{ARTIFACT}12.12").touch()
    done = publish(directory)
    after = lie_of(tmp_path)
    assert {path: after.get(path) for path in before} == before
    assert sorted(os.listdir(elsewhere)) == ["theirs"]
    failed = {str(change.decision.unit) for change in done.changes if change.error}
    assert failed == {"1", "2", "5", "6", "8"}  # two directories, a loop, two files that are too large
    for job in ("9", "10", "11", "12"):
        assert not SegmentHealthCheck(directory, job, job)()


def _file(ledger: Path) -> None:
    ledger.write_text("x")


def _link(ledger: Path) -> None:
    (ledger.parent.parent / "elsewhere").mkdir()
    ledger.symlink_to(ledger.parent.parent / "elsewhere")


def _files(ledger: Path) -> None:
    ledger.mkdir()
    for part in ("heartbeat", "state", "override", "history.jsonl"):
        (ledger / part).write_text("x")


def _fifos(ledger: Path) -> None:
    for part, name in (
        ("heartbeat", "all@fake"),
        ("heartbeat", "x"),
        ("state", "all@fake"),
        ("override", "200.200"),
    ):
        (ledger / part).mkdir(parents=True, exist_ok=True)
        os.mkfifo(ledger / part / f"{name}.json")
    os.mkfifo(ledger / "history.jsonl")


def _folders(ledger: Path) -> None:
    for name in (
        "heartbeat/all@fake.json/x",
        "state/all@fake.json/x",
        "override/200.200.json/x",
        "history.jsonl/x",
    ):
        (ledger / name).mkdir(parents=True)


def _loops(ledger: Path) -> None:
    ledger.mkdir()
    for part in ("heartbeat", "state", "override", "history.jsonl"):
        (ledger / part).symlink_to(part)


def _garbage(ledger: Path) -> None:
    for name in (
        "heartbeat/all@fake",
        "heartbeat/\udcff\n",
        "state/all@fake",
        "override/200.200",
        "override/x\udcff",
    ):
        (ledger / name).parent.mkdir(parents=True, exist_ok=True)
        (ledger / f"{name}.json").write_bytes(os.urandom(2000))
    (ledger / "history.jsonl").write_bytes(os.urandom(2000))


@pytest.mark.parametrize("make", [_file, os.mkfifo, bind, _link, _files, _fifos, _folders, _loops, _garbage])
def test_hostile_ledgers(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Whatever lies where the ledger is, exclusions are published; nothing is written elsewhere."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    make(directory / ".segment-health")
    for _ in range(3):
        publish(directory)
    assert not (tmp_path / "elsewhere").exists() or os.listdir(tmp_path / "elsewhere") == []
    assert sorted(os.listdir(tmp_path)) in (["decisions"], ["decisions", "elsewhere"])


_OLD_HEARTBEAT, HEARTBEAT, OVERRIDE, STATE = TARGETS["memory"].seeds()


@given(st.sampled_from(["heartbeat/all@fake", "heartbeat/x", "state/all@fake", "override/1.1"]), EDITS)
@settings(deadline=None, max_examples=max(1, int(30 * TIMES)), suppress_health_check=[*HealthCheck])
def test_spoilt_ledgers(tmp_path_factory: pytest.TempPathFactory, name: str, edits: list[Edit]) -> None:
    """Files of the ledger that somebody spoilt stop no pass."""
    directory = tmp_path_factory.mktemp("decisions")
    content = {"h": HEARTBEAT, "s": STATE, "o": OVERRIDE}[name[0]]
    for edit in edits:
        content = spoilt(content, edit)
    path = directory / f".segment-health/{name}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    for _ in range(2):
        publish(directory)


def test_a_unit_that_can_be_none(tmp_path: Path) -> None:
    """A state with a unit whose ids are no numbers is garbled, and kept aside: it stops no pass."""
    path = tmp_path / ".segment-health/state/all@fake.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(STATE.replace(b'"job_id":"1"', b'"job_id":"../x"'))
    assert any("garbled" in remark for remark in publish(tmp_path).remarks)
    assert b"../x" in path.with_name(f"{path.name}.unreadable").read_bytes()
    assert publish(tmp_path).remarks == []


COMMAND = Path(sysconfig.get_path("scripts")) / "segment-health"
PATHS = [
    b"",
    b"/",
    b"/dev/full",
    b"relative",
    b"/\xff\xfe",
    b"/" + b"x/" * 3000,
    b"/tmp/\n\x1b[2J",
    b"9" * 100_000,
]
IDS = [b"", b"-1", b"../../etc", "１２".encode(), b"\xff", b"9" * 100_000, b"1\n2"]
NAMES = {
    **dict.fromkeys(["SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID"], IDS),
    **dict.fromkeys(["SEGMENT_HEALTH_DIR", "NVRX_SEGMENT_HEALTH_CHECK_DIR", "SEGMENT_HEALTH_CONFIG"], PATHS),
    **dict.fromkeys(["SLURM_CONF", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "PATH", "SLURM_JWT"], PATHS),
    "SEGMENT_HEALTH_POLICY": PATHS,
    **dict.fromkeys(["TZ", "LC_ALL", "COLUMNS", "LINES", "NO_COLOR", "TERM", "SLURM_CLUSTER_NAME"], IDS),
    "SEGMENT_HEALTH_\udcff\n": [b"x"],
}  # fmt: skip


@given(
    st.lists(
        st.sampled_from([(name, value) for name, values in NAMES.items() for value in values]),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([["publish", "--once"], ["publish", "--once", "--all"], ["check"], ["status"]]),
)
@settings(deadline=None, max_examples=max(1, int(8 * TIMES)), suppress_health_check=[*HealthCheck])
def test_hostile_environments(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, bytes]], command: list[str]
) -> None:
    """The command line ends soon, by one of its exit codes and with a sentence."""
    samples = Path(__file__).parent.parent / "data/samples/24.11"
    source = [f"--nodes-from={samples}/nodes.v42.json", f"--jobs-from={samples}/squeue.v42.json"]
    directory = tmp_path_factory.mktemp("decisions")
    environ = {b"PATH": os.fsencode(os.environ["PATH"]), b"SEGMENT_HEALTH_DIR": os.fsencode(directory)}
    environ |= {os.fsencode(name): value for name, value in told}
    argv = [str(COMMAND), *command, *(source if command[0] == "publish" else [])]
    ended = subprocess.run(argv, env=environ, cwd="/", capture_output=True, timeout=60, check=False)
    assert ended.returncode in {0, 1, 2, 3}, ended
    assert b"Traceback" not in ended.stderr, ended

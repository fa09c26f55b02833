"""Readers: which commands are asked how often, and what becomes of their answers or of saved ones."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm.commands import config as _config
from slurm.commands import process as _process
from slurm.commands.json import JsonReader
from slurm.commands.run import Commands
from slurm.commands.text import TextReader
from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable
from slurm.saved import SavedReader
from slurm.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import FakeSlurm

HOSTILE = Path(__file__).parent / "data/samples/22.05-hostile"
NODES = (HOSTILE / "scontrol_show_nodes_oneline.txt").read_bytes()
JOBS = (HOSTILE / "squeue.txt").read_bytes()
SAVED_JOBS = (HOSTILE / "scontrol_show_jobs.txt").read_bytes()
CONFIG = (HOSTILE / "scontrol_show_config.txt").read_bytes()

# What is asked, word for word: a change here is a change of what Slurm is burdened with.
ASK_NODES = ["scontrol", "--all", "--future", "--local", "show", "nodes", "--oneliner"]
ASK_CONFIG = ["scontrol", "--local", "show", "config"]
ASK_JOBS = [
    "squeue",
    "--all",
    "--local",
    "--noheader",
    (
        "--Format=JobID:|,ArrayJobID:|,ArrayTaskID:|,HetJobID:|,State:|,RestartCnt:|,StartTime:|,UserName:|,UserID:|"
        ",Partition:|,NodeList:|"
    ),
]


@pytest.fixture
def slurm(fake_slurm: FakeSlurm) -> FakeSlurm:
    """Give a fake Slurm that answers as the recorded one did."""
    for what, answer in (("nodes", NODES), ("jobs", JOBS), ("config", CONFIG)):
        fake_slurm.answers(what, answer)
    return fake_slurm


def reader(slurm: FakeSlurm, timeout: float = 30) -> TextReader:
    """Return a reader that asks these commands."""
    return TextReader(slurm.commands(timeout))


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    """Whatever happens, nothing that was opened stays open."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) <= before


# --- asking -----------------------------------------------------------------------------------------------


def test_whole_snapshot(slurm: FakeSlurm) -> None:
    """A real Slurm's answers make one snapshot: the cluster, its nodes without FUTURE ones, its allocations."""
    snapshot = reader(slurm).read()
    assert (snapshot.cluster, snapshot.slurm_version, snapshot.visible_user) == ("sandbox", "22.05.8", None)
    assert sorted(snapshot.nodes) == [f"n{number}" for number in range(1, 9)]
    assert sorted(allocation.job_id for allocation in snapshot.allocations) == ["1", "2", "3", "4", "5", "6", "9"]


@pytest.mark.parametrize("jobs", [0, 1, 1000])
def test_queries(slurm: FakeSlurm, jobs: int) -> None:
    """One node and one job query a pass, and the configuration once, however many jobs there are."""
    rows = (f"{job}|{job}|N/A|N/A|RUNNING|0|2026-11-29T19:50:05|u|1000|main|n1|\n" for job in range(1, jobs + 1))
    slurm.answers("jobs", "".join(rows).encode())
    asking = reader(slurm)
    assert len(asking.read().allocations) == jobs
    assert slurm.calls() == [ASK_NODES, ASK_CONFIG, ASK_JOBS]
    for _ in range(2):
        assert len(asking.read().allocations) == jobs
        assert slurm.calls() == [ASK_NODES, ASK_JOBS]


def test_traffic(slurm: FakeSlurm) -> None:
    """Every command is counted and every byte that it printed, also in a pass that came to nothing."""
    asking = reader(slurm)
    asking.read()
    counted = asking.traffic["text"]
    whole = sum(len((slurm.directory / what).read_bytes()) for what in ("nodes", "jobs", "config"))
    assert (counted.queries, counted.received) == (3, whole)
    slurm.does("nodes", "echo half; exit 1")
    with pytest.raises(SlurmUnavailable):
        asking.read()
    assert counted.queries == 5
    assert counted.received >= whole + len("half\n")


def test_every_pass_asks_anew(slurm: FakeSlurm) -> None:
    """What a pass says is what Slurm says now; only the configuration is remembered."""
    asking = reader(slurm)
    asking.read()
    slurm.answers("nodes", NODES.replace(b"State=MIXED ", b"State=MIXED+DRAIN "))
    slurm.answers("jobs", b"")
    snapshot = asking.read()
    assert "DRAIN" in snapshot.nodes["n7"].flags
    assert snapshot.allocations == ()
    assert snapshot.cluster == "sandbox"


def test_remarks(slurm: FakeSlurm) -> None:
    """What a command writes to stderr while it succeeds is a remark of that pass, with the command's name."""
    slurm.does("jobs", "echo 'squeue: warning: something' >&2")
    asking = reader(slurm)
    asking.read()
    assert asking.remarks == ["squeue: squeue: warning: something"]
    slurm.does("jobs", "")
    asking.read()
    assert asking.remarks == []


@pytest.mark.parametrize("what", ["nodes", "jobs", "config"])
def test_any_failure_is_no_snapshot(slurm: FakeSlurm, what: str) -> None:
    """When one of the queries fails, whichever, there is no snapshot; the next pass asks all of them again."""
    asking = reader(slurm)
    slurm.does(what, "echo half an answer; echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmUnavailable, match="Unable to contact slurm controller"):
        asking.read()
    slurm.does(what, "")
    slurm.calls()
    assert asking.read().cluster == "sandbox"
    assert slurm.calls() == [ASK_NODES, ASK_CONFIG, ASK_JOBS]


@pytest.mark.parametrize("what", ["nodes", "jobs", "config"])
def test_any_late_answer_is_no_snapshot(slurm: FakeSlurm, what: str) -> None:
    """When one of the queries does not end in time there is no snapshot, and the pass ends on time."""
    slurm.does(what, "sleep 600")
    start = time.monotonic()
    with pytest.raises(SlurmUnavailable, match="no answer within 1 s"):
        reader(slurm, timeout=1.0).read()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        pytest.param("nodes", b"", id="no-nodes"),
        pytest.param("nodes", NODES[:-1], id="nodes-cut-short"),
        pytest.param("nodes", b"slurm_load_node error\n" + NODES, id="error-among-nodes"),
        pytest.param("jobs", JOBS[:-1], id="jobs-cut-short"),
        pytest.param("jobs", JOBS + JOBS, id="jobs-twice"),
        pytest.param("jobs", b"Unable to contact slurm controller\n", id="error-for-jobs"),
        pytest.param("config", b"", id="no-configuration"),
        pytest.param("config", CONFIG[: CONFIG.index(b"PrivateData")], id="configuration-cut-short"),
    ],
)
def test_any_malformed_answer_is_no_snapshot(slurm: FakeSlurm, what: str, answer: bytes) -> None:
    """When one of the answers is empty, cut short or garbled, there is no snapshot."""
    slurm.answers(what, answer)
    with pytest.raises(SlurmProtocolError):
        reader(slurm).read()


def for_cluster(slurm: FakeSlurm, name: str) -> TextReader:
    """Return a reader that wants this cluster; slurm.conf's own is `sandbox`, and slurmdbd knows `beta` too."""
    slurm.answers("beta", CONFIG.replace(b"= sandbox\n", b"= beta\n"))
    slurm.does("config", 'case "$*" in *--clusters=beta*) exec cat "$FAKE/beta" ;; esac')
    told = slurm.commands(30)
    return TextReader(Commands(timeout=30, environ=told.environ | {"TZ": "UTC"}, cluster=name))


def test_another_cluster(slurm: FakeSlurm) -> None:
    """A cluster that is not slurm.conf's own is asked for by name, and once found is not looked for again."""
    asking = for_cluster(slurm, "beta")
    assert asking.read().cluster == "beta"
    remote = [[word.replace("--local", "--clusters=beta") for word in argv] for argv in (ASK_NODES, ASK_JOBS)]
    there = [word.replace("--local", "--clusters=beta") for word in ASK_CONFIG]
    assert slurm.calls() == sorted([ASK_CONFIG, there, *remote])
    asking.read()
    assert slurm.calls() == sorted(remote)


def test_ones_own_cluster_by_name(slurm: FakeSlurm) -> None:
    """A cluster that is slurm.conf's own is asked without slurmdbd."""
    assert for_cluster(slurm, "sandbox").read().cluster == "sandbox"
    assert slurm.calls() == sorted([ASK_CONFIG, ASK_NODES, ASK_JOBS])


def test_a_cluster_that_nobody_knows(slurm: FakeSlurm) -> None:
    """Whoever else answers is refused, and is not asked for nodes."""
    with pytest.raises(SlurmUnavailable, match="asked for cluster gamma, and sandbox answered"):
        for_cluster(slurm, "gamma").read()
    assert all("config" in argv for argv in slurm.calls())


def test_one_wrong_answer_does_not_send_us_away(slurm: FakeSlurm) -> None:
    """A slurmctld that gave another name once is asked again next time, not for ever by way of slurmdbd."""
    asking = for_cluster(slurm, "sandbox")
    asking.read()
    slurm.answers("config", CONFIG.replace(b"= sandbox\n", b"= other\n"))
    slurm.answers("jobs", b"")
    with pytest.raises(SlurmUnavailable, match="asked for cluster sandbox, and other answered"):
        asking.read()
    slurm.answers("config", CONFIG)
    slurm.calls()
    assert asking.read().cluster == "sandbox"
    assert slurm.calls() == sorted([ASK_CONFIG, ASK_NODES, ASK_JOBS])


def test_commands_of_a_directory(slurm: FakeSlurm) -> None:
    """Slurm's commands are taken from where they are said to be, whatever PATH says."""
    environ = {"PATH": "/usr/bin:/bin", "FAKE": str(slurm.directory)}
    told = Commands(timeout=30, environ=environ, directory=str(slurm.directory / "bin"))
    assert TextReader(told).read().cluster == "sandbox"
    missing = Commands(timeout=30, environ=environ, directory="/no/such/directory")
    with pytest.raises(
        SlurmUnavailable,
        match="/no/such/directory/scontrol: command not found; --slurm-bin-dir names its directory",
    ):
        TextReader(missing).read()


def test_missing_commands(tmp_path: Path) -> None:
    """Where Slurm is not installed, that is what is said."""
    with pytest.raises(SlurmUnavailable, match="command not found"):
        TextReader(Commands(timeout=5, environ={"PATH": str(tmp_path)})).read()


def test_no_job_is_an_answer(slurm: FakeSlurm) -> None:
    """A cluster without a job is a snapshot without an allocation."""
    slurm.answers("jobs", b"")
    assert reader(slurm).read().allocations == ()


def test_future_node_under_an_allocation_stays(slurm: FakeSlurm) -> None:
    """A FUTURE node is left out, except one that an allocation holds: its machine was there and is gone."""
    slurm.answers("jobs", JOBS.replace(b"|n4|", b"|f[2-3]|"))
    nodes = reader(slurm).read().nodes
    assert "f1" not in nodes
    assert nodes["f2"].base == "FUTURE"
    assert "f3" not in nodes  # no row: nothing is made up


# --- who sees which jobs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("private", "slurm_user", "uid", "visible"),
    [
        pytest.param("none", "slurm(64030)", 1000, None, id="all-jobs-are-public"),
        pytest.param("", "slurm(64030)", 1000, None, id="nothing-said"),
        pytest.param("accounts,events,users", "slurm(64030)", 1000, None, id="other-things-are-private"),
        pytest.param("jobs", "slurm(64030)", 1000, "1000", id="private"),
        pytest.param("accounts,jobs,users", "slurm(64030)", 1000, "1000", id="private-among-others"),
        pytest.param("accounts, Jobs", "slurm(64030)", 1000, "1000", id="spaces-and-capitals"),
        pytest.param("all", "slurm(64030)", 1000, "1000", id="everything-is-private"),
        pytest.param("jobs", "slurm(64030)", 0, None, id="root"),
        pytest.param("jobs", "slurm(64030)", 64030, None, id="slurm-user"),
        pytest.param("jobs", "slurm(64030)", 4030, "4030", id="uid-that-slurm-users-ends-with"),
        pytest.param("jobs", "slurm(64030)", 6403, "6403", id="uid-that-slurm-users-begins-with"),
        pytest.param("jobs", "root(0)", 1000, "1000", id="slurm-user-is-root"),
    ],
)
def test_visible_user(private: str, slurm_user: str, uid: int, visible: str | None) -> None:
    """With PrivateData=jobs an ordinary user sees its own jobs alone; root and SlurmUser see all."""
    assert _config._visible_user({"PrivateData": private, "SlurmUser": slurm_user}, uid) == visible


def test_private_jobs(slurm: FakeSlurm) -> None:
    """What the configuration says of private jobs reaches the snapshot, whoever runs this test."""
    private = CONFIG.replace(b"PrivateData             = none", b"PrivateData             = jobs")
    assert private != CONFIG
    slurm.answers("config", private)
    assert reader(slurm).read().visible_user == (None if os.geteuid() == 0 else str(os.geteuid()))


def test_jobs_that_become_private_do_not_end(slurm: FakeSlurm) -> None:
    """When a job is no longer listed the configuration is asked for again: it may only be hidden from here on."""
    asking = reader(slurm)
    assert asking.read().allocations
    slurm.calls()
    asking.read()
    assert ASK_CONFIG not in slurm.calls()
    slurm.answers("config", CONFIG.replace(b"PrivateData             = none", b"PrivateData             = jobs"))
    slurm.answers("jobs", b"")
    assert asking.read().visible_user == (None if os.geteuid() == 0 else str(os.geteuid()))
    assert ASK_CONFIG in slurm.calls()


def test_a_question_that_failed_is_asked_again(slurm: FakeSlurm) -> None:
    """Jobs that were hidden when the configuration could not be had are not taken for ended by the next answer."""
    asking = reader(slurm)
    assert asking.read().allocations
    slurm.answers("config", b"")
    slurm.answers("jobs", b"")
    with pytest.raises(SlurmProtocolError):
        asking.read()
    slurm.answers("config", CONFIG.replace(b"PrivateData             = none", b"PrivateData             = jobs"))
    slurm.calls()
    assert asking.read().visible_user == (None if os.geteuid() == 0 else str(os.geteuid()))
    assert ASK_CONFIG in slurm.calls()


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        pytest.param("0 0 4294967295", 0, id="no-namespace"),
        pytest.param("0 1000 1", 1000, id="remapped-root"),
        pytest.param("0 100000 65536", 100_000, id="subordinate-ids"),
        pytest.param("1 100000 65536", 0, id="not-mapped"),
    ],
)
def test_root_of_a_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inside: str, outside: int) -> None:
    """Whoever is root in a user namespace is an ordinary user to Slurm, and sees what that one sees."""
    (tmp_path / "uid_map").write_text(f"         {inside}\n")
    monkeypatch.setattr(_config, "UID_MAP", str(tmp_path / "uid_map"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _config._uid_to_slurm() == outside


def test_one_deadline_for_all_the_steps(slurm: FakeSlurm) -> None:
    """What is asked one after the other is answered within --timeout together, or not at all."""
    slurm.answers("version", b"slurm-wlm 24.11.5\n")
    for what in ("config", "version", "nodes", "jobs"):
        slurm.does(what, "sleep 0.8")
    started = time.monotonic()
    with pytest.raises(SlurmUnavailable, match=r"no answer within 2 s"):
        JsonReader(slurm.commands(2.0)).read()
    assert time.monotonic() - started < 10


# --- saved answers ----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Give the recorded answers in two files."""
    nodes, jobs = tmp_path / "nodes.txt", tmp_path / "jobs.txt"
    nodes.write_bytes(NODES)
    jobs.write_bytes(SAVED_JOBS)
    return nodes, jobs


def read(nodes: Path | str, jobs: Path | str) -> Snapshot:
    """Read two saved answers."""
    return SavedReader(str(nodes), str(jobs), cluster="saved").read()


def test_saved_snapshot(files: tuple[Path, Path], slurm: FakeSlurm) -> None:
    """Saved answers make the snapshot that the living Slurm gave, except for what they do not tell."""
    saved, live = read(*files), reader(slurm).read()
    assert (saved.cluster, saved.slurm_version, saved.visible_user) == ("saved", None, None)
    assert {name: node.state for name, node in saved.nodes.items()} == {
        name: node.state for name, node in live.nodes.items()
    }
    assert {(a.job_id, a.restart_count, a.nodes) for a in saved.allocations} == {
        (a.job_id, a.restart_count, a.nodes) for a in live.allocations
    }


def test_saved_without_jobs(files: tuple[Path, Path]) -> None:
    """What Slurm says of a cluster without a job is a snapshot without an allocation."""
    assert read(files[0], HOSTILE / "scontrol_show_jobs.none.txt").allocations == ()


def test_link_to_a_saved_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A symbolic link is followed."""
    (tmp_path / "latest").symlink_to(files[0])
    assert len(read(tmp_path / "latest", files[1]).nodes) == 8


def place(path: Path, kind: str) -> str:
    """Put something that is no saved answer at `path`; return the path to read."""
    match kind:
        case "missing":
            pass
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                where = os.open(path.parent, os.O_RDONLY)  # the path itself may be too long for a socket
                listener.bind(f"/proc/self/fd/{where}/{path.name}")
                os.close(where)
        case "device":
            return "/dev/zero"
        case "loop":
            path.symlink_to(path)
        case "below-a-file":
            path.write_bytes(NODES)
            return f"{path}/nodes"
        case "empty":
            path.touch()
        case "long-name":
            return str(path) + "x" * 300
        case _:
            raise AssertionError(kind)
    return str(path)


@pytest.mark.timeout(30)  # a fifo without a writer must not be waited for
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", SlurmUnavailable),
        ("directory", SlurmUnavailable),
        ("fifo", SlurmProtocolError),
        ("socket", SlurmUnavailable),
        ("device", SlurmUnavailable),
        ("loop", SlurmUnavailable),
        ("below-a-file", SlurmUnavailable),
        ("long-name", SlurmUnavailable),
        ("empty", SlurmProtocolError),
    ],
)
@pytest.mark.parametrize("which", ["nodes", "jobs"])
def test_no_saved_answer(files: tuple[Path, Path], which: str, kind: str, error: type[SlurmError]) -> None:
    """What is missing, empty, or no file or pipe is no answer, and nothing is left open or waited for."""
    bad = place(files[0].parent / "bad", kind)
    with pytest.raises(error):
        read(*((bad, files[1]) if which == "nodes" else (files[0], bad)))


def test_pipe_that_a_shell_made(files: tuple[Path, Path]) -> None:
    """`<(ssh head scontrol show nodes -o)` is read to its end, though it comes in pieces and is no file."""
    source, sink = os.pipe()

    def write() -> None:
        with os.fdopen(sink, "wb", buffering=0) as pipe:
            for start in range(0, len(NODES), 1000):
                pipe.write(NODES[start : start + 1000])
                time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert len(read(f"/dev/fd/{source}", files[1]).nodes) == 8
    finally:
        writer.join()
        os.close(source)


def test_fifo_with_a_writer(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A named pipe is read like a file once somebody writes to it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR)  # so that the writer is there before the reader, and does not wait for it
    os.write(keeper, NODES)
    closer = threading.Timer(0.3, os.close, [keeper])
    closer.start()
    assert len(read(fifo, files[1]).nodes) == 8
    closer.join()


@pytest.mark.parametrize(("bound", "fits"), [(len(NODES), True), (len(NODES) - 1, False)])
def test_bound(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, bound: int, fits: bool) -> None:
    """A saved answer as large as the bound is read, one byte more is refused."""
    files[1].write_bytes((HOSTILE / "scontrol_show_jobs.none.txt").read_bytes())
    monkeypatch.setattr(_process, "MAX_OUTPUT", bound)
    if fits:
        assert len(read(*files).nodes) == 8
    else:
        with pytest.raises(SlurmProtocolError, match="more than"):
            read(*files)


def test_terabyte(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a terabyte is refused after what the bound allows."""
    monkeypatch.setattr(_process, "MAX_OUTPUT", 1 << 22)
    with files[0].open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(SlurmProtocolError, match="more than"):
        read(*files)


# --- snapshot ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [("n[1-3]", ("n1", "n2", "n3")), ("", ()), ("n[1-", ()), ("@all", ()), ("n[0-9999999]", ()), ("\0", ())],
)
def test_recall(text: str, names: tuple[str, ...]) -> None:
    """A hostlist of ours that somebody garbled names no node, and is no reason to fail."""
    assert Snapshot.recall(text) == names


def test_recall_what_was_folded() -> None:
    """What a snapshot folds it can recall."""
    names = {"n1", "n2", "gpu-07", "n10"}
    assert set(Snapshot.recall(Snapshot.fold(names))) == names

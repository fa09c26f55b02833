"""The storage checks on real mounts: of FUSE that fails and hangs, nested, hidden, and with names of any bytes.

What hangs is let go when its daemon is killed, before anything else of a test ends: otherwise pytest would hang.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.checks import probing
from segment_health.checks.health_check import Finding
from segment_health.checks.storage import DistributedStorageHealthCheck, StoragePathHealthCheck
from segment_health.mount import in_sight, read_mounts
from segment_health.record import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parents[1] / "faults/passthrough.py"
TYPE = "segmenthealth"
GUARD_SECONDS = 120
SLACK = 10.0
"""Seconds that a busy machine may take to start processes, beyond what is promised."""


class Mounted:
    """A file system of type fuse.segmenthealth at `point`, which does what it is told; `at` is where we mount."""

    def __init__(self, work: Path) -> None:
        self.work, self.at, self.point = work, work / "at", work / "at/fuse"
        self.backing, self._mode = work / "backing", work / "mode"
        self.at.mkdir()
        mount("-t", "tmpfs", "none", self.at)  # with which all that is mounted below goes
        for path in (self.point, self.backing, self.backing / "dir"):
            path.mkdir()
        (self.backing / "file").write_bytes(b"x" * 5000)
        command: list[str | Path] = [sys.executable, PROGRAM, self.backing, self.point, self._mode, TYPE]
        self.daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        # Should the product ever hang, this whole Python does, and with it all that could end a test.
        guard = f"sleep {GUARD_SECONDS}; kill -KILL {self.daemon.pid}"
        self._guard = subprocess.Popen(["sh", "-c", guard], start_new_session=True)
        wait_until(lambda: os.path.ismount(self.point))

    def does(self, *rules: str) -> None:
        """Fail or hang as passthrough.py takes it; nothing means to be well again."""
        new = self.work / "mode.new"
        new.write_text("".join(f"{rule}\n" for rule in rules))
        new.replace(self._mode)

    def bind(self, point: Path, source: str = "") -> str:
        """Mount it, or what is below it, at another place too, which is made."""
        if source == "/file":
            point.touch()
        else:
            point.mkdir(exist_ok=True)
        mount("--bind", f"{self.point}{source}", point)
        return str(point)

    def check(
        self, *, seconds: float = 30.0, health_file: str = "/nowhere", mountinfo: str = "/proc/self/mountinfo"
    ) -> DistributedStorageHealthCheck:
        """A check of such mounts, and of no Lustre."""
        return DistributedStorageHealthCheck(
            types=(f"fuse.{TYPE}",), seconds=seconds, health_file=health_file, mountinfo=mountinfo
        )

    def close(self) -> None:
        """Let whoever waits go, and unmount all."""
        self.daemon.kill()
        self.daemon.wait()
        os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        subprocess.run(["umount", "--lazy", self.at], check=True)


def mount(*arguments: str | Path) -> None:
    """Mount as the command does."""
    subprocess.run(["mount", *arguments], check=True)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait for what comes true soon."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children() -> set[int]:
    """Return the processes that this one's threads have started and not waited for."""
    tasks = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
    return {int(word) for text in tasks for word in text.split()}


def state_of(process: int) -> str:
    """Return the letter of ps(1)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def fuse() -> Iterator[Mounted]:
    """A mount that can be made to hang; no process of a check outlives the test."""
    before = children()
    with tempfile.TemporaryDirectory(prefix="storage-", dir="/tmp") as work:
        mounted = Mounted(Path(work))
        try:
            yield mounted
        finally:
            mounted.close()
    wait_until(lambda: not any(child.hangs for child in probing._left_behind))
    assert children() == before


def test_a_mount_that_is_well(fuse: Mounted) -> None:
    """A directory is listed; where a single file is mounted, as containers do, that is read."""
    fuse.bind(fuse.at / "file", "/file")
    assert fuse.check().look() == Finding()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        pytest.param("readdir EIO", "cannot be listed (Input/output error)", id="listing"),
        pytest.param("getattr ESTALE", "cannot be looked at (Stale file handle)", id="stale"),
        pytest.param("getattr EACCES", "cannot be looked at (Permission denied)", id="refused"),
        pytest.param("readdir 1.5", None, id="slow"),
    ],
)
def test_a_mount_that_fails(fuse: Mounted, rule: str, problem: str | None) -> None:
    """What the storage answers is said in words; that it is slow is no failure."""
    fuse.does(rule)
    assert fuse.check().look().problems == ((f"{fuse.point} {problem}",) if problem else ())


def test_a_failure_that_was_waited_for(fuse: Mounted) -> None:
    """How long the answer took is said where that is long."""
    fuse.does("open EIO", "getattr 0.6")
    (problem,) = StoragePathHealthCheck([f"{fuse.point}/file"]).look().problems
    assert problem.startswith(f"{fuse.point}/file cannot be read (Input/output error, after ")


def test_a_daemon_that_died(fuse: Mounted) -> None:
    """A mount without its daemon is a problem."""
    fuse.daemon.kill()
    fuse.daemon.wait()
    assert fuse.check().look().problems == (
        f"{fuse.point} cannot be looked at (Transport endpoint is not connected)",
    )


def test_a_hang_that_can_be_killed(fuse: Mounted) -> None:
    """A daemon that is stopped: told in time, nothing is left, and it is well when the daemon goes on."""
    before, began = children(), time.monotonic()
    fuse.daemon.send_signal(signal.SIGSTOP)
    told = fuse.check(seconds=1).look()
    assert told.problems == (f"{fuse.point} did not answer within 1 s when it was looked at; killed",)
    assert time.monotonic() - began < 1 + 1 + 4 + SLACK
    assert children() == before
    fuse.daemon.send_signal(signal.SIGCONT)
    assert fuse.check().look() == Finding()


def test_a_read_that_hangs(fuse: Mounted) -> None:
    """Linux lets those who wait for a page be killed, though their request is not answered either."""
    fuse.does("read hang")
    told = StoragePathHealthCheck([f"{fuse.point}/file"], seconds=0.7).look()
    assert told.problems == (f"{fuse.point}/file did not answer within 0.7 s when it was read; killed",)


@pytest.mark.parametrize(
    ("rule", "name", "doing"),
    [
        pytest.param("getattr hang", "", "looked at", id="look"),
        pytest.param("readdir hang", "", "listed", id="list"),
        pytest.param("open hang", "/file", "read", id="open"),
        pytest.param("flush hang", "/file", "read", id="close"),
    ],
)
def test_a_hang_that_cannot_be_killed(fuse: Mounted, rule: str, name: str, doing: str) -> None:
    """A request that is never answered: its process stays in state D, and no second one joins it there."""
    path = f"{fuse.point}{name}"
    check = StoragePathHealthCheck([path], seconds=0.7)
    fuse.does(rule)
    began = time.monotonic()
    (problem,) = check.look().problems
    assert time.monotonic() - began < 0.7 + 2 + SLACK
    stuck = problem.removeprefix(
        f"{path} did not answer within 0.7 s when it was {doing}; left behind: process "
    ).removesuffix(" hangs in the kernel")
    assert state_of(int(stuck)) == "D"

    before, began = children(), time.monotonic()
    (problem,) = check.look().problems
    assert problem.startswith(f"{path} still does not answer: process {stuck} hangs in the kernel since ")
    assert time.monotonic() - began < 0.7 + SLACK
    assert StoragePathHealthCheck([path, "/"]).look().problems[1:] == ()  # another check knows it too
    assert children() == before

    fuse.does()
    wait_until(lambda: state_of(int(stuck)) == "Z")
    assert StoragePathHealthCheck(["/"]).look() == Finding()  # any check waits for those that ended since
    assert not Path(f"/proc/{stuck}").exists()
    assert probing._left_behind == []
    assert check.look() == Finding()


def test_a_path_that_hangs_keeps_no_other_waiting(fuse: Mounted) -> None:
    """Whatever hangs, the rest is looked at, and every problem is told."""
    fuse.does("readdir hang")
    problems = StoragePathHealthCheck([str(fuse.point), "/no", "/"], seconds=0.7).look().problems
    assert [problem.split(" ")[0] for problem in problems] == [str(fuse.point), "/no"]


def test_many_hangs_end_in_the_time_that_is_stated(fuse: Mounted) -> None:
    """Forty mounts that hang take two rounds, as the formula says: no more, and no less."""
    points = [fuse.bind(fuse.at / f"m{number:02}") for number in range(39)]
    fuse.does("* hang")
    began = time.monotonic()
    problems = fuse.check(seconds=1).look().problems
    took = time.monotonic() - began
    assert [problem.split(" ")[0] for problem in problems] == [str(fuse.point), *points]
    rounds = math.ceil(40 / probing.AT_ONCE)
    assert rounds == 2
    assert rounds <= took < 1 + rounds + 4 + SLACK
    began = time.monotonic()
    assert len(fuse.check(seconds=1).look().problems) == 40
    assert time.monotonic() - began < 1 + rounds + 4 + SLACK


def test_threads_that_ask_at_once(fuse: Mounted) -> None:
    """Checks of several threads each end in time, and what they leave behind ends too."""
    fuse.does("readdir hang")
    problems: list[str] = []
    check = StoragePathHealthCheck([str(fuse.point)], seconds=0.7)
    threads = [threading.Thread(target=lambda: problems.extend(check.look().problems)) for _ in range(4)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 0.7 + 2 + SLACK
    assert len(problems) == 4
    assert check.look().problems[0].startswith(f"{fuse.point} still does not answer")


def test_lustres_word_hangs(fuse: Mounted) -> None:
    """A health file that does not answer is a problem, and keeps no mount from being looked at."""
    fuse.does("open hang")
    told = fuse.check(seconds=0.7, health_file=f"{fuse.point}/file").look()
    (problem,) = told.problems
    assert problem.startswith(
        f"Lustre's health cannot be told: {fuse.point}/file did not answer within 0.7 s when it was read; "
    )


def test_the_list_of_mounts_hangs(fuse: Mounted) -> None:
    """So is a list of mounts that does not answer: the check fails, in time."""
    fuse.does("read hang")
    (problem,) = fuse.check(seconds=0.7, mountinfo=f"{fuse.point}/file").look().problems
    assert problem.startswith(f"what is mounted cannot be told: {fuse.point}/file did not answer within 0.7 s")


def test_python_itself_is_on_storage_that_hangs(fuse: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that cannot be started does not take along whoever starts it."""
    python = f"{fuse.point}/file"
    monkeypatch.setattr(sys, "executable", python)
    fuse.does("* hang")
    began = time.monotonic()
    (problem,) = StoragePathHealthCheck(["/"], seconds=0.7).look().problems
    assert time.monotonic() - began < 0.7 + 2 + SLACK
    assert problem.startswith(f"/ was not looked at: {python} did not start within 0.7 s; left behind: process ")
    monkeypatch.undo()
    (problem,) = StoragePathHealthCheck(["/"], seconds=0.7).look().problems
    assert problem.startswith("/ still does not answer")


def test_mounts_within_mounts_and_their_names(fuse: Mounted) -> None:
    """Each mount that is seen is used once, whatever its name; one that is hidden is not."""
    odd = os.fsdecode(b"\xff\xfe")
    points = [str(fuse.point)]
    points += [fuse.bind(fuse.at / name) for name in ("a b", "c\nd\te", "é☃", odd, "back\\040slash#")]
    points += [fuse.bind(fuse.point / "dir")]  # within itself
    mount("-t", "tmpfs", "none", fuse.at / "a b" / "dir")
    points += [fuse.bind(fuse.at / "a b/dir/inner")]
    # Twice on one point: what is below cannot be reached.
    points += [fuse.bind(fuse.at / "twice", "/dir")]
    fuse.bind(fuse.at / "twice")
    # Below a local disk: neither the mount at its point, nor the one further down.
    for name in ("hidden", "above"):
        fuse.bind(fuse.at / name)
    fuse.bind(fuse.at / "above/dir")
    for name in ("hidden", "above"):
        mount("-t", "tmpfs", "none", fuse.at / name)
    assert fuse.check().look() == Finding()
    fuse.does("* EIO")
    problems = fuse.check().look().problems
    assert all(problem.isprintable() for problem in problems)
    assert sorted(problems) == sorted(
        f"{printable(point)} cannot be looked at (Input/output error)" for point in points
    )


def test_what_is_in_sight_is_what_the_kernel_shows(fuse: Mounted) -> None:
    """The kernel says of each mount point, opened, which mount it is on: those in sight, and no others."""
    for name in ("one", "one/dir", "two"):
        fuse.bind(fuse.at / name)
    mount("-t", "tmpfs", "none", fuse.at / "one")
    fuse.bind(fuse.at / "one/again")
    fuse.bind(fuse.at / "two")
    mounts = read_mounts(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    ours = [one for one in mounts if Path(one.point).is_relative_to(fuse.at)]
    reached = set()
    for one in ours:
        if not os.path.exists(one.point):
            continue
        directory = os.open(one.point, os.O_PATH)
        lines = Path(f"/proc/self/fdinfo/{directory}").read_text().splitlines()
        os.close(directory)
        reached |= {int(line.split()[1]) for line in lines if line.startswith("mnt_id:")}
    assert {one.id for one in in_sight(mounts)} & {one.id for one in ours} == reached
    assert len(reached) == 5
    assert len(ours) == 8

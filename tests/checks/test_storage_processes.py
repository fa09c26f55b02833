"""The processes in which storage is looked at: how they end, what they leave, and in what company they run."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.checks import probe
from segment_health.checks.health_check import Finding
from segment_health.checks.storage import StoragePathHealthCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SLACK = 10.0
"""Seconds that a busy machine may take beyond what is promised."""
REAL = sys.executable


def children() -> set[int]:
    """Return the processes that this one has started and not waited for."""
    return {int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def living(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def nobody_lives(mark: str) -> None:
    """Wait until what was killed is gone: what a process had started is not ours to wait for."""
    deadline = time.monotonic() + SLACK
    while left := living(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Let a shell script be the Python that looks; it finds the real one in $REAL."""

    def scripted(script: str, name: str = "python") -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))
        monkeypatch.setenv("REAL", REAL)
        monkeypatch.setenv("MARK", str(tmp_path))
        return str(path)

    return scripted


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """A test leaves neither a process nor a descriptor."""
    before, opened = children(), os.listdir("/proc/self/fd")
    yield
    deadline = time.monotonic() + SLACK
    while children() != before and time.monotonic() < deadline:
        StoragePathHealthCheck([]).look()  # waits for those that ended since
        time.sleep(0.01)
    assert children() == before
    assert os.listdir("/proc/self/fd") == opened


def test_one_that_is_late(python: Callable[..., str], tmp_path: Path) -> None:
    """It is killed with all that it started, and nothing was looked at if Python did not come to it."""
    program = python("sleep 1000 & trap '' TERM; wait; sleep 1000")
    began = time.monotonic()
    told = StoragePathHealthCheck(["/"], seconds=0.5).look()
    assert told.problems == (f"/ was not looked at: {program} did not start within 0.5 s; killed",)
    assert time.monotonic() - began < 0.5 + 2 + SLACK
    nobody_lives(f"MARK={tmp_path}")


@pytest.mark.parametrize(
    ("script", "how"),
    [
        pytest.param("kill -KILL $$", "by SIGKILL", id="killed"),
        pytest.param("kill -38 $$", "by signal 38", id="a signal without a name"),
        pytest.param("exit 3", "with status 3", id="status"),
        pytest.param("exit 0", "with status 0", id="without a word"),
        pytest.param("printf 'first\n\033[31mlast\n' >&2; exit 1", r"with status 1: \x1b[31mlast", id="its words"),
        pytest.param("echo doing listed; kill -SEGV $$", "by SIGSEGV when it was listed", id="at work"),
        pytest.param(
            "printf 'doing read\nanswer 0 9\nhalf'; exit 0", "with status 0 when it was read: half", id="half"
        ),
        pytest.param("exec yes", "by SIGKILL: y", id="endless"),
        pytest.param("exec >&- 2>&-; exec sleep 1000", "its answers, and not itself", id="closed"),
    ],
)
def test_one_that_ends_without_an_answer(python: Callable[..., str], script: str, how: str) -> None:
    """A process that dies is a problem, and how it ended is told: nothing is known of the path."""
    python(script)
    (problem,) = StoragePathHealthCheck(["/"], seconds=30).look().problems
    assert problem == f"/ is not known to be well: its process ended {how}"


def test_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is gone is told by env(1)."""
    monkeypatch.setattr(sys, "executable", "/no/python")
    (problem,) = StoragePathHealthCheck(["/"]).look().problems
    assert problem.startswith("/ is not known to be well: its process ended with status 127: ")
    assert "/no/python" in problem


@pytest.mark.parametrize(
    ("script", "name"),
    [
        pytest.param('echo "ld.so: object x.so cannot be preloaded" >&2; exec "$REAL" "$@"', "python", id="noise"),
        pytest.param('exec "$REAL" "$@"', "a=b", id="a name that env(1) takes for a variable"),
        pytest.param('exec "$REAL" "$@"', "a b", id="a name with a blank"),
        pytest.param('[ "$(pwd)" = / ] && ! read x && exec "$REAL" "$@"', "python", id="in /, without input"),
    ],
)
def test_one_that_answers_all_the_same(python: Callable[..., str], script: str, name: str) -> None:
    """What else it says, and what it is called, is no matter."""
    python(script, name)
    assert StoragePathHealthCheck(["/"]).look() == Finding()


def test_too_many_open_files() -> None:
    """Where no process can be started the check fails, and says why."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), hard))
    try:
        (problem,) = StoragePathHealthCheck(["/"]).look().problems
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert problem == "/ was not looked at: no process can be started: Too many open files"


def test_an_interruption_ends_them(python: Callable[..., str], tmp_path: Path) -> None:
    """Whoever is interrupted while waiting leaves no process behind."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    python("sleep 1000; :")
    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(Interrupted):
            StoragePathHealthCheck(["/", "/tmp", "/etc"], seconds=60).look()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    nobody_lives(f"MARK={tmp_path}")


def test_many_paths(tmp_path: Path) -> None:
    """A hundred paths are looked at, some at a time; nothing stays."""
    paths = [str(tmp_path / f"p{number}") for number in range(100)]
    for path in paths[:50]:
        os.mkdir(path)
    problems = StoragePathHealthCheck(paths).look().problems
    assert [problem.split(" ")[0] for problem in problems] == paths[50:]


LOOK = """
import json, os, signal, sys, threading
from segment_health.checks.storage import StoragePathHealthCheck

def look():
    told = [StoragePathHealthCheck(["/", "/no", "/etc/passwd"]).look().problems for _ in range(5)]
    with open(sys.argv[1], "w") as out:
        json.dump([told, os.listdir("/proc/self/fd")], out)

"""
REAP = """
def reap():
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            pass
threading.Thread(target=reap, daemon=True).start()
look()
"""


@pytest.mark.parametrize(
    ("script", "start"),
    [
        pytest.param("look()", "", id="alone"),
        pytest.param("signal.signal(signal.SIGCHLD, signal.SIG_IGN); look()", "", id="SIGCHLD ignored"),
        pytest.param("look()", "trap '' CHLD TERM PIPE;", id="signals ignored from the start"),
        pytest.param(REAP, "", id="another thread waits for every child"),
        pytest.param("t = threading.Thread(target=look); t.start(); t.join()", "", id="in a thread"),
        pytest.param("look()", "exec <&- >&- 2>&-;", id="standard streams closed"),
        pytest.param("look()", "exec <&-;", id="standard input closed"),
        pytest.param("look()", "exec >&-;", id="standard output closed"),
        pytest.param(
            "look()", "export PYTHONHOME= PYTHONPATH=/no PYTHONWARNINGS=error LC_ALL=C;", id="environment"
        ),
    ],
)
def test_in_whatever_company(tmp_path: Path, script: str, start: str) -> None:
    """What a launcher has done to its signals, its streams and its threads is no matter, and nothing leaks."""
    command = f'{start} exec "$0" "$@"'
    out = tmp_path / "out"
    ended = subprocess.run(
        ["sh", "-c", command, REAL, "-c", LOOK + script, out], check=False, cwd=ROOT, timeout=60
    )
    assert ended.returncode == 0
    told, opened = json.loads(out.read_text())
    assert told == [["/no is missing (No such file or directory)"]] * 5
    assert len(opened) <= 5  # the standard ones, the file, and the listing itself


def test_time_that_we_were_stopped_is_nobodys_fault(tmp_path: Path, python: Callable[..., str]) -> None:
    """Whoever was stopped until after the deadline still reads what had been answered long before."""
    go_on = "(sleep 3; kill -CONT $PPID) >/dev/null 2>&1 &"
    program = python(f'kill -STOP $PPID; {go_on} exec "$REAL" "$@"')
    script = f"import sys; sys.executable = {program!r}; check = StoragePathHealthCheck(['/'], seconds=2)"
    script += "; json.dump([time.monotonic(), check.look().problems, time.monotonic()], open(sys.argv[1], 'w'))"
    start = "import json, time; from segment_health.checks.storage import StoragePathHealthCheck; "
    out = tmp_path / "out"
    subprocess.run([REAL, "-c", start + script, out], check=True, cwd=ROOT, timeout=60)
    began, problems, ended = json.loads(out.read_text())
    assert ended - began > 2.5
    assert problems == []


def test_it_ends_by_itself(tmp_path: Path) -> None:
    """Without anybody who would kill it, the program ends after the seconds that it is given."""
    os.mkfifo(tmp_path / "fifo")
    holding = "import os, sys; os.write = lambda *_: __import__('time').sleep(1000)"
    code = f"{holding}; sys.argv[1:] = ['0.5', 'use', '/']; exec(open({probe.__file__!r}).read())"
    began = time.monotonic()
    ended = subprocess.run([REAL, "-c", code], capture_output=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert time.monotonic() - began < SLACK


def test_what_it_tells(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before what may hang it says what, and at the end the error's number and what it hands over."""
    (tmp_path / "file").write_text("content\n")
    try:
        for task, name in (("use", ""), ("use", "file"), ("read", "file"), ("use", "no")):
            probe.main("60", task, str(tmp_path / name))
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert capfd.readouterr().out == (
        "doing looked at\ndoing listed\nanswer 0 0\n"
        "doing looked at\ndoing read\nanswer 0 0\n"
        "doing read\nanswer 0 8\ncontent\n"
        "doing looked at\nanswer 2 0\n"
    )


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: int) -> None:
    """Opening a fifo would wait for a writer, and opening a socket fails: both are only looked at."""
    os.mknod(tmp_path / "x", kind | 0o600)
    assert probe.answer("use", os.fsencode(tmp_path / "x")) == (0, b"")


@pytest.mark.root
def test_a_device_is_not_opened(tmp_path: Path) -> None:
    """A device without a driver cannot be opened, and is looked at like any other."""
    os.mknod(tmp_path / "x", stat.S_IFCHR | 0o666, os.makedev(0, 77))
    with pytest.raises(OSError, match="No such device"):
        os.open(tmp_path / "x", os.O_RDONLY)
    assert probe.answer("use", os.fsencode(tmp_path / "x")) == (0, b"")


def test_a_large_directory_is_asked_once(tmp_path: Path) -> None:
    """However many entries there are: one question to the server, and none for any of them."""
    large = tmp_path / "large"
    large.mkdir()
    for number in range(3000):
        (large / f"entry{number}").touch()
    trace = tmp_path / "trace"
    watch = ["strace", "-f", "-qq", "-o", str(trace), "-P", str(large), "-e", "trace=getdents64,%stat,%file"]
    subprocess.run([*watch, REAL, "-I", "-S", probe.__file__, "60", "use", str(large)], check=True, timeout=60)
    calls = [line.split(" ", 1)[1].strip().partition("(")[0] for line in trace.read_text().splitlines()]
    assert calls.count("getdents64") == 1
    assert len(calls) < 10, calls


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """Where it leads is handed over, so that a person need not look."""
    assert probe.answer("use", os.fsencode(tmp_path / "no")) == (2, b"")
    (tmp_path / "link").symlink_to("no")
    assert probe.answer("use", os.fsencode(tmp_path / "link")) == (2, b"no")

"""What comes of a program, and that nothing of it is left: real ones, and hostile ones."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from segment_health.checks.nvhcd import reaper
from segment_health.checks.nvhcd.outcome import MAX_STDERR, MAX_STDOUT, Ended
from segment_health.checks.nvhcd.program import Programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Marked


def run(marked: Marked, *command: str, timeout: float = 20) -> Ended:
    """Run a program to its end."""

    async def work() -> Ended:
        programs = Programs(marked.environ)
        try:
            running = await programs.start(command, timeout)
            return running if isinstance(running, Ended) else await running.wait()
        finally:
            await programs.close()

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo '{}'", Ended(0, b"{}\n")),
        ("echo out; echo err >&2; exit 3", Ended(3, b"out\n", b"err\n")),
        (r"printf '\377\000\n'", Ended(0, b"\xff\x00\n")),
        ("exec >&- 2>&-; exit 1", Ended(1)),
        ("kill -SEGV $$", Ended(-11, cause="SIGSEGV")),
        ("kill -40 $$", Ended(-40, cause="signal 40")),
        ("kill -9 0", Ended(-9, cause="SIGKILL")),
        ('read line; echo "$?"', Ended(0, b"1\n")),
        ("trap - PIPE; sh -c 'kill -PIPE $$'; echo $?", Ended(0, b"141\n")),
        ("pwd; ls /proc/$$/fd", Ended(0, b"/\n0\n1\n10\n2\n")),
        ("echo $NOTIFY_SOCKET$LISTEN_FDS$WATCHDOG_USEC$GRPC_VERBOSITY-$KEPT", Ended(0, b"-kept\n")),
    ],
    ids=[
        "healthy", "unhealthy", "bytes", "closes-all", "segv", "real-time-signal", "kills-its-group", "no-stdin",
        "signals-as-usual", "no-descriptor-of-ours", "environment",
    ],
)  # fmt: skip
def test_how_it_ended(marked: Marked, script: Callable[[str], str], body: str, expected: Ended) -> None:
    """Its status, its output, its signal."""
    marked.environ |= {
        "NOTIFY_SOCKET": "n", "LISTEN_FDS": "1", "WATCHDOG_USEC": "1", "GRPC_VERBOSITY": "v", "KEPT": "kept"
    }  # fmt: skip
    assert run(marked, script(body)) == expected
    assert marked.living() == []


def test_arguments_arrive_as_they_are(marked: Marked, script: Callable[[str], str]) -> None:
    """No shell reads them: blanks, empty ones, operators and other scripts are what they were."""
    args = ["a b", "", "$(id)", "; exit 9", "-x", "\xe9\u6f22", "*"]
    ended = run(marked, script('printf "%s\\n" "$@"'), *args)
    assert ended.stdout.decode().split("\n") == [*args, ""]


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (["/no/such"], errno.ENOENT),
        (["/etc/passwd"], errno.EACCES),
        (["/"], errno.EACCES),
        (["/etc/passwd/x"], errno.ENOTDIR),
        (["/bin/true", "nul\0byte"], errno.EINVAL),
        (["/bin/true", "x" * (1 << 18)], errno.E2BIG),
    ],
    ids=["missing", "not-executable", "directory", "no-directory", "nul", "too-long"],
)
def test_what_cannot_be_started(marked: Marked, command: list[str], number: int) -> None:
    """It is told by errno, which says nothing about a node."""
    ended = run(marked, *command)
    assert (ended.errno, ended.stdout) == (number, b"")
    assert ended.cause
    assert marked.living() == []


def test_a_script_without_its_interpreter_cannot_be_started(marked: Marked, script: Callable[..., str]) -> None:
    """Nor can a text that names none."""
    assert run(marked, script("", "/no/such")).errno == errno.ENOENT
    path = script("")
    with open(path, "wb") as file:
        file.write(b"\x01\x02")
    assert run(marked, path).errno == errno.ENOEXEC


PYTHON = sys.executable
DAEMONISE = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
"""
FORKS = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        os.setpgid(0, 0)
time.sleep(1000)
"""
RABBIT = """
import os
for _ in range(20000):
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@pytest.mark.parametrize(
    ("body", "interpreter", "late"),
    [
        ("exec yes", "/bin/sh", True),
        ("exec yes >&2", "/bin/sh", True),
        ("trap '' TERM; while :; do sleep 1; done", "/bin/sh", True),
        ("exec >&- 2>&- </dev/null; sleep 1000", "/bin/sh", True),
        ("kill -STOP $$", "/bin/sh", True),
        ("for i in 1 2 3 4 5 6 7 8 9; do setsid sleep 1000 & done; wait", "/bin/sh", True),
        (FORKS, PYTHON, True),
        (DAEMONISE + "time.sleep(1000)", PYTHON, True),
        (DAEMONISE, PYTHON, False),
        (RABBIT, PYTHON, False),
        ("sleep 1000 & echo '{}'", "/bin/sh", False),
        ("yes & echo '{}'", "/bin/sh", False),
        ("(trap '' TERM HUP; setsid sh -c 'sleep 1000; :' >&- 2>&-) & echo '{}'", "/bin/sh", False),
    ],
    ids=[
        "endless-output", "endless-errors", "ignores-sigterm", "closes-stdout", "stops-itself", "sessions",
        "forks", "daemon-and-waits", "daemon-and-ends", "child-after-child", "grandchild-holds-stdout",
        "grandchild-writes-on", "detached",
    ],
)  # fmt: skip
def test_a_hostile_one_is_contained(
    marked: Marked, script: Callable[..., str], body: str, interpreter: str, late: bool
) -> None:
    """It ends by itself or when its time is over, whatever it does; nothing of it is left, memory is bounded."""
    began = time.monotonic()
    ended = run(marked, script(body, interpreter), timeout=0.8 if late else 30)
    assert marked.living() == []
    assert ended.late is late
    assert time.monotonic() - began < 15
    assert ended.left == ()
    assert len(ended.stdout) <= MAX_STDOUT
    assert len(ended.stderr) <= MAX_STDERR
    assert late or ended.status == 0


def test_what_is_beyond_the_bounds_is_thrown_away(marked: Marked, script: Callable[..., str]) -> None:
    """The beginning is kept, and it is told that there was more."""
    body = f"head -c {MAX_STDOUT + 1} /dev/zero; head -c 1000000 /dev/zero >&2"
    ended = run(marked, script(body))
    assert (ended.status, len(ended.stdout), ended.cut, len(ended.stderr)) == (0, MAX_STDOUT, True, MAX_STDERR)
    exactly = run(marked, script(f"head -c {MAX_STDOUT} /dev/zero"))
    assert (len(exactly.stdout), exactly.cut) == (MAX_STDOUT, False)


def test_it_may_tidy_up_when_its_time_is_over(marked: Marked, script: Callable[..., str]) -> None:
    """SIGTERM comes first; what it ends with then is no answer."""
    ended = run(marked, script("trap 'echo tidy; exit 0' TERM; while :; do sleep 0.05; done"), timeout=1)
    assert ended.late
    assert ended.stdout == b"tidy\n"


def test_cancelling_kills_it(marked: Marked, script: Callable[..., str]) -> None:
    """Nobody waits: it is killed, and what it started too."""

    async def work(path: str) -> None:
        programs = Programs(marked.environ)
        running = await programs.start([path], 60)
        assert not isinstance(running, Ended)
        waiting = asyncio.create_task(running.wait())
        await marked.soon(lambda: len(marked.living()) >= 4)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await programs.close()
        assert running.is_gone

    asyncio.run(work(script("setsid sleep 1000 & sleep 1000")))
    assert marked.living() == []


ALONE = """
import asyncio, os, sys
from segment_health.checks.nvhcd import program, reaper
reaper.become_subreaper()
program._SLACK_SECONDS = 0.5
async def work():
    programs = program.Programs(os.environ)
    running = await programs.start([sys.argv[1]], 0.5)
    try:
        await running.wait()
    except program.NoReportError:
        print("no report", reaper.descendants(os.getpid()))
    await programs.close()
asyncio.run(work())
"""


@pytest.mark.parametrize("number", ["KILL", "STOP"])
@pytest.mark.parametrize("more", ["", "setsid sleep 1000 & trap '' TERM;"], ids=["alone", "with-others"])
def test_a_reaper_that_does_not_answer(marked: Marked, script: Callable[..., str], number: str, more: str) -> None:
    """A program may kill or stop the process above it: nothing is known of the node, and all of it is killed."""
    command = [PYTHON, "-c", ALONE, script(f"{more} kill -{number} $PPID; sleep 1000")]
    # In a process of its own, as all that is below that is swept away.
    ended = subprocess.run(command, env=marked.environ, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "no report []\n"
    assert marked.living() == []


def test_no_process_to_start_it(script: Callable[..., str], tmp_path: Path) -> None:
    """Where no reaper can be started, it is this machine that is short of something, and not the program."""
    path = script("echo")
    program = f"""
import asyncio, resource, os
from segment_health.checks.nvhcd.program import Programs
async def work():
    programs = Programs(os.environ)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
    print((await programs.start([{path!r}], 1)).cause)
asyncio.run(work())
"""
    ended = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stdout == "no process to start it: Too many open files\n"


def test_descendants_are_found(marked: Marked) -> None:
    """Whatever a process is called, its children are below it, unless they are spared."""
    with subprocess.Popen(["/bin/bash", "-c", "exec -a ') Z 1 (' sleep 60"], env=marked.environ) as child:
        assert child.pid in reaper.descendants(os.getpid())
        assert child.pid not in reaper.descendants(os.getpid(), frozenset({child.pid}))
        reaper.kill([child.pid, 2**22 + 1])
        assert child.wait(30) == -9

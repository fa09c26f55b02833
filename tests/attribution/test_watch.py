"""`segment-health attribution watch`: the launcher notices nothing of it, until there is a STOP."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.attribution.stop import Run, StopFile
from segment_health.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Service

    Until = Callable[[Callable[[], object], str], None]

SCRIPT = str(Path(sys.executable).with_name("segment-health"))
NOBODY = "http://127.0.0.1:9"
JOB = {"SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SLURM_CLUSTER_NAME": "c"}

# What a process can know of how it was started.
MIRROR = """
import json, os, signal, sys
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "group": os.getpgid(0), "session": os.getsid(0),
    "stdin": sys.stdin.read(), "open": sorted(os.listdir("/proc/self/fd")),
    "environ": sorted(map(str, os.environb.items())), "umask": os.umask(0),
    "signals": [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "SigCgt"))],
}))
print("to stderr", file=sys.stderr)
"""
# Tells that it listens, then each signal; ends when it is told to end.
LISTENER = """
import os, signal, sys, time
def told(number, frame):
    os.write(1, b"got %d\\n" % number)
for number in map(int, sys.argv[2:]):
    signal.signal(number, told)
os.write(1, b"ready %d\\n" % os.getpid())
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
sys.exit(5)
"""
# Writes the log of a cycle as often as the file `next` grows by a line; ends with the status in the file `end`.
LAUNCHER = """
import os, signal, sys, time
work, cycle, deaf = sys.argv[1], 0, "deaf" in sys.argv[2:]
def told(number, frame):
    open(work + "/told", "a").write("%d\\n" % number)
    if not deaf:
        sys.exit(1)
signal.signal(signal.SIGTERM, told)
worker = os.fork()
if not worker:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(work + "/worker", "w").write(str(os.getpid()))
    while os.getppid() != 1 or deaf:
        time.sleep(0.02)
    os._exit(0)
while not os.path.exists(work + "/end"):
    if not os.path.exists(work + "/next") or len(open(work + "/next").read()) > cycle:
        began = time.monotonic()
        open(work + "/train_cycle%d.log" % cycle, "w").write("cycle %d\\n" % cycle)
        cycle += 1
        open(work + "/lasted", "a").write("%f\\n" % (time.monotonic() - began))
    time.sleep(0.01)
sys.exit(int(open(work + "/end").read()))
"""


def clean(**environ: str) -> dict[str, str]:
    """Return this environment without a job and settings."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SEGMENT", "NVRX", "LLM"))
    }
    return kept | environ


def words(work: Path, *flags: str, endpoint: str = NOBODY) -> list[str]:
    """Return a call of the command, up to the launcher."""
    prefix = ("--ft-attribution-endpoint", endpoint, "--ft-per-cycle-applog-prefix", f"{work}/train.log")
    return ["attribution", "watch", *prefix, *flags, "--"]


def watched(
    work: Path, *command: str, flags: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command under watch to its end."""
    call = [SCRIPT, *words(work, *flags), *command]
    return subprocess.run(call, env=clean(**environ), capture_output=True, text=True, check=False, timeout=60)


class Watch:
    """A launcher under watch, of a job unless told otherwise."""

    def __init__(self, work: Path, endpoint: str, *flags: str, deaf: bool = False, **environ: str) -> None:
        self.work = work
        self.log = work / "watch.err"
        work.mkdir(exist_ok=True)
        (work / "next").touch()
        launcher = [sys.executable, "-c", LAUNCHER, str(work), *(["deaf"] if deaf else [])]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [SCRIPT, *words(work, *flags, endpoint=endpoint), *launcher],
                env=clean(**(environ or JOB)),
                stderr=log,
                start_new_session=True,
            )

    def go_on(self, cycles: int = 1) -> None:
        """Let the launcher begin so many cycles more, each of which ends the one before it."""
        with (self.work / "next").open("a") as file:
            file.write("." * cycles)

    def end(self, status: int = 0) -> None:
        """Let the launcher end."""
        (self.work / "end.new").write_text(str(status))
        (self.work / "end.new").rename(self.work / "end")

    def wait(self) -> int:
        """Wait for the end of watch; return its status."""
        return self.process.wait(60)

    def told(self) -> list[str]:
        """Return the signals that the launcher was told."""
        path = self.work / "told"
        return path.read_text().split() if path.exists() else []

    def said(self) -> str:
        """Return what watch has said."""
        return self.log.read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    """Start launchers under watch; nothing of them is left behind."""
    started: list[Watch] = []

    def begin(endpoint: str, *flags: str, work: str = "work", **traits: object) -> Watch:
        started.append(Watch(tmp_path / work, endpoint, *flags, **traits))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for watch in started:
        watch.end()
        for pid in (watch.work / "worker").read_text().split() if (watch.work / "worker").exists() else ():
            if is_alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)
        if watch.process.poll() is None:
            os.killpg(watch.process.pid, signal.SIGKILL)
        watch.process.wait(60)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs, and is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_the_launcher_is_as_without_it(tmp_path: Path) -> None:
    """Arguments, streams, descriptors, environment, group, session, signals, mask and umask are the same."""
    (tmp_path / "mirror.py").write_text(MIRROR)
    command = [sys.executable, str(tmp_path / "mirror.py"), "a b", "--flag", "--", ""]
    receiving, sending = os.pipe()

    def run(before: list[str]) -> tuple[object, str]:
        ended = subprocess.run(
            before + command,
            env=clean(HOME="x", ODD="\udcff", LC_ALL="C"),
            input="to stdin",
            capture_output=True,
            text=True,
            check=True,
            pass_fds=(sending,),
            cwd=tmp_path,
            timeout=60,
        )
        return json.loads(ended.stdout), ended.stderr

    try:
        expected = run([])
        assert run([SCRIPT, *words(tmp_path)]) == expected
        assert run([SCRIPT, "attribution", "watch", "--"]) == expected
    finally:
        os.close(receiving)
        os.close(sending)


@pytest.mark.parametrize("status", [0, 1, 2, 7, 93, 255])
def test_its_status_is_passed_on(tmp_path: Path, status: int) -> None:
    """Also that of a launcher that asks for no restart itself."""
    ended = watched(tmp_path, "sh", "-c", f"echo out; echo err >&2; exit {status}")
    assert (ended.returncode, ended.stdout) == (status, "out\n")
    assert ended.stderr == "err\n"


@pytest.mark.parametrize(
    "name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGQUIT", "SIGSEGV", "SIGHUP", "SIGUSR1", "SIGPIPE"]
)
def test_the_signal_it_died_of_is_passed_on(tmp_path: Path, name: str) -> None:
    """Whoever waits for watch sees the same death."""
    number = signal.Signals[name]
    ended = watched(tmp_path, "sh", "-c", f"kill -{int(number)} $$")
    assert (ended.returncode, ended.stderr) == (-number, "")
    assert not list(tmp_path.glob("core*"))


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [("/no/such", 127, "/no/such: command not found"), ("/etc", 126, "/etc: cannot be run: Permission denied")],
)
def test_what_cannot_be_run(tmp_path: Path, command: str, status: int, said: str) -> None:
    """As a shell has it, and in one line."""
    ended = watched(tmp_path, command)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", f"segment-health: {said}\n")


RELAYED = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGRTMIN"]


@pytest.mark.parametrize("to_group", [False, True], ids=["to-watch", "to-group"])
def test_a_signal_reaches_the_launcher_once(tmp_path: Path, until: Until, to_group: bool) -> None:
    """Whether watch alone is told, or all of its process group is; the launcher goes on, and its status counts."""
    numbers = [int(getattr(signal, name)) for name in RELAYED]
    end, out = tmp_path / "end", tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [SCRIPT, *words(tmp_path), sys.executable, "-c", LISTENER, str(end), *map(str, numbers)],
            env=clean(),
            stdout=file,
            start_new_session=True,
        )
    until(lambda: "ready" in out.read_text(), "a launcher")
    for number in numbers:
        (os.killpg if to_group else os.kill)(process.pid, number)
        until(lambda number=number: f"got {number}\n" in out.read_text(), f"signal {number}")  # type: ignore[misc]
    # One that is told twice is told within the time in which watch waits for an echo; the end comes after it.
    time.sleep(1.5)
    end.touch()
    assert process.wait(60) == 5
    assert out.read_text().splitlines()[1:] == [f"got {number}" for number in numbers]


def test_control_c_is_for_the_launcher(tmp_path: Path) -> None:
    """On a terminal the launcher is in the foreground, reads from there, hears SIGINT once, and both end of it."""
    ours, theirs = pty.openpty()
    code = (
        "import os,sys,time; "
        "print('line', sys.stdin.readline().strip(), os.tcgetpgrp(0) == os.getpgid(0), flush=True)"
    )
    # Not in one call: Python hears of a signal that comes just before a call when that returns.
    code += "\nwhile True: time.sleep(0.05)"
    process = subprocess.Popen(
        [SCRIPT, *words(tmp_path), sys.executable, "-c", code],
        env=clean(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there are no threads here
    )
    os.close(theirs)
    os.write(ours, b"hello\n")
    shown = b""
    while b"line hello True" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"\x03")
    assert process.wait(60) == -signal.SIGINT
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # a terminal that nobody has open any more
            break
        shown += data
        if not data:
            break
    os.close(ours)
    assert shown.count(b"KeyboardInterrupt") == 1
    assert b"segment-health" not in shown


def test_an_ignored_signal_stays_ignored(tmp_path: Path, until: Until) -> None:
    """Under nohup neither ends when the terminal goes."""
    end, out = tmp_path / "end", tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            ["nohup", SCRIPT, *words(tmp_path), sys.executable, "-c", LISTENER, str(end)],
            env=clean(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    until(lambda: "ready" in out.read_text(), "a launcher")
    os.killpg(process.pid, signal.SIGHUP)
    end.touch()
    assert process.wait(60) == 5


def test_a_killed_watch_takes_nobody_along(start: Callable[..., Watch], until: Until, service: Service) -> None:
    """Training does not die of what looks at it; and what looked is gone."""
    watch = start(service.url)
    watch.go_on()
    until(lambda: service.submitted("progressive"), "a cycle")
    launcher, observer = family_of(watch.process.pid)
    watch.process.kill()
    watch.process.wait(60)
    until(lambda: not is_alive(observer), "the observer's end")
    watch.go_on()
    until((watch.work / "train_cycle1.log").exists, "a further cycle")
    assert is_alive(launcher)
    assert watch.told() == []
    os.kill(launcher, signal.SIGKILL)


def test_a_killed_observer_takes_nobody_along(start: Callable[..., Watch], until: Until, service: Service) -> None:
    """The launcher goes on, is told signals, and its status is passed on."""
    watch = start(service.url)
    watch.go_on()
    until(lambda: service.submitted("progressive"), "a cycle")
    _, observer = family_of(watch.process.pid)
    os.kill(observer, signal.SIGKILL)
    watch.go_on()
    until((watch.work / "train_cycle1.log").exists, "a further cycle")
    assert watch.told() == []
    watch.process.terminate()
    assert watch.wait() == 1
    assert watch.told() == ["15"]


def family_of(pid: int) -> tuple[int, int]:
    """Return the launcher and the observer of a watch."""
    first, second = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    commands = [Path(f"/proc/{process}/cmdline").read_bytes() for process in (pid, first, second)]
    assert commands.count(commands[0]) == 2  # the observer is a fork
    return (second, first) if commands[1] == commands[0] else (first, second)


def test_log_ends_nothing(start: Callable[..., Watch], until: Until, service: Service) -> None:
    """Every cycle is a STOP: each is an ERROR with the count, and the launcher goes on to its own end."""
    service.behaves(analysis=0, action="STOP")
    watch = start(service.url)
    for count in (1, 2, 3):
        watch.go_on(2 if count == 1 else 1)
        until(lambda count=count: watch.said().count(" ERROR ") == count, f"STOP {count}")  # type: ignore[misc]
    watch.end(0)
    assert watch.wait() == 0
    assert watch.told() == []
    assert not list(watch.work.glob("segment_health_stop*"))
    assert service.most() == 1


def test_a_stop_ends_the_launcher(start: Callable[..., Watch], service: Service) -> None:
    """With no-restart: SIGTERM once, the no-restart code, and the STOP is left for the job's other tasks."""
    service.behaves(analysis=0, action="STOP")
    watch = start(service.url, "--ft-attribution-stop-action", "no-restart")
    watch.go_on(2)
    assert watch.wait() == 93
    assert watch.told() == ["15"]
    stop = StopFile(str(watch.work), Run("c", "12", "12", 0)).look()
    assert stop is not None
    assert stop.log == f"{watch.work}/train_cycle0.log"
    assert "STOP: the launcher is ended" in watch.said()


def test_the_code_can_be_another_one(start: Callable[..., Watch], service: Service) -> None:
    """Outside Slurm too, where no file is left: there are no other tasks."""
    service.behaves(analysis=0, action="STOP")
    flags = ("--ft-attribution-stop-action", "no-restart", "--ft-no-restart-exit-code", "44")
    watch = start(service.url, *flags, HOME="/")
    watch.go_on(2)
    assert watch.wait() == 44
    assert not list(watch.work.glob("segment_health_stop*"))


def test_a_deaf_launcher_is_killed(start: Callable[..., Watch], until: Until, service: Service) -> None:
    """After the grace, with its workers, though they are sessions of their own."""
    service.behaves(analysis=0, action="STOP")
    watch = start(service.url, "--ft-attribution-stop-action", "no-restart", "--grace", "0.3", deaf=True)
    watch.go_on(2)
    assert watch.wait() == 93
    assert watch.told() == ["15"]
    worker = int((watch.work / "worker").read_text())
    until(lambda: not is_alive(worker), "the worker's end")


def test_other_tasks_obey(start: Callable[..., Watch], until: Until, tmp_path: Path, service: Service) -> None:
    """Of an array: only the first task asks; the STOP ends them all, but one that only logs, and later runs."""
    service.behaves(analysis=0, action="STOP")
    stop = ("--ft-attribution-stop-action", "no-restart", "--state-dir", str(tmp_path))
    array = JOB | {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_MIN": "0"}
    first = start(service.url, *stop, work="0", **array, SLURM_ARRAY_TASK_ID="0")
    second = start(service.url, *stop, work="1", **array, SLURM_ARRAY_TASK_ID="1", SLURM_RESTART_COUNT="2")
    logging = start(service.url, work="2", **array, SLURM_ARRAY_TASK_ID="0")
    for watch in (first, second):
        until((watch.work / "worker").exists, "a launcher")
    second.go_on(3)
    first.go_on(2)
    assert first.wait() == 93
    began = time.monotonic()
    assert second.wait() == 93
    assert time.monotonic() - began < 10  # 2 s on an idle machine
    assert second.told() == ["15"]
    assert "STOP of task 0, left on " in second.said()
    assert {Path(path).parent.name for path in service.submitted("terminal")} == {"0"}
    late = start(service.url, *stop, work="3", **array, SLURM_ARRAY_TASK_ID="3")
    assert late.wait() == 93
    again = start(service.url, *stop, work="4", **array, SLURM_ARRAY_TASK_ID="0", SLURM_RESTART_COUNT="1")
    until(lambda: "removed, it was for an earlier run" in again.said(), "a new run")
    again.go_on()
    until((again.work / "train_cycle0.log").exists, "its first cycle")
    assert logging.process.poll() is None
    for watch in (again, logging):
        watch.end(0)
        assert watch.wait() == 0
        assert watch.told() == []


def test_a_stop_that_cannot_be_read_is_ignored(start: Callable[..., Watch], until: Until, tmp_path: Path) -> None:
    """It is told once, and the launcher goes on."""
    (tmp_path / "segment_health_stop.12").write_text("junk")
    watch = start(
        NOBODY, "--ft-attribution-stop-action", "no-restart", "--state-dir", str(tmp_path), "--no-asker", **JOB
    )
    until(lambda: "ignored, it cannot be read" in watch.said(), "a warning")
    watch.end(3)
    assert watch.wait() == 3
    assert watch.said().count("cannot be read") == 1


def test_a_stop_that_cannot_be_left_ends_this_task(start: Callable[..., Watch], service: Service) -> None:
    """Other tasks are not told, and a person is."""
    service.behaves(analysis=0, action="STOP")
    watch = start(service.url, "--ft-attribution-stop-action", "no-restart", "--state-dir", "/no/such", **JOB)
    watch.go_on(2)
    assert watch.wait() == 93
    assert "/no/such/segment_health_stop.12: not written, other tasks go on: No such file" in watch.said()


def test_the_last_cycle_is_handed_in(start: Callable[..., Watch], until: Until, service: Service) -> None:
    """A launcher that gives up leaves a log that is analysed; one that succeeds, or is told to end, does not."""
    for work, status in (("failed", 3), ("fine", 0)):
        watch = start(service.url, work=work)
        watch.go_on()
        until((watch.work / "train_cycle0.log").exists, "a cycle")
        watch.end(status)
        assert watch.wait() == status
    watch = start(service.url, work="ended")
    watch.go_on()
    until(lambda: f"{watch.work}/train_cycle0.log" in service.submitted("progressive"), "a cycle")
    watch.process.terminate()
    assert watch.wait() == 1
    assert [Path(path).parent.name for path in service.submitted("terminal")] == ["failed"]


@pytest.mark.parametrize("delay", [-1, -2], ids=["hangs", "byte-by-byte"])
def test_a_service_that_hangs_delays_nothing(
    start: Callable[..., Watch], until: Until, mortal_service: Service, delay: float
) -> None:
    """Not the cycles, which the launcher times itself; and of a failed end not more than some seconds."""
    mortal_service.behaves(delay=delay)
    watch = start(mortal_service.url)
    for cycle in range(20):
        watch.go_on()
        until((watch.work / f"train_cycle{cycle}.log").exists, f"cycle {cycle}")
    lasted = [float(line) for line in (watch.work / "lasted").read_text().split()]
    assert sorted(lasted)[len(lasted) // 2] < 0.05
    began = time.monotonic()
    watch.end(3)
    assert watch.wait() == 3
    assert time.monotonic() - began < 15  # 3 s on an idle machine


def test_a_dead_service_delays_nothing(start: Callable[..., Watch], until: Until) -> None:
    """Nobody listens: it is said, and the launcher's status is passed on."""
    watch = start(NOBODY, "--ft-attribution-stop-action", "no-restart")
    watch.go_on(3)
    until(lambda: "nobody listens there" in watch.said(), "a warning")
    watch.end(9)
    assert watch.wait() == 9


def test_a_fast_crash_loop(start: Callable[..., Watch], until: Until, service: Service) -> None:
    """Twenty cycles at once: one analysis at a time, whose verdict arrives."""
    service.behaves(analysis=1.5, action="RESTART")
    watch = start(service.url)
    watch.go_on(20)
    until((watch.work / "train_cycle19.log").exists, "20 cycles")
    until(lambda: service.submitted("terminal"), "an analysis")
    until(lambda: "RESTART" in watch.said(), "a verdict")
    assert service.most() == 1
    assert watch.process.poll() is None
    watch.end(0)
    assert watch.wait() == 0


def test_logs_that_were_there_before_are_not_analysed(
    start: Callable[..., Watch], until: Until, tmp_path: Path, service: Service
) -> None:
    """Those of the run before this one, until this one writes to them."""
    work = tmp_path / "work"
    work.mkdir()
    for cycle in range(3):
        (work / f"train_cycle{cycle}.log").write_text("of an earlier run")
    watch = start(service.url)
    watch.go_on(2)
    until(lambda: service.submitted("terminal"), "an analysis")
    assert service.submitted("terminal") == [f"{work}/train_cycle0.log"]
    watch.end(0)
    assert watch.wait() == 0


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        (["--ft-attribution-stop-action", "no-restart"], {"SLURM_JOB_ID": "12", "SLURM_PROCID": "1"}),
        ([], {**JOB, "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MIN": "0"}),
        (["--no-asker"], JOB),
        (["--ft-attribution-endpoint", ""], JOB),
    ],
    ids=["process-1", "another-task", "told-so", "no-endpoint"],
)
def test_who_has_nothing_to_do_becomes_the_launcher(
    tmp_path: Path, flags: list[str], environ: dict[str, str]
) -> None:
    """The launcher has the process id that the command had."""
    call = [SCRIPT, *words(tmp_path, *flags), "sh", "-c", "echo $$"]
    with subprocess.Popen(call, env=clean(**environ), stdout=subprocess.PIPE, text=True) as process:
        out = process.communicate(timeout=60)[0]
    assert int(out) == process.pid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which launcher?"),
        (["--ft-attribution-endpoint", "ftp://x", "--", "false"], "--ft-attribution-endpoint: "),
        (["--ft-attribution-endpoint", NOBODY, "--", "false"], "needs --ft-per-cycle-applog-prefix"),
        (["--ft_attribution_stop_action", "stop", "--", "false"], "--ft-attribution-stop-action: "),
        (["--grace", "-1", "--", "false"], "--grace -1: "),
        (["--grace", "nan", "--", "false"], "--grace nan: "),
        (["--grace", "1e10", "--", "false"], "--grace 1e+10: "),
        (["--state-dir", "here", "--", "false"], "--state-dir: not an absolute path: 'here'"),
        (["--ft-cfg", "/no/such", "--", "false"], "/no/such: cannot be read: No such file"),
    ],
)
def test_a_mistake_is_told_before_anything_is_run(arguments: list[str], said: str) -> None:
    """Status 2 and a line that names the flag."""
    told = CliRunner().invoke(main, ["attribution", "watch", *arguments])
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("segment-health: ")
    assert said in told.stderr


def test_the_file_of_ft_launcher_counts(tmp_path: Path, service: Service) -> None:
    """Endpoint, prefix and stop action may stand in its YAML."""
    service.behaves(analysis=0, action="STOP")
    path = tmp_path / "ft.yaml"
    path.write_text(
        f"fault_tolerance: {{attribution_endpoint: '{service.url}', attribution_stop_action: no-restart,\n"
        f"  per_cycle_applog_prefix: {tmp_path}/train.log}}\n"
    )
    loop = f"for n in 0 1; do echo x >{tmp_path}/train_cycle$n.log; done; exec sleep 60"
    call = [SCRIPT, "attribution", "watch", "--ft-cfg", str(path), "--", "sh", "-c", loop]
    ended = subprocess.run(call, env=clean(), capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 93


def stopped(directory: Path, **environ: str) -> tuple[int, str]:
    """Ask whether the job is stopped; return the status and what was said."""
    absent: dict[str, str | None] = dict.fromkeys(os.environ.keys() - clean().keys())
    told = CliRunner().invoke(
        main, ["attribution", "stopped", "--state-dir", str(directory)], env=absent | environ
    )
    return told.exit_code, told.output


def test_a_batch_script_can_ask_for_the_stop(tmp_path: Path) -> None:
    """Of its own run; what cannot be read is neither yes nor no."""
    assert stopped(tmp_path, **JOB) == (0, "no STOP for this run of job 12\n")
    assert StopFile(str(tmp_path), Run("c", "12", "12", 0)).write("/logs/train_cycle3.log", "host1", 0)
    assert stopped(tmp_path, **JOB) == (1, "STOP for job 12, of task 12 on host1: /logs/train_cycle3.log\n")
    assert stopped(tmp_path, **JOB, SLURM_RESTART_COUNT="1")[0] == 0
    assert stopped(tmp_path)[0] == 2
    assert stopped(Path("here"), **JOB)[0] == 2
    assert stopped(tmp_path, SLURM_JOB_ID="../12")[0] == 2
    (tmp_path / "segment_health_stop.12").write_text("junk")
    code, said = stopped(tmp_path, **JOB)
    assert code == 3
    assert f"{tmp_path}/segment_health_stop.12: cannot be read: no STOP" in said
    code, said = stopped(tmp_path / "typo", **JOB)
    assert code == 3
    assert f"{tmp_path}/typo/segment_health_stop.12: cannot be read: No such file or directory" in said

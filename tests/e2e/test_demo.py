"""`segment-health demo`: the story is told, and however it ends nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import segment_health
from segment_health.cli import main
from segment_health.lock import PASS, path_of
from slurm.sandbox import cluster as sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = Path(sysconfig.get_path("scripts")) / "segment-health"
# What a story has, in this order.
BEATS = [
    r"^\$ sbatch train\.sbatch\nSubmitted batch job \d+$",
    r"_1 +RUNNING +(n\[\S+\])\n.*_2 +RUNNING.*\n.*_3 +RUNNING",
    r"^\$ scontrol update nodename=n\d state=drain reason='Xid 79: ",
    r"^n\d drain\S+ Xid 79: GPU has fallen off the bus$",
    r"^\$ segment-health publish --once --all$",
    r"^exclude \d+_1 PreSeparateFault n\d /\S+/segment_health_check\.\d+\.1$",
    r"^complete: 8 nodes, 1 unavailable; 4 units, 1 excluded; ",
    r'^\{"schema": 1, (.*\n)*?.*"reason":\s"Xid\s79: ',
    r"^\$ touch rendezvous-1$",
    r"^segment-0\.log:0: healthy: ",
    r"^segment-1\.log:0: excluded: /\S+ is not empty$",
    r"^segment-2\.log:0: healthy: ",
    r"^segment-3\.log:0: healthy: ",
    r"^srun: error: n\d: task 0: Exited with exit code 1$",
    r"^\$ scontrol update nodename=n\d state=resume$",
    r"^clear \d+_1 PreSeparateFault n\d ",
    r"^complete: 8 nodes, 0 unavailable; 4 units, 0 excluded; ",
    r"^0: excluded: .*\n0: healthy: ",
    r"^The private Slurm is gone, ",
    r"^  docs/quickstart\.md ",
]
# Lines after which to interrupt: Slurm is starting, jobs, the drain, an artifact is there, a step was refused.
MOMENTS = ["Starting", "$ sbatch", "$ scontrol", "exclude", "segment-1.log:0: excluded"]
DEADLINE = 60


def assert_told(transcript: str) -> None:
    """Assert that a transcript has every beat, one behind the other."""
    at = 0
    for beat in BEATS:
        found = re.compile(beat, re.MULTILINE).search(transcript, at)
        assert found is not None, f"{beat} is not in, or not behind the others in:\n{transcript}"
        at = found.end()


def commands(transcript: str) -> list[str]:
    """Return what is typed in a transcript, whatever the numbers of job and node are."""
    return [re.sub(r"\d+", "N", line) for line in transcript.splitlines() if line.startswith("$ ")]


def processes_in(folder: Path) -> list[str]:
    """Return each living process with this TMPDIR, or a SLURM_CONF or an open file below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's; a zombie has no environment
            environ = (process / "environ").read_bytes()
            files = [
                link for link in (process / "cwd", *process.glob("fd/*")) if folder in link.readlink().parents
            ]
            if os.fsencode(folder) in environ or files:
                found.append(f"{process.name} {(process / 'cmdline').read_bytes()!r}")
    return found


def lock_of(folder: Path, transcript: str) -> Path | None:
    """Return where a publisher of the story has its lock if that is outside `folder`: as root."""
    named = re.search(rf"{folder}/demo-\w+", transcript)
    if named is None or os.geteuid() != 0:
        return None
    return Path(path_of(PASS, f"{named[0]}/decisions", f"{named[0]}/slurm.conf", "all", os.environ))


def assert_nothing_left(folder: Path, transcript: str) -> None:
    """Assert that a demo whose temporary files were in `folder` left no process, file or lock."""
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []
    lock = lock_of(folder, transcript)
    if lock is not None:
        assert list(lock.parent.glob(f"{lock.name}*")) == []


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short, empty TMPDIR, for this process too."""
    tmp_path_factory.getbasetemp()  # pytest's own is made elsewhere, before
    path = Path(tempfile.mkdtemp(prefix="d-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield path
    path.rmdir()


@pytest.fixture
def recorded() -> str:
    """The recording that is shipped."""
    path = Path(segment_health.__file__).parent / "recordings/demo.txt"
    return path.read_text(encoding="utf-8")


class Demo:
    """A running demo, and what it has said so far."""

    def __init__(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            command or [COMMAND, "demo"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.said = ""

    def read_until(self, beginning: str) -> None:
        """Read until a line begins so."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said += line
            if line.startswith(beginning):
                return
        raise AssertionError(f"no {beginning!r} in {self.said}")

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Read the rest and return the status."""
        assert self._process.stdout is not None
        with self._process.stdout as rest:  # not communicate(): what is read ahead would be lost to it
            self.said += rest.read()
        return self._process.wait(DEADLINE)

    def hang_up(self) -> int:
        """Read no more, and return the status."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(DEADLINE)


@pytest.mark.slurm
def test_the_story_is_told(folder: Path, recorded: str) -> None:
    """The installed command tells all of it in less than a minute, as if nobody had set anything.

    The recording is of the same story: another means `segment-health demo --record` was forgotten.
    """
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGMENT_HEALTH_PUBLISH_AT", "SeparateFault")  # would publish nothing
        patch.setenv("SLURM_PROCID", "7")
        demo = Demo()
        demo.read_until("exclude")
        lock = lock_of(folder, demo.said)
        assert lock is None or lock.exists()  # else the look at what is left would see nothing
        assert demo.end() == 0
    assert time.monotonic() - began < DEADLINE
    assert_told(demo.said)
    assert "RECORDING" not in demo.said
    assert commands(demo.said) == commands(recorded)
    assert len(demo.said.splitlines()) <= 70
    assert_nothing_left(folder, demo.said)


@pytest.mark.slurm
def test_a_story_can_be_recorded(folder: Path, tmp_path: Path) -> None:
    """What --record writes is what was said, under the version and the date."""
    file = tmp_path / "demo.txt"
    handler = signal.getsignal(signal.SIGTERM)
    result = CliRunner().invoke(main, ["demo", "--record", str(file)])
    assert result.exit_code == 0, result.output
    assert_told(result.output)
    head, _, story = file.read_text().partition("\n")
    assert re.fullmatch(r"recorded on \d{4}-\d\d-\d\d with slurm\S* \d+\.\d+\.\d+\S*", head)
    assert result.output.endswith(story)
    assert_told(story)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert_nothing_left(folder, result.output)


def test_the_shipped_recording_is_a_story(recorded: str) -> None:
    """It says of which Slurm and when it is, and it has every beat."""
    assert re.match(r"recorded on \d{4}-\d\d-\d\d with slurm\S* \d", recorded)
    assert_told(recorded)


@pytest.mark.slurm
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_a_signal_leaves_nothing(number: signal.Signals, moment: str, folder: Path) -> None:
    """At whatever moment it comes, the demo ends as by that signal, and says so."""
    demo = Demo()
    demo.read_until(moment)
    demo.send(number)
    assert demo.end() == 128 + number
    assert demo.said.endswith(f"segment-health: demo ended by {number.name}; nothing of it is left\n")
    assert_nothing_left(folder, demo.said)


@pytest.mark.slurm
def test_impatience_leaves_nothing(folder: Path) -> None:
    """Signals that come while it cleans up change nothing."""
    demo = Demo()
    demo.read_until("exclude")
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        demo.send(number)
        time.sleep(0.03)
    assert demo.end() != 0  # one that comes when all is done may end it the plain way
    assert_nothing_left(folder, demo.said)


@pytest.mark.slurm
def test_a_reader_that_goes_away_leaves_nothing(folder: Path) -> None:
    """`segment-health demo | head` ends with the next line."""
    demo = Demo()
    demo.read_until("$ sbatch")
    assert demo.hang_up() == 128 + signal.SIGPIPE
    assert_nothing_left(folder, demo.said)


@pytest.mark.slurm
def test_a_terminal_that_closes_leaves_nothing(folder: Path) -> None:
    """The kernel sends SIGHUP to who runs on a terminal that goes away, and refuses what they write."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND, [str(COMMAND), "demo"])  # pragma: no cover
    said = b""
    while b"exclude" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert_nothing_left(folder, said.decode())


def test_without_slurm_the_recording_is_played(
    recorded: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says first that it is one, and why; then all of it follows."""
    monkeypatch.setattr(sandbox, "_PROGRAMS", ("no-such-daemon",))
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    head, _, story = recorded.partition("\n")
    why = "not installed: no-such-daemon; Debian has them in slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
    what = f"So this is a RECORDING, {head}; nothing that follows happens on this machine."
    assert result.output.endswith(f"\nSlurm cannot run here:\n  {why}\n{what}\n{story}")
    assert_nothing_left(folder, result.output)


def test_a_recording_is_not_recorded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--record without Slurm fails, and leaves no file that looks like a recording."""
    monkeypatch.setattr(sandbox, "_PROGRAMS", ("no-such-daemon",))
    file = tmp_path / "demo.txt"
    result = CliRunner().invoke(main, ["demo", "--record", str(file)])
    assert result.exit_code == 1
    assert "there is nothing to record" in result.output
    assert not file.exists()
    assert_nothing_left(folder, result.output)


@pytest.fixture
def replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a shell script where one of Slurm's commands is looked for."""

    def put(command: str, script: str) -> None:
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return put


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("command", "script", "why"),
    [
        (
            "slurmctld",
            'case $1 in -V) echo "slurm 22.05.8";; *) echo out of order >&2; exit 7;; esac',
            "out of order",
        ),
        ("srun", "echo no steps here >&2; exit 1", "no steps here"),
    ],
    ids=["does-not-start", "runs-no-job"],
)
def test_a_slurm_that_cannot_start_is_replaced(
    command: str, script: str, why: str, folder: Path, replace: Callable[[str, str], None]
) -> None:
    """Where it is installed and does not work, what it said is the reason given."""
    replace(command, script)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    before, _, after = result.output.partition("So this is a RECORDING")
    assert why in before
    assert_told(after)
    assert_nothing_left(folder, result.output)


@pytest.mark.slurm
def test_a_story_that_goes_wrong_is_an_error(folder: Path, replace: Callable[[str, str], None]) -> None:
    """Nothing is told that did not happen: a command with another answer ends the demo."""
    replace("sinfo", "echo n9 idle")
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "segment-health: demo: sinfo --list-reasons" in result.output
    assert "exclude" not in result.output
    assert_nothing_left(folder, result.output)

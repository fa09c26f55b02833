"""Running Slurm's commands: real child processes, in a clean environment, that never outlive their deadline."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm.commands import process as _process
from slurm.commands import run as _command
from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Script = Callable[..., str]
    """Writes a script of that name and body onto PATH; returns the name."""

LONG = 60.0
"""Seconds that no test here waits: whatever takes so long was not stopped."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH begins with the test's own directory of commands."""
    (tmp_path / "bin").mkdir()
    return {"PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}", "PIDS": str(tmp_path)}


@pytest.fixture
def script(tmp_path: Path, environ: dict[str, str]) -> Script:
    """Write shell scripts onto PATH; what they must leave behind goes to the directory $PIDS."""
    assert environ["PIDS"] == str(tmp_path)

    def write(name: str, body: str, interpreter: str = "/bin/sh") -> str:
        path = tmp_path / "bin" / name
        path.write_text(f"#!{interpreter}\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return name

    return write


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Whatever happens, no descriptor, zombie or process of the test's commands stays behind."""
    open_before, children_before = descriptors(), children()
    yield
    assert descriptors().items() <= open_before.items()
    assert children() <= children_before
    deadline = time.monotonic() + 10  # what was killed needs a moment to end
    while found := started_by(tmp_path):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def descriptors() -> dict[str, str]:
    """Return what this process has open, by descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists this very directory
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def processes() -> Iterator[tuple[int, str, int]]:
    """Yield the number, state and parent of every process."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            yield int(folder.name), state, int(parent)


def living() -> set[int]:
    """Return every process that is no zombie."""
    return {pid for pid, state, _ in processes() if state != "Z"}


def children() -> set[int]:
    """Return the children of this process, zombies too."""
    return {pid for pid, _, parent in processes() if parent == os.getpid()}


def started_by(tmp_path: Path) -> set[int]:
    """Return the living processes that have this test's $PIDS in their environment."""
    found = set()
    for pid in living():
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if f"PIDS={tmp_path}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found


def wait_for(path: Path) -> str:
    """Return the text that a command writes to `path`, as soon as it is there."""
    deadline = time.monotonic() + 20
    while not (path.is_file() and (text := path.read_text()).endswith("\n")):
        assert time.monotonic() < deadline, path
        time.sleep(0.01)
    return text.strip()


def failure(commands: list[list[str]], environ: dict[str, str], timeout: float = LONG) -> str:
    """Run commands that fail, far sooner than LONG, with SlurmUnavailable; return what it says."""
    start = time.monotonic()
    with pytest.raises(SlurmUnavailable) as caught:
        _command.run(commands, timeout=timeout, environ=environ)
    assert time.monotonic() - start < LONG / 3
    return str(caught.value)


# --- answers ----------------------------------------------------------------------------------------------


def test_answers_in_order(script: Script, environ: dict[str, str]) -> None:
    """Each command's output is its own, whole, and in the order of the commands, not of their ends."""
    script("slow", 'sleep 0.3; echo slow "$@"')
    script("quick", "echo quick; echo remark >&2")
    slow, quick = _command.run([["slow", "a b", "*"], ["quick"]], timeout=LONG, environ=environ)
    assert (slow.argv, slow.stdout, slow.stderr) == (("slow", "a b", "*"), b"slow a b *\n", "")
    assert (quick.argv, quick.stdout, quick.stderr) == (("quick",), b"quick\n", "remark")


def test_side_by_side(script: Script, environ: dict[str, str], tmp_path: Path) -> None:
    """Two commands that each wait for the other both end: neither waits for its turn."""
    for mine, other in (("one", "two"), ("two", "one")):
        script(mine, f'touch "$PIDS/{mine}"; while [ ! -e "$PIDS/{other}" ]; do sleep 0.02; done; echo met')
    answers = _command.run([["one"], ["two"]], timeout=LONG, environ=environ)
    assert [answer.stdout for answer in answers] == [b"met\n"] * 2
    assert (tmp_path / "one").exists()


def test_large_answers(script: Script, environ: dict[str, str]) -> None:
    """Two answers far larger than a pipe, with as much on stderr, arrive whole and block nobody."""
    script("big", "import sys\nsys.stderr.write('e' * 900_000)\nsys.stdout.write('o' * 9_000_000)", sys.executable)
    first, second = _command.run([["big"], ["big"]], timeout=LONG, environ=environ)
    assert len(first.stdout) == len(second.stdout) == 9_000_000
    assert 0 < len(first.stderr) <= 1 << 16


def test_stderr_with_status_0_is_no_failure(script: Script, environ: dict[str, str]) -> None:
    """What a command that succeeds writes to stderr is kept, whatever bytes it is."""
    script("warns", "echo fine; printf 'careful \\377\\033[1m\\n' >&2")
    (answer,) = _command.run([["warns"]], timeout=LONG, environ=environ)
    assert (answer.stdout, answer.stderr) == (b"fine\n", "careful \\xff\x1b[1m")


def test_nothing_to_read(script: Script, environ: dict[str, str]) -> None:
    """A command gets no standard input, and one that waits for some sees its end."""
    script("asks", "cat; echo done")
    (answer,) = _command.run([["asks"]], timeout=LONG, environ=environ)
    assert answer.stdout == b"done\n"


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param("echo half an answer; exit 1", "ended with status 1: no word on stderr", id="non-zero"),
        pytest.param("echo why >&2; exit 3", "ended with status 3: why", id="with-a-reason"),
        pytest.param("echo half; kill -KILL $$", "killed by SIGKILL", id="killed"),
        pytest.param("kill -TERM $$", "killed by SIGTERM", id="terminated"),
        pytest.param("kill -40 $$", "killed by signal 40", id="nameless-signal"),
    ],
)
def test_unhappy_ends(script: Script, environ: dict[str, str], body: str, complaint: str) -> None:
    """A command that does not end with status 0 has no answer, whatever it printed."""
    script("command", body)
    message = failure([["command", "show"]], environ)
    assert message.startswith("command show: ")
    assert complaint in message


def test_missing_command(environ: dict[str, str], tmp_path: Path) -> None:
    """A command that is not there is named, with the PATH that was searched."""
    environ["PATH"] = f"{tmp_path}/bin"
    message = failure([["no-such-command"]], environ)
    assert "no-such-command: command not found" in message
    assert environ["PATH"] in message


def test_not_executable(script: Script, environ: dict[str, str], tmp_path: Path) -> None:
    """A file that cannot be executed is a command that cannot be started."""
    script("command", "echo never")
    (tmp_path / "bin/command").chmod(0o644)
    environ["PATH"] = f"{tmp_path}/bin"
    assert "Permission denied" in failure([["command"]], environ)


def test_no_program(environ: dict[str, str], tmp_path: Path) -> None:
    """An executable file that is no program is a command that cannot be started: no shell tries its luck."""
    (tmp_path / "bin/command").write_bytes(b"\x7fELF echo never\n")
    (tmp_path / "bin/command").chmod(0o755)
    assert "cannot be started" in failure([["command"]], environ)


def test_the_first_failure_ends_all(script: Script, environ: dict[str, str], tmp_path: Path) -> None:
    """When one command fails the others are killed at once, and what is reported is that failure."""
    script("hangs", 'echo $$ > "$PIDS/hangs"; exec sleep 600')
    script("fails", 'while [ ! -s "$PIDS/hangs" ]; do sleep 0.02; done; echo no slurmctld >&2; exit 1')
    for order in (["hangs", "fails"], ["fails", "hangs"]):
        (tmp_path / "hangs").unlink(missing_ok=True)
        assert failure([[name] for name in order], environ) == "fails: ended with status 1: no slurmctld"
        assert int((tmp_path / "hangs").read_text()) not in children()


def test_one_that_cannot_start_ends_the_others(script: Script, environ: dict[str, str]) -> None:
    """When the second command is missing the first, already started, is killed."""
    script("hangs", 'trap "" TERM; sleep 600')
    assert "no-such-command" in failure([["hangs"], ["no-such-command"]], environ)


# --- deadlines --------------------------------------------------------------------------------------------


def test_deadline_kills_the_whole_group(script: Script, environ: dict[str, str], tmp_path: Path) -> None:
    """At the deadline a command dies with what it started, though it ignores every signal that can be ignored."""
    script("stubborn", 'trap "" TERM HUP INT PIPE; echo $$ > "$PIDS/grandchild"; while :; do sleep 1; done')
    script("wrapper", 'trap "" TERM; echo $$ > "$PIDS/child"; stubborn & wait')
    result: list[str] = []
    thread = threading.Thread(target=lambda: result.append(failure([["wrapper", "-x"]], environ, 2.0)))
    thread.start()
    child, grandchild = (int(wait_for(tmp_path / name)) for name in ("child", "grandchild"))
    assert os.getpgid(child) == os.getpgid(grandchild) != os.getpgid(0)
    thread.join()
    assert result == ["wrapper -x: no answer within 2 s; killed"]
    assert not {child, grandchild} & living()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("exec sleep 600", id="silent"),
        pytest.param("echo half; exec sleep 600", id="half-an-answer"),
        pytest.param("echo all; exec sleep 600 >&-", id="closed-stdout"),
        pytest.param("echo all; exec sleep 600 >&- 2>&-", id="closed-both"),
        pytest.param("(sleep 600) & echo all", id="grandchild-keeps-the-pipes"),
        pytest.param("(exec sleep 600 2>&-) & echo all; exit 0", id="grandchild-keeps-stdout"),
        pytest.param("yes", id="never-stops-talking"),
        pytest.param("yes >&2", id="never-stops-complaining"),
        pytest.param("kill -STOP $$", id="stopped"),
    ],
)
def test_deadline(script: Script, environ: dict[str, str], body: str) -> None:
    """A command that does not end in time has no answer, whatever it printed or closed."""
    script("late", body)
    script("punctual", "echo done")
    start = time.monotonic()
    assert failure([["punctual"], ["late"]], environ, 0.5).startswith("late: no answer within 0.5 s")
    assert time.monotonic() - start >= 0.5


def test_deadline_is_for_all_together(script: Script, environ: dict[str, str]) -> None:
    """Two commands that are both late cost one deadline, and are both named."""
    script("late", "sleep 600")
    start = time.monotonic()
    assert failure([["late", "a"], ["late", "b"]], environ, 0.5).startswith("late a, late b: ")
    assert time.monotonic() - start < 5


def test_interrupted(script: Script, environ: dict[str, str], tmp_path: Path) -> None:
    """When this process is interrupted while it waits, the commands are killed before the interrupt goes on."""
    script("hangs", 'trap "" TERM INT; echo $$ > "$PIDS/hangs"; while :; do sleep 1; done')

    def interrupt() -> None:
        wait_for(tmp_path / "hangs")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        _command.run([["hangs"]], timeout=LONG, environ=environ)
    thread.join()


def test_interrupted_while_it_starts(
    script: Script, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between a command's birth and our knowing it waits, and then the command is killed."""
    script("hangs", 'trap "" TERM INT; echo $$ > "$PIDS/hangs"; while :; do sleep 1; done')

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            wait_for(tmp_path / "hangs")
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        _command.run([["hangs"]], timeout=LONG, environ=environ)
    assert signal.getsignal(signal.SIGINT) is handler


# --- bounds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
def test_output_bound(
    script: Script, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, size: int, fits: bool
) -> None:
    """An answer as large as the bound is whole; one byte more is refused, and never cut."""
    monkeypatch.setattr(_process, "MAX_OUTPUT", 1000)
    script("prints", f"printf %0{size}d 7")
    if fits:
        (answer,) = _command.run([["prints"]], timeout=LONG, environ=environ)
        assert len(answer.stdout) == size
    else:
        with pytest.raises(SlurmProtocolError, match="more than 1000 bytes"):
            _command.run([["prints"]], timeout=LONG, environ=environ)


def test_endless_output(script: Script, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that never stops printing is killed at the bound, not at the deadline."""
    monkeypatch.setattr(_process, "MAX_OUTPUT", 1_000_000)
    script("endless", "exec yes")
    with pytest.raises(SlurmProtocolError):
        _command.run([["endless"]], timeout=LONG, environ=environ)


def test_many_passes(script: Script, environ: dict[str, str]) -> None:
    """Passes that succeed, fail, are late and miss a command leave nothing open, one after the other."""
    script("fine", "echo fine")
    script("fails", "exit 1")
    script("late", "sleep 600")
    before = descriptors()
    for _ in range(5):
        for commands in (["fine", "fine"], ["fine", "fails"], ["late", "fine"], ["fine", "no-such-command"]):
            with contextlib.suppress(SlurmError):
                _command.run([[name] for name in commands], timeout=0.2, environ=environ)
            assert descriptors() == before


# --- environment ------------------------------------------------------------------------------------------

SCRUBBED = {
    "LANG": "de_DE.UTF-8",
    "LANGUAGE": "de",
    "LC_TIME": "de_DE.UTF-8",
    "SCONTROL_ALL": "1",
    "SINFO_FORMAT": "%N",
    "SLURM_BITSTR_LEN": "2",
    "SLURM_CLUSTERS": "other",
    "SLURM_JSON": "compact",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_YAML": "compact",
    "SQUEUE_ALL": "1",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "jobid",
    "SQUEUE_PARTITION": "gpu",
    "SQUEUE_SORT": "i",
    "SQUEUE_STATES": "PD",
    "SQUEUE_USERS": "me",
}
KEPT = {"SLURM_CONF": "/etc/slurm/other.conf", "HOME": "/home/me", "SLURM_JOB_ID": "7", "MUNGE_SOCKET": "/run/m"}


def test_environment_of_the_commands(script: Script, environ: dict[str, str]) -> None:
    """Nothing that changes what Slurm prints reaches it: it speaks plain C, in UTC; where it is asked stays."""
    script("prints-env", "import os, json\nprint(json.dumps(dict(os.environ)))", sys.executable)
    given = {**environ, **SCRUBBED, **KEPT, "LC_ALL": "de_DE.UTF-8", "TZ": "America/New_York"}
    (answer,) = _command.run([["prints-env"]], timeout=LONG, environ=_command.clean_environment(given))
    seen: dict[str, str] = json.loads(answer.stdout)
    assert not SCRUBBED.keys() & seen.keys() - {"LC_CTYPE"}  # CPython itself may add LC_CTYPE (PEP 538)
    assert seen.items() >= {**KEPT, "PATH": environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}.items()
    assert given["TZ"] == "America/New_York"


def test_commands_are_found_on_the_given_path(script: Script, environ: dict[str, str]) -> None:
    """The PATH that counts is the one that was given, not this process's own."""
    assert shutil.which("here") is None
    script("here", "echo found")
    (answer,) = _command.run([["here"]], timeout=LONG, environ=environ)
    assert answer.stdout == b"found\n"

"""The command: what it says before it serves, and what its log leaves out."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.checks.nvhcd.outcome import Answer, Refusal
from segment_health.cli import main
from segment_health.cli.nvhcd import DaemonLog, nvhcd
from segment_health.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Daemon

HEALTHY = Answer(b"", success=True, summary="status 0")


@pytest.mark.parametrize(
    "form", [["-config", "F"], ["-config=F"], ["--config", "F"], ["--config=F"]], ids=" ".join
)
def test_flags_as_go_has_them(form: list[str], tmp_path: Path) -> None:
    """One dash or two, a blank or `=`: here all of them name a file that has a mistake."""
    path = tmp_path / "c.yaml"
    path.write_text("socket_path: x\nhealthcheck_path: /c\n")
    for command, words in ((main, ["nvhcd"]), (nvhcd, [])):
        ended = CliRunner().invoke(command, [*words, *(part.replace("F", str(path)) for part in form)])
        assert ended.exit_code == 2
        assert f"nvhcd: {path}: socket_path: not an absolute path, got 'x'" in ended.output


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/no/such", "/no/such: No such file or directory"),
        ("/dev/null", "/dev/null: not a regular file"),
        ("/a\0b", "null byte"),
    ],
)
def test_a_configuration_that_cannot_be_read(path: str, said: str) -> None:
    """Status 2, and the file."""
    ended = CliRunner().invoke(nvhcd, ["-config", path])
    assert ended.exit_code == 2
    assert said in ended.output


def test_a_configuration_is_needed() -> None:
    """There is no file that would be read without being named."""
    ended = CliRunner().invoke(nvhcd, [])
    assert (ended.exit_code, "--config" in ended.output) == (2, True)


@pytest.mark.parametrize("module", ["grpc", "google.protobuf"])
def test_without_the_extra(module: str, short_path: Path) -> None:
    """A line says what to install."""
    config = short_path / "c.yaml"
    config.write_text(f"socket_path: {short_path}/s\nhealthcheck_path: /c\n")
    program = (
        f"import sys; sys.modules[{module!r}] = None; from segment_health.cli.nvhcd import nvhcd; "
        f"nvhcd(['-config', {str(config)!r}])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        f"segment-health: nvhcd: no gRPC here ({module}); it comes with: pip install 'segment-health[nvhcd]'\n"
    )


@pytest.mark.parametrize("module", ["segment_health.checks.health_check", "segment_health.cli.nvhcd"])
def test_grpc_is_for_those_who_serve(module: str) -> None:
    """Other checks do without it."""
    program = f"import sys, {module}; print('grpc' in sys.modules, 'google.protobuf' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "False False\n"


def test_a_place_that_cannot_be(short_path: Path) -> None:
    """The directory of the socket is not made, and its absence is told."""
    config = short_path / "c.yaml"
    config.write_text(f"socket_path: {short_path}/no/s\nhealthcheck_path: /c\n")
    ended = subprocess.run(
        [Path(sys.executable).with_name("nvhcd"), "-config", config], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "its directory is never created, make it first" in ended.stderr


def log(
    capfd: pytest.CaptureFixture[str], clock: FakeClock, level: str = "info"
) -> tuple[DaemonLog, Callable[[], list[str]]]:
    """Return a log, and what reads what it wrote."""
    made = DaemonLog("text", clock)
    made.configure(level)
    return made, lambda: capfd.readouterr().err.splitlines()  # noqa: PLW0108 - read anew each time


def test_lines_about_calls_are_rationed(capfd: pytest.CaptureFixture[str]) -> None:
    """Thirty in a row, one in ten seconds after that; what was left out is counted."""
    clock = FakeClock()
    made, lines = log(capfd, clock)
    for _ in range(1000):
        made.ran(("a",), HEALTHY, 0.1)
    assert len(lines()) == 30
    clock.advance(10)
    made.ran(("a",), Refusal("ABORTED", "why\n"), 0.1)
    said = lines()
    assert said[0].endswith("WARNING 970 lines about calls were left out before this one")
    assert said[1].endswith(r"WARNING check a: no answer: why\n, after 0.1 s")
    clock.advance(100_000)
    for _ in range(1000):
        made.ran((), Answer(b"", success=False, summary="late"), 0.1)
    said = lines()
    assert len(said) == 30
    assert said[0].endswith("WARNING check without arguments: unhealthy: late, after 0.1 s")


@pytest.mark.parametrize("success", [True, False])
def test_what_a_program_wrote_is_in_the_log(capfd: pytest.CaptureFixture[str], success: bool) -> None:
    """Its standard error, as a line and cut: callers may keep it to themselves, and a person has to know."""
    made, lines = log(capfd, FakeClock())
    made.ran(("a",), Answer(b"", success=success, summary="S", said="squeue: \x1b[31m\nno such node\n"), 0.1)
    made.ran(("a",), Answer(b"", success=success, summary="S", said="x" * 5000), 0.1)
    first, second = lines()
    assert first.endswith(r"healthy: S, after 0.1 s; squeue: \x1b[31m\nno such node")
    assert "; " + "x" * 900 in second
    assert len(second) < 1200


def test_remarks_are_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """The same with another number is the same; they share the ration."""
    made, lines = log(capfd, FakeClock())
    for number in range(100):
        made.remark("grpc", f"gRPC: stream {number} failed")
    assert len(lines()) == 1
    for number in range(100):
        made.remark("grpc", f"gRPC: {'x' * number} failed" + "y" * 5000)
    assert len(lines()) <= 30


def test_a_clock_that_is_set_back(capfd: pytest.CaptureFixture[str]) -> None:
    """What is wrong is said again within an hour, whatever the clock was before."""
    clock = FakeClock()
    made, lines = log(capfd, clock)
    made.remark("grpc", "gRPC: trouble")
    clock.advance(-365 * 86400)
    made.remark("grpc", "gRPC: trouble")
    made.remark("grpc", "gRPC: trouble")
    assert len(lines()) == 2


@pytest.mark.parametrize(("level", "said"), [("debug", 3), ("info", 2), ("warn", 1), ("warning", 1), ("error", 0)])
def test_levels(capfd: pytest.CaptureFixture[str], level: str, said: int) -> None:
    """A call that was answered again is for debugging; a refusal is a warning."""
    made, lines = log(capfd, FakeClock(), level)
    made.ran((), HEALTHY, 0)
    made.ran((), Refusal("ABORTED", "why"), 0)
    made.repeated(())
    assert len(lines()) == said


def test_it_speaks_to_systemd(daemon: Daemon, script: Callable[..., str]) -> None:
    """READY when it serves, WATCHDOG as often as asked, STOPPING at the end; programs are told nothing of it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
        hearing.bind(str(daemon.directory / "notify"))
        hearing.settimeout(30)
        daemon.environ |= {"NOTIFY_SOCKET": str(daemon.directory / "notify"), "WATCHDOG_USEC": "200000"}
        daemon.start(script('echo "$NOTIFY_SOCKET$WATCHDOG_USEC"'))
        heard = [hearing.recv(1000).decode() for _ in range(4)]
        assert sum(one.startswith("READY=1\nSTATUS=serving ") for one in heard) == 1
        assert heard.count("WATCHDOG=1") == 3
        assert daemon.call()["output"] == "\n"
        daemon.end(signal.SIGTERM)
        while not (last := hearing.recv(1000).decode()).startswith("STOPPING=1"):
            assert last == "WATCHDOG=1"


def test_json_has_its_fields(capfd: pytest.CaptureFixture[str]) -> None:
    """For programs a line has what a sentence says."""
    made = DaemonLog("json", FakeClock())
    made.ran(("a", "b"), HEALTHY, 1.23456)
    told = json.loads(capfd.readouterr().err)
    assert (told["event"], told["args"], told["result"], told["seconds"]) == ("check", "a b", "status 0", 1.235)

"""`segment-health preflight`: what it says, what it ends with, and that the command finds all as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.cli import main

if TYPE_CHECKING:
    from click.testing import Result

SCRIPT = str(Path(sys.executable).with_name("segment-health"))
JOB = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0"}
NAME = "segment_health_check.5.5"
TITLES = (
    "Segment health check",
    "Distributed storage health check",
    "Storage path health check",
    "Node health check",
)


def clean(**environ: str) -> dict[str, str]:
    """Return this environment without a job and settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SEGMENT", "NVRX"))}
    return kept | environ


def call(*arguments: str, **environ: str) -> Result:
    """Run the command in this process, as if in a job."""
    absent: dict[str, str | None] = dict.fromkeys(os.environ.keys() - clean().keys())
    return CliRunner().invoke(main, ["preflight", *arguments], env=absent | environ)


def start(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process."""
    command = [SCRIPT, "preflight", *arguments]
    return subprocess.run(command, env=clean(**environ), capture_output=True, text=True, check=False, timeout=60)


def test_nothing_enabled_is_healthy_and_silent() -> None:
    """Without a command it ends well, and environment variables enable nothing."""
    told = call(SEGMENT_HEALTH_DIR="relative", NVRX_SEGMENT_HEALTH_CHECK_DIR="relative", **JOB)
    assert (told.exit_code, told.output) == (0, "")


@pytest.mark.parametrize("flag", ["--ft-segment-health-check-dir", "--ft_segment_health_check_dir"])
def test_an_excluded_segment(tmp_path: Path, flag: str) -> None:
    """Status 1 and a line on stderr that names the artifact; without it nothing is said."""
    assert (call(flag, str(tmp_path), **JOB).exit_code, call(flag, str(tmp_path), **JOB).output) == (0, "")
    (tmp_path / NAME).write_text("x")
    told = call(flag, str(tmp_path), **JOB)
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.startswith("segment-health: Segment health check failed: ")
    assert str(tmp_path / NAME) in told.stderr
    assert told.stderr.count("\n") == 1


def test_the_command_of_an_unhealthy_node_is_not_run(tmp_path: Path) -> None:
    """It never begins, and the status says so."""
    (tmp_path / NAME).write_text("x")
    ended = start("--ft-segment-health-check-dir", str(tmp_path), "--", "touch", str(tmp_path / "ran"), **JOB)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert not (tmp_path / "ran").exists()


def test_a_decision_that_cannot_be_read_is_remarked(tmp_path: Path) -> None:
    """It fails open: the command runs, and stdout is the command's alone."""
    (tmp_path / NAME).mkdir()
    ended = start("--ft-segment-health-check-dir", str(tmp_path), "echo", "-n", "hello", **JOB)
    assert (ended.returncode, ended.stdout) == (0, "hello")
    assert ended.stderr.startswith("segment-health: Segment health check: Ignoring segment health decision: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--ft-segment-health-check-dir", "shared"],
            "--ft-segment-health-check-dir: not an absolute path: 'shared'",
        ),
        (["--ft_enable_dist_storage_healthcheck", "on"], "--ft-enable-dist-storage-healthcheck: not one of"),
        (["--ft-storage-health-check-path", "/a,b"], "--ft-storage-health-check-path: not an absolute path: 'b'"),
        (["--ft-cfg", "/no/such"], "/no/such: cannot be read: No such file or directory"),
        (["--ft-cfg", "/dev/zero"], "/dev/zero: cannot be read: not a regular file"),
        (["--ft-cfg-path", "a\0b"], "cannot be read: embedded null byte"),
    ],
    ids=["directory", "word", "path", "no-file", "device", "nul"],
)
def test_a_mistake_is_told_before_anything_is_checked(tmp_path: Path, arguments: list[str], said: str) -> None:
    """Status 2, and an excluded segment in the same call is not even looked at."""
    (tmp_path / NAME).write_text("x")
    told = call("--ft_segment_health_check_dir", str(tmp_path), *arguments, "--", "false", **JOB)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in told.stderr


def test_a_wrong_file_names_the_key(tmp_path: Path) -> None:
    """Whoever wrote it finds the place."""
    path = tmp_path / "ft.yaml"
    path.write_text("x: {fault_tolerance: {segment_health_check_dir: shared}}")
    told = call("--ft-cfg", str(path))
    assert told.exit_code == 2
    assert told.stderr == (
        f"segment-health: {path}: fault_tolerance.segment_health_check_dir: not an absolute path: 'shared'\n"
    )


def test_a_flag_counts_before_the_file(tmp_path: Path) -> None:
    """A segment that the file excludes is in, where the command line names another directory, or none."""
    (tmp_path / NAME).write_text("x")
    path = tmp_path / "ft.yaml"
    path.write_text(f"fault_tolerance: {{segment_health_check_dir: {tmp_path}}}")
    assert call("--ft-cfg", str(path), **JOB).exit_code == 1
    for directory in ("/no/such", ""):
        told = call("--ft-cfg-path", str(path), "--ft-segment-health-check-dir", directory, **JOB)
        assert (told.exit_code, told.output) == (0, "")


def test_a_file_without_the_section_is_remarked(tmp_path: Path) -> None:
    """It enables nothing, as with ft_launcher, but says so."""
    path = tmp_path / "ft.yaml"
    path.write_text("a: 1")
    told = call("--ft-cfg", str(path))
    assert told.exit_code == 0
    assert told.stderr == f"segment-health: {path}: no section fault_tolerance, so nothing of it counts\n"


def test_explain_tells_every_check(tmp_path: Path) -> None:
    """What was checked and how it ended, what was not reached, and by which flag the others are enabled."""
    flags = ("--ft-segment-health-check-dir", str(tmp_path), "--ft-storage-health-check-path", "/etc,/usr")
    (tmp_path / NAME).write_text("x")
    told = call("--explain", *flags, **JOB)
    assert (told.exit_code, told.stdout) == (1, "")
    lines = [line.removeprefix("segment-health: ") for line in told.stderr.splitlines()]
    assert lines[0].startswith(f"Segment health check ({tmp_path}): failed in 0.")
    assert lines[1].startswith("Segment health check failed: ")
    assert lines[2:] == [
        "Distributed storage health check: not enabled; --ft-enable-dist-storage-healthcheck true does",
        "Storage path health check (/etc, /usr): not reached",
        "Node health check: not enabled; --ft-node-health-check-endpoint SOCKET does",
    ]
    silent = call("--explain")
    assert silent.exit_code == 0
    assert [line.split(": ")[1] for line in silent.stderr.splitlines()] == list(TITLES)


@pytest.mark.parametrize(
    ("name", "mode", "status", "said"),
    [
        ("no-such-command", None, 127, "no-such-command: command not found"),
        ("./file", 0o644, 126, "./file: cannot be run: Permission denied"),
        ("./file", 0o755, 126, "./file: cannot be run: Exec format error"),
        ("", None, 127, "'': command not found"),
    ],
    ids=["missing", "mode", "format", "nothing"],
)
def test_a_command_that_cannot_be_run(tmp_path: Path, name: str, mode: int | None, status: int, said: str) -> None:
    """The statuses are a shell's, and a line says which command it was."""
    if mode is not None:
        (tmp_path / "file").write_text("nothing that runs")
        (tmp_path / "file").chmod(mode)
    command = [SCRIPT, "preflight", "--", name]
    ended = subprocess.run(
        command, env=clean(), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", f"segment-health: {said}\n")


def test_the_status_is_the_commands() -> None:
    """What it ends with is what is seen; its own options are its own."""
    assert start("--", "sh", "-c", "exit 93").returncode == 93
    assert start("sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


OBSERVER = r"""
echo $$; pwd; umask; ulimit -a; grep -E '^(Sig|Shd)[^Q]' /proc/self/status; ls /proc/$$/fd
tr '\0' '\n' < /proc/$$/environ; printf '%s\n' "$@"
"""


@pytest.mark.parametrize(
    ("begin", "environ"),
    [
        pytest.param(":", {}, id="as-usual"),
        pytest.param(":", {"LC_ALL": "", "LANG": "C"}, id="locale-c"),
        pytest.param(":", {"LC_ALL": "", "LC_CTYPE": "POSIX"}, id="locale-posix"),
        pytest.param(":", {"PYTHONUTF8": "0", "LC_ALL": "C"}, id="no-utf-8"),
        pytest.param("exec 0<&-", {}, id="stdin-closed"),
        pytest.param("exec 2>&-", {}, id="stderr-closed"),
        pytest.param("exec 7</etc/passwd 9</etc/passwd", {}, id="descriptors"),
        pytest.param("trap '' HUP INT USR1 TERM", {}, id="ignored-signals"),
        pytest.param("umask 027; ulimit -n 200; cd /usr", {}, id="umask-limits-directory"),
    ],
)
@pytest.mark.parametrize("checked", [False, True], ids=["unchecked", "checked"])
def test_the_command_finds_all_as_it_came(
    tmp_path: Path, begin: str, environ: dict[str, str], checked: bool
) -> None:
    """Process id, directory, signals, descriptors, environment and arguments are what they are without us."""
    flags = ("--ft-segment-health-check-dir", str(tmp_path)) if checked else ()
    command = ["sh", "-c", OBSERVER, "sh", "a b", "--explain", "--", os.fsdecode(b"\xff\xfe")]

    def seen(*prefix: str) -> tuple[int, list[bytes]]:
        argv = ["sh", "-c", f'{begin}\nexec "$@"', "sh", *prefix, *command]
        with subprocess.Popen(argv, env=clean(**JOB, **environ), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines = process.stdout.read().splitlines()
        assert process.returncode == 0
        return process.pid, lines

    pid, bare = seen()
    assert bare[0] == str(pid).encode()
    own, ours = seen(SCRIPT, "preflight", *flags, "--")
    assert ours[0] == str(own).encode()
    assert ours[1:] == bare[1:]


def test_signals_reach_the_command(tmp_path: Path) -> None:
    """What is sent to our process id is sent to the command, which ends by it as if we had not been."""
    command = ["sh", "-c", f"echo > {tmp_path}/runs; exec sleep 60"]
    with subprocess.Popen([SCRIPT, "preflight", "--", *command], env=clean()) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "runs").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT

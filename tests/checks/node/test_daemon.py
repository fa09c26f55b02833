"""NVRx's own clients and ours against our daemon: what each makes of a health check that ends so or so.

The daemon is a process, the clients are those of the wheels, unmodified, and the programs are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from click.testing import CliRunner

from segment_health.checks.node import DEFAULT_ARGS, NodeHealthCheck
from segment_health.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import NvrxClient  # type: ignore[import-not-found]  # pytest's own

pytestmark = pytest.mark.wheel

HEALTHY = 'printf \'{"fail_count": 0, "failed_checks": []}\''
UNHEALTHY = 'printf \'{"fail_count": 1, "failed_checks": ["gpu"]}\''


@contextmanager
def running(directory: Path, program: Path, timeout: float = 20) -> Iterator[str]:
    """Run the daemon with a program; give its socket."""
    (directory / "squeue").write_text("#!/bin/sh\necho 'RUNNING|7|7|N/A|1000|1001|2|main|n[1-2]|alice'\n")
    (directory / "squeue").chmod(0o755)
    config = directory / "config.yaml"
    config.write_text(
        f"socket_path: {directory}/s\nhealthcheck_path: {program}\nlog_level: info\ntimeout: {timeout}\n"
    )
    argv = [sys.executable, "-W", "error", "-m", "segment_health", "nvhcd", "-config", str(config)]
    environ = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    with subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None
        try:
            lines = []
            for line in daemon.stderr:
                lines.append(line)
                if "answers by" in line:
                    break
            assert (directory / "s").is_socket(), lines
            yield f"{directory}/s"
        finally:
            daemon.terminate()
            daemon.stderr.read()
            try:
                assert daemon.wait(30) == 0
            finally:
                daemon.kill()


class Row(NamedTuple):
    """A program, and which of NVRx 0.6.0, NVRx 0.7.0 and ourselves take the node for healthy."""

    program: str
    healthy: str
    says: str
    """What our client says."""


EVERYBODY, NOBODY = "0.6.0 0.7.0 ours", ""
ROWS = {
    "healthy": Row(HEALTHY, EVERYBODY, ""),
    "unhealthy": Row(f"{UNHEALTHY}; exit 1", NOBODY, "exit code 1); failed checks: gpu"),
    "unhealthy-with-status-0": Row(UNHEALTHY, NOBODY, "failed checks: gpu"),
    "fails-without-a-word": Row("exit 1", NOBODY, "exit code 1)"),
    "fails-and-says-why": Row("echo Xid 79 >&2; exit 3", NOBODY, "exit code 3); error: Xid 79"),
    "fails-and-says-healthy": Row(f"{HEALTHY}; exit 1", NOBODY, "exit code 1); output: "),
    "killed": Row("kill -9 $$", NOBODY, "exit code -9)"),
    "well-without-a-word": Row("exit 0", "0.7.0 ours", "(empty)"),
    "well-without-json": Row("echo fine", "0.7.0 ours", "is no JSON"),
    "well-but-counts": Row('echo \'{"fail_count": 2, "failed_checks": []}\'', "ours", "ignored by the site"),
    "well-but-lists": Row(
        'echo \'{"fail_count": 0, "failed_checks": ["gpu"]}\'', "0.6.0 0.7.0", "failed checks: gpu"
    ),
    "well-and-lists": Row('echo \'{"failed_checks": ["gpu"]}\'', "0.7.0", "failed checks: gpu"),
    "huge": Row("exec head -c 2000000 /dev/zero", EVERYBODY, "RESOURCE_EXHAUSTED"),
}


class Place(NamedTuple):
    """A daemon, and where its program is."""

    socket: str
    program: Path

    def runs(self, code: str, mode: int = 0o755) -> None:
        """Let the next calls run this."""
        self.program.unlink(missing_ok=True)  # one that may run still cannot be written to
        self.program.write_text(code)
        self.program.chmod(mode)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Place]:
    """A daemon for all tests here, which each have their program."""
    with tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp") as directory:
        program = Path(directory) / "check"
        with running(Path(directory), program) as socket:
            yield Place(socket, program)


def judged(socket: str, nvrx_clients: dict[str, NvrxClient]) -> tuple[str, str]:
    """Return who takes the node for healthy, and what our client says."""
    finding = NodeHealthCheck(socket, request_timeout_sec=30).look()
    healthy = [name for name, client in nvrx_clients.items() if client.ask(socket, seconds=30).healthy]
    return " ".join(healthy + ["ours"] * finding.is_healthy), "; ".join((*finding.problems, *finding.remarks))


@pytest.mark.parametrize("name", ROWS)
def test_a_program_that_ends_so(daemon: Place, nvrx_clients: dict[str, NvrxClient], name: str) -> None:
    """A table of docs/nodecheck.md."""
    row = ROWS[name]
    daemon.runs(f"#!/bin/sh\n{row.program}\n")
    healthy, says = judged(daemon.socket, nvrx_clients)
    assert healthy == row.healthy
    assert row.says in says
    assert (says == "") == (row.says == "")


@pytest.mark.parametrize("code", ["exec sleep 60", f"{HEALTHY}; exec sleep 60"], ids=["late", "with-an-answer"])
def test_a_program_that_is_late(short_path: Path, nvrx_clients: dict[str, NvrxClient], code: str) -> None:
    """Its time is over: unhealthy for all, whatever it has said."""
    place = Place("", short_path / "check")
    place.runs(f"#!/bin/sh\n{code}\n")
    with running(short_path, place.program, timeout=1) as socket:
        healthy, says = judged(socket, nvrx_clients)
    assert healthy == NOBODY
    assert "did not end within 1 s" in says


@pytest.mark.parametrize(
    ("code", "mode"),
    [
        pytest.param(None, 0, id="missing"),
        pytest.param("#!/bin/sh\n", 0o644, id="not-executable"),
        pytest.param("#!/no/such/interpreter\n", 0o755, id="no-interpreter"),
        pytest.param("no program", 0o755, id="no-program"),
    ],
)
def test_a_program_that_cannot_be_run_excludes_nobody(
    daemon: Place, nvrx_clients: dict[str, NvrxClient], code: str | None, mode: int
) -> None:
    """A wrong path in a configuration must not exclude a cluster."""
    daemon.runs(code or "", mode)
    if code is None:
        daemon.program.unlink()
    healthy, says = judged(daemon.socket, nvrx_clients)
    assert healthy == EVERYBODY
    assert "cannot be started" in says


def test_the_wrapper_behind_the_daemon(daemon: Place, tmp_path: Path, nvrx_clients: dict[str, NvrxClient]) -> None:
    """A site's check, our template and our daemon: all read it alike, and the arguments arrive."""
    check = Place("", tmp_path / "check")
    text = CliRunner().invoke(main, ["template", "show", "bcm-wrapper"]).stdout
    daemon.runs(text.replace("\ncheck=/path/to/bcm-healthcheck\n", f"\ncheck={check.program}\n"))
    assert judged(daemon.socket, nvrx_clients) == (
        EVERYBODY,
        "bcm_healthcheck was not run: see the log of nvhcd",
    )
    check.runs(f"#!/bin/sh\necho noise; printf '%s\\n' $SLURM_JOB_USER \"$@\" >>{tmp_path}/args\n")
    assert judged(daemon.socket, nvrx_clients) == (EVERYBODY, "")
    told = (tmp_path / "args").read_text().split()
    assert told == ["alice", *DEFAULT_ARGS, "alice", "--no-slurm", "alice", *DEFAULT_ARGS]
    check.runs("#!/bin/sh\necho Xid 79; exit 2\n")
    healthy, says = judged(daemon.socket, nvrx_clients)
    assert healthy == NOBODY
    assert says.startswith("nvhcd reports a failure (exit code 1); failed checks: bcm_healthcheck; error: Xid 79")


def test_a_daemon_that_has_gone(short_path: Path, nvrx_clients: dict[str, NvrxClient]) -> None:
    """No socket is no verdict."""
    place = Place("", short_path / "check")
    place.runs("#!/bin/sh\nexit 1\n")
    with running(short_path, place.program) as socket:
        assert judged(socket, nvrx_clients)[0] == NOBODY
    assert judged(socket, nvrx_clients)[0] == EVERYBODY


def test_the_command_asks_it(daemon: Place) -> None:
    """A person sees what a launcher would."""
    daemon.runs('#!/bin/sh\nprintf \'{"fail_count": 1, "failed_checks": ["%s"]}\' "$*"; exit 1\n')
    asked = ["nodecheck", f"unix://{daemon.socket}", "--format", "json", "--", "--group", "gpu"]
    ended = CliRunner().invoke(main, asked)
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["told"] == [
        "nvhcd reports a failure (exit code 1); failed checks: --group gpu"
    ]

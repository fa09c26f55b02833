"""The last step of preflight's chain, by nvhcd: what it says counts, and nothing of gRPC reaches the command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Server  # type: ignore[import-not-found]  # pytest's own

SCRIPT = str(Path(sys.executable).with_name("segment-health"))
HEALTHY = json.dumps({"fail_count": 0, "failed_checks": []})
SICK = json.dumps({"fail_count": 1, "failed_checks": ["gpu"]})


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run preflight as a process."""
    argv = [SCRIPT, "preflight", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("flag", ["--ft-node-health-check-endpoint", "--ft-node_health_check_endpoint"])
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        pytest.param({"output": HEALTHY}, 0, "", id="healthy"),
        pytest.param({"output": SICK}, 1, "Node health check failed: failed checks: gpu", id="list"),
        pytest.param({"success": False, "exit_code": 1}, 1, "Node health check failed: ", id="failure"),
        pytest.param({"abort": "UNAVAILABLE", "details": "x"}, 0, "Node health check: ", id="unavailable"),
    ],
)
def test_what_nvhcd_says_counts(server: Server, flag: str, answer: Any, status: int, said: str) -> None:
    """A failure ends it; a service that cannot be asked is remarked, and the command runs."""
    ended = run(flag, server.answers(**answer), "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (status, "" if status else "ran\n")
    assert ended.stderr.startswith(f"segment-health: {said}" if said else "")
    assert bool(ended.stderr) is bool(said)


def test_a_missing_socket_is_remarked() -> None:
    """As with ft_launcher it takes no node away; unlike there, somebody is told."""
    ended = run("--ft-node-health-check-endpoint", "/no/such.sock", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (0, "ran\n")
    assert ended.stderr.startswith("segment-health: Node health check: ")
    assert "/no/such.sock" in ended.stderr


def test_the_chain_ends_with_it(server: Server, tmp_path: Path) -> None:
    """What fails before it leaves it unasked."""
    path = server.answers(output=SICK)
    flags = ("--ft-node-health-check-endpoint", path, "--ft-storage-health-check-path")
    ended = run(*flags, str(tmp_path / "missing"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("segment-health: Storage path health check failed: ")
    assert server.calls() == []
    assert run(*flags, str(tmp_path)).returncode == 1
    assert len(server.calls()) == 1


def test_nothing_of_grpc_reaches_the_command(server: Server) -> None:
    """After a call, descriptors and signals are those of a command that nobody checked."""
    observe = ("sh", "-c", "ls /proc/$$/fd; grep -E '^Sig[^Q]' /proc/self/status; ls /proc/$$/task | wc -l")
    bare = subprocess.run(observe, capture_output=True, text=True, check=True, timeout=60)
    ended = run("--ft-node-health-check-endpoint", server.answers(output=HEALTHY), "--", *observe)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == bare.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_ends_it_while_it_checks(short_path: Path, number: signal.Signals) -> None:
    """A service that says nothing is waited for no longer, and the command is not run."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_path / "s"))
        listener.listen()
        argv = [SCRIPT, "preflight", "--ft-node-health-check-endpoint", str(short_path / "s"), "echo", "ran"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=os.environ) as process:
            listener.settimeout(30)
            connection, _ = listener.accept()  # it waits for the answer from here on
            with connection:
                process.send_signal(number)
                assert process.communicate(timeout=30)[0] == b""
        assert process.returncode == 128 + number

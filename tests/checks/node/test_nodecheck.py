"""`segment-health nodecheck`: what a launcher would make of this node, for a person and for a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.cli import main

if TYPE_CHECKING:
    from click.testing import Result
    from conftest import Server  # type: ignore[import-not-found]  # pytest's own

HEALTHY = '{"fail_count": 0, "failed_checks": []}'
DEFAULT = ["--no-slurm", "--group", "prolog", "epilog", "logs", "gpu"]


def nodecheck(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["nodecheck", *arguments])


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        pytest.param({"output": HEALTHY}, 0, "healthy: {path}", id="healthy"),
        pytest.param(
            {"output": "fine"}, 0, "healthy: nvhcd reports success, and its output is no JSON", id="remark"
        ),
        pytest.param(
            {"success": False, "exit_code": 1}, 1, "unhealthy: nvhcd reports a failure (exit", id="failure"
        ),
        pytest.param({"output": '{"failed_checks": ["gpu"]}'}, 1, "unhealthy: failed checks: gpu", id="list"),
        pytest.param(
            {"abort": "UNAVAILABLE", "details": "x"}, 0, "unavailable: {path}: no answer: UN", id="error"
        ),
        pytest.param({"wait": True}, 0, "unavailable: {path}: no answer within 0.5 s", id="late"),
    ],
)
def test_the_first_word_says_what_came_of_it(server: Server, answer: Any, status: int, line: str) -> None:
    """One line on stdout; status 1 for an unhealthy node alone."""
    path = server.answers(**answer)
    ended = nodecheck(path, "--timeout", "0.5")
    assert ended.exit_code == status
    assert ended.stderr == ""
    (told,) = ended.stdout.splitlines()
    assert told.startswith(line.format(path=path))
    assert server.calls() == [DEFAULT]


@pytest.mark.parametrize("endpoint", ["/no/such", "localhost:1", ""])
def test_an_endpoint_that_is_none_is_unavailable(endpoint: str) -> None:
    """As for a launcher: a wrong path takes no node away."""
    ended = nodecheck(endpoint)
    assert (ended.exit_code, ended.stdout.partition(":")[0]) == (0, "unavailable")


def test_what_follows_is_sent(server: Server) -> None:
    """Options of the health check's own are not taken for ours."""
    path = server.answers(output=HEALTHY)
    assert nodecheck(path, "--timeout", "5", "--", "--group", "gpu", "--format", "x").exit_code == 0
    assert nodecheck(path, "a").exit_code == 0
    assert server.calls() == [["--group", "gpu", "--format", "x"], ["a"]]


@pytest.mark.parametrize(
    ("answer", "result", "told"),
    [
        pytest.param({"output": HEALTHY}, "healthy", [], id="healthy"),
        pytest.param(
            {"output": '{"failed_checks": ["a\\u001b"]}'}, "unhealthy", [r"failed checks: a\x1b"], id="not"
        ),
        pytest.param(
            {"raw": "ff"}, "unavailable", ["{path}: what came back is no answer of nvhcd"], id="unavailable"
        ),
    ],
)
def test_json_for_programs(server: Server, answer: Any, result: str, told: list[str]) -> None:
    """What the line says, in fields."""
    path = server.answers(**answer)
    found = json.loads(nodecheck(path, "--format", "json").stdout)
    assert 0 <= found.pop("seconds") < 60
    expected = {"result": result, "args": DEFAULT, "told": [line.format(path=path) for line in told]}
    assert found == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param([], "ENDPOINT", id="no-endpoint"),
        pytest.param(["/x", "--timeout", "0"], "--timeout 0: that is no time to wait", id="no-time"),
        pytest.param(["/x", "--timeout", "nan"], "--timeout nan: that is no time to wait", id="not-a-number"),
        pytest.param(["/x", "--timeout", "soon"], "'soon' is not a valid float", id="no-number"),
        pytest.param(["/x", "\udcff"], r"argument b'\xff' is no UTF-8", id="no-text"),
    ],
)
def test_a_usage_error(arguments: list[str], told: str) -> None:
    """Status 2, and nobody is asked."""
    ended = nodecheck(*arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert told in ended.stderr


def test_as_a_program(server: Server) -> None:
    """The installed command says one line, and gRPC none of its own."""
    path = server.answers(success=False, exit_code=7, error="Xid 79\x1b[2J")
    argv = [os.path.join(os.path.dirname(sys.executable), "segment-health"), "nodecheck", f"unix://{path}"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    told = "unhealthy: nvhcd reports a failure (exit code 7); error: Xid 79\\x1b[2J\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, told, "")
    server.answers(messages=1, size=5 << 20)
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "RESOURCE_EXHAUSTED" in ended.stdout

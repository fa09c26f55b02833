"""Our client of nvhcd, against a service that answers as it is told, and whatever else may listen there."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.checks import asking, node
from segment_health.checks.asking import ask
from segment_health.checks.health_check import Finding, Unavailable
from segment_health.checks.node import DEFAULT_ARGS, NodeHealthCheck, socket_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Server  # type: ignore[import-not-found]  # pytest's own

    Listen = Callable[[Callable[[socket.socket], object]], str]

HEALTHY = '{"fail_count": 0, "failed_checks": []}'


def unavailable(endpoint: str | None, *, args: Any = DEFAULT_ARGS, seconds: float = 10) -> str:
    """Check that the service counts as unavailable, and the node as healthy; return what is said of that."""
    with pytest.raises(Unavailable) as caught:
        ask(socket_of(endpoint), args, seconds)
    told = str(caught.value)
    assert told.isprintable()
    assert len(told) < 1000
    problems, remarks = NodeHealthCheck(endpoint, args, request_timeout_sec=seconds).look()
    assert (problems, len(remarks)) == ((), 1)
    assert remarks[0].isprintable()
    return told


# --- where is asked, and what ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "unix:{}", "unix://{}", "./{name}", "unix:./{name}"])
def test_an_endpoint_is_a_path_in_any_form(server: Server, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """A path from the root or from here, alone or as a URI."""
    path = server.answers(output=HEALTHY)
    monkeypatch.chdir(server.path.parent)
    assert NodeHealthCheck(form.format(path, name=server.path.name)).examine() == Finding()
    assert len(server.calls()) == 1


@pytest.mark.parametrize("form", ["{}", "unix://{}", "{name}"])
def test_the_older_name_of_the_endpoint(server: Server, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """socket_path is asked where there is no endpoint, which comes first."""
    path = server.answers(output=HEALTHY)
    monkeypatch.chdir(server.path.parent)
    told = form.format(path, name=server.path.name)
    assert NodeHealthCheck(socket_path=told).examine() == Finding()
    (remark,) = NodeHealthCheck("/no/such", socket_path=told).look().remarks
    assert remark.startswith("no socket /no/such")


@pytest.mark.parametrize(
    "name", ["a b", "%41", "a#b", "a?b=c", "\u00e9", "\udcff", "a:b", "a;b", "[1]", "\n"], ids=ascii
)
def test_a_path_is_taken_as_it_stands(server: Server, name: str) -> None:
    """Nothing in it is decoded, split or taken for a part of a URI."""
    path = server.path.parent / name
    path.symlink_to(server.answers(success=False))
    assert not NodeHealthCheck(os.fspath(path)).examine().is_healthy


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        pytest.param(None, "no endpoint is set", id="none"),
        pytest.param("", "no endpoint is set", id="empty"),
        pytest.param("localhost:50051", "is no UNIX socket", id="tcp"),
        pytest.param("http://localhost", "is no UNIX socket", id="http"),
        pytest.param("run/nvhcd.sock", "is no UNIX socket", id="no-path"),
        pytest.param("unix://host/nvhcd.sock", "is no UNIX socket", id="host"),
        pytest.param("unix-abstract:nvhcd", "is no UNIX socket", id="abstract"),
        pytest.param("unix:nvhcd.sock", "is no UNIX socket", id="bare"),
        pytest.param("UNIX:///x", "is no UNIX socket", id="capitals"),
        pytest.param("x\x1b[2J", r"endpoint x\x1b[2J is no UNIX socket", id="control-characters"),
        pytest.param("/no/such", "no socket /no/such; is nvhcd running", id="missing"),
        pytest.param("/dev/null/x", "Not a directory", id="below-a-file"),
        pytest.param("/dev/null", "/dev/null is no socket", id="no-socket"),
        pytest.param("/tmp", "/tmp is no socket", id="directory"),
        pytest.param("/x\0y", r"socket /x\x00y: embedded null", id="nul"),
        pytest.param("/" + "x" * 300, "File name too long", id="name-too-long"),
        pytest.param("/\ud800", "surrogates not allowed", id="no-file-name"),
    ],
)
def test_where_nobody_can_be_asked_the_node_is_healthy(endpoint: str | None, told: str) -> None:
    """Another kind of endpoint, no socket, something else in its place: a remark that says so."""
    assert told in unavailable(endpoint)


@pytest.mark.parametrize("name", ["a,b", "x" * 120])
def test_a_path_that_grpc_cannot_take(server: Server, name: str) -> None:
    """It would be cut at the comma, and another socket asked."""
    path = server.path.parent / name
    path.symlink_to(server.answers(success=False))
    assert "107 bytes, without a comma" in unavailable(os.fspath(path))


def test_a_socket_that_nobody_listens_on(short_path: Path) -> None:
    """What a daemon that was killed leaves behind."""
    path = str(short_path / "dead")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    assert "Connection refused" in unavailable(path)


def test_a_socket_that_is_not_for_us(short_path: Path, serve: Any) -> None:
    """Whom the socket's mode keeps out may not ask; root it keeps out of nothing."""
    with serve(short_path / "s") as server:
        path = server.answers(success=False)
        os.chmod(path, 0)
        if os.geteuid() == 0:
            assert not NodeHealthCheck(path).examine().is_healthy
        else:
            assert "Permission denied" in unavailable(path)


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        pytest.param(None, list(DEFAULT_ARGS), id="default"),
        pytest.param([], [], id="none-wanted"),
        pytest.param(["--group", "", "\u00e9 x"], ["--group", "", "\u00e9 x"], id="own"),
        pytest.param(("a",), ["a"], id="tuple"),
    ],
)
def test_what_is_asked_for(server: Server, args: Any, sent: list[str]) -> None:
    """NVRx's groups of checks, unless something else is wanted, or nothing."""
    path = server.answers(output=HEALTHY)
    assert NodeHealthCheck(path, args)()
    assert server.calls() == [sent]


@pytest.mark.parametrize("args", [["\ud800"], [None], [1]])
def test_arguments_that_cannot_be_sent(server: Server, args: Any) -> None:
    """The check is not made, which is told; the node is healthy."""
    assert "arguments cannot be sent" in unavailable(server.answers(success=False), args=args)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_that_is_none(seconds: float) -> None:
    """A mistake of whoever wrote the launcher, who hears of it at once."""
    with pytest.raises(ValueError, match="no time to wait"):
        NodeHealthCheck("/x", request_timeout_sec=seconds)


def test_no_time_is_the_usual_time() -> None:
    """NVRx waits for ever where it is told None; here no call goes without a deadline."""
    assert NodeHealthCheck("/x", request_timeout_sec=None).request_timeout_sec == 60


# --- what comes back -------------------------------------------------------------------------------------


def test_healthy_and_unhealthy(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A call is True or False; a problem is a warning of the logger `nvrx`, and nothing is said of health."""
    caplog.set_level(logging.DEBUG, logger="nvrx")
    check = NodeHealthCheck(server.answers(output=HEALTHY))
    assert check() is True
    assert caplog.records == []
    server.answers(success=False, exit_code=2, error="Xid 79")
    assert check() is False
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Node health check failed: nvhcd reports a failure (exit code 2); error: Xid 79")
    ]


def test_a_packed_answer(server: Server) -> None:
    """What the service compressed is read all the same."""
    answer = '{"failed_checks": ["gpu"]}'
    assert NodeHealthCheck(server.answers(output=answer, gzip=True)).examine() == Finding(("failed checks: gpu",))


def test_an_unavailable_service_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Who wanted a check hears that it was not made."""
    assert NodeHealthCheck("/no/such")() is True
    assert [record.getMessage() for record in caplog.records] == [
        "Node health check: no socket /no/such; is nvhcd running, and visible from here?"
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(
            {"abort": "UNAVAILABLE", "details": "the check\x1b[2J knows\n nothing"},
            r"UNAVAILABLE: the check\x1b[2J knows\n nothing",
            id="unavailable",
        ),
        pytest.param(
            {"abort": "FAILED_PRECONDITION", "details": "/x: cannot be started"},
            "FAILED_PRECONDITION: /x: cannot be started",
            id="missing-program",
        ),
        pytest.param({"abort": "UNIMPLEMENTED"}, "whoever listens there is no nvhcd", id="unimplemented"),
        pytest.param({"abort": "INTERNAL", "details": "x" * 5000}, "INTERNAL: " + "x" * 300 + "...", id="long"),
        pytest.param({"abort": "DEADLINE_EXCEEDED"}, "no answer within 1 s", id="deadline-of-the-service"),
        pytest.param({"raw": "ff"}, "what came back is no answer of nvhcd", id="no-message"),
        pytest.param({"raw": "0a05"}, "what came back is no answer of nvhcd", id="half-a-message"),
        pytest.param({"raw": "08011a02fffe"}, "what came back is no answer of nvhcd", id="no-utf-8"),
        pytest.param({"messages": 0, "size": 0}, "what came back is no answer of nvhcd", id="no-message-at-all"),
        pytest.param({"messages": 1, "size": 5 << 20}, "RESOURCE_EXHAUSTED", id="huge"),
        pytest.param({"messages": 1, "size": 16 << 20, "gzip": True}, "larger than max", id="huge-unpacked"),
        pytest.param({"messages": 1 << 40, "size": 1 << 20}, "no answer", id="endless"),
        pytest.param({"wait": True}, "no answer within 1 s", id="never"),
    ],
)
def test_a_service_that_misbehaves_is_unavailable(server: Server, answer: Any, told: str) -> None:
    """Whatever it does that is no answer, the node is healthy, the reason is told, and the time is kept."""
    began = time.monotonic()
    assert told in unavailable(server.answers(**answer), seconds=1)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    "raw",
    ["0801", "08011a00", "0802", "08014a03616263", "08010801"],
    ids=["bare", "empty", "two", "unknown", "twice"],
)
def test_an_answer_in_another_spelling(server: Server, raw: str) -> None:
    """A success is one however it was encoded, and whatever a later version adds."""
    assert NodeHealthCheck(server.answers(raw=raw)).look().is_healthy


@pytest.mark.parametrize("raw", ["", "0800", "1005", "4a03616263"], ids=["nothing", "false", "code", "unknown"])
def test_an_answer_without_success_is_a_failure(server: Server, raw: str) -> None:
    """proto3 does not send false: the service's plainest failure has no bytes at all."""
    assert not NodeHealthCheck(server.answers(raw=raw)).look().is_healthy


def slowly(connection: socket.socket, what: bytes) -> None:
    """Send a byte now and then until the peer has gone."""
    while True:
        connection.sendall(what)
        time.sleep(0.01)


@pytest.mark.parametrize(
    "speak",
    [
        pytest.param(lambda _: None, id="closes-at-once"),
        pytest.param(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}"), id="http-1"),
        pytest.param(lambda connection: connection.sendall(os.urandom(100_000)), id="noise"),
        pytest.param(lambda connection: slowly(connection, b"\0"), id="endless-noise"),
        pytest.param(
            lambda connection: slowly(connection, bytes.fromhex("000000040000000000")), id="endless-settings"
        ),
        pytest.param(lambda _: threading.Event().wait(2.5), id="says-nothing"),
        pytest.param(
            lambda connection: (connection.sendall(bytes.fromhex("000000040000000000")), connection.recv(1 << 16)),
            id="leaves-the-call",
        ),
    ],
)
def test_whoever_else_listens_there(listening: Listen, speak: Callable[[socket.socket], object]) -> None:
    """It is no nvhcd: the node is healthy, within the time."""
    began = time.monotonic()
    assert "no answer" in unavailable(listening(speak), seconds=1)
    assert time.monotonic() - began < 15


# --- in a launcher's process -----------------------------------------------------------------------------


def test_a_daemon_that_comes_later_is_asked(short_path: Path, serve: Any) -> None:
    """One check, made at a launcher's start: without a daemon, with one, after that ended, with the next one."""
    path = short_path / "s"
    check = NodeHealthCheck(str(path))
    assert check()
    for _ in range(2):
        with serve(path) as server:
            server.answers(success=False)
            assert not check()
        assert check()


def test_no_proxy_is_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes have proxies in their environment, and the service is on the node."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    path = server.answers(output=HEALTHY)
    assert NodeHealthCheck(path).examine() == Finding()


def test_async_check(server: Server) -> None:
    """on_failure is awaited where the node is unhealthy, and there alone."""
    path = server.answers(output=HEALTHY)
    called: list[int] = []

    async def failed() -> None:
        called.append(1)
        raise asyncio.CancelledError

    check = NodeHealthCheck(path, interval=0.05, on_failure=failed)
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(check.async_check(), 1))
    assert len(server.calls()) > 0
    assert called == []
    server.answers(success=False)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(check.async_check())
    assert called == [1]


def run_program(code: str, *arguments: str) -> str:
    """Run a program that must end well and say nothing on stderr; return what it prints."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


LEAVES = """
import json, os, sys, threading, time
from segment_health.checks.node import NodeHealthCheck

check = NodeHealthCheck(sys.argv[1], request_timeout_sec=1)

def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

before = held()
for _ in range(5):
    check.look()
after = held()
with open("/proc/thread-self/children") as file:
    print(json.dumps([before, after, threading.active_count(), file.read()]))
assert not {"grpc", "google.protobuf"} & set(sys.modules)
"""


@pytest.mark.parametrize("answer", [{"output": HEALTHY}, {"abort": "UNAVAILABLE"}], ids=["answer", "error"])
def test_nothing_is_left_behind(server: Server, answer: Any) -> None:
    """No thread, no descriptor and no child; gRPC is never in a launcher's process."""
    before, after, threads, children = json.loads(run_program(LEAVES, server.answers(**answer)))
    assert (after, threads, children) == (before, 1, "")


FORKS = """
import os, sys, threading
from segment_health.checks.node import NodeHealthCheck

check = NodeHealthCheck(sys.argv[1], request_timeout_sec=10)

def in_child():
    child = os.fork()
    if child == 0:
        os._exit(len(check.look().problems))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(*(found for _ in range(3) for found in (in_child(), len(check.look().problems))))
"""


def test_a_launcher_forks_between_calls(server: Server) -> None:
    """The child's own call is answered, and its parent's after that."""
    assert run_program(FORKS, server.answers(success=False)) == "1 1 1 1 1 1\n"


def test_from_many_threads(server: Server) -> None:
    """Calls side by side do not disturb one another."""
    path = server.answers(success=False)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(NodeHealthCheck(path)())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [False] * 8


@pytest.mark.parametrize("missing", ["grpc", "google"])
def test_without_grpc(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """The extra is not installed, or broken: the node is healthy, and what to install is told."""
    (tmp_path / f"{missing}.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (remark,) = NodeHealthCheck(server.answers(success=False)).look().remarks
    assert "gRPC cannot be used here (" in remark
    assert "pip install 'segment-health[nvhcd]'" in remark


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param("exit 3", "died (status 3), and said nothing", id="ends"),
        pytest.param("kill -9 $$", "died (status -9), and said nothing", id="killed"),
        pytest.param("echo '{'", "died (status 0), and said nothing", id="half-an-answer"),
        pytest.param("trap '' TERM; sleep 60 & wait", "no answer within 0.2 s; who asked was killed", id="late"),
        pytest.param(None, "cannot be started: No such file or directory", id="missing"),
    ],
)
def test_a_child_that_does_not_ask(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, told: str
) -> None:
    """An interpreter that cannot be run, or is killed: the node is healthy, and nothing is left."""
    python = tmp_path / "python"
    if code is not None:
        python.write_text(f"#!/bin/sh\n{code}\n")
        python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(node, "_START_SECONDS", 0.3)
    (remark,) = NodeHealthCheck(server.answers(success=False), request_timeout_sec=0.2).look().remarks
    assert told in remark


def test_the_program_of_the_child(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what it found, or why nothing."""
    told = {"socket": server.answers(success=False), "args": [], "seconds": 10}
    asking.main(told)
    server.answers(abort="UNAVAILABLE")
    asking.main(told)
    decoder = json.JSONDecoder()
    printed = capsys.readouterr().out
    first, end = decoder.raw_decode(printed)
    assert first == {"problems": ["nvhcd reports a failure (exit code 0)"], "remarks": []}
    assert list(decoder.raw_decode(printed, end)[0]) == ["unavailable"]

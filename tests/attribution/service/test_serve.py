"""The command `attribution serve`, in this process and as one of its own, and its start and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import httpx
import pytest
from click.testing import CliRunner

from segment_health.address import Address
from segment_health.attribution.service import server
from segment_health.attribution.service.analyses import Limits
from segment_health.attribution.service.register import RegisterError
from segment_health.attribution.service.server import Settings, StartError
from segment_health.cli import main
from segment_health.cli.attribution_service import ServiceLog
from slurm.sandbox.processes import free_ports

from .conftest import HERE, NO_PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60.0
pytestmark = pytest.mark.usefixtures("own_signals")


@pytest.fixture
def place(tmp_path: Path) -> Settings:
    """A place for a service in this process."""
    (tmp_path / "logs").mkdir()
    return Settings(
        Address("127.0.0.1", free_ports(1)),
        str(tmp_path / "logs"),
        str(tmp_path / "state.db"),
        limits=Limits(patience=NO_PATIENCE),
        worker=(sys.executable, str(HERE / "analyst.py")),
    )


def transport_to(address: Address) -> httpx.HTTPTransport:
    """Return the way to a service."""
    return httpx.HTTPTransport(uds=address.path or None)


def listens(address: Address) -> bool:
    """Tell whether anybody does there; httpx would leave the socket open where nobody does."""
    with socket.socket(socket.AF_UNIX if address.path else socket.AF_INET) as probe:
        return probe.connect_ex(address.path or (address.host, address.port)) == 0


def during(address: Address, asks: Callable[[httpx.Client], Any]) -> Callable[[], Any]:
    """Ask from a thread as soon as there is a service, then end it; return how to get the answer."""
    told: list[Any] = []

    def live() -> None:
        base = f"http://{address.host or 'localhost'}:{address.port or 80}"
        deadline = time.monotonic() + PATIENCE
        try:
            with httpx.Client(transport=transport_to(address), base_url=base, timeout=PATIENCE) as client:
                while not listens(address) and time.monotonic() < deadline:
                    time.sleep(0.05)
                told.append(asks(client))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=live)
    thread.start()

    def answer() -> Any:
        thread.join(PATIENCE)
        return told[0]

    return answer


def judge(client: httpx.Client, path: Path, text: str) -> dict[str, Any]:
    """Have a log judged."""
    path.write_text(text)
    accepted = client.post("/logs", json={"log_path": str(path), "analysis_intent": "terminal"})
    assert accepted.status_code == 200, accepted.text
    told: dict[str, Any] = client.get("/logs", params={"log_path": str(path)}).json()
    return told


def test_it_serves_until_it_is_told_to_end(
    place: Settings, capfd: pytest.CaptureFixture[str], short_path: Path
) -> None:
    """Systemd hears of it, the log says where it serves, and what was found is there at the next start."""
    log = Path(place.root) / "a_cycle0.log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(short_path / "notify"))
        listening.settimeout(PATIENCE)
        answer = during(place.listen, lambda client: judge(client, log, "STOP"))
        server.run(place, ServiceLog("text", time.time), {"NOTIFY_SOCKET": str(short_path / "notify")})
        assert b"READY=1" in listening.recv(1000)
        assert b"STOPPING=1" in listening.recv(1000)
    first = answer()
    assert first["recommendation"]["action"] == "STOP"
    place = replace(place, listen=Address("127.0.0.1", free_ports(1)))
    answer = during(place.listen, lambda client: client.get("/logs", params={"log_path": str(log)}).json())
    server.run(place, ServiceLog("json", time.time), {})
    assert answer() == first
    said = capfd.readouterr().err
    assert "INFO serving at 127.0.0.1:" in said
    assert f"INFO {log}: STOP, told: STOP" in said
    assert '"event": "end"' in said


def test_a_socket_is_its_users_alone(place: Settings, short_path: Path) -> None:
    """At a path nobody else can ask, and nothing is left of it."""
    path = short_path / "a.sock"
    place = replace(place, listen=Address(path=str(path)))
    mode = during(place.listen, lambda _: stat.S_IMODE(path.stat().st_mode))
    server.run(place, ServiceLog("text", time.time), {})
    assert mode() == 0o600
    assert not path.exists()


def taken(place: Settings, blocked: list[Any]) -> Settings:
    """Let somebody else listen there."""
    blocked.append(socket.create_server((place.listen.host, place.listen.port)))
    return place


def locked(place: Settings, blocked: list[Any]) -> Settings:
    """Let somebody else have the state file."""
    connection = sqlite3.connect(place.state)
    connection.execute("BEGIN EXCLUSIVE")
    blocked.append(connection)
    return place


def no_root(place: Settings, _blocked: list[Any]) -> Settings:
    """Name a root that is not there."""
    return replace(place, root=f"{place.root}/none")


def file_for_root(place: Settings, _blocked: list[Any]) -> Settings:
    """Name a file as the root."""
    Path(place.root, "file").touch()
    return replace(place, root=f"{place.root}/file")


@pytest.fixture
def blocked() -> Iterator[list[Any]]:
    """What stands in a service's way, and is taken away after a test."""
    things: list[Any] = []
    yield things
    for thing in things:
        thing.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (taken, "--listen 127.0.0.1:.*: Address already in use"),
        (locked, "another service uses it"),
        (no_root, "no directory that can be read"),
        (file_for_root, "no directory that can be read"),
    ],
)
def test_what_stands_in_its_way_is_told(
    place: Settings, blocked: list[Any], spoil: Callable[[Settings, list[Any]], Settings], told: str
) -> None:
    """It does not begin, and says why."""
    with pytest.raises((StartError, RegisterError), match=told):
        server.run(spoil(place, blocked), ServiceLog("text", time.time), {})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--allowed-root", "logs", "--state", "/tmp/s"], "--allowed-root: not an absolute path: 'logs'"),
        (["--allowed-root", "/tmp", "--state", "s"], "--state: not an absolute path: 's'"),
        (["--allowed-root", "/tmp", "--state", "/tmp/s", "--listen", "x"], "--listen 'x': not PORT"),
        (
            ["--allowed-root", "/tmp", "--state", "/tmp/s", "--listen", "https://h:1"],
            "--listen 'https://h:1': not PORT",
        ),
        (["--allowed-root", "/tmp", "--state", "/tmp/s", "--workers", "0"], "0 is not within 1 and 64"),
        (["--allowed-root", "/tmp", "--state", "/tmp/s", "--drain-max", "nan"], "nan is not within 0 and 86400"),
        (
            ["--allowed-root", "/tmp", "--state", "/tmp/s", "--analyser", "llm"],
            "--analyser llm needs --llm-base-url",
        ),
        (
            [
                "--allowed-root",
                "/tmp",
                "--state",
                "/tmp/s",
                "--analyser",
                "llm",
                "--llm-base-url",
                "ftp://h",
                "--llm-model",
                "m",
            ],
            "--llm-base-url: ftp://h: not a URL of HTTP",
        ),
        (["--allowed-root", "/tmp", "--state", "/none/s"], "/none/s: cannot be opened: No such file or directory"),
        (["--allowed-root", "/tmp", "--state", "/tmp"], "/tmp: cannot be opened: Is a directory"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(arguments: list[str], told: str) -> None:
    """One sentence, status 2."""
    ended = CliRunner().invoke(main, ["attribution", "serve", *arguments])
    assert ended.exit_code == 2
    assert told in ended.output


@pytest.mark.parametrize(
    ("told", "listens"),
    [
        ("http://127.0.0.1:{port}", "127.0.0.1:{port}"),
        ("http://127.0.0.1:{port}/", "127.0.0.1:{port}"),
        ("{port}", "127.0.0.1:{port}"),
        ("unix://{path}", "unix:{path}"),
        ("{path}", "unix:{path}"),
        ("0.0.0.0:{port}", "0.0.0.0:{port}"),
    ],
)
def test_it_is_told_as_nvrx_tells_its_own(
    told: str, listens: str, tmp_path: Path, short_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The variables of nvrx-attrsvc say where it listens and reads; a place that others reach is a warning."""
    port = free_ports(1)
    words = {"port": port, "path": str(short_path / "s")}
    where = listens.format(**words)
    address = Address(path=where[5:]) if where.startswith("unix:") else Address("127.0.0.1", port)
    environ = {"NVRX_ATTRSVC_ENDPOINT": told.format(**words), "NVRX_ATTRSVC_ALLOWED_ROOT": str(tmp_path)}
    answer = during(address, lambda client: client.get("/healthz").json())
    ended = CliRunner(env=environ).invoke(main, ["attribution", "serve", "--state", str(tmp_path / "s")])
    assert ended.exit_code == 0, ended.output
    assert answer()["status"] == "ok"
    said = capfd.readouterr().err
    assert f"serving at {where}, for logs below {tmp_path}; state in {tmp_path}/s" in said
    assert ("there is no password" in said) is where.startswith("0.0.0.0")


def test_a_log_cannot_be_filled_by_asking(capfd: pytest.CaptureFixture[str]) -> None:
    """What callers bring about is said thirty times, and then counted."""
    now = [0.0]
    log = ServiceLog("text", lambda: now[0])
    for number in range(100):
        log.say("INFO", "judged", f"log {number}")
        log.remark("bug", f"odd {number}")
    log.say("INFO", "start", "by itself")
    now[0] = 100.0
    log.say("INFO", "judged", "later")
    said = capfd.readouterr().err.splitlines()
    assert len(said) < 40
    assert said[-3].endswith("by itself")
    assert "lines about calls were left out" in said[-2]
    assert said[-1].endswith("later")


def test_a_password_of_the_export_is_not_shown(tmp_path: Path) -> None:
    """A URL that cannot be meant is quoted without it."""
    flags = [
        "--allowed-root",
        str(tmp_path),
        "--state",
        str(tmp_path / "s"),
        "--export-url",
        "ftp://u:passw0rd@h/x",
    ]
    ended = CliRunner().invoke(main, ["attribution", "serve", *flags])
    assert ended.exit_code == 2
    assert "--export-url: ftp://...@h/x: not a URL of HTTP" in ended.output
    assert "passw0rd" not in ended.output


class Model(BaseHTTPRequestHandler):
    """A language model that quotes the first line of whatever it is shown, and says RESTART."""

    keys: ClassVar[list[str | None]] = []

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer a chat completion."""
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.keys.append(self.headers["Authorization"])
        assert "the flux capacitor is empty" in asked
        answer = {
            "category": "unknown",
            "action": "RESTART",
            "reason": "flux comes back",
            "evidence": [{"line": 1, "text": "the flux capacitor is empty"}],
            "nodes": [],
        }
        told = {
            "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(answer)}}]
        }
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_it_asks_a_language_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With --analyser llm the model of the URL is asked, with the key of the file, by a worker."""
    (tmp_path / "logs").mkdir()
    key = tmp_path / "key"
    key.write_text("nvapi-s3cret-0123456789\n")
    key.chmod(0o644)
    address = Address("127.0.0.1", free_ports(1))
    log = tmp_path / "logs/a_cycle0.log"
    answer = during(address, lambda client: judge(client, log, "the flux capacitor is empty\n"))
    with HTTPServer(("127.0.0.1", 0), Model) as model:
        serving = threading.Thread(target=model.serve_forever)
        serving.start()
        flags = [
            "--listen", str(address), "--allowed-root", str(tmp_path / "logs"), "--state", str(tmp_path / "s"),
            "--analyser", "llm", "--llm-base-url", f"http://127.0.0.1:{model.server_port}/v1", "--llm-model", "m",
            "--llm-key-file", str(key), "--drain-min", "0", "--drain-quiet", "0",
        ]  # fmt: skip
        ended = CliRunner().invoke(main, ["attribution", "serve", *flags])
        model.shutdown()
        serving.join()
    assert ended.exit_code == 0, ended.output
    told = answer()
    assert told["recommendation"]["action"] == "RESTART", told
    assert "flux comes back" in told["recommendation"]["reason"]
    assert Model.keys == ["Bearer nvapi-s3cret-0123456789"]
    said = capfd.readouterr().err
    assert "others than its owner can read the API key" in said
    assert "s3cret" not in said + json.dumps(told)
    assert (tmp_path / "s.tokens").exists()


def test_it_judges_by_rules(tmp_path: Path) -> None:
    """As a process of its own, with nothing said of how: a module that is missing is a reason to stop."""
    (tmp_path / "logs").mkdir()
    address = Address("127.0.0.1", free_ports(1))
    patience = ("--drain-min", "0", "--drain-quiet", "0")
    with subprocess.Popen(
        [
            sys.executable, "-m", "segment_health", "attribution", "serve", "--listen", str(address),
            "--allowed-root", str(tmp_path / "logs"), "--state", str(tmp_path / "s"), *patience,
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + PATIENCE
            with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=PATIENCE) as client:
                while True:
                    try:
                        assert client.get("/healthz").is_success
                        break
                    except httpx.TransportError:
                        assert time.monotonic() < deadline
                        time.sleep(0.05)
                text = (
                    "[rank0]: Traceback (most recent call last):\n"
                    '[rank0]:   File "train.py", line 10, in <module>\n'
                    "[rank0]:     import megatorn\n"
                    "[rank0]: ModuleNotFoundError: No module named 'megatorn'\n"
                )
                told = judge(client, tmp_path / "logs/a_cycle0.log", text)
        finally:
            process.terminate()
        said = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, said
    assert told["recommendation"]["action"] == "STOP", said
    assert told["recommendation"]["source"] == "rules"
    assert told["result"]["evidence"][0]["line"] == 4

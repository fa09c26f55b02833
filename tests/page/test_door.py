"""The server of the page, a real process, and the publisher's side of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from segment_health import serving
from segment_health.address import Address
from segment_health.lift import lift_stale
from segment_health.page import door as door_module
from segment_health.watch import Cause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Scene, Served

TOKEN = "a-token-for-refreshing"


def ask(served: Served, token: str | None = None) -> int:
    """Ask for a refresh and return the status."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return served.http.post("/api/v1/refresh", headers=headers).status_code


def test_before_the_first_pass_it_says_so(serve: Callable[..., Served]) -> None:
    """A server that has heard nothing yet is healthy, not ready, and shows an empty page."""
    served = serve()
    assert served.http.get("/healthz").status_code == 200
    ready = served.http.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "no pass was complete yet\n")
    assert served.http.get("/metrics").status_code == 503
    assert served.http.get("/").status_code == 200
    assert served.http.get("/api/v1/nodes").json()["nodes"] == []


def test_a_pass_is_shown(serve: Callable[..., Served], scene: Scene) -> None:
    """After a complete pass the page is ready, and both documents are what the pass saw and decided."""
    served = serve()
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan", since=1_795_999_000)
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    nodes = {node["name"]: node for node in served.http.get("/api/v1/nodes").json()["nodes"]}
    assert (nodes["n3"]["level"], nodes["n3"]["reason"], nodes["n3"]["unit"]) == (
        "PreSeparateFault",
        "bad fan",
        "123_7",
    )
    units = served.http.get("/api/v1/decisions").json()["units"]
    assert [unit["task_id"] for unit in units if unit["excluded"]] == ["7"]
    assert "bad fan" in served.http.get("/").text


def test_unchanged_documents_are_not_sent_again(serve: Callable[..., Served], scene: Scene) -> None:
    """A document has an ETag, which is answered by 304 until something changes."""
    served = serve()
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    first = served.http.get("/api/v1/nodes")
    known = {"If-None-Match": first.headers["ETag"]}
    again = served.http.get("/api/v1/nodes", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    scene.clock.advance(300)
    scene.cluster.set_node("n9", "DOWN")
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/api/v1/nodes", headers=known).status_code == 200)


def test_a_failed_pass_keeps_what_is_shown_and_says_why(serve: Callable[..., Served], scene: Scene) -> None:
    """A pass that was not made changes no picture, is told on the page, and does not make the last one stale."""
    served = serve()
    served.door.completed(scene.publish(), 0.1)
    served.door.failed(Cause.SLURM, "slurmctld does not answer", 0.1)
    served.until(lambda: served.http.get("/api/v1/decisions").json()["why"] == "slurmctld does not answer")
    assert len(served.http.get("/api/v1/nodes").json()["nodes"]) == 9
    assert served.http.get("/readyz").status_code == 200
    served.ahead += 2 * served.interval
    served.door.failed(Cause.SLURM, "slurmctld does not answer", 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 503)
    assert "slurmctld does not answer" in served.http.get("/readyz").text


def test_a_standby_is_alive_and_not_ready(serve: Callable[..., Served]) -> None:
    """A publisher that stands by gives signs of life, and says why it is not ready."""
    served = serve()
    served.door.standing_by()
    served.until(lambda: "standing by" in served.http.get("/readyz").text)
    assert served.http.get("/healthz").status_code == 200


def test_lifted_exclusions_are_told_and_shown_no_more(serve: Callable[..., Served], scene: Scene) -> None:
    """When exclusions are lifted without evidence the page says so, until a pass is complete again."""
    served = serve()
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "bad fan")
    done = scene.publish()
    served.door.completed(done, 0.1)
    served.door.failed(Cause.SLURM, "slurmctld does not answer", 0.1)
    artifact = done.changes[0].decision.artifact
    assert artifact is not None
    lifted = lift_stale(str(scene.directory), artifact.publisher, int(scene.clock()))
    served.door.went_stale(lifted, 1800.0)

    def told() -> dict[str, Any]:
        document: dict[str, Any] = served.http.get("/api/v1/decisions").json()
        return document

    served.until(lambda: "fail open" in (told()["why"] or ""))
    assert "slurmctld does not answer. no complete pass for 1800 s, 1 exclusions were lifted" in told()["why"]
    assert [unit["state"] for unit in told()["units"] if unit["task_id"] == "7"] == ["stale"]
    assert not any(unit["excluded"] for unit in told()["units"])
    served.door.failed(Cause.SLURM, "slurmctld still does not answer", 0.1)
    served.until(lambda: "still" in told()["why"])
    assert "fail open" in told()["why"]
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: told()["why"] is None)
    assert any(unit["excluded"] for unit in told()["units"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("HEAD", "/healthz", 200),
        ("POST", "/", 405),
        ("PUT", "/api/v1/nodes", 405),
        ("DELETE", "/api/v1/decisions", 405),
        ("GET", "/api/v1/refresh", 405),
        ("OPTIONS", "/api/v1/refresh", 405),
        ("GET", "/api/v1/", 404),
        ("GET", "/healthz/", 404),
        ("GET", "/page.html", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/etc/passwd", 404),
    ],
)
def test_paths_and_methods(serve: Callable[..., Served], method: str, path: str, status: int) -> None:
    """There is what there is; every answer, the refusals too, keeps browsers in check."""
    served = serve()
    answer = served.http.request(method, path)
    assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-cache"
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8080", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:9400", 200),
        ("[::1]:9400", 200),
        ("evil.example", 421),
        ("localhost.evil.example:9400", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_names_that_are_not_ours_are_refused(serve: Callable[..., Served], host: str, status: int) -> None:
    """On loopback a page elsewhere cannot make its own name ours (DNS rebinding)."""
    assert serve().http.get("/healthz", headers={"Host": host}).status_code == status


def test_a_refresh_needs_the_token(serve: Callable[..., Served]) -> None:
    """Without a token configured nobody may ask; with one, who has it."""
    assert ask(serve(), TOKEN) == 403
    served = serve(token=TOKEN)
    assert ask(served) == 401
    assert ask(served, "another-token") == 401
    assert ask(served, f"{TOKEN}x") == 401
    assert ask(served, TOKEN[:-1]) == 401
    assert served.http.post("/api/v1/refresh", headers={"Authorization": "Bearer"}).status_code == 401
    assert served.http.post("/api/v1/refresh", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
    assert not select.select([served.door.fileno()], [], [], 0.2)[0]
    assert ask(served, TOKEN) == 202


def test_refreshes_are_one_until_the_next_pass(serve: Callable[..., Served], scene: Scene) -> None:
    """However many ask, one pass is asked for; after it the next one may be."""
    served = serve(token=TOKEN)
    assert [ask(served, TOKEN) for _ in range(5)] == [202] * 5
    served.until(lambda: select.select([served.door.fileno()], [], [], 0)[0])
    assert os.read(served.door.fileno(), 4096) == b"refresh\n"
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    assert ask(served, TOKEN) == 202
    served.until(served.door.heard)
    assert not served.door.heard()


def test_a_killed_server_is_replaced_at_once_and_knows_all(serve: Callable[..., Served], scene: Scene) -> None:
    """The end of a server is heard of; another one takes its place, and its calls, and shows what was shown."""
    served = serve()
    served.door.completed(scene.publish(), 0.1)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    killed = served.pid
    os.kill(killed, signal.SIGKILL)
    served.until(lambda: select.select([served.door.fileno()], [], [], 0)[0])
    assert not served.door.heard()
    assert served.pid != killed
    served.http.close()
    served.http = type(served.http)(base_url=served.address.url, timeout=30, trust_env=False)
    served.until(lambda: served.http.get("/readyz").status_code == 200)
    assert len(served.http.get("/api/v1/nodes").json()["nodes"]) == 9
    assert served.said == ["the page's server ended (by signal 9); the publisher goes on"]


def test_a_server_that_keeps_dying_is_not_started_all_the_time(serve: Callable[..., Served]) -> None:
    """From one restart to the next some time has to pass; until then there is nothing to wait on."""
    served = serve()
    os.kill(served.pid, signal.SIGKILL)
    served.until(lambda: select.select([served.door.fileno()], [], [], 0)[0])
    served.door.heard()
    os.kill(served.pid, signal.SIGKILL)
    served.until(lambda: select.select([served.door.fileno()], [], [], 0)[0])
    assert not served.door.heard()
    assert served.door.fileno() == -1
    assert not served.door.heard()
    served.door.standing_by()
    assert served.door.fileno() == -1
    served.ahead += door_module.RESTART_SECONDS
    served.door.standing_by()
    assert served.door.fileno() != -1


def test_a_server_that_hangs_is_replaced(
    serve: Callable[..., Served], scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that reads no more holds the publisher up for a bounded time, and is killed."""
    monkeypatch.setattr(door_module, "SEND_SECONDS", 0.5)
    served = serve()
    scene.cluster.set_node("n3", "ALLOCATED+DRAIN", "x" * 300)
    done = scene.publish()
    assert done.picture is not None
    done.picture.nodes["nodes"] *= 2000  # more than a pipe holds
    served.http.get("/healthz")
    hanging = served.pid
    os.kill(hanging, signal.SIGSTOP)
    served.door.completed(done, 0.1)
    assert served.pid != hanging
    assert "did not read" in served.said[0]
    served.until(lambda: served.http.get("/readyz").status_code == 200)


def test_it_ends_with_its_publisher() -> None:
    """Whoever kills the publisher, however, leaves no server behind."""
    program = textwrap.dedent(
        """
        import socket, sys, time
        from segment_health.page.door import Door
        listening = socket.create_server(("127.0.0.1", 0))
        told = {"interval": lambda: 300, "monotonic": time.monotonic, "say": print, "remark": print}
        door = Door(listening, {"token": None, "host": None}, **told)
        print(door._server.pid, listening.getsockname()[1], flush=True)
        time.sleep(300)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as publisher:
        assert publisher.stdout is not None
        pid, port = map(int, publisher.stdout.readline().split())
        import httpx  # noqa: PLC0415 - here alone

        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=30, trust_env=False).status_code == 200
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)  # as a terminal or systemd would: for the publisher to decide
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=30, trust_env=False).status_code == 200
        publisher.kill()
    deadline = time.monotonic() + 30
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether a process is there that has not ended; a zombie has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] not in "ZX"
    except OSError as error:
        assert error.errno in {errno.ENOENT, errno.ESRCH}  # noqa: PT017 - whatever else is a bug
        return False


def test_at_a_unix_socket(serve: Callable[..., Served], short_path: Path) -> None:
    """A UNIX socket serves whoever may open it, by any name, and is gone in the end."""
    served = serve(Address(path=str(short_path / "page.sock")))
    assert served.http.get("/healthz", headers={"Host": "whatever"}).status_code == 200
    assert (short_path / "page.sock").stat().st_mode & 0o777 == 0o600
    served.close()
    assert not (short_path / "page.sock").exists()


def test_more_than_a_server_takes_is_refused_and_it_goes_on(serve: Callable[..., Served]) -> None:
    """A request line that is no HTTP is refused, and the next one answered."""
    served = serve()
    import socket  # noqa: PLC0415 - here alone

    with socket.create_connection((served.address.host, served.address.port), 30) as caller:
        caller.sendall(b"\x00\xff" * 100 + b"\r\n\r\n")
        assert b"400" in caller.recv(4096)
    assert served.http.get("/healthz").status_code == 200
    served.until(lambda: served.door.heard() or served.remarks)
    assert served.remarks == ["the page's server: 'Invalid HTTP request received.'"]
    assert served.said == []


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET"])
def test_who_never_asks_to_the_end_is_not_waited_for(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection on which no request ends is closed after a while, whether or not one did before."""
    monkeypatch.setattr(serving, "CALL_SECONDS", 0.3)

    async def app(_scope: object, _receive: object, send: Callable[[dict[str, Any]], Any]) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def answer() -> bytes:
        config = uvicorn.Config(app, http=serving.Call, ws="none", lifespan="off", log_config=None)
        state = ServerState()
        answering = await asyncio.get_running_loop().create_server(
            lambda: serving.Call(config, state, {}), "127.0.0.1", 0
        )
        async with answering:
            reader, writer = await asyncio.open_connection(*answering.sockets[0].getsockname())
            writer.write(said)
            answered = bytearray()
            with contextlib.suppress(ConnectionResetError):
                while data := await asyncio.wait_for(reader.read(4096), 30):
                    answered += data
            writer.close()
            return bytes(answered)

    answered = asyncio.run(answer())
    assert (b"204" in answered) == (b"Host" in said)

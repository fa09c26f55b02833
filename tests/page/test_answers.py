"""What the page's server answers, path by path: in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from segment_health.page.answers import application
from segment_health.page.board import Board

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Scene

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
HOME = "http://127.0.0.1:9400"


class Served:
    """A board, and who calls its server: `asked` counts the passes that were asked for."""

    def __init__(self, *, token: str | None = None, hosts: frozenset[str] | None = LOOPBACK) -> None:
        self.board = Board(time.monotonic())
        self.asked = 0
        self._app = application(self.board, refresh=self._refresh, token=token, hosts=hosts)

    def _refresh(self) -> None:
        self.asked += 1

    def hear(self, **event: Any) -> None:
        """Tell the board an event of a loop that passes every five minutes."""
        self.board.hear({"interval": 300.0, **event}, time.monotonic())

    def request(self, method: str, path: str, **headers: str) -> httpx.Response:
        """Return an answer."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url=HOME) as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(ask())

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and text of an answer."""
        answer = self.request("GET", path, **headers)
        return answer.status_code, answer.text

    def refresh(self, **headers: str) -> httpx.Response:
        """Ask for a pass."""
        return self.request("POST", "/api/v1/refresh", **headers)


@pytest.fixture
def pictured(scene: Scene) -> Callable[..., Served]:
    """Serve what a pass saw in which 123_7 is excluded for n4."""

    def serve(**traits: Any) -> Served:
        scene.cluster.set_node("n4", "DRAIN", "Xid 79")
        picture = scene.picture()
        served = Served(**traits)
        served.hear(nodes=picture.nodes, decisions=picture.decisions, age=1.0, metrics="up 1\n")
        return served

    return serve


def test_before_the_first_pass() -> None:
    """Alive and not ready; the page and the documents are there and empty, metrics are not."""
    served = Served()
    assert served.get("/healthz") == (200, "ok\n")
    assert served.get("/readyz") == (503, "no pass was complete yet\n")
    assert served.get("/metrics")[0] == 503
    assert json.loads(served.get("/api/v1/nodes")[1])["nodes"] == []
    assert json.loads(served.get("/api/v1/decisions")[1])["units"] == []
    assert "<title>" in served.get("/")[1]


def test_what_a_pass_saw(pictured: Callable[..., Served]) -> None:
    """Nodes with their reasons, units with their decisions, metrics as they came; and it is ready."""
    served = pictured()
    nodes = {node["name"]: node for node in json.loads(served.get("/api/v1/nodes")[1])["nodes"]}
    assert (nodes["n4"]["level"], nodes["n4"]["reason"]) == ("PreSeparateFault", "Xid 79")
    units = json.loads(served.get("/api/v1/decisions")[1])["units"]
    assert [unit["task_id"] for unit in units if unit["excluded"]] == ["7"]
    assert served.get("/metrics") == (200, "up 1\n")
    assert served.get("/readyz") == (200, "ok\n")
    assert "Xid 79" in served.get("/")[1]


def test_what_is_old_is_not_ready(pictured: Callable[..., Served]) -> None:
    """Passes that fail keep the last picture, and say why it grows old."""
    served = pictured()
    served.hear(age=900.0, why="Slurm's state is unknown")
    assert served.get("/readyz") == (503, "the last complete pass was 900 s ago: Slurm's state is unknown\n")
    assert "Xid 79" in served.get("/api/v1/nodes")[1]


@pytest.mark.parametrize("name", ["nodes", "decisions"])
def test_what_has_not_changed_is_not_sent_again(pictured: Callable[..., Served], name: str) -> None:
    """By its ETag, also a weak one or one of several; whatever changes has another."""
    served = pictured()
    etag = served.request("GET", f"/api/v1/{name}").headers["etag"]
    for known in (etag, f"W/{etag}", f'"x", {etag}'):
        assert served.get(f"/api/v1/{name}", **{"If-None-Match": known}) == (304, "")
    served.hear(nodes={"nodes": []}, decisions={"units": []}, age=0.0)
    assert served.get(f"/api/v1/{name}", **{"If-None-Match": etag})[0] == 200


def test_a_refresh(pictured: Callable[..., Served]) -> None:
    """Who knows the token asks; ten are one until the publisher was heard again; nobody else does."""
    served = pictured(token="secret")
    for given in (None, "Bearer wrong", "Basic secret", "secret"):
        headers = {} if given is None else {"Authorization": given}
        refused = served.refresh(**headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert served.asked == 0
    for _ in range(10):
        assert served.refresh(Authorization="bearer secret").status_code == 202
    assert served.asked == 1
    served.hear(age=0.0)
    served.refresh(Authorization="Bearer secret")
    assert served.asked == 2


def test_without_a_token_nobody_may_refresh(pictured: Callable[..., Served]) -> None:
    """It says by which option they could."""
    served = pictured()
    refused = served.refresh(Authorization="Bearer ")
    assert (refused.status_code, served.asked) == (403, 0)
    assert "--refresh-token-file" in refused.text


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:9400", 200), ("LOCALHOST", 200), ("[::1]:9400", 200), ("evil.example", 421), ("", 421)],
)
def test_names_that_are_not_ours(host: str, status: int) -> None:
    """On loopback a name from elsewhere is refused: a page may have made it resolve to us."""
    assert Served().get("/healthz", Host=host)[0] == status
    assert Served(hosts=None).get("/healthz", Host=host)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/nodes/", 404),
        ("GET", "/api/v1/refresh", 405),
        ("POST", "/api/v1/nodes", 405),
        ("DELETE", "/", 405),
    ],
)
def test_what_is_not_there(method: str, path: str, status: int) -> None:
    """Another path is none, another method is refused; each answer keeps browsers in check."""
    answer = Served().request(method, path)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")

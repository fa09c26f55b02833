"""The status page of a real publisher on a real Slurm."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm

TOKEN = "refresh-me-if-you-can"


def caller(address: str) -> httpx.Client:
    """Return a client of a page at a port or a UNIX socket."""
    if address.startswith("unix:"):
        transport = httpx.HTTPTransport(uds=address.removeprefix("unix:"))
        return httpx.Client(base_url="http://localhost", transport=transport, timeout=30, trust_env=False)
    return httpx.Client(base_url=f"http://127.0.0.1:{address}", timeout=30, trust_env=False)


@pytest.fixture
def http() -> Iterator[Callable[[str], httpx.Client]]:
    """Make clients, which are closed in the end."""
    made: list[httpx.Client] = []

    def make(address: str) -> httpx.Client:
        made.append(caller(address))
        return made[-1]

    yield make
    for client in made:
        client.close()


def nodes_of(client: httpx.Client) -> dict[str, dict[str, str]]:
    """Return the nodes that the page tells of, by name."""
    return {node["name"]: node for node in client.get("/api/v1/nodes").json()["nodes"]}


def server_of(publisher: Running) -> int:
    """Return the process id of a publisher's server, a child of it."""
    children = Path(f"/proc/{publisher.process.pid}/task/{publisher.process.pid}/children").read_text().split()
    (pid,) = [child for child in children if b"segment_health.page" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return int(pid)


def test_it_goes_on_when_the_settings_name_it_no_more(
    site: Site, start: Callable[..., Running], http: Callable[[str], httpx.Client]
) -> None:
    """SIGHUP does not end the page, and what it shows does not stay as it was either."""
    job = site.submit("--nodes=1")
    (name,) = site.nodes_of()[f"{job}.{job}"]
    port = str(free_ports(1))
    config = site.work / "config.toml"
    config.write_text(f'all = true\nlisten = "{port}"\n')
    publisher = start("--config", str(config))
    page = http(port)
    publisher.until(lambda: nodes_of(page)[name]["level"] == "NotHandleFault")
    config.write_text("all = true\n")
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: publisher.said("reload") == 2)
    site.cluster.set_node(name, "drain", "bad")
    publisher.poked_until(lambda: nodes_of(page)[name]["level"] == "PreSeparateFault")


def test_a_drain_is_shown_after_a_refresh(
    site: Site, start: Callable[..., Running], http: Callable[[str], httpx.Client]
) -> None:
    """Who has the token asks for a pass, in which a drained node is seen; who has not is refused."""
    job = site.submit("--nodes=2")
    bad, good = sorted(site.nodes_of()[f"{job}.{job}"])
    token = site.work / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    port = str(free_ports(1))
    publisher = start("--all", "--listen", port, "--refresh-token-file", str(token))
    page = http(port)
    publisher.until(lambda: page.get("/readyz").status_code == 200)
    assert page.get("/healthz").text == "ok\n"
    metrics = page.get("/metrics")
    assert metrics.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    (fit,) = re.findall(r'segment_health_nodes\{level="NotHandleFault".*\} (.*)', metrics.text)
    assert float(fit) == len(site.cluster.nodes)
    assert {nodes_of(page)[name]["level"] for name in site.cluster.nodes} == {"NotHandleFault"}
    assert nodes_of(page)[bad]["unit"] == job
    site.cluster.set_node(bad, "drain", "bad <fan>")
    assert page.post("/api/v1/refresh").status_code == 401
    assert nodes_of(page)[bad]["level"] == "NotHandleFault"

    def refreshed() -> bool:
        answer = page.post("/api/v1/refresh", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 202
        return nodes_of(page)[bad]["level"] == "PreSeparateFault"

    publisher.until(refreshed)
    assert nodes_of(page)[bad]["reason"] == "bad <fan>"
    assert nodes_of(page)[good]["level"] == "NotHandleFault"
    decisions = page.get("/api/v1/decisions").json()
    (unit,) = decisions["units"]
    assert (unit["job_id"], unit["excluded"], unit["nodes"], unit["state"]) == (job, True, bad, "fresh")
    assert [(entry["action"], entry["unit"]) for entry in decisions["history"]] == [("exclude", job)]
    assert decisions["publishers"][0]["alive"]
    assert "\\u003cfan\\u003e" in page.get("/").text
    assert publisher.end() == 0
    with pytest.raises(httpx.TransportError):
        page.get("/healthz")


def test_a_killed_server_is_replaced_and_the_publisher_goes_on(
    site: Site, start: Callable[..., Running], http: Callable[[str], httpx.Client], short_path: Path
) -> None:
    """Kill -9 of the server's process costs the publisher nothing but a line of its log."""
    address = f"unix:{short_path}/page.sock"
    publisher = start("--all", "--listen", address)
    publisher.until(lambda: http(address).get("/readyz").status_code == 200)
    killed = server_of(publisher)
    os.kill(killed, signal.SIGKILL)
    publisher.until(lambda: publisher.said("page") == 2)
    publisher.until(lambda: server_of(publisher) != killed)
    assert http(address).get("/readyz").status_code == 200
    assert len(nodes_of(http(address))) == len(site.cluster.nodes)
    assert "signal 9" in publisher.lines("page")[1]["message"]
    assert publisher.end() == 0
    assert not Path(address.removeprefix("unix:")).exists()


def test_while_slurm_is_silent_the_page_stays(
    site: Site, start: Callable[..., Running], http: Callable[[str], httpx.Client]
) -> None:
    """A slurmctld that does not answer is told on the page, whose picture stays."""
    port = str(free_ports(1))
    publisher = start("--all", "--listen", port, "--timeout", "2")
    page = http(port)
    publisher.until(lambda: page.get("/readyz").status_code == 200)
    site.cluster.pause_controller()
    publisher.poke()
    publisher.until(lambda: "unknown" in (page.get("/api/v1/decisions").json()["why"] or ""))
    assert len(nodes_of(page)) == len(site.cluster.nodes)
    site.cluster.continue_controller()


def test_a_standby_takes_over_with_its_page(
    site: Site, start: Callable[..., Running], http: Callable[[str], httpx.Client]
) -> None:
    """A standby is healthy and not ready; when it takes over its page shows what it publishes."""
    first = start("--all")
    port = str(free_ports(1))
    second = start("--all", "--standby", "--interval", "5", "--listen", port, wait="standby")
    page = http(port)
    second.until(lambda: "standing by" in page.get("/readyz").text)
    assert page.get("/healthz").status_code == 200
    assert nodes_of(page) == {}
    assert first.end() == 0
    second.until(lambda: page.get("/readyz").status_code == 200)
    assert len(nodes_of(page)) == len(site.cluster.nodes)


def test_what_cannot_be_served_ends_the_publisher_at_once(site: Site, short_path: Path) -> None:
    """A port in use, a wrong address, an open token file: a line that says so, exit 2, nothing published."""
    token = site.work / "token"
    token.write_text(TOKEN)
    token.chmod(0o640)
    port = free_ports(1)
    occupied = short_path / "not-a-socket"
    occupied.write_text("a file")
    with socket.create_server(("127.0.0.1", port)):
        refused = [
            (["--listen", str(port)], "Address already in use"),
            (["--listen", "256.1.1.1:9400"], "no address of this host"),
            (["--listen", "everywhere"], "not PORT"),
            (["--listen", f"unix:{occupied}"], "something else is there"),
            (["--listen", "unix:page.sock"], "absolute"),
            (["--listen", str(free_ports(1)), "--refresh-token-file", str(token)], "chmod 600"),
            (["--refresh-token-file", str(token)], "--listen"),
        ]
        for options, told in refused:
            done = site.call("publish", "--dir", str(site.directory), "--all", *options)
            assert (options, done.returncode) == (options, 2)
            assert told in done.stderr
    assert occupied.read_text() == "a file"
    assert list(site.directory.iterdir()) == []

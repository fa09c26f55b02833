"""A cluster whose passes are pictured, and a door to a server of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from segment_health import listening
from segment_health.address import Address
from segment_health.observe import observe
from segment_health.page.door import Door
from segment_health.page.portrait import portrait_of_pass
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import Pass, publish
from segment_health.scope import EVERYTHING, Scope
from segment_health.testing import FakeClock, FakeCluster
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segment_health.page.picture import Picture


@dataclass
class Scene:
    """A cluster of n1 to n9, a directory and a clock."""

    directory: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=FakeClock)

    def publish(self, scope: Scope = EVERYTHING, **options: Any) -> Pass:
        """Make a pass, and its picture, as a publisher with a page does."""
        publication = Publication(
            str(self.directory), scope, Policy(), "0.1.0", interval=300.0, loop=True
        )._replace(**options)
        observation = observe(publication, self.cluster.source, self.clock)
        done = publish(observation, publication, self.clock)
        done.picture = portrait_of_pass(observation, publication, done.outcome.seen)
        return done

    def picture(self, scope: Scope = EVERYTHING, **options: Any) -> Picture:
        """Make a pass and return its picture."""
        picture = self.publish(scope, **options).picture
        assert picture is not None
        return picture


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Array tasks 123_0 and 123_7 and job 55 on two nodes each; n7 to n9 are idle."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    made = Scene(directory)
    made.cluster.run("123_0", "n[1-2]")
    made.cluster.run("123_7", "n[3-4]")
    made.cluster.run("55", "n[5-6]")
    return made


class Served:
    """A door, the log lines that it wrote, and a browser's view of its server. `clock` tells the door the time."""

    def __init__(self, address: Address, traits: dict[str, Any]) -> None:
        self.address = address
        self.traits = traits
        self.said: list[str] = []
        self.remarks: list[str] = []
        self.interval = 300.0
        self.ahead = 0.0
        self.listening = listening.listen(address)
        self.door = Door(
            self.listening,
            {"token": None, "host": address.name if address.is_loopback else None, **traits},
            interval=lambda: self.interval,
            monotonic=lambda: time.monotonic() + self.ahead,
            say=lambda _level, sentence: self.said.append(sentence),
            remark=self.remarks.append,
        )
        transport = httpx.HTTPTransport(uds=address.path) if address.path else None
        base = "http://localhost" if address.path else address.url
        self.http = httpx.Client(base_url=base, transport=transport, timeout=30, trust_env=False)

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self.door._server is not None
        return self.door._server.pid

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something to be true."""
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def close(self) -> None:
        """End it all."""
        self.http.close()
        self.door.close()
        listening.close(self.listening, self.address)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start a server: at a free port of 127.0.0.1 unless told otherwise; further arguments are its traits."""
    started: list[Served] = []

    def begin(address: Address | None = None, **traits: Any) -> Served:
        started.append(Served(address or Address("127.0.0.1", free_ports(1)), traits))
        return started[-1]

    yield begin
    for one in started:
        one.close()

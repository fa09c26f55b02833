"""A service, in this process or in one of its own, with an analyser of the tests' own (see analyst.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from segment_health.attribution.service.analyses import Analyses, Limits, Ports
from segment_health.attribution.service.app import PerMinute, Traits, application
from segment_health.attribution.service.disk_thread import DiskThread
from segment_health.attribution.service.drain import Patience
from segment_health.attribution.service.journal import Journal
from segment_health.attribution.service.known_logs import KnownLogs
from segment_health.attribution.service.register import Register
from segment_health.attribution.service.storage import Storage
from segment_health.attribution.service.worker_pool import WorkerPool
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

PATIENCE = 60.0
HERE = Path(__file__).parent
NO_PATIENCE = Patience(0.0, 0.0, 0.3, 0.02)


class House:
    """A place for a service: logs, a state file, and what it said."""

    def __init__(self, directory: Path) -> None:
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.state = directory / "state.db"
        self.said: list[str] = []
        self.limits = Limits(analysis=20.0, patience=NO_PATIENCE)
        self.per_minute = PerMinute(100_000, 100_000, 100_000)
        self.hosts: frozenset[str] | None = None
        self.keep = 3000
        self.before: Callable[[Register], None] = lambda _: None

    def log(self, name: str, text: str = "STOP") -> str:
        """Leave a log; return its path."""
        (self.logs / name).write_text(text)
        return str(self.logs / name)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Client]:
        """Serve in this process, without a socket."""
        disk = DiskThread("tests")
        register = disk.put(lambda: Register(str(self.state), keep=self.keep)).result()
        self.before(register)
        command = (sys.executable, str(HERE / "analyst.py"))
        order = {"root": str(self.logs.resolve()), "analyser": {"name": "tests"}}
        pools = [WorkerPool(command, order, size, os.environ) for size in (2, 2, 4)]
        ports = Ports(Journal(register, disk), Storage(*pools), self._say, time.time)
        known = disk.put(lambda: (register.attempts(), register.judged())).result()
        analyses = Analyses(ports, self.limits, KnownLogs(*known), "tests")
        traits = Traits(
            self.per_minute, self.hosts, time.monotonic, lambda event, told: self._say("", event, told)
        )
        transport = httpx.ASGITransport(application(analyses, traits), raise_app_exceptions=False)
        try:
            # Nobody asks before they are there: their start takes longer than a client has.
            await asyncio.gather(*(pools[0].do({"do": "look", "path": "/"}, PATIENCE) for _ in range(2)))
            analyses.resume()
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                yield Client(client, analyses)
        finally:
            await analyses.close()
            disk.put(register.close)
            assert disk.close(PATIENCE)

    def _say(self, _level: str, event: str, sentence: str) -> None:
        self.said.append(f"{event}: {sentence}")


class Client:
    """Asks a service in this process."""

    def __init__(self, client: httpx.AsyncClient, analyses: Analyses) -> None:
        self.http = client
        self.analyses = analyses

    async def post(self, path: str, intent: str = "terminal", **more: Any) -> httpx.Response:
        """Announce a log."""
        body = json.dumps({"log_path": path, "analysis_intent": intent, **more})
        return await self.http.post("/logs", content=body, headers={"Content-Type": "application/json"})

    async def get(self, path: str, *, wait: bool = True) -> httpx.Response:
        """Ask what was found in it."""
        return await self.http.get("/logs", params={"log_path": path, "wait": str(wait).lower()})

    async def judge(self, path: str, **more: Any) -> dict[str, Any]:
        """Have a log judged; return the answer."""
        assert (await self.post(path, **more)).status_code == 200
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A place for a service."""
    return House(tmp_path)


class Served:
    """The service as a process of its own, at a port of this host."""

    def __init__(self, directory: Path, **told: Any) -> None:
        self.logs = directory / "logs"
        self.logs.mkdir(exist_ok=True)
        self.address = f"127.0.0.1:{free_ports(1)}"
        self.url = f"http://{self.address}"
        state = str(directory / "state.db")
        self._told = {"listen": self.address, "root": str(self.logs), "state": state, **told}
        self.stderr = directory / "stderr"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "serve.py"), json.dumps(self._told)], stderr=stderr
            )
        deadline = time.monotonic() + PATIENCE
        with httpx.Client(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.url}/healthz").is_success:
                        return
                assert time.monotonic() < deadline, self.stderr.read_text()
                assert self.process.poll() is None, self.stderr.read_text()
                time.sleep(0.05)

    def log(self, name: str, text: str) -> str:
        """Leave a log; return its path."""
        (self.logs / name).write_text(text)
        return str(self.logs / name)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self) -> int:
        """Ask it to end; return its status."""
        self.process.terminate()
        return self.process.wait(PATIENCE)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start services, which end with the test."""
    started: list[Served] = []

    def start(**told: Any) -> Served:
        started.append(Served(tmp_path, **told))
        return started[-1]

    yield start
    for service in started:
        service.kill()

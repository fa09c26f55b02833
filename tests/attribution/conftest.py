"""An attribution service in a process of its own, which does what a test tells it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).with_name("service.py")
PATIENCE = 30.0  # seconds; all that is waited for takes a tenth of one on an idle machine


class Service:
    """The program service.py, running."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        """Start it."""
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *self._arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Kill it: from now on nobody listens at its port."""
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def behaves(self, **behaviour: object) -> None:
        """Tell it how to answer from now on (see service.py), and let it forget what it was asked."""
        with httpx.Client(trust_env=False) as client:
            client.put(f"{self.url}/behaviour", json=behaviour).raise_for_status()

    def asked(self, method: str = "", intent: str = "") -> list[dict[str, Any]]:
        """Return what it was asked, in order: all, or by method, or by a submission's intent."""
        asked: list[dict[str, Any]] = self._told()["asked"]
        return [
            request
            for request in asked
            if request["method"].startswith(method)
            and (not intent or request.get("body", {}).get("analysis_intent") == intent)
        ]

    def most(self) -> int:
        """Return how many analyses at a time were requested and not yet told, at the most."""
        return int(self._told()["most"])

    def submitted(self, intent: str) -> list[str]:
        """Return the logs that were submitted with an intent."""
        return [request["body"]["log_path"] for request in self.asked("POST", intent)]

    def asked_of(self) -> list[str]:
        """Return the logs that were asked for, each once, in order."""
        return list(dict.fromkeys(request["query"]["log_path"][0] for request in self.asked("GET")))

    def _told(self) -> dict[str, Any]:
        with httpx.Client(trust_env=False) as client:
            told: dict[str, Any] = client.get(f"{self.url}/asked").json()
            return told


@pytest.fixture(scope="session")
def _running() -> Iterator[Service]:
    service = Service()
    yield service
    service.stop()


@pytest.fixture
def service(_running: Service) -> Service:
    """A service that accepts whatever it is sent, and is never done with it; until told otherwise."""
    _running.behaves()
    return _running


@pytest.fixture
def mortal_service() -> Iterator[Service]:
    """A service that a test may stop."""
    service = Service()
    yield service
    service.stop()


@pytest.fixture
def until() -> Callable[[Callable[[], object], str], None]:
    """Wait until a predicate holds, or fail, naming what it is."""

    def wait(predicate: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not predicate():
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: not within {PATIENCE:g} s")
            time.sleep(0.01)

    return wait

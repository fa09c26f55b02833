"""Logs on storage that hangs (FUSE), and a state file on a disk that is full: real mounts, a real service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from .conftest import PATIENCE, Served

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root
PROGRAM = Path(__file__).parents[2] / "faults/passthrough.py"
GUARD_SECONDS = 200


class Fuse:
    """A file system at `point` that does what it is told; `work` is beside it."""

    def __init__(self, work: Path) -> None:
        self.work, self.point, self._mode = work, work / "logs", work / "mode"
        backing = work / "backing"
        for path in (self.point, backing):
            path.mkdir()
        command: list[str | Path] = [sys.executable, PROGRAM, backing, self.point, self._mode, "segmenthealth"]
        self._daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        # Should the product ever hang, this whole Python does, and with it all that could end a test.
        guard = f"sleep {GUARD_SECONDS}; kill -KILL {self._daemon.pid}"
        self._guard = subprocess.Popen(["sh", "-c", guard], start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while not os.path.ismount(self.point):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def does(self, rule: str = "") -> None:
        """Fail or hang as passthrough.py takes it; nothing means to be well again."""
        new = self.work / "mode.new"
        new.write_text(rule)
        new.replace(self._mode)

    def close(self) -> None:
        """Let whoever waits go, and unmount."""
        self._daemon.kill()
        self._daemon.wait()
        os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        subprocess.run(["umount", "--lazy", self.point], check=False)


@pytest.fixture
def fuse() -> Iterator[Fuse]:
    """A file system for logs."""
    with tempfile.TemporaryDirectory(prefix="serve-", dir="/tmp") as work:
        made = Fuse(Path(work))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """Asks without a proxy."""
    with httpx.Client(trust_env=False, timeout=PATIENCE) as made:
        yield made


def post(client: httpx.Client, service: Served, path: str) -> httpx.Response:
    """Have a log judged."""
    return client.post(f"{service.url}/logs", json={"log_path": path, "analysis_intent": "terminal"})


def ask(client: httpx.Client, service: Served, path: str, wait: str = "true") -> dict[str, Any]:
    """Ask what was found."""
    told: dict[str, Any] = client.get(f"{service.url}/logs", params={"log_path": path, "wait": wait}).json()
    return told


def test_storage_that_hangs_holds_nobody_up(fuse: Fuse, client: httpx.Client) -> None:
    """A submission is answered in time, what is known is told, the end comes, and what was accepted stays."""
    service = Served(fuse.work, patience=[0.0, 0.0, 600.0, 0.1])
    try:
        known = service.log("k_cycle0.log", "STOP")
        assert post(client, service, known).status_code == 200
        assert ask(client, service, known)["recommendation"]["action"] == "STOP"
        slow = service.log("s_cycle0.log", "sleep 2")
        assert post(client, service, slow).status_code == 200
        fuse.does("* hang")
        for _ in range(3):
            began = time.monotonic()
            refused = post(client, service, str(service.logs / "n_cycle0.log"))
            assert (refused.status_code, refused.json()["error_code"]) == (503, "storage_unavailable")
            assert time.monotonic() - began < 2.0
        began = time.monotonic()
        assert ask(client, service, known)["recommendation"]["action"] == "STOP"
        health = client.get(f"{service.url}/healthz").json()
        assert time.monotonic() - began < 2.0
        assert (health["status"], health["issues"][0][1:]) == (
            "degraded",
            " processes hang in the kernel, waiting for storage",
        )
        for _ in range(3):
            assert post(client, service, str(service.logs / "n_cycle0.log")).status_code == 503
        began = time.monotonic()
        assert service.end() == 0
        assert time.monotonic() - began < 15
        fuse.does()
        service.log("s_cycle0.log", "RESTART")
        service.start()
        assert ask(client, service, known)["recommendation"]["action"] == "STOP"
        assert ask(client, service, slow)["recommendation"]["action"] in {"RESTART", "UNKNOWN"}
        new = service.log("n_cycle0.log", "STOP")
        assert post(client, service, new).status_code == 200
        assert ask(client, service, new)["recommendation"]["action"] == "STOP"
    finally:
        fuse.does()
        service.kill()


def test_it_recovers_by_itself(fuse: Fuse, client: httpx.Client) -> None:
    """Once storage answers again the service takes logs again, without another start."""
    service = Served(fuse.work)
    try:
        path = service.log("a_cycle0.log", "STOP")
        fuse.does("* hang")
        for _ in range(3):
            assert post(client, service, path).status_code == 503
        fuse.does()
        deadline = time.monotonic() + PATIENCE
        while post(client, service, path).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert ask(client, service, path)["recommendation"]["action"] == "STOP"
        while client.get(f"{service.url}/healthz").json()["status"] != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        fuse.does()
        service.kill()


def test_a_full_disk_is_told_and_got_over(tmp_path: Path, client: httpx.Client) -> None:
    """What cannot be written down is not accepted, what was is judged, and with room all goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", disk], check=True)
    service = None
    try:
        service = Served(tmp_path, state=str(disk / "state.db"))
        (disk / "ballast").write_bytes(b"x" * 300_000)
        accepted: list[str] = []
        for number in range(2000):
            path = service.log(f"t{number}_cycle0.log", "STOP")
            told = post(client, service, path)
            if told.status_code != 200:
                break
            accepted.append(path)
        assert len(accepted) > 5
        assert (told.status_code, told.json()["error_code"]) == (503, "state_unavailable")
        health = client.get(f"{service.url}/healthz").json()
        assert health["status"] == "degraded"
        assert f"{disk}/state.db: cannot be written" in health["issues"][0]
        for path in accepted:
            assert ask(client, service, path)["recommendation"]["action"] == "STOP"
        (disk / "ballast").unlink()
        assert post(client, service, path).status_code == 200
        deadline = time.monotonic() + PATIENCE
        while client.get(f"{service.url}/healthz").json()["status"] != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        service.kill()
        service.start()
        for path in accepted:
            assert ask(client, service, path)["recommendation"]["action"] == "STOP"
    finally:
        if service is not None:
            service.kill()
        subprocess.run(["umount", "--lazy", disk], check=True)

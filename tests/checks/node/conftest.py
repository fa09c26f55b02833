"""A service that answers as it is told, sockets that speak anything else, and NVRx's clients."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

HERE = Path(__file__).parent
WHEELS = HERE.parents[2] / ".cache/nvrx"


class Server:
    """server.py, living."""

    def __init__(self, socket_path: Path) -> None:
        self.path = socket_path

    def answers(self, **answer: Any) -> str:
        """Let each call from here on be answered so; return the socket."""
        Path(f"{self.path}.answer").write_text(json.dumps(answer))
        Path(f"{self.path}.calls").write_text("")
        return str(self.path)

    def calls(self) -> list[list[str]]:
        """Return the arguments of the calls since."""
        return [json.loads(line) for line in Path(f"{self.path}.calls").read_text().splitlines()]


@contextmanager
def serving(path: Path) -> Iterator[Server]:
    """Run server.py on a socket."""
    argv = [sys.executable, "-W", "error", str(HERE / "server.py"), str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        yield Server(path)
        process.stdin.close()
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One service for all tests of a file, which each tell it what to answer."""
    with tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp") as directory, serving(Path(directory) / "s") as it:
        yield it


@pytest.fixture
def serve() -> Callable[[Path], AbstractContextManager[Server]]:
    """Run a service within a `with`."""
    return serving


@pytest.fixture
def listening(short_path: Path) -> Iterator[Callable[[Callable[[socket.socket], object]], str]]:
    """Listen on a socket, and do with each connection what a test wants; closed connections are no failure."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []

    def listen(speak: Callable[[socket.socket], object]) -> str:
        path = str(short_path / f"raw{len(listeners)}")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        listener.settimeout(0.1)

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    connection, _ = listener.accept()
                    connection.settimeout(0.1)
                    with connection, suppress(OSError):
                        speak(connection)

        threads.append(threading.Thread(target=serve))
        listeners.append(listener)
        threads[-1].start()
        return path

    yield listen
    ended.set()
    for thread, listener in zip(threads, listeners, strict=True):
        thread.join(20)
        listener.close()


class Seen(NamedTuple):
    """What a client made of an answer."""

    healthy: bool
    log: list[tuple[str, str]]


class NvrxClient:
    """NVRx's client of one release, in a process of its own."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.wheel = WHEELS / f"nvidia_resiliency_ext-{release}"
        if not self.wheel.is_dir():
            pytest.fail(f"{self.wheel} is missing: `make test` fetches it (tests/nvrx_wheel.sh)", pytrace=False)
        self._process: subprocess.Popen[str] | None = None

    def ask(self, endpoint: str, seconds: float = 2) -> Seen:
        """Check once."""
        if self._process is None:
            argv = [sys.executable, "-W", "error", str(HERE / "nvrx_client.py"), str(self.wheel)]
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"endpoint": endpoint, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        return Seen(told["healthy"], [(level, text) for level, text in told["log"]])

    def end(self) -> None:
        """End it."""
        if self._process is not None:
            with self._process as process:
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(20) == 0


@pytest.fixture(scope="module")
def nvrx_clients() -> Iterator[dict[str, NvrxClient]]:
    """Each release of NVRx that has this client."""
    clients = {release: NvrxClient(release) for release in ("0.6.0", "0.7.0")}
    yield clients
    for client in clients.values():
        client.end()


@pytest.fixture(scope="module", params=["0.6.0", "0.7.0"])
def nvrx(nvrx_clients: dict[str, NvrxClient], request: pytest.FixtureRequest) -> NvrxClient:
    """One of them after the other."""
    return nvrx_clients[request.param]

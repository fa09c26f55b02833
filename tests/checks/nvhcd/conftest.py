"""A real daemon, its callers, and who is left of what it ran."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
NVHCD = Path(sys.executable).with_name("nvhcd")
_MARK = "NVHCD_TEST_MARK"


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Marked:
    """Processes that have a variable in their environment, as whatever they start has it too."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self.environ = {**os.environ, _MARK: self.mark}

    def living(self) -> list[int]:
        """Return those that live."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and f"{_MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    async def soon(self, condition: Callable[[], object]) -> None:
        """Wait, in a loop, for something to be true."""
        while not condition():  # noqa: ASYNC110 - what other processes do sets no event
            await asyncio.sleep(0.02)

    def kill(self) -> None:
        """Kill them, whatever the test came to."""
        for process in self.living():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def marked() -> Iterator[Marked]:
    """A mark for all that a test starts."""
    made = Marked()
    yield made
    made.kill()


@pytest.fixture
def script(short_path: Path) -> Callable[[str, str], str]:
    """Write a health check: a body, and who reads it."""

    def write(body: str, interpreter: str = "/bin/sh", name: str = "check") -> str:
        path = short_path / name
        new = short_path / f"{name}.new"  # a script that runs is busy
        new.write_text(f"#!{interpreter}\n{body}\n")
        new.chmod(0o755)
        new.rename(path)
        return str(path)

    return write


class Caller:
    """Calls from another process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "caller.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, path: str, *calls: dict[str, Any]) -> None:
        """Begin calls at the same time."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"socket": path, "calls": calls}) + "\n")
        self._process.stdin.flush()

    def results(self) -> list[dict[str, Any]]:
        """Wait for what came of them."""
        assert self._process.stdout is not None
        found: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="session")
def _caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.close()


class Daemon:
    """nvhcd, as a process of its own."""

    def __init__(self, directory: Path, marked: Marked, caller: Caller) -> None:
        self.directory = directory
        self.config = directory / "config.yaml"
        self.socket = str(directory / "nvhcd.sock")
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.environ = marked.environ
        self.until = until
        self._marked = marked
        self._caller = caller

    def configure(self, program: str, **keys: object) -> None:
        """Write the configuration."""
        told = {"socket_path": self.socket, "healthcheck_path": program, "log_level": "debug", **keys}
        self.config.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in told.items()))

    def start(self, program: str | None = None, *, wait: bool = True, **keys: object) -> None:
        """Start it, and wait until it serves."""
        if program is not None:
            self.configure(program, **keys)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [NVHCD, "-config", self.config], env=self.environ, stdout=log, stderr=log, cwd="/"
            )
        if wait:
            until(lambda: self.answers() or self.process is None or self.process.poll() is not None)
            assert self.process.poll() is None, self.log.read_text()

    def answers(self) -> bool:
        """Whether somebody takes calls."""
        with socket.socket(socket.AF_UNIX) as trying:
            return trying.connect_ex(self.socket) == 0

    def call(self, *args: str, **told: Any) -> dict[str, Any]:
        """Make one call."""
        self._caller.begin(self.socket, {"args": args, **told})
        return self._caller.results()[0]

    def begin(self, *calls: dict[str, Any]) -> None:
        """Begin calls at the same time."""
        self._caller.begin(self.socket, *calls)

    def results(self) -> list[dict[str, Any]]:
        """Wait for what came of them."""
        return self._caller.results()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the status it ends with."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process is not None
        return self.process.pid

    def below(self) -> list[int]:
        """Return what it started and what is left of that, in whatever session."""
        return [process for process in self._marked.living() if process != self.pid]

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text()


@pytest.fixture
def daemon(short_path: Path, marked: Marked, _caller: Caller) -> Iterator[Daemon]:
    """A daemon that is not started yet."""
    made = Daemon(short_path, marked, _caller)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(30)

"""The daemon's life inside this process, with a server of lines in gRPC's place: signals, reloads, ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.checks.nvhcd.config import parse
from segment_health.checks.nvhcd.daemon import Daemon
from segment_health.checks.nvhcd.outcome import Answer
from segment_health.checks.nvhcd.place import PlaceError
from segment_health.checks.nvhcd.relay import ActivationError, Relay, inherited
from segment_health.cli.nvhcd import DaemonLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from segment_health.checks.nvhcd.outcome import Outcome

    from .conftest import Marked

    Script = Callable[..., str]

pytestmark = pytest.mark.usefixtures("own_signals")


class Lines:
    """Serves a line for a line: arguments, and whether the node is healthy or what went wrong."""

    def __init__(
        self, answer: Callable[[Sequence[str]], Awaitable[Outcome]], remark: Callable[[str], None]
    ) -> None:
        self._answer = answer
        self._calls: set[asyncio.Task[None]] = set()
        remark("begun")

    async def start(self, path: str) -> None:
        """Serve."""
        self._server = await asyncio.start_unix_server(self._take, path)

    async def stop(self, grace: float | None) -> None:
        """Let calls end, or not."""
        self._server.close()
        if grace is None:
            for call in self._calls:
                call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:
            writer.close()
            return
        call = asyncio.create_task(self._tell(line.decode().split(), writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _tell(self, args: Sequence[str], writer: asyncio.StreamWriter) -> None:
        try:
            came = await self._answer(args)
            writer.write(f"{came.success if isinstance(came, Answer) else came.code}\n".encode())
        finally:
            writer.close()


class Life:
    """A daemon that lives in a loop beside its test."""

    def __init__(self, directory: Path, marked: Marked) -> None:
        self.path = directory / "config.yaml"
        self.socket = str(directory / "nvhcd.sock")
        self.environ = dict(marked.environ)
        self.ended: int | None = None

    def configure(self, program: str, **keys: object) -> None:
        """Write the configuration."""
        self.path.write_text(json.dumps({"socket_path": self.socket, "healthcheck_path": program, **keys}))

    async def ask(self, *args: str) -> str:
        """Call once; empty where nobody answers."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        writer.write(" ".join(args).encode() + b"\n")
        answer = await reader.readline()
        writer.close()
        return answer.decode().strip()

    def beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let it live while the work is done."""

        async def both() -> None:
            config = parse(self.path.read_bytes(), str(self.path))
            daemon = Daemon(config, str(self.path), DaemonLog("text", time.time), self.environ, Lines)
            living = asyncio.create_task(daemon.run())
            try:
                while not os.path.exists(self.socket) and not living.done():  # noqa: ASYNC240, ASYNC110 - a test
                    await asyncio.sleep(0.01)
                await asyncio.wait_for(work(), 60)
            finally:
                if not living.done():
                    os.kill(os.getpid(), signal.SIGTERM)
                self.ended = await living

        asyncio.run(both())


@pytest.fixture
def life(short_path: Path, marked: Marked) -> Life:
    """A daemon to be."""
    return Life(short_path, marked)


def test_it_answers_and_ends(life: Life, script: Script, capfd: pytest.CaptureFixture[str]) -> None:
    """Each call by the program; a signal ends it, and its socket goes."""
    life.configure(script('exit "$1"'))

    async def work() -> None:
        assert [await life.ask(status) for status in ("0", "1")] == ["True", "False"]

    life.beside(work)
    assert life.ended == 0
    assert not os.path.exists(life.socket)
    said = capfd.readouterr().err
    assert "gRPC" not in said
    assert "told to end: no more calls are taken" in said


def test_it_drains(life: Life, script: Script, marked: Marked) -> None:
    """A call that is being answered has its answer; a second signal does not wait for that."""
    life.configure(script('cd "${0%/*}"; until [ -e "$1" ]; do sleep 0.02; done'))
    for name, answer, status in (("go", "True", 0), ("never", "", 128 + 15)):

        async def work(name: str = name, answer: str = answer) -> None:
            call = asyncio.create_task(life.ask(name))
            await marked.soon(lambda: len(marked.living()) >= 2)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.2)
            assert not call.done()
            if name == "go":
                (life.path.parent / name).touch()
            else:
                os.kill(os.getpid(), signal.SIGHUP)
                os.kill(os.getpid(), signal.SIGTERM)
            assert await call == answer

        life.beside(work)
        assert (life.ended or 0) in {status, status - 128}
        assert marked.living() == []


def test_it_rereads(life: Life, script: Script, capfd: pytest.CaptureFixture[str]) -> None:
    """A right configuration counts, a wrong one does not; what a person should know is said."""
    life.configure(str(life.path.parent / "missing"), timeout=100)

    async def work() -> None:
        heard = ""

        async def hup(said: str) -> None:
            nonlocal heard
            os.kill(os.getpid(), signal.SIGHUP)
            while said not in heard:
                heard += capfd.readouterr().err
                await asyncio.sleep(0.02)

        assert await life.ask() == "FAILED_PRECONDITION"
        life.configure(script("exit 0"), socket_mode="0600")
        await hup("read again")
        assert await life.ask() == "True"
        assert "is no program that can be run; until it is, calls fail" in heard
        assert "timeout: 100 s, but NVRx's client gives up after 60 s" in heard
        assert "what it says of the socket waits for a restart" in heard
        for content, said in (
            (b"x: 1", "unknown key"),
            (b"#" * (1 << 20) + b"#", "larger than"),
            (None, "No such file"),
        ):
            life.path.unlink()
            if content is not None:
                life.path.write_bytes(content)
            await hup(said)
        assert await life.ask() == "True"

    life.beside(work)


def test_a_place_that_is_taken(life: Life, script: Script) -> None:
    """It ends before anybody could have called."""
    life.configure(script("exit 0"))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(life.socket)
        other.listen()

        async def work() -> None:
            await asyncio.sleep(0)

        with pytest.raises(PlaceError, match="another daemon answers there"):
            life.beside(work)


def test_calls_are_passed_on_to_lines(short_path: Path) -> None:
    """What comes at one socket goes to the other and back, to the end; a stop leaves callers in the queue."""
    inner = str(short_path / "inner")

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data.upper())
        writer.close()

    async def work() -> None:
        given = socket.socket(socket.AF_UNIX)
        given.bind(str(short_path / "outer"))
        given.listen()
        relay = Relay(given, inner)
        relay.start()
        reader, writer = await asyncio.open_unix_connection(str(short_path / "outer"))
        assert await reader.read() == b""  # nobody is there yet: it is told so
        writer.close()
        server = await asyncio.start_unix_server(shout, inner)
        reader, writer = await asyncio.open_unix_connection(str(short_path / "outer"))
        for _ in range(3):
            writer.write(b"x" * 100_000)
            assert await reader.readexactly(100_000) == b"X" * 100_000
        silent, unused = await asyncio.open_unix_connection(str(short_path / "outer"))
        relay.stop()
        await relay.close()
        assert await silent.read() == b""
        assert await reader.read() == b""
        unused.close()
        writer.close()
        server.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({}, None),
        ({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, None),
        ({"LISTEN_PID": str(os.getpid())}, "systemd passed 'no' sockets"),
        ({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"}, "systemd passed '2' sockets"),
    ],
    ids=["none", "somebody-else's", "no-number", "two"],
)
def test_what_systemd_passes(environ: dict[str, str], error: str | None) -> None:
    """Only what is for this very process counts, and there is one socket."""
    if error is None:
        assert inherited(environ) is None
    else:
        with pytest.raises(ActivationError, match=error):
            inherited(environ)

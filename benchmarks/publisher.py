"""The loop of `segment-health publish` as a process of its own, for as long as a measurement takes."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.fleet import SEGMENT_HEALTH
from segment_health.ledger import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.fleet import Fleet

INTERVAL = 300
"""Seconds from pass to pass, so that hardly any is made that was not asked for."""
PATIENCE = 60.0
"""Seconds after which something that is waited for will not come."""
LOOK_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Publisher:
    """A loop that runs, the directory of its heartbeat, and the file that it logs to."""

    process: subprocess.Popen[bytes]
    heartbeats: Path
    log: Path

    def beat(self) -> tuple[int, int] | None:
        """Identify the heartbeat that lies there, which each pass replaces in the end; None before the first."""
        with contextlib.suppress(FileNotFoundError):
            for path in self.heartbeats.glob("*.json"):
                found = path.stat()
                return found.st_ino, found.st_mtime_ns
        return None

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something to be true, by a look each millisecond. Raises RuntimeError, with what was logged."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no {what}; the publisher said: {self.log.read_text()[-2000:]}")
            time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def publishing(found: Fleet) -> Iterator[Publisher]:
    """Start the loop over the whole cluster, wait for its first pass, and end it."""
    command = [SEGMENT_HEALTH, "publish", "--all", "--dir", str(found.directory), "--source", "text"]
    command += ["--interval", str(INTERVAL)]
    log = found.directory.with_name("publisher.log")
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, env=found.environ, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
    publisher = Publisher(process, found.directory / FOLDER / "heartbeat", log)
    try:
        publisher.until(lambda: publisher.beat() is not None, "first pass")
        yield publisher
        process.terminate()
        if process.wait(PATIENCE):
            raise RuntimeError(f"status {process.returncode}; the publisher said: {log.read_text()[-2000:]}")
    finally:
        process.kill()
        process.wait()

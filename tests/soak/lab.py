"""What a soak runs on: a fleet with a real slurmctld, a publisher that is killed and begun anew, a reader."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.judgement import JOBS, NODES, PREFIX, Life, truth_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.judgement import Truth

FLEET = Path(__file__).parents[2] / "benchmarks" / "fleet.sh"
COMMAND = Path(sys.executable).with_name("segment-health")
NODES_PER_TASK = 18
INTERVAL = 5.0
LOOK, SAMPLE, WATCHED = 0.01, 1.0, 100
"""Seconds between the reader's looks and between samples of the publisher's memory; artifacts that it looks at."""


def is_gone(pid: int) -> bool:
    """Whether a process has ended; where nobody reaps it, it stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait for something to be true. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes], *, group: bool) -> None:
    """Kill a process that we started; alone, so that the child which writes outlives it, or with its `group`."""
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait(60)


class Fleet:
    """A real slurmctld whose nodes are one process (benchmarks/fleet.sh); fixed ports, so one on a machine."""

    def __init__(self, directory: Path, nodes: int, tasks: int) -> None:
        self.directory, self.nodes, self.tasks = directory, nodes, tasks
        self.per_task = min(NODES_PER_TASK, nodes // tasks)
        self.environ = os.environ | {"SLURM_CONF": str(directory / "slurm.conf"), "TZ": "UTC"}

    def __enter__(self) -> Fleet:  # noqa: PYI034 - Self is Python 3.11
        shape = [str(self.nodes), str(self.tasks), str(self.per_task)]
        try:
            subprocess.run(["bash", FLEET, "start", self.directory, *shape], check=True, stdin=subprocess.DEVNULL)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["bash", FLEET, "stop", self.directory], check=False)

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of Slurm and return what it printed."""
        done = subprocess.run(command, env=self.environ, check=False, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)[:200]}: status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def set_nodes(self, names: list[str], state: str, *, check: bool = True) -> None:
        """Give nodes a state."""
        self.run("scontrol", "update", f"nodename={','.join(names)}", f"state={state}", "reason=soak", check=check)

    def submit(self, *options: str) -> None:
        """Submit units of the size of all others."""
        self.run("sbatch", f"-N{self.per_task}", "--exclusive", "--output=/dev/null", "--wrap=sleep 9", *options)

    def restart(self) -> None:
        """End slurmctld as an administrator does, and start it with what it had saved."""
        pid_file = self.directory / "run" / "slurmctld.pid"
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: is_gone(pid), "the end of slurmctld")
        self.run("slurmctld", "-f", self.environ["SLURM_CONF"])
        wait_until(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld to answer")

    def jobs(self) -> Truth:
        """Ask for the units alone."""
        return truth_of("", self.run(*JOBS))

    def truth(self) -> Truth:
        """Ask for nodes and units."""
        return truth_of(self.run(*NODES), self.run(*JOBS))


class Publisher:
    """`segment-health publish --all`, process after process, and what beside it is started once."""

    def __init__(self, fleet: Fleet, directory: Path, log: Path) -> None:
        self.directory, self.log, self._environ = directory, log, fleet.environ
        self.lives: list[Life] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        self._born, self._log_before = 0.0, 0

    def __enter__(self) -> Publisher:  # noqa: PYI034 - Self is Python 3.11
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                kill(process, group=True)

    def start(self) -> None:
        """Begin a new process."""
        self._log_before = self.log.stat().st_size if self.log.exists() else 0
        self.process = self.beside("publish", "--all", f"--interval={INTERVAL:g}", "--log-format=json")
        self._born = time.monotonic()
        self.lives.append(Life(self.process.pid))

    def _has_begun(self) -> bool:
        return b'"start"' in self.log.read_bytes()[self._log_before :]

    def beside(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `segment-health` on the directory; what it says is in the log."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [COMMAND, arguments[0], "--dir", self.directory, *arguments[1:]],
                env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._started = [*(one for one in self._started if one.poll() is None), process]
        return process

    def send(self, number: signal.Signals) -> None:
        """Send a signal, as soon as it is a request: before the loop begins it is the end."""
        assert self.process is not None
        process = self.process
        wait_until(lambda: process.poll() is not None or self._has_begun(), "a publisher that listens")
        if process.returncode is not None:
            raise RuntimeError(f"the publisher ended by itself, with status {process.returncode}")
        process.send_signal(number)

    def terminate(self) -> int:
        """End the process in order; return its status."""
        assert self.process is not None
        self.send(signal.SIGTERM)
        process, self.process = self.process, None
        return process.wait(60)

    def kill(self, *, group: bool) -> None:
        """Kill the process, with what it started or without."""
        assert self.process is not None
        process, self.process = self.process, None
        kill(process, group=group)

    def sample(self) -> None:
        """Measure the process that lives."""
        process, life = self.process, self.lives[-1] if self.lives else None
        if process is None or life is None or life.pid != process.pid:
            return
        with contextlib.suppress(OSError, StopIteration, ValueError):  # it has just ended
            status = Path(f"/proc/{life.pid}/status").read_text().splitlines()
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
            descriptors = len(os.listdir(f"/proc/{life.pid}/fd"))
            life.samples.append((time.monotonic() - self._born, resident, descriptors))


class Reader(threading.Thread):
    """Looks at some artifacts as the consumer does, and notes when one ceases to exclude its unit."""

    def __init__(self, publisher: Publisher) -> None:
        super().__init__(daemon=True)
        self._publisher = publisher
        self._watched: dict[str, bool] = {}
        self._wanted: list[str] = []
        self._over = threading.Event()
        self.lifts: list[tuple[float, str]] = []
        self.looks = 0

    def watch(self, units: list[str]) -> None:
        """Look at these from now on."""
        self._wanted = units[:WATCHED]

    def run(self) -> None:
        """Look until told to end."""
        prefix, sampled, wanted = f"{self._publisher.directory}/{PREFIX}", 0.0, self._wanted
        while not self._over.wait(LOOK):
            if wanted is not self._wanted:
                wanted = self._wanted
                self._watched = {unit: self._watched.get(unit, False) for unit in wanted}
            for unit in wanted:
                excluded = _is_excluded(prefix + unit)
                if self._watched[unit] and not excluded:
                    self.lifts.append((time.monotonic(), unit))
                self._watched[unit] = excluded
            self.looks += len(wanted)
            if time.monotonic() - sampled >= SAMPLE:
                sampled = time.monotonic()
                self._publisher.sample()

    def __enter__(self) -> Reader:  # noqa: PYI034 - Self is Python 3.11
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def _is_excluded(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def files_below(directory: Path) -> dict[str, tuple[float, bytes]]:
    """Return every file by its path below the directory: when it was changed, and what it holds."""
    found = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # gone while we look
            found[str(path.relative_to(directory))] = (path.stat().st_mtime, path.read_bytes())
    return found

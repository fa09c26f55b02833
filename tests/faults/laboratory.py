"""Where faults happen: a real slurmctld with five units, a decision directory, a publisher, a reader."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slurm.sandbox.cluster import Sandbox

from .fault import ROLES
from .promise import Health, Told, Transition
from .truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .fault import Ground

HERE = Path(__file__).parent
COMMAND = str(Path(sysconfig.get_path("scripts")) / "segment-health")
INTERVAL = 5
"""Seconds from pass to pass of a publisher; it is poked besides."""
PATIENCE = 30.0
"""Seconds after which something that should come has not."""
_SICK = ("DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN")
_SLEEP = "#!/bin/sh\nexec sleep 100000\n"


class Process:
    """A running program whose lines on one stream are kept with the time at which they came."""

    def __init__(self, argv: list[str], env: dict[str, str], *, stream: Literal["stdout", "stderr"]) -> None:
        self._lines: list[tuple[int, str]] = []
        out, err = (subprocess.PIPE, None) if stream == "stdout" else (None, subprocess.PIPE)
        self._deaf = threading.Event()
        self.child: subprocess.Popen[bytes] = subprocess.Popen(
            argv, env=env, stdout=out, stderr=err, start_new_session=True
        )
        self._pipe = self.child.stdout or self.child.stderr
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid

    def lines(self) -> list[tuple[int, str]]:
        """Return its lines so far, each with the monotonic time in ns at which it came."""
        return list(self._lines)

    def signal(self, number: int) -> None:
        """Send a signal; nothing where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(number)

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.child.poll() is None

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end and for its last line; return its status."""
        status = self.child.wait(seconds)
        self._thread.join(2)  # a child that lives on, stuck in the kernel, holds the pipe
        return status

    def kill(self) -> int:
        """End it and its process group by SIGKILL; nothing where it has ended, for its number may be another's."""
        if self.is_running():
            os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def deafen(self) -> None:
        """Read no further: what it writes from now on meets a broken pipe."""
        self._deaf.set()
        self._thread.join()

    def _collect(self) -> None:
        assert self._pipe is not None
        with self._pipe as pipe, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            rest = b""
            while not self._deaf.is_set():
                if selector.select(0.05):
                    found = os.read(pipe.fileno(), 1 << 16)
                    at = time.monotonic_ns()
                    *lines, rest = (rest + found).split(b"\n")
                    self._lines += [(at, line.decode(errors="replace")) for line in lines]
                    if not found:
                        return


class Laboratory:
    """One cluster for many scenarios; open() begins each with a directory of its own.

    `truth` is what the harness made true, by role (see fault.ROLES). `directory` is what the publisher is told,
    `storage` what readers of other hosts see (the same, unless the ground is "fuse"), both in `disk`, a tmpfs of
    this scenario alone; `work` is for what a fault keeps, outside of it. `publishers` are all of this scenario,
    the last one in charge.
    """

    def __init__(self, cluster: Sandbox, root: Path) -> None:
        self.cluster = cluster
        self.root = root
        self.truth = Truth()
        self.publishers: list[Process] = []
        self.quiet = False  # no pokes
        self._afterwards: list[tuple[str, Callable[[], object]]] = []
        self._jobs: dict[str, str] = {}
        self._count = 0
        self._finish = contextlib.ExitStack()
        self._submit()

    # ── the scenario's own ground ──────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def open(self, ground: Ground, stale_after: float | None = None) -> Iterator[None]:
        """Make a decision directory, with no publisher yet; take all down at the end."""
        self._count += 1
        place = self.root / str(self._count)
        self.disk, self.work = place / "disk", place / "work"
        self.storage = self.directory = self.disk / "decisions"
        self.mode = self.work / "mode"
        self.truth, self.publishers, self.quiet = Truth(), [], False
        self._afterwards = []
        self.environ = dict(self.cluster.env)
        self.options = ["--stale-after", "never" if stale_after is None else str(stale_after)]
        self.prefix: list[str] = []
        with contextlib.ExitStack() as self._finish:
            self.disk.mkdir(parents=True)
            self.work.mkdir()
            self._finish.callback(shutil.rmtree, place, ignore_errors=True)
            self._finish.enter_context(mounted("tmpfs", self.disk, "size=4m,nr_inodes=2000,mode=755"))
            self.storage.mkdir(mode=0o755)
            if ground == "fuse":
                self.directory = place / "mount"
                self.directory.mkdir()
                self._finish.enter_context(self._passthrough())
            self._finish.callback(self._end_publishers)
            yield

    def storage_fails(self, *rules: str) -> None:
        """Make operations on the mount fail, hang or wait (see passthrough.py); with no rules, no more."""
        new = self.mode.with_suffix(".new")
        new.write_text("".join(f"{rule}\n" for rule in rules))
        new.replace(self.mode)

    @contextlib.contextmanager
    def _passthrough(self) -> Iterator[None]:
        argv = [
            sys.executable,
            str(HERE / "passthrough.py"),
            str(self.storage),
            str(self.directory),
            str(self.mode),
        ]
        self.daemon = Process(argv, dict(os.environ), stream="stderr")
        try:
            self.until(lambda: os.path.ismount(self.directory), "a FUSE mount")
            yield
        finally:
            self.storage_fails()
            self.daemon.signal(signal.SIGCONT)
            self.daemon.kill()  # whoever still waits for an answer gets an error
            unmount(self.directory)

    # ── publishers ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def publisher(self) -> Process:
        """The publisher in charge."""
        return self.publishers[-1]

    def start(self, *once: str) -> Process:
        """Start a publisher of everything; it makes a pass at once, and another whenever it is poked.

        `once` are the options of a single pass.
        """
        what = once or ("--log-format", "json", "--interval", str(INTERVAL))
        argv = [*self.prefix, COMMAND, "publish", "--all", "--dir", str(self.directory), *what, *self.options]
        self.publishers.append(Process(argv, self.environ, stream="stderr"))
        return self.publisher

    def said(self, text: str) -> bool:
        """Whether any publisher of this scenario has logged a text."""
        return any(text in line for publisher in self.publishers for _, line in publisher.lines())

    def log(self) -> list[str]:
        """Return what all publishers of this scenario have logged last."""
        return [line for publisher in self.publishers for _, line in publisher.lines()][-20:]

    @contextlib.contextmanager
    def poking(self, every: float = 0.15) -> Iterator[None]:
        """Ask the publisher in charge for a pass several times a second inside."""
        ended = threading.Event()

        def poke() -> None:
            while not ended.wait(every):
                # Before its handler is there a signal would end it.
                if not self.quiet and self.publishers and self.publisher.lines():
                    self.publisher.signal(signal.SIGUSR1)

        thread = threading.Thread(target=poke, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _end_publishers(self) -> None:
        for publisher in self.publishers:
            publisher.signal(signal.SIGCONT)
            publisher.kill()

    # ── the reader ─────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def reading(self) -> Iterator[Process]:
        """Run a reader that never pauses, on all units, inside."""
        heartbeat = f"{self.storage}/.segment-health/heartbeat/all@sandbox.json"
        paths = [f"{role}={self.artifact(role)}" for role in ROLES]
        argv = ["nice", "-n", "5", sys.executable, "-I", "-S", str(HERE / "reader.py"), heartbeat, *paths]
        reader = Process(argv, dict(os.environ), stream="stdout")
        try:
            self.until(lambda: len(reader.lines()) >= len(ROLES), "first looks of the reader")
            yield reader
        finally:
            reader.signal(signal.SIGTERM)
            reader.wait()

    def artifact(self, role: str) -> Path:
        """Return where a unit's artifact is."""
        return self.storage / f"segment_health_check.{self._jobs[role].replace('_', '.')}"

    def is_excluded(self, role: str) -> bool:
        """Whether a unit's artifact says so now."""
        try:
            return self.artifact(role).stat().st_size > 0
        except OSError:
            return False

    # ── Slurm ──────────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self, role: str) -> list[str]:
        """Ask Slurm which nodes a unit has."""
        folded = self.cluster.run("squeue", "-h", "-o", "%N", "-j", self.job(role)).stdout.strip()
        return self.cluster.run("scontrol", "show", "hostnames", folded).stdout.split() if folded else []

    def job(self, role: str) -> str:
        """Return a unit's job, as Slurm's commands take it: 12, or 12_0 of an array."""
        job, _, task = self._jobs[role].partition("_")
        return job if job == task else f"{job}_{task}"

    def drain(self, role: str) -> None:
        """Drain a node of a unit that is in service; the unit is then bad."""
        node = next(node for node in self.nodes(role) if not self._is_sick(node))
        with self.truth.changing(role, Health.BAD):
            self.cluster.set_node(node, "drain", "fault harness")

    def resume(self, role: str) -> None:
        """Resume every node of a unit and wait until each is in service; the unit is then fit."""
        with self.truth.changing(role, Health.FIT):
            self._resume(self.nodes(role))

    def requeue(self, role: str) -> None:
        """Requeue a unit; it is fit once it runs again, for Slurm gives it nodes in service."""
        with self.truth.changing(role, Health.FIT):
            self.cluster.requeue(self.job(role))

    def swap(self, one: str, other: str) -> None:
        """Let two units exchange their roles."""
        self._jobs[one], self._jobs[other] = self._jobs[other], self._jobs[one]

    def arrange(self) -> None:
        """Make every unit what its role says at a scenario's start, and leave no other node out of service."""
        held = {role: self.nodes(role) for role in ROLES}
        bad = {held["steady"][0], held["recovering"][0], held["requeued"][0]}
        self._resume([node for node in self.cluster.nodes if node not in bad and self._is_sick(node)])
        for node in bad:
            if "DRAIN" not in self.cluster.node_state(node):
                self.cluster.set_node(node, "drain", "fault harness")
        for role in ROLES:
            self.truth.is_so(role, Health.BAD if held[role][0] in bad else Health.FIT)

    def until(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Wait until something is true; AssertionError, with the publishers' log, if it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n" + "\n".join(self.log())
            time.sleep(0.02)

    def afterwards(self, what: str, condition: Callable[[], object]) -> None:
        """Ask for something to be true when all faults are over and readers are told the truth."""
        self._afterwards.append((what, condition))

    def check_afterwards(self) -> None:
        """Wait for all that was asked for."""
        for what, condition in self._afterwards:
            self.until(condition, what)

    def _is_sick(self, node: str) -> bool:
        return any(word in self.cluster.node_state(node) for word in _SICK)

    def _resume(self, nodes: list[str]) -> None:
        for node in nodes:
            if self._is_sick(node):
                self.cluster.set_node(node, "resume")
        for node in nodes:
            self.until(lambda node=node: not self._is_sick(node), f"{node} in service")  # type: ignore[misc]

    def submit_again(self, *, same_ids: bool) -> None:
        """Start five other units once slurmctld has forgotten these; with old ids, each has the role of its id."""
        before = self._jobs
        self._submit()
        assert (set(self._jobs.values()) == set(before.values())) is same_ids, (before, self._jobs)
        if same_ids:
            self._jobs = before

    def _submit(self) -> None:
        """Start the five units: three tasks of an array and two jobs, each with nodes of its own."""
        steady = self.cluster.submit(_SLEEP, "--exclusive", "--nodes=2")
        requeued = self.cluster.submit(_SLEEP, "--exclusive", "--nodes=1", "--requeue")
        array = self.cluster.submit(_SLEEP, "--exclusive", "--nodes=1", "--array=0-2")
        for job, count in ((steady, 1), (requeued, 1), (array, 3)):
            self.cluster.wait_running(job, count)
        tasks = {role: f"{array}_{task}" for task, role in enumerate(("fit", "worsening", "recovering"))}
        self._jobs = {"steady": f"{steady}_{steady}", "requeued": f"{requeued}_{requeued}", **tasks}


@contextlib.contextmanager
def laboratory() -> Iterator[Laboratory]:
    """Start a cluster of eight nodes and its five units; take everything down at the end."""
    with contextlib.ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="faults-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        cluster = stack.enter_context(Sandbox(nodes=8, return_to_service=0))
        yield Laboratory(cluster, root)


@contextlib.contextmanager
def mounted(kind: str, place: Path, options: str) -> Iterator[None]:
    """Mount a file system inside."""
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(place)], check=True)
    try:
        yield
    finally:
        unmount(place)


def unmount(place: Path) -> None:
    """Take a mount away, now or as soon as nobody uses it."""
    subprocess.run(["umount", "--lazy", str(place)], check=False, stderr=subprocess.DEVNULL)


def transitions(reader: Process) -> tuple[list[Transition], list[int]]:
    """Return what a reader was told, and when complete passes were made."""
    told, passes = [], []
    for _, line in reader.lines():
        at, unit, word, detail = line.split(" ", 3)
        if unit != "*":
            told.append(Transition(int(at), unit, Told(word), detail))
        elif word == "pass":
            passes.append(int(at))
    return told, passes


def looks(reader: Process) -> tuple[int, int]:
    """Return how often a reader that has ended looked at all units, and the longest gap between looks in ns."""
    for _, line in reversed(reader.lines()):
        if " * looks " in line:
            count, _, gap = line.rpartition(" ")[2].partition(",")
            return int(count), int(gap)
    return 0, 0


def read_artifact(path: Path) -> dict[str, object]:
    """Read an artifact, which must be whole."""
    document: dict[str, object] = json.loads(path.read_bytes())
    return document

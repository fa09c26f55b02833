"""Two ordinary users, a service, and a real cluster on which they run jobs: the stage of every attack here.

What an attacker does is done by a process with the attacker's uid, and nothing else of root's.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from segment_health.consumer import SegmentHealthCheck
from slurm.sandbox.cluster import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

COMMAND = str(Path(sysconfig.get_path("scripts")) / "segment-health")
SLEEP = "#!/bin/sh\nexec sleep 3600\n"
PASS_SECONDS = 50.0
"""What a pass under attack may take at most, on a busy machine: its own limit, that of shared storage, is 60 s."""


class Person:
    """A user of this machine. What `does` and `keeps_doing` are given runs in a process of that uid."""

    def __init__(self, name: str) -> None:
        account = pwd.getpwnam(name)
        self.name, self.uid, self.gid = name, account.pw_uid, account.pw_gid

    def does(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, or raise what it raises."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._become(lambda: _tell(writer, act))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        result, error = pickle.loads(told)
        if error is not None:
            raise error
        outcome: T = result
        return outcome

    @contextlib.contextmanager
    def keeps_doing(self, act: Callable[[], object]) -> Iterator[int]:
        """Repeat `act`, whatever it raises, while the block runs; gives the process's number."""

        def forever() -> None:
            while True:
                with contextlib.suppress(OSError):
                    act()

        child = os.fork()
        if child == 0:
            self._become(forever)
        try:
            yield child
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _become(self, act: Callable[[], object]) -> None:
        """Be this user from here to the end of this child."""
        try:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
            os.umask(0o022)
            os.chdir("/")
            act()
        except BaseException:  # noqa: BLE001 - nothing of pytest may run in a child
            traceback.print_exc()
        finally:
            os._exit(0)


def _tell(pipe: int, act: Callable[[], object]) -> None:
    try:
        told = pickle.dumps((act(), None))
    except Exception as error:  # noqa: BLE001 - it is raised on the other side
        told = pickle.dumps((None, error))
    view = memoryview(told)
    while view:
        view = view[os.write(pipe, view) :]


@dataclass(frozen=True)
class Ended:
    """What became of a process: `seconds` that it took, `megabytes` that it held at most."""

    code: int
    out: str
    err: str
    seconds: float
    megabytes: float

    @property
    def document(self) -> dict[str, Any]:
        """The JSON that it printed."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    def changes(self) -> list[str]:
        """Name the changes of a pass, `exclude 123.7`, those that failed with what went wrong."""
        named = []
        for change in self.document["changes"]:
            what = f"{change['action']} {change['job_id']}.{change['task_id']}"
            named.append(what if change.get("error") is None else f"{what}: {change['error']}")
        return named


class Service:
    """`segment-health` as a site runs it, as root or as a user of its own, on one decision directory."""

    def __init__(self, cluster: Sandbox, directory: Path, person: Person | None) -> None:
        self.cluster = cluster
        self.directory = directory
        self.person = person
        self.uid = person.uid if person else 0
        self.gid = person.gid if person else 0
        self.work = Path(tempfile.mkdtemp(prefix="service-", dir=directory.parent))
        self.options: tuple[str, ...] = ()
        self.env: dict[str, str] = {}
        self._loops: list[subprocess.Popen[bytes]] = []

    def argv(self, *arguments: str) -> list[str]:
        """Return the command line of `segment-health`."""
        return [*as_person(self.person), COMMAND, *arguments]

    def call(self, *arguments: str, seconds: float = PASS_SECONDS, env: Mapping[str, str] | None = None) -> Ended:
        """Run it to its end, which must come within so many seconds; it never fails by a traceback."""
        ended = run(self.argv(*arguments), {**self.cluster.env, **self.env, **(env or {})}, self.work, seconds)
        assert "Traceback" not in ended.err, ended.err
        return ended

    def publish(self, *options: str, code: int | None = 0, seconds: float = PASS_SECONDS) -> Ended:
        """Make one pass over everything, that must end with `code`."""
        scope = [] if any(option in {"--job", "--user", "--partition"} for option in options) else ["--all"]
        ended = self.call(
            "publish", "--dir", str(self.directory), "--once", "--wait", "--format", "json", *scope, *self.options,
            *options, seconds=seconds,
        )  # fmt: skip
        assert code is None or ended.code == code, ended
        return ended

    def loop(self, *options: str) -> Loop:
        """Start the loop over everything."""
        loop = Loop(self, *options)
        self._loops.append(loop.process)
        return loop

    def close(self) -> None:
        """End what still runs."""
        for process in self._loops:
            process.kill()
            process.wait()

    def path(self, unit: str) -> Path:
        """Return where a unit's artifact is."""
        return self.directory / f"segment_health_check.{unit}"

    @property
    def ledger(self) -> Path:
        """The folder of what the service remembers."""
        return self.directory / ".segment-health"

    def is_excluded(self, unit: str) -> bool:
        """Ask the consumer about a unit."""
        return not SegmentHealthCheck(self.directory, *unit.split(".")).examine()[0]

    def history(self) -> str:
        """Return every change that it wrote down."""
        try:
            return (self.ledger / "history.jsonl").read_text()
        except FileNotFoundError:
            return ""


class Loop:
    """A running loop, its log, and what one asks it."""

    def __init__(self, service: Service, *options: str) -> None:
        self.log = service.work / f"loop-{secrets.token_hex(4)}.log"
        arguments = ["publish", "--dir", str(service.directory), "--all", "--log-format", "json"]
        arguments += ["--interval", "3600", *service.options, *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                service.argv(*arguments),
                env={**service.cluster.env, **service.env},
                cwd=service.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def lines(self, *events: str) -> list[dict[str, Any]]:
        """Return what it logged of these events."""
        lines: list[dict[str, Any]] = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] in events]

    def poke(self) -> None:
        """Ask for a pass now."""
        self.process.send_signal(signal.SIGUSR1)

    def until(self, condition: Callable[[], object], seconds: float = PASS_SECONDS) -> None:
        """Wait for something to be true, while it lives."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def poked_until(self, condition: Callable[[], object]) -> None:
        """Ask for passes until something is true."""

        def check() -> object:
            self.poke()
            return condition()

        self.until(check)

    def end(self) -> int:
        """End it as systemd would, and return its status."""
        self.process.terminate()
        return self.process.wait(PASS_SECONDS)


def run(argv: Sequence[str], env: Mapping[str, str], work: Path, seconds: float) -> Ended:
    """Run a command to its end, or kill it after so many seconds and fail."""
    out, err = work / "out", work / "err"
    began = time.monotonic()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    ended = 0
    while not ended:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        late = time.monotonic() - began > seconds
        if not ended and late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"no end within {seconds:g} s: {' '.join(argv)}\n{err.read_text(errors='replace')}")
        if not ended:
            time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(
        process.returncode,
        out.read_text(errors="backslashreplace"),
        err.read_text(errors="backslashreplace"),
        time.monotonic() - began,
        usage.ru_maxrss / 1024,
    )


def as_person(person: Person | None) -> list[str]:
    """Return the words before a command that make it another user's; none for root.

    Where that user could not reach this Python (root's own, in a home that is root's alone), the command runs in a
    mount namespace in which the way there is open, and what it leads to is Python and this project only.
    """
    if person is None:
        return []
    become = ["setpriv", f"--reuid={person.uid}", f"--regid={person.gid}", "--clear-groups", "--"]
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), Path(__file__).resolve().parents[2]}
    script = []
    for closed in sorted({place for path in needed if (place := _closed(path)) is not None}):
        script += ["mount -t tmpfs -o mode=755 none /mnt"]
        for path in sorted(path for path in needed if path.is_relative_to(closed)):
            there = Path("/mnt") / path.relative_to(closed)
            script += [f"mkdir -p '{there}'", f"mount --bind '{path}' '{there}'"]
        script += [f"mount --rbind /mnt '{closed}'", "umount -l /mnt"]
    if not script:
        return become
    return [
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-ec",
        "; ".join([*script, 'exec "$@"']),
        "sh",
        *become,
    ]


def _closed(path: Path) -> Path | None:
    """Return the first directory on the way to a path that not everybody may pass."""
    ways = [place for place in [*reversed(path.parents), path] if not place.stat().st_mode & 0o001]
    return ways[0] if ways else None


@dataclass(frozen=True)
class Jobs:
    """Units that run while the attacks are made, by their artifact's end: `7.7`, and who they belong to.

    Of the victim's, `bad` and `other` have a drained node and are to be excluded, `good` is not; `own` is the
    attacker's, on a drained node too.
    """

    bad: str
    other: str
    good: str
    own: str


@pytest.fixture(scope="session")
def people() -> Iterator[dict[str, Person]]:
    """Three users of this test run: the attacker, the victim, and the one that the service may run as."""
    # Whoever ends the tests by SIGTERM is to leave no user behind: as Ctrl-C, it lets fixtures end.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    tag = secrets.token_hex(3)
    names = {role: f"sh-{role}-{tag}" for role in ("attacker", "victim", "service")}
    made: list[str] = []
    try:
        for name in names.values():
            subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)
            made.append(name)
        yield {role: Person(name) for role, name in names.items()}
    finally:
        for name in made:
            uid = pwd.getpwnam(name).pw_uid
            _end_processes_of(uid)
            subprocess.run(["userdel", name], check=True)
            shutil.rmtree(f"/tmp/segment-health-{uid}", ignore_errors=True)  # its locks
        signal.signal(signal.SIGTERM, before)


def _end_processes_of(uid: int) -> None:
    """End what is left of a user that exists for these tests only."""
    deadline = time.monotonic() + 10
    while left := [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _uid_of(pid) == uid]:
        assert time.monotonic() < deadline, left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _uid_of(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


@pytest.fixture(scope="session")
def attacker(people: dict[str, Person]) -> Person:
    """Who attacks."""
    return people["attacker"]


@pytest.fixture(scope="session")
def victim(people: dict[str, Person]) -> Person:
    """Whose jobs are attacked."""
    return people["victim"]


@pytest.fixture(scope="session")
def account(people: dict[str, Person]) -> Person:
    """The user of a service that does not run as root."""
    return people["service"]


@pytest.fixture(scope="session")
def cluster(people: dict[str, Person]) -> Iterator[Sandbox]:
    """A cluster of root's, on which everybody's jobs run; four are there, three on drained nodes."""
    assert set(people) == {"attacker", "victim", "service"}
    with Sandbox(nodes=6, return_to_service=0) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def submit(cluster: Sandbox) -> Callable[..., str]:
    """Submit a job that sleeps, as a person, and wait until it runs; returns its id."""

    def submitted(person: Person, *options: str) -> str:
        owner = (f"--uid={person.uid}", f"--gid={person.gid}", "--chdir=/", "--output=/dev/null")
        job = cluster.submit(SLEEP, *owner, *options)
        cluster.wait_running(job)
        return job

    return submitted


@pytest.fixture(scope="session")
def jobs(cluster: Sandbox, submit: Callable[..., str], attacker: Person, victim: Person) -> Jobs:
    """The units of every test here."""
    found = [submit(who, f"--nodelist={node}") for who, node in zip(
        (victim, victim, victim, attacker), ("n1", "n2", "n3", "n4"), strict=True
    )]  # fmt: skip
    for node in ("n1", "n2", "n4"):
        cluster.set_node(node, "drain", "bad fan")
    bad, other, good, own = (f"{job}.{job}" for job in found)
    return Jobs(bad, other, good, own)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root's that everybody may pass, in one that everybody may write to."""
    path = Path(tempfile.mkdtemp(prefix="attacks-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["root", "user"])
def person(request: pytest.FixtureRequest, account: Person) -> Person | None:
    """Whom the service runs as: None is root."""
    return None if request.param == "root" else account


@pytest.fixture
def service_in(cluster: Sandbox, jobs: Jobs) -> Iterator[Callable[..., Service]]:
    """Make a service on a directory, as a person."""
    assert jobs.bad != jobs.good
    made: list[Service] = []

    def make(directory: Path, person: Person | None, *options: str) -> Service:
        service = Service(cluster, directory, person)
        os.chown(service.work, service.uid, service.gid)
        service.work.chmod(0o755)
        service.options = options
        made.append(service)
        return service

    yield make
    for service in made:
        service.close()


@pytest.fixture
def service(place: Path, person: Person | None, service_in: Callable[..., Service]) -> Service:
    """A service as it should be: its directory is its own, and nobody else may write there."""
    directory = place / "decisions"
    directory.mkdir(mode=0o755)
    service = service_in(directory, person)
    os.chown(directory, service.uid, service.gid)
    return service


@pytest.fixture(params=["root, sticky", "user, open"])
def shared(
    request: pytest.FixtureRequest, place: Path, account: Person, service_in: Callable[..., Service]
) -> Service:
    """A service on a directory that the attacker may write to, as it was told to: like /tmp, or quite open."""
    who, how = request.param.split(", ")
    directory = place / "decisions"
    directory.mkdir()
    service = service_in(directory, account if who == "user" else None, "--allow-shared-dir")
    os.chown(directory, service.uid, service.gid)
    directory.chmod({"sticky": 0o1777, "open": 0o777}[how])
    return service

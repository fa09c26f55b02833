"""A real cluster for the tests here, and the installed command on it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.consumer import SegmentHealthCheck
from slurm.sandbox.cluster import Sandbox
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COMMAND = Path(sysconfig.get_path("scripts")) / "segment-health"
SLEEP = "#!/bin/sh\nexec sleep 300\n"


class Tokens:
    """Makes the JSON web tokens of a cluster that has the lines `conf` in its slurm.conf."""

    def __init__(self, directory: Path) -> None:
        self._key = secrets.token_bytes(32)
        path = directory / "jwt.key"
        path.write_bytes(self._key)
        path.chmod(0o600)
        self.conf = ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={path}"]

    def make(self, user: str, *, seconds: int = 3600, key: bytes | None = None) -> str:
        """Sign a token that is good for so many seconds."""
        now = int(time.time())
        claims = {"iat": now + min(seconds, 0) - 60, "exp": now + seconds, "sun": user}
        parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
        text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
        signature = hmac.digest(key or self._key, text.encode(), hashlib.sha256)
        return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


class Slurmrestd:
    """A slurmrestd that runs beside a cluster: its UNIX socket, its TCP port, and whom it lets in.

    It refuses to run as root or SlurmUser, and nobody else can run a cluster here. So root runs it as daemon, and
    anybody else in a user namespace, where they are daemon to it, and to the kernel still themselves.
    """

    def __init__(self, cluster: Sandbox, auth: str) -> None:
        self._account = pwd.getpwnam("daemon") if os.geteuid() == 0 else None
        directory = Path(tempfile.mkdtemp(prefix="rest-", dir=cluster.directory))
        if self._account:
            os.chown(directory, self._account.pw_uid, self._account.pw_gid)
        self.socket = directory / "rest.sock"
        self.port = free_ports(1)
        self.log = directory / "rest.log"
        self.version = cluster.run("slurmrestd", "-V").stdout.split()[-1]
        # One that has no slurmdbd must not load what asks it.
        api = "openapi/v0.0.38" if self.version.startswith("22.05") else "openapi/slurmctld"
        self._argv = [] if self._account else ["unshare", "--user", "--map-user=1", "--map-group=1"]
        self._argv += ["slurmrestd", "-a", auth, "-s", api, "-f", str(cluster.conf)]
        self._argv += [f"unix:{self.socket}", f"127.0.0.1:{self.port}"]
        self.env = {**cluster.env, **({"SLURM_JWT": "daemon"} if auth == "rest_auth/jwt" else {})}

    def __enter__(self) -> Slurmrestd:  # noqa: PYI034 - Self is not in Python 3.10
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._argv,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self._account.pw_uid if self._account else None,
                group=self._account.pw_gid if self._account else None,
                extra_groups=[] if self._account else None,
            )
        deadline = time.monotonic() + 30
        while not self._listens():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as local, socket.socket() as remote:
            return local.connect_ex(str(self.socket)) == 0 and remote.connect_ex(("127.0.0.1", self.port)) == 0


class Site:
    """A cluster, a decision directory and the installed `segment-health`.

    Units are written as their artifacts end: `123.7` for an array task, `123.123` for a job.
    """

    command = str(COMMAND)

    def __init__(self, cluster: Sandbox, root: Path) -> None:
        self.cluster = cluster
        self.directory = root / "decisions"
        self.work = root / "work"
        self.directory.mkdir()
        self.work.mkdir()

    def start(self, *jobs: tuple[str, ...], script: str = SLEEP) -> list[str]:
        """Submit batch jobs that run in `work`, by their options, and wait until every task of each is RUNNING."""
        ids = [self.cluster.submit(script, f"--chdir={self.work}", *options) for options in jobs]
        self.cluster.wait_until(
            lambda: all(set(self.cluster.job_states(job)) == {"RUNNING"} for job in ids),
            what=f"running jobs {ids}",
        )
        return ids

    def submit(self, *options: str, script: str = SLEEP) -> str:
        """Start one job."""
        (job,) = self.start(options, script=script)
        return job

    def nodes_of(self) -> dict[str, set[str]]:
        """Ask Slurm which nodes each running unit has."""
        query = ("squeue", "--noheader", "--array", "--states=R,S", "--format=%F.%K|%A|%N")
        found = {}
        for unit, job, nodes in (line.split("|") for line in self.cluster.run(*query).stdout.split()):
            names = self.cluster.run("scontrol", "show", "hostnames", nodes).stdout
            found[unit.replace("N/A", job)] = set(names.split())
        return found

    def resume(self, name: str) -> None:
        """Resume a node and wait until it has registered: until then it shows NOT_RESPONDING."""
        self.cluster.set_node(name, "resume")
        sick = ("DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN")
        self.cluster.wait_until(
            lambda: not any(word in self.cluster.node_state(name) for word in sick), what=f"{name} in service"
        )

    def end(self, job: str) -> None:
        """Cancel a job and wait until nothing of it is left in the queue."""
        self.cluster.run("scancel", job)
        gone = ("squeue", "--noheader", f"--jobs={job}")
        self.cluster.wait_until(lambda: not self.cluster.run(*gone, check=False).stdout, what=f"end of job {job}")

    def call(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `segment-health` as the cluster's user."""
        return self.cluster.run(self.command, *arguments, check=False, env=env)

    def arguments(self, *options: str) -> list[str]:
        """Return the arguments of one pass; of everything, unless `options` name a scope."""
        scoped = any(option in {"--job", "--user", "--partition", "--all"} for option in options)
        scope = [] if scoped else ["--all"]
        return ["publish", "--dir", str(self.directory), "--once", "--format", "json", *scope, *options]

    def publish(self, *options: str, code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Make one pass, which must end with `code`, and return what it printed."""
        done = self.call(*self.arguments(*options), env=env)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr, done
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["pass"] == ("unknown" if code == 3 else "complete"), done
        return document

    def changes(self, *options: str) -> list[str]:
        """Make one complete pass and name its changes, `exclude 123.7`."""
        changes = self.publish(*options)["changes"]
        return [f"{change['action']} {change['job_id']}.{change['task_id']}" for change in changes]

    def artifacts(self) -> set[str]:
        """Return the units that have an artifact, empty or not."""
        return {path.name.partition(".")[2] for path in self.directory.glob("segment_health_check.*")}

    def excluded(self) -> set[str]:
        """Ask the consumer about every unit that has an artifact."""
        return {u for u in self.artifacts() if not SegmentHealthCheck(self.directory, *u.split("."))()}

    def path(self, unit: str) -> Path:
        """Return where a unit's artifact is."""
        return self.directory / f"segment_health_check.{unit}"

    def artifact(self, unit: str) -> dict[str, Any]:
        """Read a unit's artifact."""
        document: dict[str, Any] = json.loads(self.path(unit).read_bytes())
        return document

    def forget(self) -> None:
        """Begin with an empty decision directory again."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()

    def files(self) -> dict[str, tuple[int, int, bytes]]:
        """Return inode, time and content of everything in the decision directory, the ledger too."""
        found = {}
        for path in (self.directory, *self.directory.rglob("*")):
            status = path.stat()
            content = path.read_bytes() if path.is_file() else "\n".join(sorted(os.listdir(path))).encode()
            found[str(path.relative_to(self.directory))] = (status.st_ino, status.st_mtime_ns, content)
        return found


class Running:
    """A running `segment-health publish`, its log, and the signals that one sends it."""

    def __init__(self, site: Site, *options: str) -> None:
        self.log = site.work / f"publisher-{len(list(site.work.glob('publisher-*')))}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [site.command, "publish", "--dir", str(site.directory), "--log-format", "json", *options],
                env=site.cluster.env,
                stderr=log,
            )

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of one event."""
        lines: list[dict[str, Any]] = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def said(self, event: str) -> int:
        """Count the lines of one event."""
        return len(self.lines(event))

    def poke(self) -> None:
        """Ask for a pass now."""
        self.process.send_signal(signal.SIGUSR1)

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait for something to be true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def poked_until(self, condition: Callable[[], object]) -> None:
        """Ask for passes until something is true."""

        def check() -> object:
            self.poke()
            return condition()

        self.until(check)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it and return its status."""
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def door() -> str:
    """The source that `publish` asks; a module that goes through several says which."""
    return "text"


@pytest.fixture(scope="module")
def run_cluster(door: str, tokens: Tokens) -> Callable[..., AbstractContextManager[Sandbox]]:
    """A cluster, as Sandbox is made, in whose environment `publish` goes through the door."""

    @contextmanager
    def run(**traits: Any) -> Iterator[Sandbox]:
        if door == "rest":
            traits["extra_conf"] = [*traits.get("extra_conf", []), *tokens.conf]
        with ExitStack() as stack:
            sandbox = stack.enter_context(Sandbox(**traits))
            sandbox.env["SEGMENT_HEALTH_SOURCE"] = door
            if door == "rest":
                slurmrestd = stack.enter_context(Slurmrestd(sandbox, "rest_auth/jwt"))
                token = sandbox.directory / "token"
                token.write_text(tokens.make(pwd.getpwuid(os.geteuid()).pw_name, seconds=7200))
                token.chmod(0o600)
                sandbox.env |= {
                    "SEGMENT_HEALTH_REST_URL": f"unix:{slurmrestd.socket}",
                    "SEGMENT_HEALTH_REST_JWT_FILE": str(token),
                    "SEGMENT_HEALTH_CLUSTER": "sandbox",  # 22.05 tells it with jobs alone
                }
            yield sandbox

    return run


@pytest.fixture(scope="module")
def cluster(run_cluster: Callable[..., AbstractContextManager[Sandbox]]) -> Iterator[Sandbox]:
    """Eight idle nodes; a node that a test sets DOWN stays so until the test resumes it."""
    with run_cluster(nodes=8, return_to_service=0) as sandbox:
        yield sandbox


@pytest.fixture
def site_on(tmp_path: Path) -> Callable[[Sandbox], Site]:
    """An empty decision directory for a cluster of the test's own."""
    return lambda cluster: Site(cluster, tmp_path)


@pytest.fixture
def site(cluster: Sandbox, site_on: Callable[[Sandbox], Site]) -> Iterator[Site]:
    """An empty decision directory on idle nodes without jobs, which are so again for the next test."""
    yield site_on(cluster)
    cluster.continue_controller()
    cluster.run("scancel", "--me")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h", "-a").stdout, what="empty queue")
    for name in cluster.nodes:
        if any(word in cluster.node_state(name) for word in ("DOWN", "DRAIN", "FAIL")):
            cluster.set_node(name, "resume")
    cluster.wait_until(lambda: {cluster.node_state(name) for name in cluster.nodes} == {"IDLE"}, what="idle nodes")


@pytest.fixture
def start(site: Site) -> Iterator[Callable[..., Running]]:
    """Start publishers, each of which has made its first pass; end what still runs."""
    started: list[Running] = []

    def begin(*options: str, wait: str = "complete") -> Running:
        publisher = Running(site, *(options or ("--all",)))
        started.append(publisher)
        publisher.until(lambda: publisher.said(wait))
        return publisher

    yield begin
    for publisher in started:
        publisher.process.kill()
        publisher.process.wait()


@pytest.fixture(scope="module")
def slurmrestd_of() -> Callable[..., Slurmrestd]:
    """A slurmrestd for a cluster, which lets in by tokens unless told otherwise; it runs inside `with`."""
    return lambda cluster, auth="rest_auth/jwt": Slurmrestd(cluster, auth)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """A key for a cluster of the module's own."""
    return Tokens(tmp_path_factory.mktemp("tokens"))

"""`publish --source rest` with a real slurmrestd before a real slurmctld, by token and by UNIX socket."""

from __future__ import annotations

import os
import pwd
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slurm.commands.run import Commands
from slurm.commands.text import TextReader
from slurm.errors import SlurmUnavailable
from slurm.nodes import existing
from slurm.rest.api import VERSIONS, Questions
from slurm.rest.http import Server
from slurm.rest.reader import RestReader
from slurm.rest.token import read_token
from slurm.sandbox.cluster import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Site, Slurmrestd, Tokens

pytestmark = pytest.mark.slurm

ME = pwd.getpwuid(os.geteuid()).pw_name
HIDDEN = "PartitionName=hidden Nodes=n4 Hidden=YES MaxTime=INFINITE State=UP"
FUTURE = "NodeName=f[1-2] NodeAddr=127.0.0.1 Port=17999 State=FUTURE CPUs=2"


@pytest.fixture(scope="module")
def cluster(tokens: Tokens) -> Iterator[Sandbox]:
    """Four nodes, one of them in a hidden partition too, two that may come, tokens, and jobs that are private."""
    extra = [HIDDEN, FUTURE, "PrivateData=jobs", *tokens.conf]
    with Sandbox(nodes=4, return_to_service=0, extra_conf=extra) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def rest(cluster: Sandbox, slurmrestd_of: Callable[..., Slurmrestd]) -> Iterator[Slurmrestd]:
    """A slurmrestd that wants tokens."""
    with slurmrestd_of(cluster) as slurmrestd:
        yield slurmrestd


class Door:
    """The options of `publish` for one slurmrestd and one token file."""

    def __init__(self, url: str, file: Path, cluster: str = "sandbox") -> None:
        self.file = file
        self.options = ("--source", "rest", "--rest-url", url, "--rest-jwt-file", str(file), "--cluster", cluster)

    def holds(self, token: str) -> None:
        """Put another token into its file."""
        self.file.write_text(f"{token}\n")
        self.file.chmod(0o600)


@pytest.fixture(params=["unix", "tcp"])
def door(request: pytest.FixtureRequest, rest: Slurmrestd, tokens: Tokens, tmp_path: Path) -> Door:
    """The door, with a token of whoever may see everything."""
    url = f"unix:{rest.socket}" if request.param == "unix" else f"http://127.0.0.1:{rest.port}"
    door = Door(url, tmp_path / "token")
    door.holds(tokens.make(ME))
    return door


def changes(document: dict[str, Any]) -> list[str]:
    """Name what a pass changed."""
    return [f"{change['action']} {change['job_id']}.{change['task_id']}" for change in document["changes"]]


def reader(url: str, token: str | None, cluster: str | None = "sandbox") -> RestReader:
    """Return the reader itself."""
    environ = {"SLURM_JWT": token} if token else {}
    return RestReader(url, timeout=30, cluster=cluster, token_file=None, environ=environ)


def test_drain_and_resume(site: Site, door: Door) -> None:
    """A drained node excludes the unit that holds it, also in a hidden partition, until it is fit again."""
    array, hidden = site.start(("--array=0-1", "--nodes=1", "--exclusive"), ("--partition=hidden", "--exclusive"))
    units = {f"{array}.0", f"{array}.1", f"{hidden}.{hidden}"}
    held = site.nodes_of()
    assert held.keys() == units
    assert held[f"{hidden}.{hidden}"] == {"n4"}
    first = site.publish(*door.options)
    assert first["source"] == "rest"
    assert first["units"] == {"total": 3, "excluded": 0}
    assert first["nodes"]["total"] == 4
    for unit in (f"{array}.0", f"{hidden}.{hidden}"):
        (node,) = held[unit]
        site.cluster.set_node(node, "drain", "a bad: link")
        assert changes(site.publish(*door.options)) == [f"exclude {unit}"]
        assert site.excluded() == {unit}
        told = site.artifact(unit)
        assert [(bad["name"], bad["reason"], bad["reason_user"]) for bad in told["nodes"]] == [
            (node, "a bad: link", ME)
        ]
        site.resume(node)
        assert changes(site.publish(*door.options)) == [f"clear {unit}"]
        assert site.excluded() == set()


def test_unit_that_ended_is_retired(site: Site, door: Door) -> None:
    """Who sees every job knows what is gone."""
    job = site.submit("--nodes=1", "--exclusive")
    (node,) = site.nodes_of()[f"{job}.{job}"]
    site.cluster.set_node(node, "drain")
    site.publish(*door.options)
    assert site.excluded() == {f"{job}.{job}"}
    site.end(job)
    assert [changes(site.publish(*door.options)) for _ in range(2)] == [[], [f"retire {job}.{job}"]]


def test_both_doors_see_the_same(site: Site, rest: Slurmrestd, tokens: Tokens) -> None:
    """A snapshot of slurmrestd is the one that Slurm's commands give; 22.05 never lists the nodes to come."""
    site.start(("--array=0-1", "--nodes=1"), ("--partition=hidden",))
    site.cluster.set_node("n2", "drain", "x [y] |z|")
    expected = TextReader(Commands(timeout=30, environ=site.cluster.env)).read()
    told = reader(f"http://127.0.0.1:{rest.port}", tokens.make(ME), None).read()
    assert told.nodes == expected.nodes
    assert set(told.allocations) == set(expected.allocations)
    assert (told.cluster, told.slurm_version) == (expected.cluster, expected.slurm_version)


def test_every_version_of_the_api(site: Site, rest: Slurmrestd, tokens: Tokens) -> None:
    """Each version that this slurmrestd speaks, not only the one that is asked, gives the same."""
    site.start(("--array=0-1", "--nodes=1"), ("--nodes=2",))
    site.cluster.set_node("n2", "drain", "x [y] |z|")
    expected = TextReader(Commands(timeout=30, environ=site.cluster.env)).read()
    token = read_token(None, {"SLURM_JWT": tokens.make(ME)})
    with Server(f"http://127.0.0.1:{rest.port}", {}).session(60) as session:
        asked = [Questions(session, version, token) for version in VERSIONS]
        spoken = [asking for asking in asked if asking.is_there()]
        answers = [(asking.rows("nodes", None).rows, asking.rows("jobs", None).rows) for asking in spoken]
    assert answers
    for nodes, jobs in answers:
        allocations = tuple(jobs.allocations.values())
        assert existing(nodes.nodes, allocations) == expected.nodes
        assert set(allocations) == set(expected.allocations)


def test_private_jobs(site: Site, rest: Slurmrestd, tokens: Tokens) -> None:
    """The answer does not say that jobs are missing from it; the snapshot does."""
    site.submit("--nodes=1")
    url = f"http://127.0.0.1:{rest.port}"
    mine, daemons = (reader(url, tokens.make(user)).read() for user in (ME, "daemon"))
    assert len(mine.allocations) == 1
    assert mine.visible_user == (None if ME == "root" else str(os.geteuid()))
    assert daemons.nodes == mine.nodes
    assert daemons.allocations == ()
    assert daemons.visible_user == "1"


def test_controller_that_is_down(site: Site, door: Door) -> None:
    """Without slurmctld the state is unknown: exit 3, and nothing is touched."""
    job = site.submit("--nodes=1", "--exclusive")
    (node,) = site.nodes_of()[f"{job}.{job}"]
    site.cluster.set_node(node, "drain")
    site.publish(*door.options)
    before = site.files()
    site.cluster.stop_controller()
    try:
        site.publish(*door.options, code=3)
        assert site.files() == before
    finally:
        site.cluster.start_controller()
        site.cluster.wait_until(
            lambda: all("UNKNOWN" not in site.cluster.node_state(name) for name in site.cluster.nodes),
            what="nodes that registered",
        )
    site.publish(*door.options)
    assert site.excluded() == {f"{job}.{job}"}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("expired", "holds a token that expired at"),
        ("another key", "does not take the token of"),
        ("another user", "does not take the token of"),
        ("no token at all", "does not take the token from"),
    ],
)
def test_bad_token(how: str, words: str, site: Site, door: Door, tokens: Tokens) -> None:
    """A token that is no good is an unknown state, in words; it is not repeated."""
    token = {
        "expired": tokens.make(ME, seconds=-60),
        "another key": tokens.make(ME, key=b"x" * 32),
        "another user": tokens.make("daemon").rpartition(".")[0] + "." + tokens.make(ME).rpartition(".")[2],
        "no token at all": "secret-secret",
    }[how]
    door.holds(token)
    before = site.files()
    done = site.call(*site.arguments(*door.options))
    assert done.returncode == 3, done
    assert words in done.stderr
    assert token not in done.stderr + done.stdout
    assert site.files() == before


def test_another_cluster(site: Site, door: Door) -> None:
    """A cluster by another name is not this one."""
    site.submit()
    asked = Door(door.options[3], door.file, "alpha")
    done = site.call(*site.arguments(*asked.options))
    assert done.returncode == 3, done
    assert "asked for cluster alpha, and sandbox answered" in done.stderr


def test_without_a_token(cluster: Sandbox, rest: Slurmrestd) -> None:
    """One that wants a token says so."""
    with pytest.raises(SlurmUnavailable, match="401 'Authentication failure'; it wants a token"):
        reader(f"unix:{rest.socket}", None).read()
    assert cluster.nodes


def test_local_auth(cluster: Sandbox, slurmrestd_of: Callable[..., Slurmrestd], tokens: Tokens) -> None:
    """Behind a socket that wants no token it is slurmrestd's account that sees, whatever token is sent along."""
    own = str(os.geteuid()) if os.geteuid() else "unknown"
    with slurmrestd_of(cluster, "rest_auth/local") as slurmrestd:
        for token in (None, tokens.make("root")):
            asking = reader(f"unix:{slurmrestd.socket}", token)
            snapshot = asking.read()
            assert set(snapshot.nodes) == set(cluster.nodes)
            assert snapshot.visible_user == own
            assert ["PrivateData" in remark for remark in asking.remarks] == [True]


def test_any_token_is_let_in(
    cluster: Sandbox, rest: Slurmrestd, slurmrestd_of: Callable[..., Slurmrestd], tokens: Tokens
) -> None:
    """Without SLURM_JWT=daemon no token is looked at, not even a forged one of root: it proves nothing."""
    careless = slurmrestd_of(cluster)
    del careless.env["SLURM_JWT"]
    with careless:
        for url in (f"http://127.0.0.1:{careless.port}", f"unix:{careless.socket}"):
            for token in (tokens.make("root", key=b"x" * 32), tokens.make("root")):
                asking = reader(url, token)
                snapshot = asking.read()
                assert set(snapshot.nodes) == set(cluster.nodes)
                assert snapshot.visible_user == "unknown"
                assert ["SLURM_JWT=daemon" in remark for remark in asking.remarks] == [True]
    for url in (f"http://127.0.0.1:{rest.port}", f"unix:{rest.socket}"):
        assert reader(url, tokens.make("root")).read().visible_user is None


@contextmanager
def listened_to(slurmrestd: Slurmrestd, directory: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Stand between a reader and slurmrestd, and keep every answer."""
    answers: list[bytes] = []

    def pass_on(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(slurmrestd.socket))
            server.sendall(client.recv(1 << 16))
            told = b""
            while data := server.recv(1 << 16):
                told += data
            client.sendall(told)
            answers.append(told)

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=pass_on, args=(client,), daemon=True).start()

    path = directory / "relay"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"unix:{path}", answers
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_unchanged_cluster(site: Site, rest: Slurmrestd, tokens: Tokens, tmp_path: Path) -> None:
    """An unchanged cluster is not told twice, and no change is missed, though it come in the same second."""
    job = site.submit("--nodes=1", "--exclusive")
    with listened_to(rest, tmp_path) as (url, answers):
        asking = reader(url, tokens.make(ME))
        first = asking.read()
        unchanged = 0
        for _ in range(40):
            del answers[:]
            assert asking.read() == first
            unchanged = sum(
                told.startswith(b"HTTP/1.1 304 NOT MODIFIED") or b"No job changes since" in told
                for told in answers
            )
            if unchanged == 2 or rest.version.startswith("22.05"):  # 22.05 tells no time
                break
            time.sleep(0.5)
        assert unchanged == (0 if rest.version.startswith("22.05") else 2)
        for number in range(6):
            for name, state in (("n1", "drain"), ("n1", "resume")):
                site.cluster.set_node(name, state, f"{number}")
                node = asking.read().nodes[name]
                assert ("DRAIN" in node.flags) == (state == "drain"), (number, node)
        assert any(allocation.job_id == job for allocation in asking.read().allocations)
        site.end(job)
        assert asking.read().allocations == ()

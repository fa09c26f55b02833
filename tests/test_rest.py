"""A server on TCP, TLS and UNIX sockets that says what slurmrestd was heard to say, and misbehaves by script."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable
from slurm.reader import Access, open_reader
from slurm.rest import http as _http
from slurm.rest.api import VERSIONS
from slurm.rest.reader import RestReader
from slurm.rest.token import MAX_TOKEN, read_token
from slurm.saved import SavedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Answer = bytes | Iterator[bytes]

SAMPLES = Path(__file__).parent / "data/samples"
V42 = "v0.0.42"
NODES = (SAMPLES / "25.11/rest_v0.0.42_nodes.json").read_bytes()
JOBS = (SAMPLES / "25.11/rest_v0.0.42_jobs.json").read_bytes()
PING = (SAMPLES / "25.11/rest_v0.0.42_ping.json").read_bytes()
# 22.05 has one serializer for slurmrestd and for its commands.
OLD_NODES = (SAMPLES / "22.05/sinfo.json").read_bytes()
OLD_JOBS = (SAMPLES / "22.05/squeue.json").read_bytes()
LAST_UPDATE = 1795983065
LONG = 60.0
"""Seconds that no test here waits."""

SIGNATURE = "c2VjcmV0c2VjcmV0"
DIAG = b'{"statistics": {"req_time": 1795983065}, "errors": []}'
PROTOCOL_ERROR = {
    "error": "Protocol authentication error",
    "error_number": 1007,
    "description": "Failure to query nodes",
}
UNAUTHORIZED = b"Authentication failure"
NOT_FOUND = b"Unable find requested URL. Please view /openapi/v3 for API reference."
FLAGS = "flags=ALL&flags=DETAIL&flags=MIXED&flags=FUTURE"


def answer(status: int, body: bytes = b"", kind: str = "application/json", *headers: str) -> bytes:
    """Write an answer as slurmrestd does."""
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase.upper()}", *headers]
    if body:
        head += [f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def with_errors(*errors: Mapping[str, object]) -> bytes:
    """Write what comes with a failure: errors, and an empty list that means nothing."""
    return json.dumps({"nodes": [], "errors": errors, "warnings": []}).encode()


def token(user: str | None = "root", **claims: object) -> str:
    """Make a token of a user, signed by nobody."""
    told = {"exp": 4102444800, **({"sun": user} if user else {}), **claims}
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, told)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + f".{SIGNATURE}"


class Request:
    """What was asked."""

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.target = first.split(" ")[1]
        self.path, _, self.query = self.target.partition("?")
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}

    @property
    def update_time(self) -> int | None:
        """The time that was named in it."""
        found = [part for part in self.query.split("&") if part.startswith("update_time=")]
        return int(found[0].partition("=")[2]) if found else None


class Slurmrestd:
    """Answers as it is told, and remembers what it was asked. `says` maps the end of a path to what to do."""

    def __init__(self) -> None:
        self.version = V42
        self.asked: list[Request] = []
        self.says: dict[str, Callable[[Request], Answer]] = {
            "ping/": lambda _: answer(200, PING),
            "diag/": self.diag,
            "nodes/": lambda _: answer(200, NODES),
            "jobs/": lambda _: answer(200, JOBS),
        }

    def always(self, what: str, *said: bytes) -> None:
        """Give these answers in turn, and the last one from there on."""
        left = list(said)
        self.says[f"{what}/"] = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def diag(self, request: Request) -> bytes:
        """Refuse a token that is not well signed: up to 23.11 with 500, which may mean anything."""
        if request.headers.get("x-slurm-user-token", "").endswith(f".{SIGNATURE}"):
            return answer(200, DIAG)
        if self.version < "v0.0.41":
            return answer(500, with_errors({"error": "Unspecified error", "error_number": -1}))
        return answer(511, with_errors(PROTOCOL_ERROR))

    def reply(self, request: Request) -> Answer:
        """Answer a question."""
        self.asked.append(request)
        version, what = request.path.removeprefix("/slurm/").split("/", 1)
        if version != self.version:
            return answer(404, NOT_FOUND, "text/plain", "Connection: Close")
        return self.says[what](request)

    def questions(self) -> list[str]:
        """Return what was asked since this was last called, less the common beginning, sorted."""
        asked, self.asked = self.asked, []
        return sorted(request.target.removeprefix("/slurm/") for request in asked)


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):  # a client may go away
            head = b""
            while b"\r\n\r\n" not in head:
                data = self.request.recv(65536)
                if not data:
                    return
                head += data
                if head.startswith(b"\x16"):  # TLS
                    self.request.sendall(answer(400, b"no TLS here", "text/plain"))
                    return
            said = self.server.slurmrestd.reply(Request(head.partition(b"\r\n\r\n")[0]))  # type: ignore[attr-defined]
            for piece in [said] if isinstance(said, bytes) else said:
                self.request.sendall(piece)


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


class _Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


@contextlib.contextmanager
def listening(server: socketserver.BaseServer, slurmrestd: Slurmrestd) -> Iterator[None]:
    """Let a server answer for a while."""
    server.slurmrestd = slurmrestd  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def slurmrestd() -> Slurmrestd:
    """What answers as a recorded 25.11 did."""
    return Slurmrestd()


@pytest.fixture
def url(slurmrestd: Slurmrestd, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where it listens on TCP; there is a proxy too, which nobody is to use."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = _Tcp(("127.0.0.1", 0), _Handler)
    with listening(server, slurmrestd):
        yield f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def path(slurmrestd: Slurmrestd, short_path: Path) -> Iterator[Path]:
    """Where it listens on a UNIX socket."""
    place = short_path / "rest.sock"
    with listening(_Unix(str(place), _Handler), slurmrestd):
        yield place


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    """Whatever happens, nothing that was opened stays open."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    deadline = time.monotonic() + 10  # a thread that was left behind ends in a moment
    while not set(os.listdir("/proc/self/fd")) <= before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def reader(
    url: str,
    *,
    timeout: float = 30,
    cluster: str | None = None,
    token_file: Path | None = None,
    jwt: str | None = None,
    **environ: str,
) -> RestReader:
    """Return a reader whose environment holds what is given."""
    environ |= {"SLURM_JWT": jwt} if jwt else {}
    where = None if token_file is None else str(token_file)
    return RestReader(url, timeout=timeout, cluster=cluster, token_file=where, environ=environ)


def failure(asking: RestReader, kind: type[SlurmError] = SlurmUnavailable) -> str:
    """Ask; return the words of the failure that must come."""
    with pytest.raises(SlurmError) as caught:
        asking.read()
    assert type(caught.value) is kind, caught.value
    return str(caught.value)


# --- what is read -----------------------------------------------------------------------------------------


def test_traffic(slurmrestd: Slurmrestd, url: str) -> None:
    """Every request is counted, and the bytes of every answer, a refusal's too."""
    asking = reader(url, jwt=token())
    asking.read()
    counted = asking.traffic["rest"]
    assert counted.queries == len(slurmrestd.questions())
    refused = len(with_errors(PROTOCOL_ERROR))
    assert counted.received == sum(map(len, (PING, DIAG, NODES, JOBS))) + refused
    jobs = threading.Event()  # a failure leaves the question beside it behind, so that one has to come first

    def refuse(_: Request) -> bytes:
        assert jobs.wait(30)
        return answer(500, b"no", "text/plain")

    def tell(_: Request) -> bytes:
        jobs.set()
        return answer(200, JOBS)

    slurmrestd.says |= {"nodes/": refuse, "jobs/": tell}
    queries, received = counted.queries, counted.received
    failure(asking)
    asked = slurmrestd.questions()
    assert counted.queries == queries + len(asked)
    assert counted.received >= received + len(b"no")


@pytest.mark.parametrize("version", ["24.11", "25.11", "26.05"])
def test_whole_snapshot(version: str, slurmrestd: Slurmrestd, url: str) -> None:
    """What slurmrestd said is read as scontrol's and squeue's JSON are."""
    nodes, jobs = (SAMPLES / version / f"rest_v0.0.42_{what}.json" for what in ("nodes", "jobs"))
    slurmrestd.always("nodes", answer(200, nodes.read_bytes()))
    slurmrestd.always("jobs", answer(200, jobs.read_bytes()))
    snapshot = reader(url, jwt=token()).read()
    expected = SavedReader(str(nodes), str(jobs), cluster=None).read()
    assert (snapshot.nodes, snapshot.allocations) == (expected.nodes, expected.allocations)
    assert (snapshot.cluster, snapshot.visible_user) == ("feas", None)
    assert snapshot.slurm_version is not None
    assert snapshot.slurm_version.startswith(f"{version}.")
    diag = f"{V42}/diag/"
    assert slurmrestd.questions() == [diag, diag, f"{V42}/jobs/", f"{V42}/nodes/?{FLAGS}", f"{V42}/ping/"]


def test_22_05(slurmrestd: Slurmrestd, url: str) -> None:
    """v0.0.38 is read too: no flags, no time of an update, and its cluster named by jobs only."""
    slurmrestd.version = "v0.0.38"
    slurmrestd.always("nodes", answer(200, OLD_NODES) + b"Connection: Close\r\n")  # seen on 22.05
    slurmrestd.always("jobs", answer(200, OLD_JOBS) + b"Connection: Close\r\n")
    asking = reader(url, jwt=token())
    snapshot = asking.read()
    expected = SavedReader(
        str(SAMPLES / "22.05/sinfo.json"), str(SAMPLES / "22.05/squeue.json"), cluster=None
    ).read()
    assert (snapshot.nodes, snapshot.allocations) == (expected.nodes, expected.allocations)
    assert (snapshot.cluster, snapshot.slurm_version) == ("feas", "22.05.8")
    slurmrestd.questions()
    slurmrestd.always("jobs", answer(200, b'{"jobs": [], "errors": []}'))
    assert asking.read().cluster == "feas"
    assert slurmrestd.questions() == ["v0.0.38/jobs/", "v0.0.38/nodes/"]
    words = failure(reader(url, jwt=token()), SlurmProtocolError)
    assert "does not name its cluster" in words
    assert "--cluster NAME" in words
    assert reader(url, jwt=token(), cluster="alpha").read().cluster == "alpha"


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
def test_unix_socket(form: str, slurmrestd: Slurmrestd, path: Path) -> None:
    """A UNIX socket serves as well, and needs no token."""
    assert reader(form.format(path)).read().cluster == "feas"
    assert not any("x-slurm-user-token" in request.headers for request in slurmrestd.asked)


def test_headers(slurmrestd: Slurmrestd, url: str) -> None:
    """It asks for JSON as it is, with the token and the name in it; 22.05 takes no token without a name."""
    reader(f"{url}/", jwt=token("health")).read()
    signed = token("health").rpartition(".")[0]
    sent = [request.headers["x-slurm-user-token"] for request in slurmrestd.asked]
    assert sorted(sent) == [f"{signed}.{'A' * len(SIGNATURE)}", *[token("health")] * 4]
    for request in slurmrestd.asked:
        assert request.headers["x-slurm-user-name"] == "health"
        assert request.headers["accept"] == "application/json"
        assert request.headers["accept-encoding"] == "identity"
        assert "authorization" not in request.headers


def test_door_rest(url: str) -> None:
    """The door `rest` is this reader."""
    door = open_reader("rest", Access(timeout=30, environ={"SLURM_JWT": token()}, rest_url=url))
    assert (door.name, door.why, door.reader.read().cluster) == ("rest", "asked for", "feas")
    door.reader.close()


# --- negotiation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoken", VERSIONS)
def test_versions_are_tried_in_order(spoken: str, slurmrestd: Slurmrestd, url: str) -> None:
    """42 first, then what is newer, then what is older, until one is there; it is remembered."""
    slurmrestd.version = spoken
    asking = reader(url, jwt=token())
    asking.read()
    tried = [request.path.split("/")[2] for request in slurmrestd.asked if request.path.endswith("/ping/")]
    assert tried == list(VERSIONS[: VERSIONS.index(spoken) + 1])
    slurmrestd.questions()
    asking.read()
    assert not any("ping" in question or "diag" in question for question in slurmrestd.questions())


def test_no_version_is_spoken(slurmrestd: Slurmrestd, url: str) -> None:
    """A server that knows none of them is not slurmrestd, or of a time to come."""
    slurmrestd.version = "v0.0.99"
    assert "speaks none of v0.0.38 to v0.0.45" in failure(reader(url, jwt=token()), SlurmProtocolError)


def test_version_is_negotiated_again_after_a_failure(slurmrestd: Slurmrestd, url: str) -> None:
    """An upgrade of slurmrestd costs one pass."""
    asking = reader(url, jwt=token())
    asking.read()
    slurmrestd.version = "v0.0.43"
    assert "404" in failure(asking)
    assert asking.read().cluster == "feas"


# --- unchanged --------------------------------------------------------------------------------------------


def unless_changed(body: bytes) -> Callable[[Request], bytes]:
    """Answer 304 to whoever has what there is."""
    return lambda request: answer(304) if request.update_time == LAST_UPDATE else answer(200, body)


def test_unchanged(slurmrestd: Slurmrestd, url: str) -> None:
    """Rows are kept, and asked for with their time: nothing else crosses until something changes."""
    slurmrestd.says["nodes/"], slurmrestd.says["jobs/"] = unless_changed(NODES), unless_changed(JOBS)
    asking = reader(url, jwt=token())
    first = asking.read()
    slurmrestd.questions()
    for _ in range(2):
        assert asking.read() == first
        times = [f"{V42}/jobs/?update_time={LAST_UPDATE}", f"{V42}/nodes/?update_time={LAST_UPDATE}&{FLAGS}"]
        assert slurmrestd.questions() == times


NO_CHANGES = {
    "jobs": [],
    "last_update": {"set": True, "infinite": False, "number": 0},
    "errors": [],
    "warnings": [
        {
            "description": f"No job changes since update_time[{LAST_UPDATE}]=2026-11-29T21:31:05",
            "source": "op_handler_jobs",
        }
    ],
}


def test_unchanged_jobs_in_words(slurmrestd: Slurmrestd, url: str) -> None:
    """Since 23.11 unchanged jobs are no 304: an empty list and a warning, and never no jobs."""
    slurmrestd.says["nodes/"] = unless_changed(NODES)
    asking = reader(url, jwt=token())
    first = asking.read()
    assert first.allocations
    slurmrestd.questions()
    slurmrestd.always("jobs", answer(200, json.dumps(NO_CHANGES).encode()))
    assert asking.read() == first
    assert f"{V42}/jobs/" not in slurmrestd.questions()
    assert asking.remarks == []
    other = json.dumps(NO_CHANGES).replace(str(LAST_UPDATE), str(LAST_UPDATE + 1))
    slurmrestd.says["jobs/"] = lambda asked: answer(200, other.encode() if asked.update_time else JOBS)
    assert asking.read() == first
    assert f"{V42}/jobs/" in slurmrestd.questions()


def test_one_of_two_changed(slurmrestd: Slurmrestd, url: str) -> None:
    """Nodes and jobs are kept each by itself."""
    slurmrestd.says["nodes/"], slurmrestd.says["jobs/"] = unless_changed(NODES), unless_changed(JOBS)
    asking = reader(url, jwt=token())
    first = asking.read()
    gone = json.loads(JOBS) | {
        "jobs": [],
        "last_update": {"set": True, "infinite": False, "number": LAST_UPDATE + 9},
    }
    slurmrestd.always("jobs", answer(200, json.dumps(gone).encode()))
    second = asking.read()
    assert second.nodes == first.nodes
    assert second.allocations == ()
    slurmrestd.questions()
    asking.read()
    assert f"{V42}/jobs/?update_time={LAST_UPDATE + 9}" in slurmrestd.questions()


def test_unchanged_is_believed_only_of_rows_that_are_here(slurmrestd: Slurmrestd, url: str) -> None:
    """A 304 that was not asked for is no answer."""
    slurmrestd.always("jobs", answer(304))
    assert "304, and nothing was asked for that may be unchanged" in failure(reader(url, jwt=token()))


def test_rows_are_let_go_after_a_failure(slurmrestd: Slurmrestd, url: str) -> None:
    """After a pass that failed everything is asked for whole."""
    slurmrestd.says["nodes/"], slurmrestd.says["jobs/"] = unless_changed(NODES), unless_changed(JOBS)
    asking = reader(url, jwt=token())
    asking.read()
    slurmrestd.always("jobs", answer(502, with_errors({"description": "slurmctld is away"})))
    slurmrestd.questions()
    assert "502 'slurmctld is away'" in failure(asking)
    while len(slurmrestd.asked) < 2:  # the question for nodes was not waited for
        time.sleep(0.01)
    slurmrestd.says["jobs/"] = unless_changed(JOBS)
    slurmrestd.questions()
    asking.read()
    assert not any("update_time" in question for question in slurmrestd.questions())


def test_rows_are_another_users(slurmrestd: Slurmrestd, url: str, tmp_path: Path) -> None:
    """What one user sees is not kept for another; a renewed token of the same user changes nothing."""
    slurmrestd.says["nodes/"], slurmrestd.says["jobs/"] = unless_changed(NODES), unless_changed(JOBS)
    file = tmp_path / "token"
    asking = reader(url, token_file=file)
    for told, whole in ((token("root"), True), (token("root", exp=4102444801), False), (token("alice"), True)):
        file.write_text(told)
        file.chmod(0o600)
        asking.read()
        assert any("ping" in question for question in slurmrestd.questions()) == whole


def test_rows_grow_old(slurmrestd: Slurmrestd, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sooner or later everything is asked for whole: a backup slurmctld has another clock."""
    monkeypatch.setattr("slurm.rest.api._TRUSTED_SECONDS", 0.0)
    slurmrestd.says["nodes/"], slurmrestd.says["jobs/"] = unless_changed(NODES), unless_changed(JOBS)
    asking = reader(url, jwt=token())
    asking.read()
    slurmrestd.questions()
    asking.read()
    assert not any("update_time" in question for question in slurmrestd.questions())


EMPTY = (
    b'{"jobs": [], "last_update": {"set": false, "infinite": false, "number": 0}, "errors": [], "warnings": []}'
)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "nodes",
            answer(500, with_errors({"error": "Unspecified error", "description": "Unable to query partitions"})),
        ),
        ("nodes", answer(200, EMPTY.replace(b"jobs", b"nodes"))),
        ("jobs", answer(200, EMPTY)),
    ],
    ids=["nodes fail unless partitions changed", "no nodes", "no jobs"],
)
def test_what_is_wrong_with_a_time_is_asked_without(
    what: str, said: bytes, slurmrestd: Slurmrestd, url: str
) -> None:
    """Versions that fail, or answer with nothing, because of the time in a question get it without one."""
    asking = reader(url, jwt=token())
    first = asking.read()
    body = NODES if what == "nodes" else JOBS
    slurmrestd.says[f"{what}/"] = lambda request: said if request.update_time else answer(200, body)
    assert asking.read() == first


# --- whose jobs are seen ----------------------------------------------------------------------------------


def visible(asking: RestReader) -> tuple[str | None, bool]:
    """Return whose jobs alone are seen, and whether it was said that this is so."""
    user = asking.read().visible_user
    said = any("PrivateData" in remark for remark in asking.remarks)
    asking.read()
    assert not any("PrivateData" in remark for remark in asking.remarks)
    return user, said


def test_visible_user(slurmrestd: Slurmrestd, url: str) -> None:
    """A token of root sees everything, any other its user's jobs, SlurmUser's too; it is said once."""
    told = json.loads(JOBS)
    for job in told["jobs"]:
        job |= {"user_name": "slurm", "user_id": 64030}
    slurmrestd.always("jobs", answer(200, json.dumps(told).encode()))
    assert visible(reader(url, jwt=token("slurm"))) == ("64030", True)
    for job in told["jobs"]:
        job |= {"user_name": "alice", "user_id": 4711}
    slurmrestd.always("jobs", answer(200, json.dumps(told).encode()))
    assert visible(reader(url, jwt=token("alice"))) == ("4711", True)
    assert visible(reader(url, jwt=token("root"))) == (None, False)
    assert visible(reader(url, jwt=token("daemon"))) == ("1", True)
    assert visible(reader(url, jwt=token("nobody-of-that-name"))) == ("unknown", True)
    assert visible(reader(url, jwt=token(None))) == ("unknown", True)
    assert visible(reader(url, jwt=token(None, username="root"))) == (None, False)
    assert visible(reader(url, jwt="no.token.atall")) == ("unknown", True)
    assert visible(reader(url)) == ("unknown", True)


LET_IN = answer(200, DIAG)
REFUSED = answer(511, with_errors(PROTOCOL_ERROR))
FAILED = answer(500, with_errors(PROTOCOL_ERROR))
NO_DIAG = answer(404, NOT_FOUND, "text/plain")


@pytest.mark.parametrize("version", ["v0.0.38", V42])
@pytest.mark.parametrize(
    ("says", "counts"),
    [
        ((LET_IN, REFUSED), True),
        ((LET_IN, FAILED), True),
        ((LET_IN, LET_IN), False),
        ((LET_IN, answer(200, with_errors(PROTOCOL_ERROR))), False),
        ((LET_IN, answer(401, UNAUTHORIZED, "text/plain")), False),
        ((LET_IN, answer(403)), False),
        ((REFUSED, REFUSED), False),
        ((FAILED, FAILED), False),
        ((NO_DIAG, NO_DIAG), False),
    ],
    ids=["511", "500", "let in", "errors", "401", "403", "both refused", "both fail", "no diag"],
)
def test_a_spoilt_token_must_be_refused(
    says: tuple[bytes, bytes], counts: bool, version: str, slurmrestd: Slurmrestd, url: str
) -> None:
    """Only where slurmctld tells our token from a spoilt one is it by ours that everything is seen."""
    slurmrestd.version = version
    slurmrestd.says["diag/"] = lambda request: says[request.headers["x-slurm-user-token"] != token()]
    asking = reader(url, jwt=token())
    assert asking.read().visible_user == (None if counts else "unknown")
    said = ["our token proves nothing" in remark and "SLURM_JWT=daemon" in remark for remark in asking.remarks]
    assert said == ([] if counts else [True])


@pytest.mark.parametrize("status", [502, 504])
def test_slurmctld_that_is_away_is_waited_for_once(status: int, slurmrestd: Slurmrestd, url: str) -> None:
    """What slurmrestd waited ten seconds for in vain is not asked again."""
    slurmrestd.always("diag", answer(status, with_errors({"description": "slurmctld is away"})))
    assert f"{status} 'slurmctld is away'" in failure(reader(url, jwt=token()))
    assert slurmrestd.questions() == [f"{V42}/diag/", f"{V42}/ping/"]


def test_visible_user_behind_a_socket(slurmrestd: Slurmrestd, path: Path) -> None:
    """It is slurmrestd's account that sees where its socket knows us and any token will do."""
    asking = f"unix:{path}"
    own = str(os.geteuid()) if os.geteuid() else "unknown"
    assert visible(reader(asking)) == (own, True)
    assert visible(reader(asking, jwt=token("root"))) == (None, False)
    slurmrestd.always("diag", answer(200, DIAG))
    assert visible(reader(asking, jwt=token("root"))) == (own, True)
    slurmrestd.says["ping/"] = lambda request: (
        answer(200, PING)
        if "x-slurm-user-token" in request.headers
        else answer(401, UNAUTHORIZED, "text/plain", "Connection: Close")
    )
    assert visible(reader(asking, jwt=token("root"))) == ("unknown", True)
    slurmrestd.says["diag/"] = slurmrestd.diag
    assert visible(reader(asking, jwt=token("root"))) == (None, False)


# --- the token --------------------------------------------------------------------------------------------


def test_token_file_is_read_at_every_pass(slurmrestd: Slurmrestd, url: str, tmp_path: Path) -> None:
    """Tokens are renewed under a publisher that runs; a file wins over SLURM_JWT."""
    file = tmp_path / "token"
    asking = reader(url, token_file=file, jwt=token("root", of="environment"))
    for text in (token(exp=4102444801), token(exp=4102444802)):
        file.write_text(f"SLURM_JWT={text}\n")  # what `scontrol token` prints
        asking.read()
        asked = [request for request in slurmrestd.asked if not request.path.endswith("/diag/")]
        assert {request.headers["x-slurm-user-token"] for request in asked} == {text}
        slurmrestd.questions()
    file.unlink()
    assert f"token file {file}: No such file or directory" in failure(asking)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"secretsecret1\nsecretsecret2\n", "not one line"),
        (b"secret secret", "not one line"),
        (b"secret\tsecret", "not one line"),
        (b"secret\0secret", "not one line"),
        (b"secret\xffsecret", "not one line"),
        ("secretsécret".encode(), "not one line"),
        (b"secret" * MAX_TOKEN, f"more than {MAX_TOKEN} bytes"),
    ],
    ids=["nothing", "an empty line", "two lines", "a space", "a tab", "NUL", "bytes", "an accent", "much"],
)
def test_what_is_no_token(content: bytes, words: str, slurmrestd: Slurmrestd, url: str, tmp_path: Path) -> None:
    """A file must hold a token and nothing else; what it holds is not repeated, and nobody is asked."""
    file = tmp_path / "token"
    file.write_bytes(content)
    said = failure(reader(url, token_file=file))
    assert said.startswith(f"token file {file}: {words}")
    assert "secret" not in said.replace(str(file), "")
    assert slurmrestd.asked == []


def test_what_is_no_file(url: str, tmp_path: Path) -> None:
    """Directories, and pipes that nobody fills, are no token files; nor is what lies behind a NUL byte."""
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in failure(reader(url, token_file=tmp_path / "fifo"))
    assert "Is a directory" in failure(reader(url, token_file=tmp_path))
    assert "null" in failure(reader(url, token_file=Path("/etc/\0")))
    assert "SLURM_JWT: not one line" in failure(reader(url, jwt="a b"))


def test_remarks_about_the_token(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That others can read a token is said once, on disk as on the wire."""
    file = tmp_path / "token"
    file.write_text(token())
    file.chmod(0o644)
    asking = reader(url, token_file=file)
    asking.read()
    assert [remark for remark in asking.remarks if "everybody" in remark] == asking.remarks != []
    asking.read()
    assert asking.remarks == []
    file.chmod(0o640)
    asking = reader(url, token_file=file)
    asking.read()
    assert asking.remarks == []
    # This host by its name is not known to be this host.
    monkeypatch.setattr(_http, "_is_loopback", lambda host: host != "127.0.0.1")
    asking = reader(url, token_file=file)
    asking.read()
    assert ["in clear" in remark for remark in asking.remarks] == [True]


@pytest.mark.parametrize(
    ("url", "overheard"),
    [
        ("http://slurm.example.org:6820", True),
        ("http://192.0.2.7", True),
        ("https://slurm.example.org", False),
        ("http://localhost:6820", False),
        ("http://127.0.0.9:6820", False),
        ("http://[::1]:6820", False),
        ("unix:/run/slurmrestd.socket", False),
    ],
)
def test_who_may_overhear(url: str, overheard: bool) -> None:
    """Only http to another host goes in clear over a network."""
    assert _http.Server(url, {}).is_overheard == overheard


REPEATED = [
    lambda text: answer(401, text, "text/plain"),
    lambda text: answer(500, with_errors({"description": f"bad header: {text.decode()}"})),
    lambda text: answer(500, with_errors({"description": "x" * 90 + text.decode()})),
    lambda text: answer(200, with_errors({"description": text.decode(), "error": text.decode()})),
    lambda text: answer(302, b"", "text/plain", f"Location: /{text.decode()}"),
    lambda text: answer(200, text, text.decode()),
    lambda text: b"HTTP/1.1 200 " + text + b"\r\n" + text + b"\r\n\r\n",
    lambda text: text,
    lambda text: answer(200, b'{"nodes": [{"name": "' + text + b'"}]}'),
    lambda text: answer(200, b'{"' + text + b'": 1, "' + text + b'": 2}'),
]


@pytest.mark.parametrize("what", ["ping", "diag", "nodes", "jobs"])
@pytest.mark.parametrize("repeat", REPEATED)
def test_token_is_in_no_message(
    what: str, repeat: Callable[[bytes], bytes], slurmrestd: Slurmrestd, url: str
) -> None:
    """Whatever a server repeats of what it was asked, no part of the token's claims or signature is told."""
    text = token()
    said = repeat(text.encode())
    if what == "ping" and said.startswith(b"HTTP/1.1 200 OK"):
        said = said.replace(b"200 OK", b"500 OK", 1)  # what else stands in an answer to a ping is not looked at
    slurmrestd.always(what, said)
    asking = reader(url, jwt=text)
    told = []
    for _ in range(2):
        try:
            asking.read()
        except SlurmError as error:
            told.append(str(error))
        told += asking.remarks
    assert told
    for part in text.split(".")[1:]:
        assert part[:8] not in "".join(told)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("got {0}.{1}.{2}, no", "got (token), no"),
        ("got {1}, no", "got (token), no"),
        ("got {2}, no", "got (token), no"),
        ("{2}{1}", "(token)(token)"),
        ("cut short: {short}...", "cut short: (token)..."),
        ("got a header: eyJhbGci", "got a header: eyJhbGci"),
        ("", ""),
    ],
)
def test_no_part_of_a_token_is_told(said: str, told: str) -> None:
    """Its payload and its signature are hidden by themselves too, and nothing beside them."""
    held = read_token(None, {"SLURM_JWT": token()})
    assert held is not None
    assert held.hide(said.format(*token().split("."), short=token()[:-3])) == told


def test_a_short_token_hides_no_words(slurmrestd: Slurmrestd, url: str) -> None:
    """What is as short as a word is none of a token's parts."""
    slurmrestd.always("nodes", answer(503, b"slurm is away", "text/plain"))
    assert "503 'slurm is away'" in failure(reader(url, jwt="slurm"))


def test_token_is_no_version_and_no_cluster(slurmrestd: Slurmrestd, url: str) -> None:
    """What is printed of an answer's meta is never the token, nor a part of it."""
    meta = json.loads(NODES)["meta"]["slurm"]
    for text in ("an-opaque-token", token()):
        for part in (text, text[-16:]):
            for what, body in (("nodes", NODES), ("jobs", JOBS)):
                slurmrestd.always(what, answer(200, body.replace(meta["release"].encode(), part.encode())))
            assert reader(url, jwt=text).read().slurm_version is None
            said = NODES.replace(f'"{meta["cluster"]}"'.encode(), f'"{part}"'.encode())
            slurmrestd.always("nodes", answer(200, said))
            assert part not in failure(reader(url, jwt=text), SlurmProtocolError)


@pytest.mark.parametrize("release", ["25.11.7 <b>", "x" * 41, "a/b", "1\n2"])
def test_what_is_no_version(release: str, slurmrestd: Slurmrestd, url: str) -> None:
    """A text in the place of the version is none."""
    told = json.loads(NODES)
    told["meta"]["slurm"]["release"] = release
    slurmrestd.always("nodes", answer(200, json.dumps(told).encode()))
    told = json.loads(JOBS) | {"meta": told["meta"]}
    slurmrestd.always("jobs", answer(200, json.dumps(told).encode()))
    assert reader(url, jwt=token()).read().slurm_version is None


def test_token_is_in_no_remark(slurmrestd: Slurmrestd, url: str) -> None:
    """Warnings of an answer are told, and the token in them is not."""
    told = json.loads(NODES) | {"warnings": [{"description": f"deprecated: {token()}", "source": "x"}]}
    slurmrestd.always("nodes", answer(200, json.dumps(told).encode()))
    idle = json.loads(JOBS) | {"jobs": [], "warnings": [{"description": "Zero jobs to dump", "source": "#/jobs/"}]}
    slurmrestd.always("jobs", answer(200, json.dumps(idle).encode()))  # not worth a line at every pass
    asking = reader(url, jwt=token())
    asking.read()
    assert ["deprecated: (token)" in remark for remark in asking.remarks] == [True]
    assert token() not in repr(read_token(None, {"SLURM_JWT": token()}))


# --- refusals ---------------------------------------------------------------------------------------------


def test_401(slurmrestd: Slurmrestd, url: str, path: Path) -> None:
    """Whoever is not let in is told why, as far as can be known, and what to do."""
    slurmrestd.always("ping", answer(401, UNAUTHORIZED, "text/plain", "Connection: Close"))
    words = failure(reader(url))
    assert "401 'Authentication failure'" in words
    assert "wants a token (--rest-jwt-file, or SLURM_JWT)" in words
    assert "root or its own account" in failure(reader(f"unix:{path}"))
    words = failure(reader(url, jwt=token("alice")))
    assert "does not take the token of alice from SLURM_JWT: not signed with this cluster's key" in words
    words = failure(reader(url, jwt=token(None)))
    assert "does not take the token from SLURM_JWT, which names no user: not signed with" in words
    words = failure(reader(url, jwt=token("alice", exp=1795983065)))
    assert (
        "SLURM_JWT holds a token that expired at 2026-11-29T19:31:05+00:00" in words or "expired at 2026-" in words
    )
    assert "`scontrol token`" in words


def test_511(slurmrestd: Slurmrestd, url: str) -> None:
    """Where slurmrestd lets everybody in, it is slurmctld that refuses."""
    slurmrestd.always("nodes", answer(511, with_errors(PROTOCOL_ERROR)))
    words = failure(reader(url, jwt=token("alice")))
    assert "511 'Protocol authentication error: Failure to query nodes'" in words
    assert "does not take the token of alice" in words


def test_500_of_22_05(slurmrestd: Slurmrestd, url: str) -> None:
    """22.05 says nothing more than 500, whether slurmctld is away or the token is wrong."""
    slurmrestd.version = "v0.0.38"
    body = b'{"meta": {}, "errors": [{"error": "Unspecified error", "errno": -1}], "nodes": []}'
    slurmrestd.always("nodes", answer(500, body))
    words = failure(reader(url, jwt=token("alice")))
    assert "500 'Unspecified error'; Slurm before 24.05 says so when slurmctld does not answer, or" in words
    assert "expired at" in failure(reader(url, jwt=token(exp=1000000000)))


@pytest.mark.parametrize("what", ["nodes", "jobs"])
@pytest.mark.parametrize("status", [200, 500, 502, 504])
def test_errors_in_the_answer(what: str, status: int, slurmrestd: Slurmrestd, url: str) -> None:
    """Errors are a failure with any status, and the empty list beside them is not a cluster."""
    body = with_errors({"error": "Unable to contact slurm controller", "source": "slurm_load()"})
    slurmrestd.always(what, answer(status, body))
    words = failure(reader(url, jwt=token()))
    assert "slurm_load(): Unable to contact slurm controller" in words
    assert f"GET /slurm/{V42}/{what}/ of {url}" in words


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (answer(200, b"<html>", "text/html; charset=utf-8"), "protocol", "'text/html', not JSON; is it slurm"),
        (answer(200, b"<html>"), "protocol", "not one whole JSON object"),
        (answer(200, b'{"jobs": []}'), "protocol", "no nodes in the answer"),
        (answer(200, b'{"nodes": []}'), "protocol", "no node in the answer"),
        (answer(200), "protocol", "not one whole JSON object"),
        (answer(204), "unavailable", "204, and that is no answer"),
        (answer(503, b"<html>no</html>", "text/html"), "unavailable", "503 '<html>no</html>'"),
        (answer(403), "unavailable", "403, and not a word why; it does not take the token of root"),
        (answer(200, b"\x1f\x8b", "application/json", "Content-Encoding: gzip"), "protocol", "packed ('gzip')"),
        (answer(200, NODES)[:-9], "protocol", "not one whole answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + NODES[:-9], "protocol", "cut short"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol", "not one whole answer in HTTP"),
        (b"", "protocol", "not one whole answer in HTTP: 'Server disconnected without sending a response.'"),
        (answer(302, b"", "", "Location: http://x/"), "unavailable", "sent on to 'http://x/', which is not"),
        (answer(307, b"", "", "Location: /slurm"), "unavailable", "sent on to '/slurm'"),
    ],
    ids=[
        "html", "no JSON", "jobs", "no node", "nothing", "204", "503", "403", "gzip", "cut short",
        "cut short, no length", "ssh", "closed", "redirect", "redirect to itself",
    ],
)  # fmt: skip
def test_wrong_answers(said: bytes, kind: str, words: str, slurmrestd: Slurmrestd, url: str) -> None:
    """What is not nodes is refused whole, and in words."""
    slurmrestd.always("nodes", said)
    errors = {"protocol": SlurmProtocolError, "unavailable": SlurmUnavailable}
    assert words in failure(reader(url, jwt=token()), errors[kind])
    assert len([request for request in slurmrestd.asked if request.path.endswith("nodes/")]) == 1


def test_another_cluster(slurmrestd: Slurmrestd, url: str) -> None:
    """The cluster that is wanted must answer, the same for nodes and jobs, and the same at every pass."""
    assert (
        failure(reader(url, cluster="alpha", jwt=token()))
        == f"asked for cluster alpha, and feas answered at {url}"
    )
    asking = reader(url, cluster="feas", jwt=token())
    assert asking.read().cluster == "feas"
    slurmrestd.always("jobs", answer(200, JOBS.replace(b'"feas"', b'"beta"')))
    assert "asked for cluster feas, and beta answered" in failure(asking)
    assert "asked for cluster feas, and beta answered" in failure(reader(url, jwt=token()))
    slurmrestd.always("nodes", answer(200, NODES.replace(b'"feas"', b'"../x"')))
    assert "not the name of a cluster: '../x'" in failure(reader(url, jwt=token()), SlurmProtocolError)


# --- no connection ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # httpcore's, of one that did not connect
def test_nobody_listens(short_path: Path) -> None:
    """No socket, nobody behind it, no permission and a name that is no name: each has its own words."""
    assert "there is no such socket; is slurmrestd running?" in failure(reader(f"unix:{short_path}/none"))
    with socket.socket() as taken, socket.socket(socket.AF_UNIX) as old:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert "connection refused: nobody listens" in failure(reader(f"http://127.0.0.1:{port}", jwt=token()))
        old.bind(str(short_path / "old"))
        assert "connection refused: nobody listens" in failure(reader(f"unix:{short_path}/old"))
    for bad in ("http://127.0.0.1:999999", "http://[::1", f"unix:/{'x' * 200}"):
        assert bad.rstrip("/") in failure(reader(bad, jwt=token()))


def test_socket_that_we_may_not_use(path: Path) -> None:
    """A socket that is another user's says so."""
    path.chmod(0)
    program = (
        "import os, sys\n"
        "from slurm.rest.reader import RestReader\n"
        "os.geteuid() or os.setuid(65534)\n"
        "RestReader(sys.argv[1], timeout=9, cluster=None, token_file=None, environ={}).read()"
    )
    command = [sys.executable, "-c", program, f"unix:{path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "no permission to connect; see who owns the socket" in done.stderr


# --- TLS --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost that signed itself, and its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    options = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    names = ("-addext", "subjectAltName=DNS:localhost")
    subprocess.run(
        ["openssl", "req", *options, *names, "-keyout", file, "-out", f"{file}.crt"],
        check=True,
        capture_output=True,
    )
    with file.open("ab") as both:
        both.write(Path(f"{file}.crt").read_bytes())
    return file


@pytest.fixture
def port(slurmrestd: Slurmrestd, certificate: Path) -> Iterator[int]:
    """Where it listens with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = _Tcp(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with listening(server, slurmrestd):
        yield server.server_address[1]


def test_certificate_is_checked(slurmrestd: Slurmrestd, port: int, certificate: Path) -> None:
    """Only who is vouched for gets a token, by the name that was asked for."""
    words = failure(reader(f"https://localhost:{port}", jwt=token()))
    assert "its certificate is not trusted: self-signed certificate; name its authority by SSL_CERT_FILE" in words
    words = failure(reader(f"https://127.0.0.1:{port}", jwt=token(), SSL_CERT_FILE=f"{certificate}.crt"))
    assert "not trusted: IP address mismatch" in words
    assert slurmrestd.asked == []
    asking = reader(f"https://localhost:{port}", jwt=token(), SSL_CERT_FILE=f"{certificate}.crt")
    assert asking.read().cluster == "feas"
    assert asking.remarks == []
    assert "cannot be asked: No such file" in failure(reader("https://localhost", SSL_CERT_FILE="/none"))


def test_tls_where_there_is_none(url: str) -> None:
    """Https to a server that speaks http is refused, in words."""
    assert "no TLS" in failure(reader(url.replace("http:", "https:"), jwt=token()))


# --- limits -----------------------------------------------------------------------------------------------


def drip(body: bytes, seconds: float = 0.02) -> Iterator[bytes]:
    """Send an answer a byte at a time."""
    for number in range(len(body)):
        yield body[number : number + 1]
        time.sleep(seconds)


def in_time(asking: RestReader, within: float) -> str:
    """Return the words of a failure that must come within a time."""
    start = time.monotonic()
    words = failure(asking)
    assert time.monotonic() - start < within
    return words


def test_a_byte_at_a_time(slurmrestd: Slurmrestd, url: str) -> None:
    """The whole of a pass is limited, not each read: in a head, in rows, and in the answer to a ping."""
    for what, body in (("nodes", NODES), ("jobs", JOBS), ("ping", PING)):
        slurmrestd.says[f"{what}/"] = lambda _, body=body: drip(answer(200, body))  # type: ignore[misc]
        assert "no whole answer within 0.5 s" in in_time(reader(url, timeout=0.5, jwt=token()), 5)


def test_no_answer(slurmrestd: Slurmrestd, url: str) -> None:
    """One that takes a question and says nothing is given up."""
    over = threading.Event()

    def wait(_: Request) -> bytes:
        over.wait(LONG)
        return b""

    slurmrestd.says["jobs/"] = wait
    assert "no whole answer within 0.3 s" in in_time(reader(url, timeout=0.3, jwt=token()), 5)
    over.set()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # httpcore's, of one that did not connect
def test_no_connection_is_taken(short_path: Path) -> None:
    """One that does not even take the connection is given up too."""
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as first:
        deaf.bind(str(short_path / "deaf"))
        deaf.listen(0)
        first.connect(str(short_path / "deaf"))  # all that the kernel takes for it
        assert "it takes no more connections" in in_time(reader(f"unix:{short_path}/deaf"), LONG / 2)


def test_a_name_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up cannot be ended, but is not waited for either."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(LONG) and [])
    assert "no whole answer within 0.3 s" in in_time(reader("http://slurm.example.org", timeout=0.3), 5)
    over.set()


def test_a_signal_interrupts(slurmrestd: Slurmrestd, url: str) -> None:
    """Whoever waits for an answer still gets signals."""
    over = threading.Event()

    def wait(_: Request) -> bytes:
        os.kill(os.getpid(), signal.SIGUSR1)
        over.wait(LONG)
        return b""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    slurmrestd.says["nodes/"] = wait
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            reader(url, jwt=token()).read()
        assert time.monotonic() - start < LONG / 2
    finally:
        over.set()
        signal.signal(signal.SIGUSR1, before)


def test_first_failure_ends_it(slurmrestd: Slurmrestd, url: str) -> None:
    """When one of two questions failed, the other is not waited for."""
    over = threading.Event()

    def wait(_: Request) -> bytes:
        over.wait(LONG)
        return b""

    slurmrestd.says["jobs/"] = wait
    slurmrestd.always("nodes", answer(503))
    assert "503" in in_time(reader(url, jwt=token()), LONG / 2)
    over.set()


def test_too_much(slurmrestd: Slurmrestd, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer beyond all bounds is given up, while it comes."""
    monkeypatch.setattr(_http, "MAX_OUTPUT", len(NODES) - 1)
    slurmrestd.always("jobs", answer(200, b'{"jobs": []}'))
    words = failure(reader(url, jwt=token()), SlurmProtocolError)
    assert f"/nodes/ of {url}: answered more than {len(NODES) - 1} bytes" in words


def test_a_long_refusal_is_not_kept(slurmrestd: Slurmrestd, url: str) -> None:
    """Of an error page that goes on and on, only the beginning is told."""
    slurmrestd.always("ping", answer(500, b"x" * (1 << 20), "text/plain"))
    assert len(failure(reader(url, jwt=token()))) < 500

"""Every parser of foreign bytes: as a function of bytes, which allows the errors that it documents and no others.

What comes back instead must hold what a snapshot, an artifact, a policy ... promises; a cut answer is refused.
`TARGETS` names them, each with where its corpus begins: recorded samples of tests/data (globs), and texts.
"""

from __future__ import annotations

import atexit
import base64
import itertools
import json
import os
import random
import re
import socket
import tempfile
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segment_health import consumer, contract, history, memory, scope, settings, toml
from segment_health.attribution.blame import record as blame
from segment_health.cli.history import json_line, text_line
from segment_health.level import FaultLevel
from segment_health.noded import config as noded_config
from segment_health.noded import report, wire
from segment_health.policy import file as policy_file
from segment_health.policy.content import PolicyError
from segment_health.record import Fields
from segment_health.sources import node_names
from segment_health.unit import units_of
from slurm import hostlist, recording, saved
from slurm.commands import config, job_rows, node_rows, records
from slurm.commands.run import clean_environment
from slurm.errors import SlurmError, SlurmProtocolError
from slurm.fields import NO_VAL, state_of
from slurm.json.answer import JobRow, JsonAnswer, NodeRow
from slurm.json.stream import JsonStream
from slurm.node import Node, parse_state
from slurm.pyslurm import reader as pyslurm_reader
from slurm.pyslurm import rows
from slurm.pyslurm.worker import Worker
from slurm.rest.reader import RestReader
from slurm.rest.token import Token
from slurm.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm.job import Allocation

DATA = Path(__file__).parent.parent / "data"
BLAMED = "n1@0123456789abcdef.blame"
KEPT = {*NodeRow.model_fields, *JobRow.model_fields, *rows.NodeRow.model_fields, *rows.JobRow.model_fields}
GARBLED = (ValueError, KeyError, TypeError, RecursionError)
"""What the readers of our own files raise, and who calls them catches."""


@dataclass(frozen=True)
class Target:
    """One parser: `feed` raises nothing, whatever the bytes; `corpus` is where mutation begins."""

    feed: Callable[[bytes], None]
    corpus: tuple[str | bytes, ...]

    def seeds(self) -> list[bytes]:
        """Return the corpus; of JSON the first rows, without what no model reads."""
        found: list[bytes] = []
        for origin in self.corpus:
            if isinstance(origin, bytes):
                found.append(origin)
            else:
                found += [_slim(path) for path in sorted(DATA.glob(origin))]
        assert found, self.corpus
        return list(dict.fromkeys(found))


def _slim(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".json" or "samples" not in path.parts:
        return b"".join(content.splitlines(keepends=True)[:100])
    document: dict[str, Any] = json.loads(content)
    for key, value in document.items():
        if isinstance(value, list):
            document[key] = [_of_row(row) for row in value[:3]]
        elif isinstance(value, dict) and "cluster" in value:
            document[key] = _of_row(value)
    return json.dumps(dict(itertools.islice(document.items(), 8))).encode()


def _of_row(row: Any) -> Any:
    return {key: value for key, value in row.items() if key in KEPT} if isinstance(row, dict) else row


FEEDS: dict[str, Callable[[bytes], None]] = {}


def target(name: str) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Enter a function into FEEDS."""

    def enter(feed: Callable[[bytes], None]) -> Callable[[bytes], None]:
        FEEDS[name] = feed
        return feed

    return enter


# --- what must hold ----------------------------------------------------------------------------------------


def must_be_a_sentence(error: Exception, limit: int = 2000) -> None:
    """Check that an error is for a person: short, on one line, without what a terminal acts upon."""
    assert str(error).isprintable()
    assert len(str(error)) < limit


def refuses(parse: Callable[[bytes], object], data: bytes) -> bool:
    """Tell whether a parser refuses this, as it should."""
    try:
        parse(data)
    except SlurmError as error:
        must_be_a_sentence(error)
        return True
    return False


def must_be_nodes(nodes: Mapping[str, Node], *, some: bool = True) -> None:
    """Check that these can be nodes, and that there are `some`."""
    assert nodes or not some
    for name, node in nodes.items():
        assert node.name == name
        assert hostlist.is_node_name(name)
        assert re.fullmatch(r"[A-Z0-9_]*", node.base)
        assert all(re.fullmatch(r"[A-Z0-9_]+", flag) for flag in node.flags)
        assert node.reason_since is None or 0 < node.reason_since < 1 << 38


def must_be_allocations(allocations: Iterable[Allocation]) -> None:
    """Check that these can be allocations, each once, and name units that can have an artifact."""
    listed = tuple(allocations)
    assert len({allocation.job_id for allocation in listed}) == len(listed)
    for one in listed:
        ids = filter(None, (one.job_id, one.array_job_id, one.array_task_id, one.het_job_id))
        assert all(id_.isascii() and id_.isdigit() and int(id_) < NO_VAL for id_ in ids)
        assert 0 < one.start_time < 1 << 38
        assert 0 <= one.restart_count < NO_VAL
        assert one.nodes == hostlist.expand(one.nodelist)
    for unit in units_of(listed):
        assert contract.unit_of_artifact(unit.artifact_name) == unit


def chunked(data: bytes) -> Iterable[bytes]:
    """Cut an answer into pieces, at places that depend on nothing but the answer."""
    dice = random.Random(zlib.crc32(data))
    at = 0
    while at < len(data):
        size = dice.choice((1, 2, 3, 7, 64, 1024, 1 << 16))
        yield data[at : at + size]
        at += size


@cache
def folder() -> Path:
    """Make a place for those parsers that want a file."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return Path(made.name)


@cache
def _file() -> int:
    return os.memfd_create("fuzz")


def as_file(data: bytes) -> str:
    """Put bytes into a file in memory and return its path."""
    file = _file()
    os.truncate(file, 0)
    os.pwrite(file, data, 0)
    return f"/proc/self/fd/{file}"


# --- what Slurm's commands print ---------------------------------------------------------------------------


@target("nodes")
def _nodes(data: bytes) -> None:
    with suppress(SlurmError):
        nodes = node_rows.parse_nodes(data)
        must_be_nodes(nodes)
        assert len(nodes) == sum(line.startswith(b"NodeName=") for line in data.split(b"\n"))
        assert refuses(node_rows.parse_nodes, data.rstrip(b"\n"))
        assert node_rows.parse_nodes(data, None).keys() == nodes.keys()


@target("jobs")
def _jobs(data: bytes) -> None:
    with suppress(SlurmError):
        must_be_allocations(job_rows.parse_jobs(data))
        assert not data.rstrip(b"\n ") or refuses(job_rows.parse_jobs, data.rstrip(b"\n"))


@target("records")
def _records(data: bytes) -> None:
    with suppress(SlurmError):
        must_be_allocations(records.parse_saved_jobs(data))
        assert refuses(records.parse_saved_jobs, data.rstrip(b"\n"))


@target("config")
def _config(data: bytes) -> None:
    with suppress(SlurmError):
        assert config.CLUSTER_NAME.fullmatch(config.config_of(data).cluster)
        assert refuses(config.parse_config, data.rstrip(b"\n"))


# --- Slurm's JSON ------------------------------------------------------------------------------------------


def answer_of(pieces: Iterable[bytes], wanted: str) -> Any:
    """Return all that is made of an answer, or the kind of its refusal."""
    answer = JsonAnswer("it")
    for piece in pieces:
        answer.feed(piece)
    try:
        answer.close(wanted)
    except SlurmError as error:
        return type(error)
    return answer.nodes, answer.allocations, answer.cluster, answer.version, answer.counts


@target("json")
def _json(data: bytes) -> None:
    for wanted in ("nodes", "jobs"):
        told = answer_of([data], wanted)
        assert told == answer_of(chunked(data), wanted), "how it was cut changes what it says"
        if isinstance(told, tuple):
            nodes, allocations, _, _, counts = told
            if wanted == "nodes":
                must_be_nodes(nodes)
                assert len(nodes) == counts["nodes"]
            must_be_allocations(allocations.values())
            whole = data.rstrip(b" \t\r\n")
            for cut in (1, len(whole) // 3, len(whole) - 1):
                assert isinstance(answer_of([whole[:cut]], wanted), type)


@target("stream")
def _stream(data: bytes) -> None:
    def told(pieces: Iterable[bytes]) -> object:
        taken: list[object] = []
        stream = JsonStream("it", {"rows": taken.append, "jobs": taken.append})
        for piece in pieces:
            stream.feed(piece)
        try:
            return repr((taken, stream.close()))  # repr: a NaN equals nothing
        except SlurmError:
            return None

    whole = told([data])
    assert whole == told(chunked(data))
    with suppress(ValueError, RecursionError):
        known = json.loads(data.decode(), object_pairs_hook=lambda pairs: pairs)
        assert whole is None or isinstance(known, list)


@target("pyslurm")
def _pyslurm(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        told = json.loads(data)
        for shape in (
            told if isinstance(told, dict) else {},
            [*told.values()] if isinstance(told, dict) else [told],
        ):
            with suppress(SlurmError):
                must_be_nodes(rows.parse_nodes(shape))
            with suppress(SlurmError):
                must_be_allocations(rows.parse_jobs(shape, "fake"))


@cache
def _echo() -> Worker:
    """Start a child that answers what it is told."""
    worker = Worker("echo", ["cat"], os.environ, remedy="-")
    atexit.register(worker.kill)
    return worker


_serial = itertools.count()


@target("worker")
def _worker(data: bytes) -> None:
    worker, end = _echo(), f"end of {next(_serial)}"
    worker.begin(10)
    os.write(worker._in, data[: 1 << 15] + b"\n")  # what a pipe holds
    worker.ask(["over", None])  # ends rows that do not end themselves
    worker.ask([end, None])
    with suppress(SlurmError):
        must_be_nodes(rows.parse_nodes(pyslurm_reader._loaded(worker, "Nodes")))
    while True:  # what is left of it; a garbled line is refused alone
        with suppress(SlurmProtocolError):
            if worker.hear("")[0] == end:
                return


# --- slurmrestd --------------------------------------------------------------------------------------------

NEXT = b"\x1e"
"""Between what a server says to a ping, of nodes, of jobs; and of nodes and jobs once more."""


class _Server:
    """Listens on a UNIX socket, and says what it is told to, byte for byte."""

    def __init__(self) -> None:
        self.path = str(folder() / "socket")
        self.said: list[bytes] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()
        atexit.register(self._listening.close)

    def _serve(self) -> None:
        while True:
            with suppress(OSError), self._listening.accept()[0] as asked:
                asked.settimeout(5)
                question = asked.recv(1 << 16)
                place = 0 if b"/ping/" in question else 1 + (b"/jobs/" in question)
                place += 2 if b"update_time" in question else 0
                asked.sendall(self.said[place] if place < len(self.said) else b"HTTP/1.1 304 Not Modified\r\n\r\n")


_server = cache(_Server)


def _http(*bodies: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    return NEXT.join(head % (len(body), body) for body in bodies)


def _rest_seeds() -> Iterable[bytes]:
    for version in ("24.11", "26.05"):
        yield _http(
            *(_slim(DATA / f"samples/{version}/rest_v0.0.42_{name}.json") for name in ("ping", "nodes", "jobs"))
        )


@target("rest")
def _rest(data: bytes) -> None:
    server = _server()
    server.said = data.split(NEXT)
    reader = RestReader(f"unix:{server.path}", timeout=5, cluster=None, token_file=None, environ={})
    for _ in range(2):
        with suppress(SlurmError):
            snapshot = reader.read()
            must_be_nodes(snapshot.nodes, some=False)  # all may be FUTURE, which are left out
            must_be_allocations(snapshot.allocations)
            assert config.CLUSTER_NAME.fullmatch(snapshot.cluster)
    reader.close()


@target("token")
def _token(data: bytes) -> None:
    head, _, claims = data[:4000].partition(b".")
    for told in (data[:4000].decode("latin-1"), f"x.{base64.urlsafe_b64encode(claims).decode()}.{head.hex()}"):
        token = Token(told, "a test")
        assert token.user is None or token.user.isprintable()
        assert token.expires is None or 0 < token.expires < 1 << 40
        assert len(told) < 16 or told not in token.hide(f"it said {told} to me")


# --- files of answers --------------------------------------------------------------------------------------


@cache
def _no_jobs() -> str:
    path = folder() / "jobs"
    path.write_bytes(b"No jobs in the system\n")
    return str(path)


@target("saved")
def _saved(data: bytes) -> None:
    path = as_file(data)
    with suppress(SlurmError):
        snapshot = saved.SavedReader(path, _no_jobs(), cluster=None).read()
        must_be_nodes(snapshot.nodes, some=False)  # all may be FUTURE, which are left out
        assert config.CLUSTER_NAME.fullmatch(snapshot.cluster), "it becomes a part of file names"
    with suppress(SlurmError):
        must_be_allocations(saved._read(path, "jobs").allocations)


def _recordings() -> Iterable[bytes]:
    node = Node("n1", "IDLE", frozenset({"DRAIN"}), "bad fan", "root", 1)
    job = b"8|7|1|N/A|RUNNING|0|2026-11-29T19:50:07|al|1001|main|n[1-2]|\n"
    for nodes, jobs in (
        ({"n1": node}, ()),
        ({"n1": Node("n1", "DOWN", frozenset(), "", "root")}, job_rows.parse_jobs(job)),
    ):
        snapshot = Snapshot("c", "24.11.1", nodes, jobs, visible_user="1001" if jobs else None)
        yield recording.dump(snapshot, source="text", recorded="2026").encode()


@target("recording")
def _recording(data: bytes) -> None:
    with suppress(SlurmError):
        first = recording.load(chunked(data), "it")
        again = recording.load([recording.dump(first, source="", recorded="").encode()], "it")
        assert again == first
        must_be_allocations(first.allocations)
        assert all(map(hostlist.is_node_name, first.nodes))
        assert refuses(lambda cut: recording.load([cut], "it"), data.rstrip()[:-1])


# --- single words ------------------------------------------------------------------------------------------


@target("hostlist")
def _hostlist(data: bytes) -> None:
    told = data.decode("utf-8", "surrogateescape")
    hostlist._expand.cache_clear()
    with suppress(SlurmError):
        names = hostlist.expand(told)
        assert len(names) == len(set(names)) <= hostlist.MAX_HOSTS
        assert all(map(hostlist.is_node_name, names))
        if len(names) < 3000:
            assert {*hostlist.expand(hostlist.fold(names))} == {*names}


@target("state")
def _state(data: bytes) -> None:
    told = data.decode("utf-8", "replace")
    base, flags = parse_state(told)
    assert "+" not in base
    assert all(flags)
    with suppress(ValueError):
        base, flags = state_of(told)
        assert state_of("+".join(Node("n", base, flags).state)) == (base, flags)


@target("name")
def _name(data: bytes) -> None:
    told = os.fsdecode(data)
    unit = contract.unit_of_artifact(told)
    assert unit is None or unit.artifact_name == told
    asked, _, task = told.rpartition(".")
    with suppress(ValueError):
        assert os.path.basename(consumer.artifact_name(asked, task)).count(".") == 2


@target("scope")
def _scope(data: bytes) -> None:
    told = data.decode("utf-8", "surrogateescape")
    scope.named(told).covers_absent(contract.UnitId("1", "1"))
    for make in (scope.of_user, scope.of_partition, lambda ids: scope.of_jobs(tuple(ids.split(",")))):
        with suppress(ValueError):
            made = make(told.partition(":")[2] or told)
            assert scope.named(str(made)) == made
            assert re.fullmatch(r"[A-Za-z0-9_.@+:,-]{1,160}", str(made)), "it is part of a file's name"


# --- files of ours -----------------------------------------------------------------------------------------

_ARTIFACT = contract.encode(contract.Artifact(
    contract.UnitId("123", "7"), FaultLevel.SeparateFault,
    (contract.NodeFault("n2", ("DOWN", "DRAIN"), "\x1b fan", "root", 1, FaultLevel.SeparateFault, "x"),),
    "n2", contract.Generation(0, 1), "n[1-2]", 1, 2, contract.Publisher("h", 1, "0.1.0", "c", "all"),
))  # fmt: skip


@target("artifact")
def _artifact(data: bytes) -> None:
    unit = contract.UnitId("123", "7")
    told = contract.decode(data, unit)
    if told is not None:
        again = contract.encode(told)
        assert contract.decode(again, unit) == told
        assert again.isascii()
        assert again.decode()[:-1].isprintable()


_SEEN = b'"node":"n","word":"w","since":1'
_BEAT = b'"policy":"p","last_complete_pass":"2026-08-04T19:00:00+00:00","interval":300.0,"loop":true'
_WORD = b'"unavailable":"n1","reason":"x","who":"r","since":"2026-08-04T19:00:00+00:00"'
_PUBLISHER = b'"schema":1,"host":"h","pid":1,"version":"1","cluster":"c","scope":"all"'
_UNIT = b'"job_id":"1","task_id":"1","restart_count":0,"start_time":9,"nodelist":"n1","user_id":"1","misses":0'


@target("memory")
def _memory(data: bytes) -> None:
    with suppress(*GARBLED):
        beat = memory.decode_heartbeat(data)
        beat.is_alive(1.8e9)
        assert memory.decode_heartbeat(memory.encode_heartbeat(beat)) == beat
    with suppress(*GARBLED):
        memory.decode_override(data)
    with suppress(*GARBLED):
        state = memory.decode_state(data)
        assert memory.decode_state(memory.encode_state(state)) == state
        assert all(contract.unit_of_artifact(unit.artifact_name) == unit for unit in state.units)


@target("history")
def _history(data: bytes) -> None:
    told = history.decode(data)
    if told is not None:
        assert json_line(told).isprintable()
        assert text_line(told).isprintable()
        assert contract.unit_of_artifact(told.unit.artifact_name) == told.unit


@target("fields")
def _fields(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        document = json.loads(data)
        keys = list(document) if isinstance(document, dict) else ["a"]
        for key, read in itertools.product(
            keys[:20], ("text", "number", "seconds", "truth", "time", "many", "texts", "fields", "each")
        ):
            with suppress(ValueError, KeyError, TypeError):
                getattr(Fields(document), read)(key)


# --- what people write -------------------------------------------------------------------------------------


@target("toml")
def _toml(data: bytes) -> None:
    try:
        assert isinstance(toml.read(data), dict)
    except toml.NotToml as error:
        line = error.line
    else:
        return
    assert line is None or 1 <= line <= data.count(b"\n") + 1


@target("policy")
def _policy(data: bytes) -> None:
    try:
        made = policy_file.parse(data, "it", node_names)
    except PolicyError as error:
        must_be_a_sentence(error, 4000)
    else:
        node = Node("n1", "IDLE", frozenset({"DRAIN"}), data[:2000].decode("latin-1"), "root", 1)
        made.assess(node, allocated=True, partitions=frozenset({"main"}), seen={}, now=1_800_000_000)


def _must_be_settings(told: settings.Settings) -> None:
    for ask in (
        lambda: told.scope("7"), told.named_directory, told.saved_answers,
    ):  # fmt: skip
        with suppress(settings.SettingsError):
            ask()


@target("settings")
def _settings(data: bytes) -> None:
    if zlib.crc32(data) % 16 == 0:  # a process is started to read a file, which is dear
        with suppress(settings.SettingsError):
            _must_be_settings(settings.load({"timeout": 5.0}, {}, as_file(data)))
    flags = dict(zip(settings.FIELDS, data.decode("utf-8", "surrogateescape").split("\n"), strict=False))
    with suppress(settings.SettingsError):
        _must_be_settings(settings.load(flags, {}, None))


@target("environment")
def _environment(data: bytes) -> None:
    pairs = (os.fsdecode(line).partition("=") for line in data.split(b"\n"))
    environ = {name: value.replace("\0", "") for name, found, value in pairs if found}
    directory = environ.get("NVRX_SEGMENT_HEALTH_CHECK_DIR")
    try:
        check, warning = consumer.select(directory, environ)
    except ValueError:
        assert directory
        assert not os.path.isabs(directory)
    else:
        if warning is not None:
            assert check is None
            assert warning.isprintable()
        if check is not None:
            assert check.path.startswith(f"{check.directory.rstrip('/')}/segment_health_check.")
            check.examine()
    with suppress(settings.SettingsError):
        _must_be_settings(settings.load({}, environ, None))
    assert clean_environment(environ)["TZ"] == "UTC"


# --- NodeD -------------------------------------------------------------------------------------------------


@target("blame")
def _blame(data: bytes) -> None:
    try:
        told = blame.decode(data, BLAMED)
    except ValueError as error:
        must_be_a_sentence(error)
        return
    assert told.node == blame.node_of(BLAMED)
    assert told.level in blame.LEVELS
    assert all(text.isprintable() for text in (told.log, *(line.text for line in told.evidence)))
    again = blame.encode(told)
    assert len(again) <= blame.MAX_BYTES
    assert blame.decode(again, told.name).name == told.name


@target("noded")
def _noded(data: bytes) -> None:
    with suppress(ValueError):
        told = report.decode(data)
        assert report.decode(report.encode(told)) == told
    with suppress(ValueError):
        report.time_of(data.decode("ascii", "replace"))
    with suppress(ValueError):
        assert isinstance(wire.loads(data), wire.Object | wire.Number | list | str | bool | None)


@target("noded-config")
def _noded_config(data: bytes) -> None:
    try:
        assert noded_config.parse(data, "it")
    except noded_config.ConfigurationError as error:
        must_be_a_sentence(error)


CORPUS: dict[str, tuple[str | bytes, ...]] = {
    "nodes": ("samples/**/scontrol_show_nodes_oneline*.txt", "samples/forms/*/nodes.txt"),
    "jobs": ("samples/**/squeue.txt", b"7|7|N/A|N/A|RUNNING|0|2026-11-29T19:50:07|al|1001|main|n[1-2]|\n"),
    "records": ("samples/**/scontrol_show_job*.txt", "samples/forms/*/jobs.txt"),
    "config": ("samples/**/scontrol_show_config.txt",
        b"ClusterName = c\nPrivateData = none\nSlurmUser = s(1)\n"),
    "json": ("samples/*/[ns]*.json", "samples/forms/*/*.json"),
    "stream": ("samples/24.11/squeue.v42.json", b'{"rows":[1,2.5e+3,"\xff",Infinity,{"a":[]}],"b":null} '),
    "pyslurm": ("samples/*/pyslurm_*.json",),
    "worker": (b'["rows",[]]',
        b'["rows",[{"name":"n1","state":"IDLE"}]]\n["end",["Nodes",1]]',
        b'["error","x"]\n["hello","24.5"]'),
    "rest": (*_rest_seeds(),
        _http(b"{}") + NEXT + b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    "token": (b"eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjEsInN1biI6InJvb3QifQ.c2lnbmF0dXJl",
        b'\x00.{"exp":1e9,"username":"x"}'),
    "saved": ("samples/2[246]*/*.txt", "samples/*/*.json",
        b'{"nodes":[{"name":"n1","state":["IDLE"]}],"meta":{"slurm":{"cluster":"c"}}}'),
    "recording": (*_recordings(),),
    "hostlist": (b"n[1-3],m07", b"r[1-2]n[08-101]s,(null)", b"n[0-99],m[0-9]x[0-9]", b"None assigned"),
    "state": (b"MIXED+DRAIN", b"DOWN*+DRAIN+", b"draining@", "cases/node_states.json"),
    "name": (b"segment_health_check.123.7", b"segment_health_check.99999999999999999999.0",
        b".segment-health"),
    "scope": (b"job:123,140", b"user:alice", b"partition:gpu-a100", b"all"),
    "artifact": (_ARTIFACT, b"n1,n2\n", b'{"schema": 1}'),
    "memory": (
        b"{%s,%s}" % (_PUBLISHER, _BEAT), b'{%s,%s,"units":7,"held":2,"failures":["x"]}' % (_PUBLISHER, _BEAT),
        b'{"restart_count":0,"start_time":9,%s}' % _WORD,
        b'{"units":[{%s,"published":true,"separated":false}],"seen":[{%s}],"held":1}' % (_UNIT, _SEEN)),
    "history": (
        b'{"time":"2026-08-04T19:00:00+00:00","action":"exclude","job_id":"123","task_id":"7","level":"SeparateFault",'
        b'"nodes":"n[1-2]","who":"all@c","why":"x","faults":[{"name":"n1","rule":"state:DOWN","reason":null}],'
        b'"generation":null,"publisher":{%s}}' % _PUBLISHER,),
    "fields": (b'{"a":"x","b":1,"c":[1.5,true,null,"2026-08-04T19:00:00+00:00"],"d":{"a":["x"]}}',),
    "toml": ("policy/*.toml", b'a.b = "x"\n[t]\nc = [1, {d = 2026-08-04}]\n',
        b'a = 0xffff\nb = \'x\'\nc = """y"""\n'),
    "policy": ("policy/*.toml",
        b'[[rule]]\nname = "x"\nlevel = "SeparateFault"\nnode = "n[1-9]"\nreason = "(Xid|ECC) [0-9]+"\n'),
    "settings": (b'dir = "/x"\njob = [1, "2,3"]\ninterval = 60\nmax_new_exclusions = "10%"\n',
        b'all = true\nclear_after = "10m"\n'),
    "environment": (
        b"SLURM_PROCID=0\nSLURM_ARRAY_JOB_ID=1\nSLURM_ARRAY_TASK_ID=7\nSEGMENT_HEALTH_DIR=/x\nTZ=\xff\nSLURM_CONF=/y",
        b"NVRX_SEGMENT_HEALTH_CHECK_DIR=\xff/\nSLURM_PROCID=0\nSLURM_JOB_ID=1\nSEGMENT_HEALTH_INTERVAL=1e9\nSEGMENT_HEALTH_ALL=1"),
    "blame": ((b'{"schema":1,"node":"n1","category":"cuda-ecc","level":"PreSeparateFault","job_id":"7","cycle":3,'
        b'"time":"2026-11-30T20:00:00+00:00","log":"a","owner":0,"evidence":[{"line":1,"text":"x"}]}'),),
    "noded": (
        report.encode(report.Report((report.Device("NPU", 3, ("28000037",), "SeparateFault"),), "UnHealthy")),
        b'{"NodeInfo":{"FaultDevList":null,"NodeStatus":"Healthy"},"CheckCode":"x"}',
        b"2026-08-04T19:00:00.1Z"),
    "noded-config": (
        b'{"FaultTypeCode":{"NotHandleFaultCodes":["28000037"],"SeparateFaultCodes":["2b000001"]}}',),
}  # fmt: skip
TARGETS = {name: Target(FEEDS[name], corpus) for name, corpus in CORPUS.items()}

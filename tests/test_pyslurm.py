"""pyslurm: its recorded answers against the text door's, and the real child with a pyslurm that misbehaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.commands import process as _process
from slurm.commands.node_rows import parse_nodes as parse_printed_nodes
from slurm.commands.records import parse_saved_jobs
from slurm.commands.run import Commands
from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable
from slurm.pyslurm import child as _pyslurm_child
from slurm.pyslurm.reader import PyslurmReader
from slurm.pyslurm.rows import JobRow, NodeRow, parse_jobs, parse_nodes
from slurm.reader import Access, _WhileItFits, open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm.node import Node

    Opened = Callable[[PyslurmReader], PyslurmReader]
    Row = dict[str, Any]

SAMPLES = Path(__file__).parent / "data/samples"
ROOT = Path(__file__).parents[1]
# The recorded pyslurm of each version of Slurm, and how that Slurm calls itself.
VERSIONS = {"22.05": ("22.5.3", "22.05.8"), "24.11": ("24.11.0", "24.11.5"), "25.11": ("25.11.2", "25.11.7")}

# Where the two doors' recordings differ, and why.
DIFFERENT_NODES: dict[str, dict[str, str]] = {
    # pyslurm 22.5 passes on what slurmctld says; whoever has CPUs left is MIXED only by a rule of the commands.
    "22.05": {"n3": "ALLOCATED", "n4": "ALLOCATED"},
    # The reservation began between the two recordings.
    "24.11": {"d007": "UNKNOWN+MAINTENANCE+NOT_RESPONDING+RESERVED"},
    # The first round of pings ended between the two recordings.
    "25.11": {
        **{f"d0{number:02}": "UNKNOWN+NOT_RESPONDING" for number in range(1, 13)},
        "d003": "UNKNOWN+DRAIN+NOT_RESPONDING",
        "d004": "DOWN+NOT_RESPONDING",
        "d005": "UNKNOWN+FAIL+NOT_RESPONDING",
        "d006": "DOWN+DRAIN+NOT_RESPONDING",
        "d007": "UNKNOWN+MAINTENANCE+NOT_RESPONDING+RESERVED",
    },
}


def recorded(version: str, what: str) -> dict[str, Row]:
    """What pyslurm answered: attributes by name or id."""
    rows: dict[str, Row] = json.loads((SAMPLES / version / f"pyslurm_{what}.json").read_text())
    return rows


# --- rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_are_those_of_the_text_door(version: str) -> None:
    """Names, states and reasons are those that scontrol printed, but for what DIFFERENT_NODES explains."""
    printed = parse_printed_nodes((SAMPLES / version / "scontrol_show_nodes_oneline.txt").read_bytes())
    nodes = parse_nodes(recorded(version, "nodes"), "feas")
    assert list(nodes) == list(printed)
    different = {name: "+".join(nodes[name].state) for name in nodes if nodes[name] != printed[name]}
    assert different == DIFFERENT_NODES[version]

    def why(node: Node) -> tuple[object, ...]:
        return (node.reason, node.reason_user, node.reason_since)

    assert {name: why(node) for name, node in nodes.items()} == {name: why(node) for name, node in printed.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_allocations_are_those_of_the_text_door(version: str) -> None:
    """Units, generations, nodes and owners are those that scontrol printed, array task 0 among them."""
    printed = parse_saved_jobs((SAMPLES / version / "scontrol_show_jobs.txt").read_bytes())
    allocations = parse_jobs(recorded(version, "jobs"), "feas")
    assert set(allocations) == set(printed)
    assert len(allocations) == len(printed)
    assert ("1", "0") in {(one.array_job_id, one.array_task_id) for one in allocations}


def one_job(version: str = "25.11", job: str = "11", **changes: object) -> list[Row]:
    """The rows of one recorded job with some attributes changed; job 11 is task 0 of array 1."""
    return [{**recorded(version, "jobs")[job], **changes}]


@pytest.mark.parametrize(
    ("changes", "unit"),
    [
        pytest.param({}, ("1", "0"), id="task-0-is-none"),
        pytest.param({"array_task_id": 0}, ("1", "0"), id="task-0-once-pyslurm-is-mended"),
        pytest.param({"array_task_id": 7}, ("1", "7"), id="task-7"),
        pytest.param({"array_id": 11}, ("11", "0"), id="task-0-split-off-last"),
        pytest.param({"array_id": None}, (None, None), id="no-array"),
        pytest.param({"array_id": 0}, (None, None), id="no-array-as-0"),
        pytest.param({"state": "SUSPENDED"}, ("1", "0"), id="suspended"),
        pytest.param({"state": "CONFIGURING"}, ("1", "0"), id="configuring"),
        pytest.param({"state": "NEW_WORD"}, ("1", "0"), id="state-of-a-newer-slurm"),
    ],
)
def test_task(changes: Row, unit: tuple[str | None, str | None]) -> None:
    """A task of an array that holds nodes and has no number is task 0."""
    (allocation,) = parse_jobs(one_job(**changes))
    assert (allocation.array_job_id, allocation.array_task_id) == unit


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"array_tasks_waiting": "7-19"}, id="holds-nodes-and-its-tasks-wait"),
        pytest.param({"array_tasks_waiting": "7-19", "array_task_id": 3}, id="is-a-task-and-its-tasks-wait"),
        pytest.param({"array_id": None, "array_task_id": 3}, id="task-of-no-array"),
        pytest.param({"array_id": None, "array_tasks_waiting": "3"}, id="tasks-wait-for-no-array"),
        pytest.param({"allocated_nodes": None}, id="task-without-a-number-and-without-nodes"),
        pytest.param({"array_task_id": "UNLIMITED"}, id="unlimited-task"),
        pytest.param({"array_id": -1}, id="negative-array"),
        pytest.param({"id": 0}, id="job-0"),
        pytest.param({"id": None}, id="no-id"),
        pytest.param({"id": True}, id="id-that-is-true"),
        pytest.param({"state": None}, id="no-state"),
        pytest.param({"state": ""}, id="empty-state"),
        pytest.param({"start_time": None}, id="no-start"),
        pytest.param({"start_time": 1.5}, id="start-in-fractions"),
        pytest.param({"requeue_count": None}, id="no-count"),
        pytest.param({"requeue_count": "UNLIMITED"}, id="unlimited-count"),
        pytest.param({"user_id": None}, id="no-user"),
        pytest.param({"heterogeneous_offset": 1}, id="part-of-no-heterogeneous-job"),
        pytest.param({"allocated_nodes": "n[1-"}, id="half-a-hostlist"),
        pytest.param({"cluster": "other"}, id="job-of-another-cluster"),
    ],
)
def test_contradictory_job(changes: Row) -> None:
    """A job that may hold nodes and whose attributes contradict each other spoils the answer: no guess is safe."""
    with pytest.raises(SlurmProtocolError, match="pyslurm"):
        parse_jobs(one_job(**changes), "feas")


@pytest.mark.parametrize("attribute", sorted(set(JobRow.model_fields) - {"cluster"}))
def test_job_without_an_attribute(attribute: str) -> None:
    """An attribute that a version of pyslurm does not have spoils the answer."""
    (row,) = one_job()
    del row[attribute]
    with pytest.raises(SlurmProtocolError, match=f"{attribute}: Field required"):
        parse_jobs([row])


@pytest.mark.parametrize("attribute", sorted(set(NodeRow.model_fields) - {"cluster"}))
def test_node_without_an_attribute(attribute: str) -> None:
    """The same of a node."""
    row = recorded("25.11", "nodes")["n1"]
    del row[attribute]
    with pytest.raises(SlurmProtocolError, match=f"{attribute}: Field required"):
        parse_nodes([row])


@pytest.mark.parametrize("state", ["PENDING", "COMPLETING", "CANCELLED", "REQUEUED"])
def test_job_that_holds_nothing(state: str) -> None:
    """What a job without an allocation says of its start and its tasks is not asked."""
    rows = one_job(
        state=state, start_time=None, requeue_count=None, array_tasks_waiting="7-19", allocated_nodes=None
    )
    assert parse_jobs(rows) == ()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"state": None}, id="no-state"),
        pytest.param({"state": "IDLE+DR AIN"}, id="garbled-state"),
        pytest.param({"state": ["IDLE"]}, id="state-that-is-a-list"),
        pytest.param({"name": "n1 State=IDLE"}, id="name-that-is-none"),
        pytest.param({"name": ""}, id="empty-name"),
        pytest.param({"reason": 7}, id="reason-that-is-a-number"),
        pytest.param({"reason_time": "yesterday"}, id="time-that-is-none"),
        pytest.param({"cluster": "other"}, id="node-of-another-cluster"),
    ],
)
def test_garbled_node(changes: Row) -> None:
    """A node that cannot be read spoils the answer."""
    with pytest.raises(SlurmProtocolError, match=r"pyslurm|name of a node|state of a node"):
        parse_nodes([{**recorded("25.11", "nodes")["n1"], **changes}], "feas")


def test_no_job_is_an_answer_and_no_node_is_none() -> None:
    """A cluster may have no job, but never no node: not even where the only one has no name."""
    assert parse_jobs([]) == ()
    nameless = recorded("22.05", "nodes")["null"]
    for rows in ([], {}, [nameless], {"null": nameless}):
        with pytest.raises(SlurmProtocolError, match="no node"):
            parse_nodes(rows)


@pytest.mark.parametrize("row", [None, [], "n1", 1, {}])
def test_row_that_is_none(row: object) -> None:
    """What is no row spoils the answer."""
    with pytest.raises(SlurmProtocolError):
        parse_nodes([recorded("25.11", "nodes")["n1"], row])
    with pytest.raises(SlurmProtocolError):
        parse_jobs([*one_job(), row])


def test_listed_twice() -> None:
    """A node or a job that is there twice spoils the answer, and so does an ended job under a living one's id."""
    node = recorded("25.11", "nodes")["n1"]
    with pytest.raises(SlurmProtocolError, match="n1 is described twice"):
        parse_nodes([node, node])
    for rows in ([*one_job(), *one_job()], [*one_job(), *one_job(state="FAILED")]):
        with pytest.raises(SlurmProtocolError, match="job 11 is listed twice"):
            parse_jobs(rows)


def test_dump_whose_keys_are_not_its_rows() -> None:
    """In a saved dump a row stands under its own name or id."""
    nodes, jobs = recorded("25.11", "nodes"), recorded("25.11", "jobs")
    nodes["n1"]["name"] = "n7"
    jobs["11"]["id"] = 99
    with pytest.raises(SlurmProtocolError, match="'n1' is 'n7' in its own row"):
        parse_nodes(nodes)
    with pytest.raises(SlurmProtocolError, match="'11' is '99' in its own row"):
        parse_jobs(jobs)


JUNK: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.floats() | st.integers(max_value=-1) | st.lists(st.integers()) | st.just({})
)


@given(st.sampled_from(sorted(VERSIONS)), st.data())
def test_junk_is_refused_or_means_nothing(version: str, data: st.DataObject) -> None:
    """An attribute that turns into junk spoils the whole answer, or changes no unit, generation or node."""
    rows = recorded(version, "jobs")
    before = {one.job_id: one for one in parse_jobs(rows)}
    row = rows[data.draw(st.sampled_from(sorted(before)))]
    attribute = data.draw(st.sampled_from(sorted(JobRow.model_fields)))
    row[attribute] = data.draw(JUNK.filter(lambda junk: junk is not None or row["array_id"] is None))
    try:
        after = {one.job_id: one for one in parse_jobs(rows)}
    except SlurmProtocolError:
        return

    def essence(job: str) -> tuple[object, ...]:
        one = after[job]
        return (one.array_job_id, one.array_task_id, one.restart_count, one.start_time, one.state)

    assert after.keys() == before.keys()
    assert [essence(job) for job in after] == [essence(job) for job in before]
    # Without nodes it is not understood, which is the way of every door: it is there, and is not judged.
    assert all(one.nodes == before[job].nodes or not one.is_understood for job, one in after.items())


# --- the child, and what may happen to it -----------------------------------------------------------------

SCONTROL = '#!/bin/sh\n[ ! -e "$FAKE/scontrol.sh" ] || . "$FAKE/scontrol.sh"\nexec cat "$FAKE/config"\n'
# What pyslurm 22.5 to 25.11 answered, by the same names; what the files *.py say happens before.
PYSLURM = """
import json, os
from pathlib import Path
from types import SimpleNamespace

FAKE = Path(os.environ["FAKE"])

def happen(when):
    path = FAKE / f"{when}.py"
    if path.exists():
        exec(compile(path.read_text(), path, "exec"), {"FAKE": FAKE})

def load(what):
    happen(what)
    rows = json.loads((FAKE / f"{what}.json").read_text())
    return {key: SimpleNamespace(**row) for key, row in rows.items()}

happen("import")
__version__ = (FAKE / "version").read_text()

class Nodes:
    load = staticmethod(lambda: load("nodes"))

class Jobs:
    load = staticmethod(lambda: load("jobs"))
"""
TO_ANSWERS = "import os, time\nchannel = max(map(int, os.listdir('/proc/self/fd'))) - 1\n"
CONFIG = (SAMPLES / "22.05-hostile/scontrol_show_config.txt").read_text()


class FakePyslurm:
    """A pyslurm on PYTHONPATH and a scontrol on PATH that answer as a recorded Slurm did."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("bin", "site/pyslurm"):
            (directory / name).mkdir(parents=True)
        (directory / "site/pyslurm/__init__.py").write_text(PYSLURM)
        (directory / "bin/scontrol").write_text(SCONTROL)
        (directory / "bin/scontrol").chmod(0o755)
        self.environ = {
            "PATH": f"{directory}/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{directory}/site",
            "FAKE": str(directory),
        }
        self.plays("25.11")

    def plays(self, version: str) -> None:
        """Answer as this version did."""
        pyslurm, running = VERSIONS[version]
        self.runs(running)
        (self.directory / "version").write_text(pyslurm)
        for what in ("nodes", "jobs"):
            self.answers(what, recorded(version, what))

    def runs(self, version: str) -> None:
        """Let scontrol speak of a slurmctld of this version."""
        config = CONFIG.replace("= sandbox\n", "= feas\n").replace("= 22.05.8\n", f"= {version}\n")
        assert config != CONFIG
        (self.directory / "config").write_text(config)

    def answers(self, what: str, rows: dict[str, Row]) -> None:
        """Answer this when nodes or jobs are loaded."""
        (self.directory / f"{what}.json").write_text(json.dumps(rows))

    def does(self, when: str, program: str) -> None:
        """Let this happen at the import, or before nodes or jobs are loaded."""
        (self.directory / f"{when}.py").write_text(program)

    def reader(self, timeout: float = 30, cluster: str | None = None) -> PyslurmReader:
        """Return a reader that knows this pyslurm."""
        return PyslurmReader(Commands(timeout=timeout, environ=self.environ, cluster=cluster))


@pytest.fixture
def fake(tmp_path: Path) -> FakePyslurm:
    """Give a pyslurm that answers as that of 25.11 did."""
    return FakePyslurm(tmp_path)


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return what closes a reader after the test."""
    readers: list[PyslurmReader] = []

    def keep(reader: PyslurmReader) -> PyslurmReader:
        readers.append(reader)
        return reader

    yield keep
    for reader in readers:
        reader.close()


def children() -> set[int]:
    """The processes that this one has started and not reaped."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, tail = stat.read_text().rpartition(") ")
        except OSError:  # ended meanwhile
            continue
        if int(tail.split()[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


@pytest.fixture(autouse=True)
def had() -> Iterator[set[int]]:
    """Whatever happens, no descriptor stays open, no child is left, and this process never imports pyslurm.

    Gives the children that were there before, which are another test's.
    """
    before, had = set(os.listdir("/proc/self/fd")), children()
    yield had
    assert set(os.listdir("/proc/self/fd")) <= before
    assert children() <= had
    assert "pyslurm" not in sys.modules


def wait_until(done: Callable[[], bool]) -> None:
    """Wait, 20 s at most."""
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; who should reap it may not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def pid_of(reader: PyslurmReader) -> int:
    """The child's process id."""
    assert reader._child is not None
    return reader._child.pid


@pytest.mark.parametrize("version", VERSIONS)
def test_snapshot(version: str, fake: FakePyslurm, opened: Opened) -> None:
    """What a living pyslurm answers is what a dump of it says, through a real child."""
    fake.plays(version)
    reader = opened(fake.reader())
    snapshot = reader.read()
    assert (snapshot.cluster, snapshot.slurm_version, snapshot.visible_user) == (
        "feas",
        VERSIONS[version][1],
        None,
    )
    assert snapshot.nodes == parse_nodes(recorded(version, "nodes"))
    assert snapshot.allocations == parse_jobs(recorded(version, "jobs"))
    assert reader.remarks == []


def test_child_lives_on(fake: FakePyslurm, opened: Opened) -> None:
    """One child answers every pass, each anew; scontrol is asked once, and again when a job is gone."""
    reader = opened(fake.reader())
    assert reader.start() == "pyslurm 25.11.2 fits Slurm 25.11.7"
    pid = pid_of(reader)
    assert "DRAIN" not in reader.read().nodes["n2"].flags
    config = fake.directory / "config"
    config.rename(fake.directory / "away")
    nodes = recorded("25.11", "nodes")
    nodes["n2"]["state"] += "+DRAIN"
    fake.answers("nodes", nodes)
    for _ in range(3):
        snapshot = reader.read()
        assert "DRAIN" in snapshot.nodes["n2"].flags
        assert snapshot.allocations
        assert pid_of(reader) == pid
    (fake.directory / "away").rename(config)
    fake.answers("jobs", {})
    assert reader.read().allocations == ()
    assert pid_of(reader) == pid


def test_traffic(fake: FakePyslurm, opened: Opened) -> None:
    """What the child is asked and sends is counted, and what the commands beside it print."""
    reader = opened(fake.reader())
    reader.read()
    counted = reader.traffic["pyslurm"]
    assert counted.queries == 3
    config = len((fake.directory / "config").read_bytes())
    rows = len(json.dumps([recorded("25.11", what) for what in ("nodes", "jobs")]))
    first = counted.received
    assert config < first < config + 2 * rows
    reader.read()
    assert counted.queries == 5
    assert first < counted.received < 2 * first


def test_large_cluster(fake: FakePyslurm, opened: Opened) -> None:
    """10,000 nodes and 5,500 tasks arrive whole, in many pieces."""
    node = recorded("25.11", "nodes")["n1"]
    (job,) = one_job(array_task_id=1)
    fake.answers("nodes", {f"n{number}": {**node, "name": f"n{number}"} for number in range(10_000)})
    fake.answers("jobs", {str(number): {**job, "id": number} for number in range(1, 5_501)})
    snapshot = opened(fake.reader()).read()
    assert (len(snapshot.nodes), len(snapshot.allocations)) == (10_000, 5_500)


def test_what_pyslurm_prints_is_no_answer(fake: FakePyslurm, opened: Opened) -> None:
    """What Python or libslurm prints, on whatever standard descriptor, is a remark of that pass."""
    fake.does("import", "print('hello')")
    fake.does("jobs", "import os; os.write(1, b'slurm: error: one\\n'); os.write(2, b'two\\x1b[2J\\xff\\n')")
    reader = opened(fake.reader())
    assert reader.read().nodes
    assert reader.remarks == [r"pyslurm: 'slurm: error: one'; 'two\x1b[2J\\xff'"]
    fake.does("jobs", "")
    assert reader.read().nodes
    assert reader.remarks == []


def test_environment(fake: FakePyslurm, opened: Opened) -> None:
    """The child sees the slurm.conf that was asked for, in a clean environment."""
    fake.does("import", "import json, os; (FAKE / 'environ').write_text(json.dumps(dict(os.environ)))")
    environ = {**fake.environ, "SLURM_CONF": "/no", "SLURM_CLUSTERS": "other", "TZ": "Asia/Tokyo"}
    reader = open_reader("pyslurm", Access(timeout=30, environ=environ, slurm_conf="/etc/other.conf")).reader
    assert isinstance(reader, PyslurmReader)
    opened(reader).read()
    seen = json.loads((fake.directory / "environ").read_text())
    assert (seen["SLURM_CONF"], seen["TZ"]) == ("/etc/other.conf", "UTC")
    assert "SLURM_CLUSTERS" not in seen


def test_working_directory(
    fake: FakePyslurm, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is imported from where a pass happens to run: a checkout of pyslurm, a file named json.py."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "runpy", "pyslurm", "slurm", "errors"):
        (here / f"{name}.py").write_text("raise RuntimeError('not me')")
    monkeypatch.chdir(here)
    assert opened(fake.reader()).read().nodes


HANG = "import time; time.sleep(600)"
IGNORING = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(600)"
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
FATAL = "import os; os.write(2, b'slurm: fatal: Could not establish a configuration source\\n'); os._exit(1)"
DRIP = TO_ANSWERS + "while True: os.write(channel, b'['); time.sleep(0.05)"
GARBAGE = TO_ANSWERS + "os.write(channel, b'%s\\n')"
REFUSED = "raise RuntimeError('Unable to contact slurm controller (connect failure)')"


@pytest.mark.parametrize("when", ["import", "nodes", "jobs"])
@pytest.mark.parametrize("program", [HANG, IGNORING, DRIP], ids=["asleep", "ignoring-signals", "slow-drip"])
def test_late(fake: FakePyslurm, opened: Opened, had: set[int], when: str, program: str) -> None:
    """A child that does not answer in time is killed, whatever it thinks of it, and the next pass has another."""
    fake.does(when, program)
    start = time.monotonic()
    reader = opened(fake.reader(timeout=1.0))
    doing = {"import": "is imported", "nodes": "loads nodes", "jobs": "loads jobs"}[when]
    with pytest.raises(SlurmUnavailable, match=f"pyslurm: no answer within 1 s, while it {doing}; killed"):
        reader.read()
    assert time.monotonic() - start < 15
    assert children() <= had
    fake.does(when, "")
    reader = opened(fake.reader())
    assert reader.read().nodes


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(CRASH, "killed by SIGSEGV, while it {}: no word on stderr", id="crash"),
        pytest.param(
            FATAL,
            "ended with status 1, while it {}: 'slurm: fatal: Could not establish a configuration source'",
            id="fatal-of-libslurm",
        ),
        pytest.param("import os; os._exit(0)", "ended with status 0, while it {}", id="ends-as-if-done"),
        pytest.param(GARBAGE % "hello", "not an answer, while it {}: 'hello'", id="garbage"),
        pytest.param(GARBAGE % "7", "not an answer, while it {}: '7'", id="number"),
        pytest.param(GARBAGE % '{"a": 1, "b": 2}', "not an answer, while it {}: 'a b'", id="object"),
        pytest.param(GARBAGE % "[1, 2, 3]", "not an answer, while it {}", id="list"),
        pytest.param(GARBAGE % '["end", ["Nodes", 3]]', "not an answer, while it {}", id="end-too-early"),
        pytest.param(GARBAGE % '["rows", 3]', "not an answer, while it {}", id="rows-that-are-none"),
        pytest.param(GARBAGE % ("[" * 3000), "not an answer, while it {}", id="deep"),
        pytest.param(GARBAGE % "\\xff\\x00\\x1b", r"not an answer, while it {}: .*xff.x00.x1b", id="binary"),
    ],
)
@pytest.mark.parametrize("when", ["import", "nodes", "jobs"])
def test_crash_or_garbage(
    fake: FakePyslurm, opened: Opened, had: set[int], *, when: str, program: str, message: str
) -> None:
    """A child that ends or answers garbage is no answer, is named with its last words, and is replaced."""
    reader = opened(fake.reader())
    pid = 0
    if when != "import":
        reader.read()
        pid = pid_of(reader)
    fake.does(when, program)
    doing = {"import": "is imported", "nodes": "loads nodes", "jobs": "loads jobs"}[when]
    for _ in range(2):  # again: it is not the child's memory of it
        with pytest.raises(SlurmError, match=message.format(doing)):
            reader.read()
        assert children() <= had
    fake.does(when, "")
    assert reader.read().nodes
    assert pid_of(reader) != pid


@pytest.mark.parametrize("when", ["import", "nodes"])
@pytest.mark.parametrize("where", ["1", "2", "channel"])
def test_endless(
    fake: FakePyslurm, opened: Opened, monkeypatch: pytest.MonkeyPatch, when: str, where: str
) -> None:
    """A child that prints without end is cut off, wherever it prints."""
    monkeypatch.setattr(_process, "MAX_OUTPUT", 1 << 22)
    fake.does(when, f"{TO_ANSWERS}while True: os.write({where}, b'x' * 65536)")
    with pytest.raises(SlurmProtocolError, match="more than 4194304 bytes"):
        opened(fake.reader()).read()


def test_slurmctld_is_silent(fake: FakePyslurm, opened: Opened) -> None:
    """What pyslurm raises is the message; the child goes, as what libslurm knows of slurm.conf may be old."""
    reader = opened(fake.reader())
    reader.read()
    pid = pid_of(reader)
    fake.does("jobs", REFUSED)
    with pytest.raises(SlurmUnavailable, match=r"Unable to contact slurm controller \(connect failure\)"):
        reader.read()
    fake.does("jobs", "")
    assert reader.read().nodes
    assert pid_of(reader) != pid


def test_child_that_ends_between_two_passes(fake: FakePyslurm, opened: Opened) -> None:
    """A child that somebody killed meanwhile is replaced, and the pass is as good as any."""
    reader = opened(fake.reader())
    reader.read()
    pid = pid_of(reader)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid))
    assert reader.read().nodes
    assert pid_of(reader) != pid


def test_what_the_child_started_dies_with_it(fake: FakePyslurm, opened: Opened) -> None:
    """The whole process group of a late child goes."""
    fake.does(
        "nodes",
        "import subprocess, time\n(FAKE / 'pid').write_text(str(subprocess.Popen(['sleep', '600']).pid))\n" + HANG,
    )
    with pytest.raises(SlurmUnavailable, match="no answer within 2 s"):
        opened(fake.reader(timeout=2)).read()
    wait_until(lambda: is_gone(int((fake.directory / "pid").read_text())))


def test_child_that_closes_its_answers(fake: FakePyslurm, opened: Opened) -> None:
    """A child that closes its answers and lives on is ended."""
    fake.does("nodes", f"{TO_ANSWERS}os.close(channel); {HANG}")
    with pytest.raises(SlurmUnavailable, match="closed its answers, while it loads nodes"):
        opened(fake.reader()).read()


def test_close(fake: FakePyslurm) -> None:
    """close() ends the child, may be called again, and is not the end of the reader."""
    reader = fake.reader()
    reader.close()
    reader.read()
    pid = pid_of(reader)
    reader.close()
    assert is_gone(pid)
    reader.close()
    assert reader.read().nodes
    reader.close()


PARENT = """
import sys
from slurm.commands.run import Commands
from slurm.pyslurm.reader import PyslurmReader
reader = PyslurmReader(Commands(timeout=600, environ=__import__("os").environ))
reader.start()
print(reader._child.pid, flush=True)
reader.read()
print("read", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("doing", ["nothing", IGNORING], ids=["idle", "loading"])
def test_child_of_a_killed_publisher(fake: FakePyslurm, doing: str) -> None:
    """When a publisher is killed its child goes too, in the middle of a load as well."""
    busy = fake.directory / "busy"
    if doing != "nothing":
        fake.does("nodes", f"(FAKE / 'busy').touch()\n{doing}")
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**fake.environ, "PYTHONPATH": f"{fake.environ['PYTHONPATH']}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if doing == "nothing":
            assert parent.stdout.readline() == "read\n"
        else:
            wait_until(busy.exists)
        assert not is_gone(child)
        parent.kill()
    wait_until(lambda: is_gone(child))


def test_child_without_its_parent(fake: FakePyslurm) -> None:
    """A child whose parent ended before it could be told to follow ends at once, and imports nothing."""
    child = str(_pyslurm_child.__file__)
    fake.does("import", "(FAKE / 'imported').touch()")
    command = [sys.executable, child, "999999999"]
    done = subprocess.run(command, env=fake.environ, input=b"", capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (fake.directory / "imported").exists()


# --- what to install, and what to do ----------------------------------------------------------------------

NOT_INSTALLED = "raise ModuleNotFoundError(\"No module named 'pyslurm'\", name='pyslurm')"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(
            NOT_INSTALLED,
            f"pyslurm is not installed in {sys.executable}: pip install 'segment-health[pyslurm]' "
            "'pyslurm==25.11.*' (SLURM_INCLUDE_DIR and SLURM_LIB_DIR say where its slurm/slurm.h and libslurm.so "
            "are), or use --source text",
            id="not-installed",
        ),
        pytest.param(
            "raise ImportError('libslurmfull.so: cannot open shared object file: No such file or directory')",
            "cannot be imported: 'ImportError: libslurmfull.so: cannot open shared object file: No such file or "
            "directory': build it for the Slurm that runs here, by pip install --force-reinstall",
            id="library-missing",
        ),
        pytest.param(
            "raise ModuleNotFoundError(\"No module named 'pyslurm.db'\", name='pyslurm.db')",
            "cannot be imported: \"ModuleNotFoundError: No module named 'pyslurm.db'\"",
            id="half-installed",
        ),
        pytest.param(
            "import sys; sys.exit('no slurm.conf')", "imported: 'SystemExit: no slurm.conf'", id="sys-exit"
        ),
        pytest.param("raise MemoryError", "cannot be imported: 'MemoryError: '", id="any-exception"),
    ],
)
def test_not_imported(fake: FakePyslurm, program: str, message: str) -> None:
    """A pyslurm that is missing or broken is told apart, with its own words and with what to install."""
    fake.does("import", program)
    with pytest.raises(SlurmUnavailable) as error:
        fake.reader().read()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("version", "running", "message"),
    [
        pytest.param("22.5.3", "22.05.8", None, id="zeros"),
        pytest.param("24.11.0", "24.11.7", None, id="other-patch"),
        pytest.param("26.5.0.dev1", "26.05.0-0rc1", None, id="pre-releases"),
        pytest.param(
            "24.11.0",
            "25.11.7",
            "pyslurm 24.11.0 is for Slurm 24.11, and 25.11.7 runs here: install pyslurm 25.11.*, "
            "or use --source text",
            id="older",
        ),
        pytest.param("25.11.2", "22.05.8", "install pyslurm 22.5.*, or", id="newer"),
        pytest.param("25.1.2", "25.11.7", "pyslurm 25.1.2 is for Slurm 25.1, and 25.11.7 runs", id="prefix"),
        pytest.param("25.11", "25.11.7", None, id="two-numbers"),
        pytest.param("?", "25.11.7", "no telling whether they fit", id="pyslurm-of-no-version"),
        pytest.param("25.11.2", "?", "no telling whether they fit", id="slurm-of-no-version"),
        pytest.param("99999999999.1", "25.11.7", "no telling whether they fit", id="absurd"),
    ],
)
def test_version(fake: FakePyslurm, opened: Opened, version: str, running: str, message: str | None) -> None:
    """What is installed must be made for the release of Slurm that runs, by its first two numbers."""
    (fake.directory / "version").write_text(version)
    fake.runs(running)
    reader = opened(fake.reader())
    if message is None:
        assert reader.start() == f"pyslurm {version} fits Slurm {running}"
        return
    with pytest.raises(SlurmUnavailable) as error:
        reader.start()
    assert message in str(error.value)


def test_other_cluster(fake: FakePyslurm, opened: Opened) -> None:
    """Another cluster than slurm.conf's own is refused in so many words; its own name is no obstacle."""
    assert opened(fake.reader(cluster="feas")).read().cluster == "feas"
    with pytest.raises(SlurmUnavailable, match=r"of slurm\.conf, which is feas and not other: name that one's by"):
        opened(fake.reader(cluster="other")).read()


def test_two_slurm_confs(fake: FakePyslurm, opened: Opened) -> None:
    """Where pyslurm and scontrol do not mean the same cluster nothing is believed."""
    rows = recorded("25.11", "nodes")
    fake.answers("nodes", {name: {**row, "cluster": "other"} for name, row in rows.items()})
    with pytest.raises(SlurmProtocolError, match="pyslurm speaks to cluster 'other', and scontrol to feas"):
        opened(fake.reader()).read()


def test_interpreter_that_is_not_there(fake: FakePyslurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that cannot be started is Slurm unavailable."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(SlurmUnavailable, match="/no/such/python cannot be started: No such file"):
        fake.reader().read()


# --- auto -------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(fake: FakePyslurm, monkeypatch: pytest.MonkeyPatch) -> FakePyslurm:
    """Give a pyslurm that this process could import as well."""
    monkeypatch.syspath_prepend(fake.directory / "site")
    return fake


def test_auto_takes_pyslurm(installed: FakePyslurm, opened: Opened) -> None:
    """Where pyslurm fits it is taken, and the child that was started for the question answers the first pass."""
    door = open_reader("auto", Access(timeout=30, environ=installed.environ))
    assert (door.name, door.why) == ("pyslurm", "pyslurm 25.11.2 fits Slurm 25.11.7")
    assert isinstance(door.reader, _WhileItFits)
    reader = opened(door.reader._pyslurm)
    pid = pid_of(reader)
    assert door.reader.read().nodes
    assert pid_of(reader) == pid


def test_auto_asks_by_text_while_pyslurm_does_not_fit(installed: FakePyslurm, opened: Opened) -> None:
    """After an upgrade of Slurm under a running loop its passes go on by text, and say why each time."""
    nodes = SAMPLES / "25.11/scontrol_show_nodes_oneline.txt"
    commands = installed.directory / "bin"
    (commands / "scontrol").write_text(
        f'#!/bin/sh\ncase "$*" in *" show nodes "*) exec cat {nodes} ;; esac\nexec cat "$FAKE/config"\n'
    )
    (commands / "squeue").write_text("#!/bin/sh\n")  # no job
    (commands / "squeue").chmod(0o755)
    door = open_reader("auto", Access(timeout=30, environ=installed.environ))
    assert isinstance(door.reader, _WhileItFits)
    child = opened(door.reader._pyslurm)
    assert door.reader.read().allocations
    assert door.reader.remarks == []
    os.kill(pid_of(child), signal.SIGKILL)  # the next child is told of the new Slurm
    os.waitid(os.P_PID, pid_of(child), os.WEXITED | os.WNOWAIT)
    installed.runs("26.05.1")
    snapshot = door.reader.read()
    assert (snapshot.slurm_version, snapshot.allocations) == ("26.05.1", ())
    (remark,) = door.reader.remarks
    assert remark.startswith("asked by text this time: pyslurm 25.11.2 is for Slurm 25.11, and 26.05.1 runs here")


@pytest.mark.parametrize(
    ("when", "program", "why"),
    [
        ("import", NOT_INSTALLED, "pyslurm is not installed in"),
        ("import", "raise ImportError('libslurmfull.so')", "cannot be imported: 'ImportError: libslurmfull.so'"),
        ("import", CRASH, "pyslurm: killed by SIGSEGV"),
        ("import", HANG, "pyslurm: no answer within 1 s"),
        ("version", "24.11.0", "pyslurm 24.11.0 is for Slurm 24.11, and 25.11.7 runs here"),
        (
            "scontrol",
            "echo no controller >&2; exit 1",
            "scontrol --local show: ended with status 1: no controller",
        ),
    ],
)
def test_auto_takes_text(installed: FakePyslurm, when: str, program: str, why: str) -> None:
    """Where pyslurm does not fit text is taken, it is said why, and nothing is left running."""
    suffix = {"version": "", "scontrol": ".sh"}.get(when, ".py")
    (installed.directory / f"{when}{suffix}").write_text(program)
    door = open_reader("auto", Access(timeout=1, environ=installed.environ))
    assert door.name == "text"
    assert why in door.why


def test_auto_without_pyslurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pyslurm is not installed no child is started, and Slurm is not asked."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    door = open_reader("auto", Access(timeout=30, environ={"PATH": ""}))
    assert (door.name, door.why) == ("text", "pyslurm is not installed")


def test_opening_asks_nothing(tmp_path: Path) -> None:
    """--source pyslurm is opened without a question: what is wrong shows in the first answer."""
    door = open_reader("pyslurm", Access(timeout=30, environ={"PATH": str(tmp_path)}))
    assert (door.name, door.why) == ("pyslurm", "asked for")
    with pytest.raises(SlurmUnavailable, match="command not found"):
        door.reader.read()


# --- the child's own part ---------------------------------------------------------------------------------


class Thing:
    """A node as pyslurm has it: attributes that may fail."""

    name = "n1"

    @property
    def reason(self) -> str:
        """Free text of an administrator, in Latin-1."""
        return b"L\xfcfter".decode()


def test_rows() -> None:
    """Rows come in bounded pieces and are counted; bytes that are not UTF-8 stay; what is missing is left out."""
    row = {"name": "n1", "reason": r"L\xfcfter"}
    lines = list(_pyslurm_child.answer([Thing()] * 1200, "Nodes", ["name", "reason", "novelty"]))
    assert lines == [("rows", [row] * 500), ("rows", [row] * 500), ("rows", [row] * 200), ("end", ["Nodes", 1200])]
    assert list(_pyslurm_child.answer([], "Jobs", ["id"])) == [("end", ["Jobs", 0])]

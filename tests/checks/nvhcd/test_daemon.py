"""The daemon as it runs: a process of its own, called over gRPC, signalled, killed, and started again."""

from __future__ import annotations

import errno
import json
import os
import pwd
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Daemon

    Script = Callable[..., str]

HERE = Path(__file__).parent
ECHO = 'printf \'{"asked": "%s"}\\n\' "$*"'


def descriptors(process: int) -> int:
    """Count the open files of a process."""
    return len(os.listdir(f"/proc/{process}/fd"))


def test_it_answers_by_the_program(daemon: Daemon, script: Script) -> None:
    """Arguments in, output, errors and status out; and a line of the log."""
    daemon.start(script(ECHO + '; echo why >&2; [ "$1" != bad ] || exit 7'))
    found = daemon.call("--group", "prolog", "")
    del found["seconds"]
    assert found == {
        "code": "OK", "success": True, "exit_code": 0, "output": '{"asked": "--group prolog "}\n', "error": "why\n"
    }  # fmt: skip
    found = daemon.call("bad", "\x1b[31m\n")
    assert (found["success"], found["exit_code"]) == (False, 7)
    assert daemon.end() == 0
    assert "INFO check --group prolog : healthy: status 0, after" in daemon.said()
    assert r"WARNING check bad \x1b[31m\n: unhealthy: status 7, after" in daemon.said()
    assert not Path(daemon.socket).exists()


def test_what_says_nothing_of_the_node_is_an_error(daemon: Daemon, script: Script) -> None:
    """A bad path must not exclude a cluster: the program may come later, and is then asked."""
    path = str(daemon.directory / "check")
    daemon.start(path)
    daemon.until(lambda: f"healthcheck_path: {path} is no program that can be run" in daemon.said())
    missing = daemon.call()
    assert (missing["code"], missing["details"]) == (
        "FAILED_PRECONDITION", f"{path}: cannot be started: No such file or directory"
    )  # fmt: skip
    script(ECHO)
    os.chmod(path, 0o644)
    assert daemon.call()["code"] == "FAILED_PRECONDITION"
    script("head -c 2000000 /dev/zero")
    assert daemon.call()["code"] == "RESOURCE_EXHAUSTED"
    script(ECHO)
    assert daemon.call("a\0b")["code"] == "INVALID_ARGUMENT"
    assert daemon.call("x" * 65_000)["success"]
    assert daemon.call("x" * 66_000)["code"] == "RESOURCE_EXHAUSTED"
    assert daemon.call(*[""] * 1000)["success"]
    assert daemon.call(*[""] * 1001)["code"] == "INVALID_ARGUMENT"
    assert daemon.call(raw="\n\xff\xff")["code"] == "INVALID_ARGUMENT"
    assert daemon.call("fine")["success"]


def test_a_call_without_a_request_ends(short_path: Path) -> None:
    """Whoever begins as many calls as there may be, and asks nothing, keeps others away for seconds alone."""
    told = subprocess.run(
        [sys.executable, HERE / "half_open.py", short_path / "s"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(told.stdout) == {"half": ["DEADLINE_EXCEEDED"], "then": "OK"}


def test_a_late_one_is_unhealthy(daemon: Daemon, script: Script) -> None:
    """It says so, what it wrote is there, and nothing of it is left."""
    daemon.start(script("echo begun; setsid sleep 1000 & exec sleep 1000"), timeout=0.5)
    found = daemon.call()
    assert (found["success"], found["exit_code"], found["output"]) == (False, -9, "begun\n")
    assert found["error"] == "the health check did not end within 0.5 s and was killed"
    assert daemon.below() == []


def test_a_caller_may_go(daemon: Daemon, script: Script) -> None:
    """Of three that ask the same, one cancels and one has no more time: the third has its answer."""
    daemon.start(script(f'cd "${{0%/*}}"; echo >> starts; until [ -e go ]; do sleep 0.02; done; {ECHO}'))
    daemon.begin({"args": [], "cancel": 0.3}, {"args": [], "timeout": 0.3}, {"args": []})
    starts = daemon.directory / "starts"
    daemon.until(starts.exists)
    time.sleep(0.5)  # both have gone by then; a slower machine makes the test weaker, and not fail
    (daemon.directory / "go").touch()
    assert [found["code"] for found in daemon.results()] == ["CANCELLED", "DEADLINE_EXCEEDED", "OK"]
    assert starts.read_text() == "\n"


@pytest.mark.parametrize("detached", [False, True], ids=["plain", "detached"])
def test_killed_in_the_middle_of_a_check(daemon: Daemon, script: Script, detached: bool) -> None:
    """Nothing of the check is left, and the next daemon takes the place of the dead one."""
    daemon.start(script(f"{'setsid sleep 1000 &' if detached else ''} trap '' TERM HUP; sleep 1000; sleep 1000"))
    daemon.begin({"args": []})
    daemon.until(lambda: len(daemon.below()) >= (3 if detached else 2))
    daemon.end(signal.SIGKILL)
    assert daemon.results()[0]["code"] == "UNAVAILABLE"
    daemon.until(lambda: daemon.below() == [])
    assert Path(daemon.socket).is_socket()
    daemon.start(script(ECHO))
    assert "a socket that nobody answered at was replaced" in daemon.said()
    assert daemon.call()["success"]


def test_a_program_that_kills_its_reaper(daemon: Daemon, script: Script) -> None:
    """It is an error, and what it had started is found and killed by the daemon itself."""
    daemon.start(script("setsid sleep 1000 & kill -9 $PPID; sleep 1000"))
    found = daemon.call()
    assert found["code"] == "ABORTED"
    daemon.until(lambda: daemon.below() == [])
    script(ECHO)
    assert daemon.call()["success"]


def test_a_crowd_and_a_crash(daemon: Daemon, script: Script) -> None:
    """10,000 calls by 50 launchers, and a kill -9 in between: each has its answer, and nothing is left open."""
    daemon.start(script(ECHO), cache=0.5, log_level="info")
    assert daemon.call("question-0")["success"]
    before = descriptors(daemon.pid)
    with subprocess.Popen(
        [sys.executable, HERE / "crowd.py", daemon.socket, "50", "200"], stdout=subprocess.PIPE, text=True
    ) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "half\n"
        daemon.end(signal.SIGKILL)
        daemon.start()
        told = json.loads(crowd.stdout.readline())
    assert (told["answered"], told["wrong"]) == (10_000, 0)
    assert told["failed"] > 0  # it was killed while they asked
    assert daemon.call("question-0")["success"]
    daemon.until(lambda: descriptors(daemon.pid) <= before)
    daemon.until(lambda: daemon.below() == [])
    assert daemon.said().count("\n") < 90  # of two daemons, though hundreds of programs ran
    assert daemon.end() == 0


def test_told_to_end_it_lets_calls_end(daemon: Daemon, script: Script) -> None:
    """No new ones are taken meanwhile; the answer is there before it ends, with status 0."""
    daemon.start(script(f'cd "${{0%/*}}"; until [ -e go ]; do sleep 0.02; done; {ECHO}'))
    daemon.begin({"args": ["slow"]})
    daemon.until(daemon.below)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    daemon.until(lambda: not daemon.answers())
    assert daemon.process.poll() is None
    (daemon.directory / "go").touch()
    assert daemon.results()[0]["output"] == '{"asked": "slow"}\n'
    assert daemon.process.wait(30) == 0
    assert sorted(entry.name for entry in daemon.directory.iterdir() if "nvhcd" in entry.name) == [
        ".nvhcd.sock.lock"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(daemon: Daemon, script: Script, number: signal.Signals) -> None:
    """Programs are killed, callers are told that nobody is there."""
    daemon.start(script("trap '' TERM; sleep 1000; sleep 1000"))
    daemon.begin({"args": []})
    daemon.until(lambda: len(daemon.below()) >= 2)
    assert daemon.process is not None
    daemon.process.send_signal(number)
    daemon.until(lambda: not daemon.answers())
    assert daemon.end(number) == 128 + number
    assert daemon.results()[0]["code"] in {"UNAVAILABLE", "CANCELLED"}
    daemon.until(lambda: daemon.below() == [])
    assert not Path(daemon.socket).exists()


def test_it_rereads_its_configuration(daemon: Daemon, script: Script) -> None:
    """SIGHUP: a right one counts from the next call on, a wrong one changes nothing and says why."""
    daemon.start(script("echo one", name="one"), cache=100)
    assert daemon.call()["output"] == "one\n"
    daemon.configure(script("echo two", name="two"), timeout=120, socket_mode="0600")

    def hup(said: str) -> None:
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.until(lambda: said in daemon.said())

    hup("read again; answers by")
    assert daemon.call()["output"] == "two\n"
    daemon.until(lambda: "NVRx's client gives up after 60 s and treats the node as healthy" in daemon.said())
    assert "what it says of the socket waits for a restart" in daemon.said()
    assert os.stat(daemon.socket).st_mode & 0o777 == 0o666
    daemon.config.write_text("time_out: 3\n")
    hup("the configuration in force stays: ")
    assert "unknown key 'time_out'; the nearest known one is timeout" in daemon.said()
    daemon.config.write_bytes(b"#" * 1_100_000)
    hup("larger than 1048576 bytes")
    daemon.config.unlink()
    hup("No such file or directory")
    assert daemon.call()["output"] == "two\n"
    assert daemon.end() == 0


def test_a_configuration_that_nothing_can_read(daemon: Daemon, script: Script) -> None:
    """Where no file can be opened that is what the log says, and the configuration in force stays."""
    daemon.start(script(ECHO))
    soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (3, hard))
    os.kill(daemon.pid, signal.SIGHUP)
    daemon.until(lambda: "the configuration in force stays" in daemon.said())
    assert f"{daemon.config}: could not be read: no process to start it: Too many open files" in daemon.said()
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert daemon.call()["success"]


def test_a_living_socket_is_refused(daemon: Daemon, script: Script) -> None:
    """The second daemon ends with status 2 and a line, whoever serves there."""
    daemon.start(script(ECHO))
    command = [str(Path(sys.executable).with_name("nvhcd")), f"-config={daemon.config}"]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert second.returncode == 2
    assert second.stderr == (
        f"segment-health: nvhcd: {daemon.socket}: another nvhcd serves it, or is about to; nothing was done\n"
    )
    assert daemon.call()["success"]
    assert daemon.end() == 0
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(daemon.socket)
        other.listen()
        third = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert third.returncode == 2
    assert "another daemon answers there; nothing was done" in third.stderr


def test_callers_cannot_fill_the_log(daemon: Daemon, script: Script) -> None:
    """A hundred refused calls, and bytes that are no HTTP/2, are some lines."""
    daemon.start(script(ECHO))
    for _ in range(4):
        daemon.begin(*({"args": [f"{number}\0"]} for number in range(25)))
        assert {found["code"] for found in daemon.results()} == {"INVALID_ARGUMENT"}
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(daemon.socket)
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
            rude.recv(1000)
    assert daemon.call()["success"]
    assert daemon.end() == 0
    assert daemon.said().count("\n") < 50


def test_json_lines(daemon: Daemon, script: Script) -> None:
    """For programs each line is an object."""
    daemon.configure(script(ECHO))
    with daemon.log.open("wb") as log:
        command = [
            sys.executable,
            "-m",
            "segment_health",
            "nvhcd",
            "--config",
            str(daemon.config),
            "--log-format",
            "json",
        ]
        daemon.process = subprocess.Popen(command, stderr=log)
    daemon.until(daemon.answers)
    daemon.call("a", "b")
    daemon.end()
    lines = [json.loads(line) for line in daemon.said().splitlines()]
    assert [line["event"] for line in lines] == ["start", "check", "end", "end"]
    assert (lines[1]["args"], lines[1]["result"]) == ("a b", "status 0")


@pytest.mark.root
@pytest.mark.parametrize(
    ("keys", "may"),
    [
        ({}, True),
        ({"socket_mode": "0660"}, False),
        ({"socket_mode": "0600", "socket_owner": "nobody"}, True),
        ({"socket_mode": "0660", "socket_group": pwd.getpwnam("nobody").pw_gid}, True),
        ({"socket_mode": "0606", "socket_group": pwd.getpwnam("nobody").pw_gid}, False),
    ],
    ids=["everybody", "root-only", "owner", "group", "all-but-a-group"],
)
def test_who_may_ask(daemon: Daemon, script: Script, keys: dict[str, Any], may: bool) -> None:
    """An ordinary user can connect where mode, owner and group say so, and nowhere else."""
    daemon.directory.chmod(0o755)
    daemon.start(script(ECHO), **keys)
    nobody = pwd.getpwnam("nobody")
    program = "import socket, sys; print(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))"
    tried = subprocess.run(
        ["/usr/bin/python3", "-c", program, daemon.socket],
        user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], cwd="/",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (tried.stdout == "0\n") is may
    daemon.end()


@pytest.mark.root
def test_a_container_needs_the_directory(daemon: Daemon, script: Script) -> None:
    """A bind mount of the socket is that of a dead one after a restart; one of its directory is not."""
    daemon.start(script(ECHO))
    place = daemon.directory / "container"
    place.mkdir()
    (place / "directory").mkdir()
    (place / "file").touch()
    look = "import socket, sys; [print(socket.socket(socket.AF_UNIX).connect_ex(path)) for path in sys.argv[1:]]"
    inside = f"""
        mount --bind {daemon.directory} {place}/directory
        mount --bind {daemon.socket} {place}/file
        look() {{ /usr/bin/python3 -c '{look}' {place}/directory/nvhcd.sock {place}/file; }}
        look; read line; look
    """
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "bash", "-ec", inside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as container:
        assert container.stdout is not None
        assert [container.stdout.readline() for _ in range(2)] == ["0\n", "0\n"]
        daemon.end()
        daemon.start()
        told, _ = container.communicate("\n", timeout=30)
    assert told == f"0\n{errno.ECONNREFUSED}\n"

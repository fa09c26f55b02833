"""What a user says of a job, and an administrator of a node, is text: it makes no unit and moves no cursor."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]

_ROW = b"4242|4242|7|N/A|RUNNING|0|2026-01-01T00:00:00|root|0|main|n1|"
TEXTS = {
    "a row of squeue": b"x\n" + _ROW + b"\n",
    "a record of scontrol": b"x\nJobId=4242 JobName=y\n   UserId=root(0) JobState=RUNNING NodeList=n1",
    "a record on one line": b"x JobState=RUNNING NodeList=n1 JobId=4242",
    "json": b'x", "job_id": 4242, "job_state": ["RUNNING"], "nodes": "n1"}, {"name": "',
    "brackets and bars": b"n[1-6]|n1,n2|[1-3]%2|{}",
    "a terminal's orders": b"\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\x7f",
    "no UTF-8": b"\xff\xfe\xc3\x28\xed\xa0\x80",
    "other line ends": "a\u2028b\u2029c\x0bd\x0ce\x85f\u202eg".encode(),
    "64 KB": b"A" * 65_000,
}


@pytest.fixture
def hostile(cluster: Sandbox, attacker: Person, request: pytest.FixtureRequest) -> Iterator[str]:
    """A job of the attacker's with a text wherever Slurm takes one: at its submission, and by a later update."""
    text = TEXTS[request.param][:1000]  # Slurm refuses a job that says more than 1,024 bytes of anything
    script = cluster.directory / "work" / f"hostile-{os.urandom(4).hex()}.sh"
    script.write_text("#!/bin/sh\nexec sleep 3600\n")
    script.chmod(0o755)

    def submit() -> str:
        told = [f"--{name}=".encode() + text for name in ("job-name", "comment", "account", "wckey")]
        options = ["--parsable", "--chdir=/", "--output=/dev/null", "--nodelist=n5"]
        command: list[str | bytes] = ["sbatch", *options, *told, str(script)]
        done = subprocess.run(command, env=cluster.env, check=True, capture_output=True)
        return done.stdout.decode().strip().partition(";")[0]

    job = attacker.does(submit)

    def update() -> None:
        for name in ("Comment", "Name"):
            # Slurm may refuse a text, which is as good.
            subprocess.run(
                ["scontrol", "update", f"JobId={job}", f"{name}=".encode() + text],
                env=cluster.env, check=False, capture_output=True,
            )  # fmt: skip

    cluster.wait_running(job)
    attacker.does(update)
    subprocess.run(
        ["scontrol", "update", f"JobId={job}", b"AdminComment=" + text],
        env=cluster.env, check=False, capture_output=True,
    )  # fmt: skip
    yield job
    cluster.run("scancel", job)
    cluster.wait_until(lambda: not cluster.job_states(job) or cluster.job_states(job) == ["CANCELLED"], what="end")


@pytest.mark.parametrize("door", ["text", "json"])
@pytest.mark.parametrize("hostile", TEXTS, indirect=True)
@pytest.mark.parametrize("person", ["root"], indirect=True)
def test_what_a_user_says_of_a_job(service: Service, jobs: Jobs, hostile: str, door: str) -> None:
    """Each job is one unit, those that the text speaks of are none, and what is printed is printable."""
    done = service.publish("--source", door)
    units = {jobs.bad, jobs.good, jobs.other, jobs.own, f"{hostile}.{hostile}"}
    state = json.loads((service.ledger / "state" / "all@sandbox.json").read_bytes())
    assert {f"{unit['job_id']}.{unit['task_id']}" for unit in state["units"]} == units
    assert {name for name in os.listdir(service.directory) if "." in name[1:]} == {
        service.path(unit).name for unit in (jobs.bad, jobs.other, jobs.own)
    }
    explained = service.call("explain", hostile, "--dir", str(service.directory), "--source", door)
    _is_printable(done.out + done.err, explained.out + explained.err, service.history())


@pytest.fixture
def reason(cluster: Sandbox, request: pytest.FixtureRequest) -> Iterator[bytes]:
    """A node that was drained with a text for a reason, and has it for a comment too."""
    text: bytes = TEXTS[request.param]
    for words in ([b"State=drain", b"Reason=" + text], [b"Comment=" + text], [b"Extra=" + text]):
        subprocess.run(
            ["scontrol", "update", "NodeName=n6", *words], env=cluster.env, check=False, capture_output=True
        )
    yield text
    cluster.run("scontrol", "update", "NodeName=n6", "Comment=", "Extra=")
    if "DRAIN" in cluster.node_state("n6"):
        cluster.set_node("n6", "resume")
    cluster.wait_until(lambda: cluster.node_state("n6") in {"IDLE", "ALLOCATED", "MIXED"}, what="n6 in service")


@pytest.mark.parametrize("door", ["text", "json"])
@pytest.mark.parametrize("reason", TEXTS, indirect=True)
@pytest.mark.parametrize("person", ["root"], indirect=True)
def test_what_is_said_of_a_node(
    service: Service, jobs: Jobs, reason: bytes, door: str, text_of: Callable[[str], str]
) -> None:
    """It excludes nobody else, or the answer is refused whole; and wherever it is shown it is printable."""
    assert reason
    done = service.publish("--source", door, code=None)
    assert done.code in {0, 3}, done
    if done.code == 3:
        assert done.changes() == []
        assert not service.is_excluded(jobs.good)
        assert b"\n" in reason
    else:
        assert done.changes() == [f"exclude {unit}" for unit in (jobs.bad, jobs.other, jobs.own)]
    explained = service.call("explain", "n6", "--dir", str(service.directory), "--source", door)
    loop = service.loop("--source", door, "--log-format", "text")
    loop.until(lambda: re.search("complete|unknown", loop.log.read_text(errors="surrogateescape")))
    assert loop.end() == 0
    _is_printable(done.out + done.err, explained.out + explained.err, service.history(), text_of(str(loop.log)))


@pytest.fixture
def text_of() -> Callable[[str], str]:
    """Read a file as it is."""

    def read(path: str) -> str:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            return file.read()

    return read


def _is_printable(*texts: str) -> None:
    for text in texts:
        assert all(character.isprintable() or character == "\n" for character in text), text[:2000]

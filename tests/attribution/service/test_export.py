"""Results are posted to somebody who fails, is slow, goes and comes back, by a service that is killed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import httpx
import pytest

from segment_health.attribution.analysers.finding import Action, Finding
from segment_health.attribution.service.attempt import Attempt, Status
from segment_health.attribution.service.disk_thread import DiskThread
from segment_health.attribution.service.export import Destination, Export
from segment_health.attribution.service.register import Change, Register, RegisterError
from slurm.sandbox.processes import free_ports

from .conftest import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Served

PROGRAM = Path(__file__).with_name("receiver.py")


class Receiver:
    """The program receiver.py: where results go."""

    def __init__(self, directory: Path) -> None:
        self.port = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}/results"
        self._file = directory / "received"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *statuses: int) -> None:
        """Start it, or start it again: it answers so."""
        self.stop()
        argv = [sys.executable, str(PROGRAM), str(self.port), str(self._file), *map(str, statuses)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE)
        self.process = None

    def rows(self) -> list[dict[str, Any]]:
        """Return all that was posted, with the status of the answer."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [json.loads(line) for line in lines]

    def taken(self) -> list[str]:
        """Return the reasons of the results that were taken, in order."""
        return [row["result"]["recommendation"]["reason"] for row in self.rows() if 200 <= row["status"] < 300]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """Where results go; nobody is there until it is started."""
    made = Receiver(tmp_path)
    yield made
    made.stop()


def judge(service: Served, name: str, text: str) -> None:
    """Have a log judged."""
    path = service.log(name, text)
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        body = {"log_path": path, "analysis_intent": "terminal", "job_id": "7", "user": "ann"}
        assert client.post(f"{service.url}/logs", json=body).status_code == 200
        told = client.get(f"{service.url}/logs", params={"log_path": path}).json()
    assert told["status"] == "completed"


def until(predicate: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not predicate():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_result_is_posted(served: Callable[..., Served], receiver: Receiver) -> None:
    """Once, with what it is of and what was found; a password goes to the receiver and into no line of the log."""
    receiver.start(204)
    service = served(export=receiver.url.replace("//", "//ann:s3cret@"))
    judge(service, "train_cycle3.log", "STOP it")
    judge(service, "train_cycle4.log", "RESTART it")
    until(lambda: len(receiver.rows()) == 2, "both results")
    service.end()
    first, second = receiver.rows()
    assert first["authorization"] == "Basic YW5uOnMzY3JldA=="
    told = first["result"]
    assert told["recommendation"] == {"action": "STOP", "reason": "STOP it", "source": "tests"}
    assert (told["user"], told["job_id"], told["cycle_id"], told["status"]) == ("ann", "7", 3, "completed")
    assert told["log_path"].endswith("/logs/train_cycle3.log")
    assert told["result"]["nodes"] == ["n1"]
    assert told["completed"].startswith("20")
    assert second["result"]["id"] > told["id"]
    assert "s3cret" not in service.stderr.read_text()


def test_an_analysis_that_failed_is_a_result(served: Callable[..., Served], receiver: Receiver) -> None:
    """Whoever counts results misses none."""
    receiver.start(200)
    judge(served(export=receiver.url), "a_cycle0.log", "raise")
    until(receiver.rows, "the result")
    (row,) = receiver.rows()
    assert row["result"]["result"]["analysis_outcome"] == "failed"


@pytest.mark.parametrize("status", [1, 302, 401, 404, 429, 500, 503])
def test_a_failure_is_tried_again(status: int, served: Callable[..., Served], receiver: Receiver) -> None:
    """Whatever a receiver answers that may pass, a result is posted until it is taken, in order."""
    receiver.start(status, status, 200)
    service = served(export=receiver.url)
    judge(service, "a_cycle0.log", "STOP a")
    judge(service, "b_cycle0.log", "STOP b")
    until(lambda: receiver.taken() == ["STOP a", "STOP b"], "both results")
    posted = [row["result"]["recommendation"]["reason"] for row in receiver.rows()]
    assert posted == ["STOP a", "STOP a", "STOP a", "STOP b"]
    said = service.stderr.read_text()
    assert said.count("results wait to be exported") == 1
    assert "takes results again" in said


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_is_refused_for_good_holds_up_nothing(
    status: int, served: Callable[..., Served], receiver: Receiver
) -> None:
    """It is said which result is not exported, and the next one is."""
    receiver.start(status, 200)
    service = served(export=receiver.url)
    judge(service, "a_cycle0.log", "STOP a")
    judge(service, "b_cycle0.log", "STOP b")
    until(lambda: receiver.taken() == ["STOP b"], "the second result")
    assert len(receiver.rows()) == 2
    assert f"a_cycle0.log: its result is not exported: {receiver.url}: HTTP {status}" in service.stderr.read_text()


def test_a_slow_receiver_holds_up_no_answer(served: Callable[..., Served], receiver: Receiver) -> None:
    """Logs are judged while it hangs, the service ends while it hangs, and what it did not take it gets later."""
    receiver.start(0)
    service = served(export=receiver.url)
    for number in range(5):
        judge(service, f"a{number}_cycle0.log", f"STOP {number}")
    until(receiver.rows, "a post")
    began = time.monotonic()
    assert service.end() == 0
    assert time.monotonic() - began < 10
    receiver.start(200)
    service.start()
    until(lambda: receiver.taken() == [f"STOP {number}" for number in range(5)], "all results")


def test_a_receiver_that_comes_and_goes(served: Callable[..., Served], receiver: Receiver) -> None:
    """While nobody is there results wait, and are posted when somebody is."""
    service = served(export=receiver.url)
    judge(service, "a_cycle0.log", "STOP a")
    until(lambda: "nobody listens there" in service.stderr.read_text(), "a complaint")
    judge(service, "b_cycle0.log", "STOP b")
    receiver.start(200)
    until(lambda: receiver.taken() == ["STOP a", "STOP b"], "what waited")
    receiver.stop()
    judge(service, "c_cycle0.log", "STOP c")
    receiver.start(200)
    until(lambda: receiver.taken()[2:] == ["STOP c"], "the third")


def test_no_result_is_lost_by_kills(served: Callable[..., Served], receiver: Receiver) -> None:
    """The service and the receiver are killed at random: each result is taken at least once, with one id."""
    service = served(export=receiver.url)
    random.seed(11)
    wanted = set()
    for round_ in range(6):
        receiver.start(200)
        for number in range(4):
            judge(service, f"a{round_}-{number}_cycle0.log", f"STOP {round_}-{number}")
            wanted.add(f"STOP {round_}-{number}")
        time.sleep(random.uniform(0.0, 0.1))
        random.choice([receiver.stop, service.kill])()
        service.kill()
        service.start()
    receiver.start(200)
    # What was told and not yet written when the service was killed is judged again, and so exported.
    until(lambda: set(receiver.taken()) == wanted, "all results")
    ids: dict[str, set[int]] = {}
    for row in receiver.rows():
        ids.setdefault(row["result"]["recommendation"]["reason"], set()).add(row["result"]["id"])
    assert all(len(each) == 1 for each in ids.values())


def test_what_was_found_before_there_was_an_export_is_not_exported(
    served: Callable[..., Served], receiver: Receiver
) -> None:
    """It begins with what is found from then on."""
    service = served()
    judge(service, "a_cycle0.log", "STOP a")
    service.end()
    receiver.start(200)
    service._told["export"] = receiver.url
    service.start()
    judge(service, "b_cycle0.log", "STOP b")
    until(receiver.rows, "a result")
    assert receiver.taken() == ["STOP b"]


def judged(name: str, reason: str) -> Change:
    """Return that a log was judged."""
    finding = Finding("network", Action.RESTART, reason, "tests")
    path = f"/l/{name}"
    done = Attempt(path, path, "ann", "7", 0, 1.0, Status.COMPLETED, 1, None, finding, "", 2.0)
    return Change(done)


class House:
    """A register in this process, whose results are exported."""

    def __init__(self, directory: Path, url: str) -> None:
        self.disk = DiskThread("tests")
        opening = self.disk.put(lambda: Register(str(directory / "state.db"), keep=100, exports=True))
        self.register = opening.result()
        self.said: list[str] = []
        to = Destination(url, 5.0, 0.05, 0.1)
        self.export = Export(to, self.register, self.disk, self._say, {})

    def _say(self, level: str, _event: str, sentence: str) -> None:
        self.said.append(f"{level}: {sentence}")

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not predicate():
            assert time.monotonic() < deadline, self.said
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """End all."""
        self.export.close()
        self.disk.put(self.register.close)
        assert self.disk.close(PATIENCE)


def test_what_is_taken_is_not_posted_again(tmp_path: Path, receiver: Receiver) -> None:
    """What waited is posted at the start, what comes later when it comes, and nothing once it was taken."""
    receiver.start(503, 400, 200)

    async def live() -> None:
        house = House(tmp_path, receiver.url)
        first = [judged(f"{number}.log", f"first {number}") for number in range(3)]
        await house.disk.do(lambda: house.register.write(first))
        house.export.start()
        await house.until(lambda: len(receiver.taken()) == 2)
        await house.disk.do(lambda: house.register.write([judged("x.log", "later")]))
        house.export.wake()
        await house.until(lambda: "later" in receiver.taken())
        await house.until(lambda: house.disk.put(lambda: house.register.unexported(9)).result() == [])
        house.close()
        assert house.said == [
            f"WARNING: results wait to be exported: {receiver.url}: HTTP 503",
            f"WARNING: /l/0.log: its result is not exported: {receiver.url}: HTTP 400",
            f"INFO: {receiver.url}: takes results again",
        ]

    asyncio.run(live())
    assert receiver.taken() == ["first 1", "first 2", "later"]


def test_a_register_that_cannot_be_used_is_waited_for(tmp_path: Path, receiver: Receiver) -> None:
    """The trouble is said once, and results are posted when it is over."""
    receiver.start(200)

    async def live() -> None:
        house = House(tmp_path, receiver.url)
        await house.disk.do(lambda: house.register.write([judged("a.log", "a")]))

        def fails(_limit: int) -> NoReturn:
            raise RegisterError("no disk")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(house.register, "unexported", fails)
            house.export.start()
            await house.until(lambda: house.said)
        await house.until(receiver.taken)
        house.close()
        assert house.said[0] == "WARNING: results wait to be exported: no disk"

    asyncio.run(live())


def test_a_bug_is_said(tmp_path: Path, receiver: Receiver) -> None:
    """An export that ends is not one that waits."""

    async def live() -> None:
        house = House(tmp_path, receiver.url)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(house.register, "unexported", lambda _limit: [(1, None)])
            house.export.start()
            await house.until(lambda: house.said)
        house.close()
        assert house.said[0].startswith("ERROR: no more is exported until the next start: AttributeError")

    asyncio.run(live())


def test_a_destination_that_is_none(served: Callable[..., Served], tmp_path: Path) -> None:
    """The service does not start, and the password is not shown."""
    with pytest.raises(AssertionError):
        served(export="ftp://ann:s3cret@h/")
    said = (tmp_path / "stderr").read_text()
    assert "--export-url: ftp://...@h/: not a URL of HTTP" in said
    assert "s3cret" not in said.splitlines()[-1]

"""The service as a process: it is killed, asked to end, loaded, and loses nothing that it accepted."""

from __future__ import annotations

import concurrent.futures
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from segment_health.attribution.client import Client
from segment_health.attribution.metadata import JobMetadata
from segment_health.attribution.poller import Attribution
from segment_health.attribution.wire import Intent, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Served

PATIENCE = 60.0


def submit(client: httpx.Client, url: str, path: str) -> bool:
    """Announce that a log is to be judged; tell whether it was accepted."""
    try:
        answer = client.post(f"{url}/logs", json={"log_path": path, "analysis_intent": "terminal", "job_id": "7"})
    except httpx.TransportError:
        return False
    return answer.status_code == 200


def answer_of(client: httpx.Client, url: str, path: str) -> dict[str, Any]:
    """Ask until a log is judged."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = client.get(f"{url}/logs", params={"log_path": path, "wait": "true"}, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        if told["status"] == "completed":
            return told
        assert time.monotonic() < deadline, told


@pytest.fixture
def client() -> Any:
    """Asks without a proxy."""
    with httpx.Client(trust_env=False, timeout=10) as made:
        yield made


def test_nothing_accepted_is_lost_by_kills(served: Callable[..., Served], client: httpx.Client) -> None:
    """Killed at random moments under load: every log that was accepted is judged in the end."""
    service = served()
    random.seed(7)
    accepted: list[str] = []
    numbers = iter(range(100_000))

    def load(ending: threading.Event) -> None:
        with httpx.Client(trust_env=False, timeout=5) as own:
            while not ending.is_set():
                number = next(numbers)
                path = service.log(f"t{number}_cycle{number % 5}.log", f"RESTART {number}")
                if submit(own, service.url, path):
                    accepted.append(path)

    for _ in range(5):
        ending = threading.Event()
        threads = [threading.Thread(target=load, args=(ending,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        enough, deadline = len(accepted) + 5, time.monotonic() + PATIENCE
        while len(accepted) < enough:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.3))
        service.kill()
        ending.set()
        for thread in threads:
            thread.join(PATIENCE)
        service.start()
    for path in accepted:
        number = Path(path).name.partition("_")[0][1:]
        told = answer_of(client, service.url, path)
        assert told["recommendation"] == {"action": "RESTART", "reason": f"RESTART {number}", "source": "tests"}


def test_fifty_clients_bring_a_thousand_logs(served: Callable[..., Served], client: httpx.Client) -> None:
    """Each submission is answered within the two seconds that its client has, and each log is judged."""
    service = served(workers=2)
    slowest = [0.0]

    def bring(number: int) -> list[str]:
        paths = []
        with httpx.Client(trust_env=False, timeout=10) as own:
            for log in range(20):
                path = service.log(f"c{number}-{log}_cycle0.log", f"STOP {number}-{log}")
                began = time.monotonic()
                assert submit(own, service.url, path)
                slowest[0] = max(slowest[0], time.monotonic() - began)
                paths.append(path)
        return paths

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        brought = [path for paths in pool.map(bring, range(50)) for path in paths]
    assert len(brought) == 1000
    assert slowest[0] < 2.0
    for path in brought:
        told = answer_of(client, service.url, path)
        assert told["recommendation"]["reason"] == f"STOP {Path(path).name[1:].partition('_')[0]}"
    stats = client.get(f"{service.url}/stats").json()
    assert stats["attempts"] == {"pending": 0, "in_flight": 0, "completed": 1000, "failed": 0}


def test_it_ends_within_seconds(served: Callable[..., Served], client: httpx.Client) -> None:
    """SIGTERM ends it whatever it does; those who wait hear something, and no process is left; then it goes on."""
    service = served()
    hanging = service.log("h_cycle0.log", "hang")
    done = service.log("d_cycle0.log", "STOP")
    assert submit(client, service.url, hanging)
    assert submit(client, service.url, done)
    before = answer_of(client, service.url, done)
    workers = children_of(service.process.pid)
    assert workers
    began = time.monotonic()
    assert service.end() == 0
    assert time.monotonic() - began < 10
    deadline = time.monotonic() + PATIENCE
    while any(lives(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    service.log("h_cycle0.log", "RESTART")
    service.start()
    assert answer_of(client, service.url, hanging)["recommendation"]["action"] == "RESTART"
    assert answer_of(client, service.url, done) == before


def test_its_workers_die_with_it(served: Callable[..., Served], client: httpx.Client) -> None:
    """A service that is killed leaves no process behind, not even one that is at work."""
    service = served()
    assert submit(client, service.url, service.log("h_cycle0.log", "hang"))
    deadline = time.monotonic() + PATIENCE
    while len(workers := children_of(service.process.pid)) < 4:  # two that look, one that watches, one at work
        assert time.monotonic() < deadline
        time.sleep(0.02)
    service.kill()
    while any(lives(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_services_do_not_share_a_state(served: Callable[..., Served], tmp_path: Path) -> None:
    """A second service of the same state file is refused with a sentence, and changes nothing."""
    service = served()
    told = {"listen": f"unix:{tmp_path}/s", "root": str(service.logs), "state": str(tmp_path / "state.db")}
    program = Path(__file__).with_name("serve.py")
    second = subprocess.run(
        [sys.executable, program, json.dumps(told)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert second.returncode != 0
    assert "another service uses it; nothing was changed" in second.stderr


def test_our_own_client_has_a_log_judged(served: Callable[..., Served]) -> None:
    """What segment-health's client sends and reads is what this service takes and tells."""
    service = served()
    client = Client(service.url, JobMetadata("ann", "7"))
    path = service.log("a_cycle0.log", "sleep 1")
    assert client.ask(path).verdict is Verdict.MISSING
    client.submit(path, Intent.PROGRESSIVE)
    assert (client.ask(path).verdict, client.ask(path).word) == (Verdict.UNDECIDED, "pending")
    client.submit(path, Intent.TERMINAL)
    assert (client.ask(path).verdict, client.ask(path).word) == (Verdict.UNDECIDED, "in_flight")
    deadline = time.monotonic() + PATIENCE
    while (told := client.ask(path)).verdict is Verdict.UNDECIDED:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert told == (Verdict.CONTINUE, "UNKNOWN", "sleep 1", "tests")
    client.close()


def test_a_poller_hears_of_a_stop(served: Callable[..., Served]) -> None:
    """A job that fails hears RESTART, goes on, fails again, and hears STOP."""
    service = served()
    attribution = Attribution(service.url, stop_action="no-restart", environ={"SLURM_JOB_ID": "7", "USER": "ann"})
    deadline = time.monotonic() + PATIENCE
    for cycle in range(10_000):
        path = service.log(f"p_cycle{cycle}.log", "RESTART" if cycle < 3 else "raise" if cycle < 6 else "STOP")
        attribution.cycle_began(path)
        attribution.cycle_failed(path)
        if attribution.stop_requested():
            break
        assert time.monotonic() < deadline
        time.sleep(0.5)  # the rate at which this job fails
    attribution.close()
    judged = [line for line in service.stderr.read_text().splitlines() if "_cycle" in line]
    assert "p_cycle0.log: RESTART" in judged[0]
    assert ": STOP" in judged[-1]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"POST /logs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"GET /" + b"x" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"\x16\x03\x01\x00\xa5\x01\x00",
    ],
    ids=["silence", "half a body", "a long path", "many headers", "TLS"],
)
def test_bad_callers_do_not_keep_others_out(
    served: Callable[..., Served], client: httpx.Client, said: bytes
) -> None:
    """Whatever somebody sends, or does not, the next one is served."""
    service = served()
    host, _, port = service.address.partition(":")
    callers = [socket.create_connection((host, int(port)), timeout=PATIENCE) for _ in range(20)]
    try:
        for caller in callers:
            try:
                caller.sendall(said)
            except (ConnectionError, TimeoutError):
                continue
        path = service.log("a_cycle0.log", "STOP")
        assert submit(client, service.url, path)
        assert answer_of(client, service.url, path)["recommendation"]["action"] == "STOP"
    finally:
        for caller in callers:
            caller.close()


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started."""
    told = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in told.split()]


def lives(process: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_no_link_that_is_swapped_leads_outside(served: Callable[..., Served], client: httpx.Client) -> None:
    """While somebody swaps directories and links as fast as he can, nothing outside is ever shown or analysed."""
    service = served()
    outside = service.logs.parent / "outside"
    outside.mkdir()
    (outside / "a_cycle0.log").write_text("s3cret")
    inside = service.logs / "inside"
    inside.mkdir()
    (inside / "a_cycle0.log").write_text("RESTART harmless")
    way = service.logs / "way"
    way.mkdir()
    swap = service.logs / "swap"
    swap.mkdir()
    file = service.logs / "f_cycle0.log"
    file.write_text("RESTART harmless")
    ending = threading.Event()
    swaps = [0]

    def attack() -> None:
        turn = 0
        while not ending.is_set():
            turn += 1
            for name, target in (("way/d", str(outside)), ("f_cycle0.log", str(outside / "a_cycle0.log"))):
                new = swap / f"n{turn}"
                if turn % 2:
                    new.symlink_to(target)
                elif name == "way/d":
                    new.symlink_to(inside)
                else:
                    new.write_text("RESTART harmless")
                os.replace(new, service.logs / name)
            swaps[0] += 1

    attacker = threading.Thread(target=attack)
    attacker.start()
    seen: set[str] = set()
    deadline = time.monotonic() + 4
    try:
        while time.monotonic() < deadline:
            for path in (f"{way}/d/a_cycle0.log", str(file)):
                shown = client.get(f"{service.url}/print", params={"log_path": path})
                seen.add("shown" if shown.status_code == 200 else shown.json()["error_code"])
                assert "s3cret" not in shown.text
                submit(client, service.url, path)
    finally:
        ending.set()
        attacker.join(PATIENCE)
    for told in client.get(f"{service.url}/jobs").json().get("7", []):
        judged = answer_of(client, service.url, told["log_path"])
        assert "s3cret" not in json.dumps(judged)
    assert swaps[0] > 100
    assert {"shown", "outside_root"} <= seen


def test_signals_of_a_terminal_end_it(served: Callable[..., Served]) -> None:
    """Ctrl-C is as good as SIGTERM."""
    service = served()
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(PATIENCE) == 0
    assert "told to end" in service.stderr.read_text()

"""What the API answers, in this process: real workers, real logs, a real state file."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from segment_health.attribution.service.app import PerMinute

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import House


def test_a_log_lives(house: House) -> None:
    """Unknown, announced, accepted, judged: each is told, and so is what the log's analysis found."""
    path = house.log("train_cycle3.log", "sleep 0.3")

    async def live() -> None:
        async with house.open() as client:
            unknown = await client.get(path)
            assert unknown.status_code == 404
            assert unknown.json() == {
                "error_code": "not_found",
                "message": "log_path has not been submitted",
                "details": None,
            }
            accepted = await client.post(path, "progressive", user="ann", job_id="7", colour="red")
            assert accepted.json() == {
                "submitted": True,
                "normalized_path": path,
                "mode": "single",
                "logs_dir": None,
                "sched_restarts": 0,
                "files_analyzed": 0,
            }
            pending = (await client.get(path)).json()
            assert (pending["status"], pending["recommendation"]["action"]) == ("pending", "UNKNOWN")
            await client.post(path)
            flight = (await client.get(path, wait=False)).json()
            assert (flight["status"], flight["recommendation"]["action"]) == ("in_flight", "UNKNOWN")
            assert (await client.http.get("/inflight")).json() == {"count": 1, "paths": [path]}
            judged = (await client.get(path)).json()
            assert judged["status"] == "completed"
            assert judged["wl_restart"] == 3
            assert judged["recommendation"] == {"action": "UNKNOWN", "reason": "sleep 0.3", "source": "tests"}
            assert judged["result"]["nodes"] == ["n1"]
            assert judged["result"]["evidence"] == [{"line": 1, "text": "sleep 0.3"}]
            jobs = (await client.http.get("/jobs")).json()
            assert jobs == {"7": [{"cycle_id": 3, "log_path": path, "status": "completed"}]}
            stats = (await client.http.get("/stats")).json()
            assert stats["attempts"] == {"pending": 0, "in_flight": 0, "completed": 1, "failed": 0}
            assert stats["actions"] == {"UNKNOWN": 1}
            health = (await client.http.get("/healthz")).json()
            assert health == {"status": "ok", "backend": "tests", "issues": []}

    asyncio.run(live())


@pytest.mark.parametrize("action", ["STOP", "RESTART"])
def test_an_action_is_told(house: House, action: str) -> None:
    """What the analyser recommends is what a client reads."""

    async def live() -> None:
        async with house.open() as client:
            told = await client.judge(house.log("a_cycle0.log", action))
            assert told["recommendation"]["action"] == action

    asyncio.run(live())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise", r"the analysis failed: ValueError: no\x1b[31m such thing"),
        ("crash", "the analysis failed: the process died that did it (by signal 6; out of memory?)"),
        ("hang", "the analysis failed: the analysis was ended: no answer within 1 s"),
    ],
)
def test_an_analysis_that_fails_ends_the_wait(house: House, text: str, why: str) -> None:
    """A client hears that there will be no verdict, and why; the next log is analysed as if nothing had been."""
    house.limits = house.limits._replace(analysis=1.0)

    async def live() -> None:
        async with house.open() as client:
            first = await client.judge(house.log("first_cycle0.log"))  # a worker is there, which takes time
            assert first["recommendation"]["action"] == "STOP"
            told = await client.judge(house.log("a_cycle0.log", text))
            assert (told["status"], told["recommendation"]["action"]) == ("completed", "UNKNOWN")
            assert told["recommendation"]["reason"] == why
            assert told["result"]["analysis_outcome"] == "failed"
            house.limits = house.limits._replace(analysis=20.0)
        async with house.open() as client:
            assert (await client.get(str(house.logs / "a_cycle0.log"))).json() == told
            after = await client.judge(house.log("b_cycle0.log", "print"))
            assert after["recommendation"]["reason"] == "print"

    asyncio.run(live())


def test_a_log_that_never_comes_fails(house: House) -> None:
    """A log may be announced before it is there; where it never is, its analysis says so."""

    async def live() -> None:
        async with house.open() as client:
            told = await client.judge(str(house.logs / "late_cycle0.log"))
            assert told["recommendation"]["reason"] == "the analysis failed: log_path does not exist"

    asyncio.run(live())


def test_a_terminal_submission_may_be_repeated(house: House) -> None:
    """What is in flight or judged is not analysed again, but a log that was written to since is."""
    path = house.log("a_cycle0.log", "STOP")

    async def live() -> None:
        async with house.open() as client:
            await asyncio.gather(*(client.post(path) for _ in range(20)))
            first = await client.judge(path)
            assert first["recommendation"]["action"] == "STOP"
            assert len([said for said in house.said if said.startswith("judged")]) == 1
            assert (await client.post(path, "progressive")).status_code == 200
            assert (await client.get(path, wait=False)).json() == first
            house.log("a_cycle0.log", "RESTART")
            assert (await client.judge(path))["recommendation"]["action"] == "RESTART"

    asyncio.run(live())


def test_earlier_cycles_are_told_to_the_analyser(house: House) -> None:
    """An analysis knows what was found in the earlier cycles of its own job, oldest first, after a restart too."""

    async def live() -> None:
        async with house.open() as client:
            for cycle in range(2):
                await client.judge(house.log(f"a_cycle{cycle}.log", f"found {cycle}"), job_id="7")
                await client.judge(house.log(f"b_cycle{cycle}.log", f"other {cycle}"), job_id="7")
        async with house.open() as client:
            told = await client.judge(house.log("a_cycle2.log", "earlier"), job_id="7")
            assert told["recommendation"]["reason"] == "found 0,found 1"
            told = await client.judge(house.log("a_cycle2.log", "earlier!"), job_id="8")
            assert told["recommendation"]["reason"] == "earlier!"

    asyncio.run(live())


def test_a_log_that_still_grows_is_waited_for(house: House) -> None:
    """What its writers had not written yet when the cycle failed is part of what is analysed."""
    path = house.log("a_cycle0.log", "")
    house.limits = house.limits._replace(patience=house.limits.patience._replace(unchanged=1.0, most=30.0))

    async def live() -> None:
        async with house.open() as client:
            assert (await client.post(path)).status_code == 200
            for part in ("RE", "START"):
                await asyncio.sleep(0.4)
                with open(path, "a") as log:  # noqa: ASYNC230 - local, and of a few bytes
                    log.write(part)
            assert (await client.get(path)).json()["recommendation"]["action"] == "RESTART"

    asyncio.run(live())


BAD = [
    ("relative.log", 400, "invalid_path"),
    ("", 400, "invalid_path"),
    (None, 400, "invalid_path"),
    (7, 400, "invalid_path"),
    ("{logs}/a\0b", 400, "invalid_path"),
    ("{logs}/" + "x" * 300, 400, "invalid_path"),
    ("{logs}/" + "x/" * 2050, 400, "invalid_path"),
    ("{logs}/\ud800", 400, "invalid_path"),
    ("/etc/passwd", 403, "outside_root"),
    ("{logs}/../state.db", 403, "outside_root"),
    ("{logs}/out", 403, "outside_root"),
    ("{logs}/loop", 403, "outside_root"),
    ("{logs}/hard", 403, "outside_root"),
    ("{logs}", 403, "outside_root"),
    ("{logs}/sub", 400, "not_regular"),
    ("{logs}/fifo", 400, "not_regular"),
    ("{logs}/socket", 400, "not_regular"),
    ("/proc/self/environ", 403, "outside_root"),
    ("/dev/null", 403, "outside_root"),
    ("{logs}/file.log/x", 400, "invalid_path"),
    ("{logs}/missing/x.log", 404, "not_found"),
]


@pytest.mark.parametrize(
    ("path", "status", "code"), BAD, ids=[str(row[0])[:30].encode("ascii", "replace").decode() for row in BAD]
)
def test_what_is_no_log_is_refused(house: House, tmp_path: Path, path: Any, status: int, code: str) -> None:
    """Whatever is named, only a regular file below the root is a log; who asks is told, by code and in words."""
    import socket  # noqa: PLC0415

    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    house.log("file.log")
    (house.logs / "out").symlink_to(secret)
    (house.logs / "loop").symlink_to(house.logs / "loop")
    (house.logs / "hard").hardlink_to(secret)
    (house.logs / "sub").mkdir()
    os.mkfifo(house.logs / "fifo")
    here = os.open(house.logs, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/socket")
    os.close(here)
    told = path.replace("{logs}", str(house.logs)) if isinstance(path, str) else path

    async def live() -> None:
        async with house.open() as client:
            for intent in ("terminal", "track_only"):
                refused = await client.post(told, intent)
                assert (refused.status_code, refused.json()["error_code"]) == (status, code), refused.text
                assert refused.json().keys() == {"error_code", "message", "details"}
            if isinstance(told, str) and "\ud800" not in told:
                for answer in (await client.get(told), await client.http.get("/print", params={"log_path": told})):
                    assert answer.status_code in {status, 404}, answer.text
                    assert "s3cret" not in answer.text

    asyncio.run(live())


def test_a_link_inside_the_root_is_followed(house: House, tmp_path: Path) -> None:
    """Clients name logs by the links that they know; what counts is where these lead to, at each submission."""
    path = house.log("a_cycle0.log")
    (tmp_path / "way").symlink_to(house.logs)

    async def live() -> None:
        async with house.open() as client:
            accepted = await client.post(f"{tmp_path}/way/a_cycle0.log")
            assert accepted.json()["normalized_path"] == path
            by_link = (await client.get(f"{tmp_path}/way/a_cycle0.log")).json()
            assert by_link == (await client.get(path)).json()
            assert by_link["recommendation"]["action"] == "STOP"

    asyncio.run(live())


def test_a_path_may_be_any_bytes(house: House) -> None:
    """A name that is no UTF-8 is one all the same: in a submission, in a question, and after a restart."""
    name = os.fsencode(house.logs) + b"/\xff_cycle0.log"
    with open(name, "wb") as log:
        log.write(b"STOP \xff")
    query = f"/logs?log_path={quote(name)}"

    async def live() -> None:
        async with house.open() as client:
            accepted = await client.post(os.fsdecode(name))
            assert accepted.status_code == 200
            told = (await client.http.get(query)).json()
            assert told["recommendation"]["action"] == "STOP"
        async with house.open() as client:
            assert (await client.http.get(query)).json() == told

    asyncio.run(live())


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_parameter"),
        (b"[]", 400, "invalid_parameter"),
        (b"[" * 60000, 400, "invalid_parameter"),
        (b"\xff", 400, "invalid_parameter"),
        (b"{}", 400, "invalid_path"),
        (b'{"log_path": "/x", "cycle_id": true}', 400, "invalid_parameter"),
        (b'{"log_path": "/x", "cycle_id": "1"}', 400, "invalid_parameter"),
        (b'{"log_path": "/x", "cycle_id": -1}', 400, "invalid_parameter"),
        (b'{"log_path": "/x", "analysis_intent": "now"}', 400, "invalid_parameter"),
        (b'{"log_path": "/x", "analysis_intent": 1}', 400, "invalid_parameter"),
        (b'{"log_path": "/x", "user": "a\\u001bb"}', 400, "invalid_parameter"),
        (b'{"log_path": "/x", "job_id": {}}', 400, "invalid_parameter"),
        (b" " * 70000, 413, "too_large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_submission_is_refused(house: House, body: bytes, status: int, code: str) -> None:
    """A body that cannot be meant is an error of the client."""

    async def live() -> None:
        async with house.open() as client:
            refused = await client.http.post("/logs", content=body)
            assert (refused.status_code, refused.json()["error_code"]) == (status, code)

    asyncio.run(live())


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "invalid_path"),
        ("log_path=/x&wait=maybe", 400, "invalid_parameter"),
        ("log_path=/x&file=y", 400, "invalid_parameter"),
        ("log_path=/x&wl_restart=0", 400, "invalid_parameter"),
        ("&".join(["a=b"] * 50), 400, "invalid_parameter"),
        ("log_path=/" + "x" * 20000, 400, "invalid_parameter"),
    ],
    ids=["no path", "wait", "file", "wl_restart", "fields", "long"],
)
def test_what_is_no_question_is_refused(house: House, query: str, status: int, code: str) -> None:
    """A query that cannot be meant is an error of the client."""

    async def live() -> None:
        async with house.open() as client:
            refused = await client.http.get(f"/logs?{query}")
            assert (refused.status_code, refused.json()["error_code"]) == (status, code)

    asyncio.run(live())


def test_two_jobs_do_not_share_a_log(house: House) -> None:
    """A log of one job cannot be announced for another one while it may matter to the first."""
    path = house.log("a_cycle0.log", "sleep 0.5")

    async def live() -> None:
        async with house.open() as client:
            await client.post(path, "progressive", job_id="7")
            for more in ({"job_id": "8"}, {"job_id": "7", "cycle_id": 5}):
                for intent in ("progressive", "terminal"):
                    refused = await client.post(path, intent, **more)
                    assert (refused.status_code, refused.json()["error_code"]) == (400, "invalid_parameter")
            await client.post(path, "terminal", job_id="7")
            assert (await client.post(path, "terminal", job_id="8")).status_code == 400
            await client.get(path)
            assert (await client.post(path, "terminal", job_id="8")).status_code == 200
            assert list((await client.http.get("/jobs")).json()) == ["8"]

    asyncio.run(live())


def test_a_log_begins_so(house: House) -> None:
    """A preview is the first 4 KB, whatever stands there."""
    path = house.log("a.log", "x" * 5000)
    with open(house.logs / "b.log", "wb") as log:
        log.write(b"\xff<script>")

    async def live() -> None:
        async with house.open() as client:
            shown = await client.http.get("/print", params={"log_path": path})
            assert shown.text == "x" * 4096
            assert shown.headers["content-type"] == "text/plain; charset=utf-8"
            other = await client.http.get("/print", params={"log_path": str(house.logs / "b.log")})
            assert other.text == "\ufffd<script>"
            assert other.headers["x-content-type-options"] == "nosniff"

    asyncio.run(live())


def test_who_asks_too_often_is_told_when(house: House) -> None:
    """Beyond the rate there is no answer but 429, and after how many seconds there will be one."""
    house.per_minute = PerMinute(1, 2, 1)
    path = house.log("a_cycle0.log")

    async def live() -> None:
        async with house.open() as client:
            assert (await client.post(path)).status_code == 200
            assert (await client.http.get("/print", params={"log_path": path})).status_code == 200
            for _ in range(2):
                assert (await client.get(path)).status_code == 200
            for refused in (
                await client.post(path),
                await client.get(path),
                await client.http.get("/print", params={"log_path": path}),
            ):
                assert refused.status_code == 429
                assert refused.json()["error_code"] == "rate_limited"
                assert 0 < int(refused.headers["retry-after"]) <= 60
            assert (await client.http.get("/healthz")).status_code == 200

    asyncio.run(live())


def test_no_more_than_so_many_wait(house: House) -> None:
    """When too many logs wait to be judged another one is refused, and may come later."""
    house.limits = house.limits._replace(queued=2)

    async def live() -> None:
        async with house.open() as client:
            for name in ("a", "b"):
                assert (await client.post(house.log(f"{name}_cycle0.log", "sleep 1"))).status_code == 200
            refused = await client.post(house.log("c_cycle0.log"))
            assert (refused.status_code, refused.json()["error_code"]) == (503, "job_limit_reached")
            assert (await client.post(house.log("c_cycle0.log"), "progressive")).status_code == 200
            health = (await client.http.get("/healthz")).json()
            assert health["status"] == "degraded"
            await client.get(str(house.logs / "a_cycle0.log"))
            await client.get(str(house.logs / "b_cycle0.log"))
            assert (await client.judge(house.log("c_cycle0.log")))["recommendation"]["action"] == "STOP"

    asyncio.run(live())


def test_nobody_else_is_let_in_by_a_browser(house: House) -> None:
    """A page from elsewhere can neither announce a log nor read one, whatever its name resolves to."""
    house.hosts = frozenset({"localhost", "127.0.0.1", "[::1]"})
    path = house.log("a_cycle0.log")

    async def live() -> None:
        async with house.open() as client:
            body = {"log_path": path}
            for headers in (
                {"Host": "evil.example:8000"},
                {"Origin": "https://evil.example"},
                {"Host": ""},
                {"Sec-Fetch-Site": "cross-site"},
            ):
                refused = await client.http.post("/logs", json=body, headers=headers)
                assert refused.status_code == 400
            for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]", "[::1]:80"):
                assert (await client.http.post("/logs", json=body, headers={"Host": host})).status_code == 200
            for method, url in (("GET", "/"), ("PUT", "/logs"), ("GET", "/logs/"), ("DELETE", "/healthz")):
                assert (await client.http.request(method, url)).json()["error_code"] == "not_found"

    asyncio.run(live())

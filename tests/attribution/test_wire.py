"""What is sent, and how answers are read."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.attribution import wire
from segment_health.attribution.metadata import JobMetadata
from segment_health.attribution.wire import Intent, Verdict

STOP = {"action": "STOP", "reason": "no such module", "source": "deterministic"}


@pytest.mark.parametrize(
    ("job", "cycle", "more"),
    [
        pytest.param(JobMetadata("ann", "7"), None, {"user": "ann", "job_id": "7"}, id="both"),
        pytest.param(JobMetadata(), None, {}, id="neither"),
        pytest.param(JobMetadata(None, "7"), 0, {"job_id": "7", "cycle_id": 0}, id="cycle-0"),
    ],
)
def test_a_submission_leaves_out_what_is_not_known(
    job: JobMetadata, cycle: int | None, more: dict[str, object]
) -> None:
    """The body has the path and the intent, and of the rest what there is."""
    told = json.loads(wire.submission("/l/a_cycle0.log", Intent.TERMINAL, job, cycle))
    assert told == {"log_path": "/l/a_cycle0.log", "analysis_intent": "terminal", **more}


@given(st.binary(min_size=1, max_size=40))
def test_a_path_is_sent_byte_by_byte(name: bytes) -> None:
    """Whatever stands in a name is quoted: spaces, ampersands, and bytes that are no UTF-8."""
    path = "/" + name.decode("utf-8", "surrogateescape")
    query = wire.question(path)
    sent, wait = query.split("&")
    assert unquote_to_bytes(sent.removeprefix("log_path=").replace("+", " ")) == b"/" + name
    assert wait == "wait=false"
    assert wire.submission(path, Intent.PROGRESSIVE, JobMetadata()).isascii()


@pytest.mark.parametrize(
    ("status", "answer", "verdict", "word"),
    [
        pytest.param(200, {"status": "completed", "recommendation": STOP}, Verdict.STOP, "STOP", id="stop"),
        pytest.param(200, {"status": "Completed", "recommendation": STOP}, Verdict.STOP, "STOP", id="any-case"),
        pytest.param(
            200,
            {"status": "completed", "recommendation": {"action": "RecommendedAction.stop "}},
            Verdict.STOP,
            "STOP",
            id="with-its-type",
        ),
        pytest.param(200, {"recommendation": STOP}, Verdict.STOP, "STOP", id="no-status-is-completed"),
        pytest.param(200, {"status": None, "recommendation": STOP}, Verdict.STOP, "STOP", id="null-status"),
        *(
            pytest.param(
                200, {"status": "completed", "recommendation": {"action": word}}, Verdict.CONTINUE, word, id=word
            )
            for word in ("RESTART", "CONTINUE", "UNKNOWN", "TIMEOUT", "SOMETHING NEW", "DO NOT STOP")
        ),
        pytest.param(200, {"status": "completed"}, Verdict.CONTINUE, "UNKNOWN", id="no-recommendation"),
        pytest.param(
            200,
            {"status": "completed", "recommendation": "STOP"},
            Verdict.CONTINUE,
            "UNKNOWN",
            id="none-that-is-one",
        ),
        pytest.param(
            200, {"status": "completed", "recommendation": {"action": 1}}, Verdict.CONTINUE, "UNKNOWN", id="number"
        ),
        pytest.param(
            200,
            {"status": "completed", "recommendation": {"action": "RESTART"}, "candidate_recommendation": STOP},
            Verdict.CONTINUE,
            "RESTART",
            id="a-candidate-is-none",
        ),
        pytest.param(200, "", Verdict.CONTINUE, "UNKNOWN", id="empty-answer"),
        pytest.param(200, {}, Verdict.CONTINUE, "UNKNOWN", id="empty-object"),
        pytest.param(200, {"status": "pending"}, Verdict.UNDECIDED, "pending", id="pending"),
        pytest.param(
            200, {"status": "in_flight", "recommendation": STOP}, Verdict.UNDECIDED, "in_flight", id="too-early"
        ),
        pytest.param(200, {"status": "queued"}, Verdict.UNDECIDED, "queued", id="a-status-of-tomorrow"),
        pytest.param(429, {"detail": "slow down"}, Verdict.UNDECIDED, "HTTP 429", id="too-many-questions"),
        pytest.param(503, "", Verdict.UNDECIDED, "HTTP 503", id="starting"),
        pytest.param(200, {"status": "FAILED", "recommendation": STOP}, Verdict.FAILED, "failed", id="failed"),
        pytest.param(404, {"message": "not submitted"}, Verdict.MISSING, "HTTP 404", id="not-known"),
        pytest.param(403, {"message": "outside"}, Verdict.MISSING, "HTTP 403", id="not-allowed"),
        pytest.param(500, "oh", Verdict.MISSING, "HTTP 500", id="broken"),
        pytest.param(302, "", Verdict.MISSING, "HTTP 302", id="sent-on"),
        pytest.param(204, "", Verdict.MISSING, "HTTP 204", id="no-content"),
        pytest.param(200, "<html>", Verdict.MISSING, "HTTP 200", id="no-json"),
        pytest.param(200, "[]", Verdict.MISSING, "HTTP 200", id="no-object"),
        pytest.param(200, "[" * 100_000, Verdict.MISSING, "HTTP 200", id="too-deep"),
    ],
)
def test_an_answer_is_read(status: int, answer: object, verdict: Verdict, word: str) -> None:
    """STOP is a done analysis's own word; whatever is not done or not told is no verdict."""
    body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
    found = wire.read(status, body)
    assert (found.verdict, found.word) == (verdict, word)


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_junk_is_a_stop(status: int, body: bytes) -> None:
    """Whatever arrives is read, and of what a service did not mean nothing ends a job."""
    assert wire.read(status, body).verdict is not Verdict.STOP
    assert (wire.refusal(status, body) is None) == (200 <= status < 300)


def test_what_a_service_says_is_shown_in_one_short_line() -> None:
    """Its reason may come from a language model that has read a hostile log."""
    told = {"action": "stop", "reason": "line 1\nERROR forged\x1b[2J" + "x" * 10_000, "source": "llm\n"}
    shown = str(wire.read(200, json.dumps({"recommendation": told}).encode()))
    assert shown.startswith(r"STOP: line 1\nERROR forged\x1b[2Jxxx")
    assert shown.endswith(r"... (source: llm\n)")
    assert shown.isprintable()
    assert len(shown) < 1000


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (200, "{}", None),
        (202, "", None),
        (500, '{"error_code": "x", "message": "no room\\n"}', r"HTTP 500: no room\n"),
        (422, '{"detail": [{"msg": "x"}]}', "HTTP 422"),
        (404, "<html>", "HTTP 404"),
        (307, "", "HTTP 307"),
    ],
)
def test_a_refusal_is_told(status: int, answer: str, why: str | None) -> None:
    """Any 2xx is an acceptance."""
    assert wire.refusal(status, answer.encode()) == why


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://h:8000", "http://h:8000"),
        ("https://h/attribution/", "https://h/attribution"),
        ("HTTP://[::1]:1", "HTTP://[::1]:1"),
        ("grpc://h:1", None),
        ("unix:///run/a.sock", None),
        ("localhost", None),
        ("", None),
    ],
)
def test_an_endpoint_of_http_is_a_url(endpoint: str, url: str | None) -> None:
    """Other schemes are none of ours."""
    assert wire.base_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint", ["http://", "http://h:x", "http://h:0", "http://h:99999", "http://h?a=b", "http://h#a"]
)
def test_a_url_that_cannot_be_meant_is_refused(endpoint: str) -> None:
    """It is a mistake of whoever started the job, and told when that starts."""
    with pytest.raises(ValueError, match=r"^http://"):
        wire.base_url(endpoint)


@pytest.mark.parametrize("endpoint", ["http://ann:s3/cret@h:1", "http://ann:s3\u2100cret@h:1", "http://[s3cret@h"])
def test_a_password_that_is_not_quoted_is_not_told(endpoint: str) -> None:
    """In a URL `/` and some others have to be quoted; whoever forgot that reads no more than that it is wrong."""
    with pytest.raises(ValueError, match="not a URL") as raised:
        wire.base_url(endpoint)
    assert "s3" not in str(raised.value)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("https://ann:s3cret@h:1/x", "https://...@h:1/x"),
        ("https://ann:s3@cret@h", "https://...@h"),
        ("grpc://tok@h:1", "grpc://...@h:1"),
        ("https://ann:s3/cr?et#@h:1/x", "https://...@h:1/x"),
        ("ann:s3cret@h:1", "...@h:1"),
        ("unix:///run/a@b", "unix:///run/a@b"),
        ("http://h\n", r"http://h\n"),
    ],
)
def test_no_password_is_shown(endpoint: str, shown: str) -> None:
    """An endpoint may hold one, and a log is read by many."""
    assert wire.shown(endpoint) == shown


def test_a_question_of_two_words() -> None:
    """Nobody waits for an analysis in a GET."""
    assert parse_qs(wire.question("/l/a b&wait=true")) == {"log_path": ["/l/a b&wait=true"], "wait": ["false"]}

"""What an attribution service is sent, and what its answers mean. Pure.

The requests are those of NVRx 0.7.0: `POST /logs` announces a log, `GET /logs` asks what was found in it.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from segment_health.record import brief

if TYPE_CHECKING:
    from .metadata import JobMetadata

ROUTE = "/logs"
MAX_ANSWER = 4 << 20
"""Bytes of an answer; what was found in a log comes along with the recommendation."""
_SHOWN = 500
"""Characters of a service's own words that are shown."""
_OK = 200
_TRY_AGAIN = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses that say nothing of the log: the service, or what stands before it, is busy or starting."""


class Intent(str, Enum):
    """What a log is announced for."""

    PROGRESSIVE = "progressive"
    """Its cycle began: it grows, and may be read along."""
    TERMINAL = "terminal"
    """Its cycle failed: it is to be judged."""


class Verdict(Enum):
    """What an answer means for the one who waits for it."""

    STOP = "stop"
    """Restarting is of no use."""
    CONTINUE = "continue"
    """Whatever else was decided: restart, continue, unknown, timed out."""
    UNDECIDED = "undecided"
    """The service is still at it, or asks for patience."""
    FAILED = "failed"
    """The analysis ended without a result, and there will be none."""
    MISSING = "missing"
    """No state of this log was told: it is not known there, or not shown, or the answer cannot be read."""


class Recommendation(NamedTuple):
    """An answer: its verdict, the service's own word for it, and why and by whom it was said, if that was told."""

    verdict: Verdict
    word: str
    reason: str = ""
    source: str = ""

    def __str__(self) -> str:
        said = brief(self.word, _SHOWN)
        if self.reason:
            said += f": {brief(self.reason, _SHOWN)}"
        return f"{said} (source: {brief(self.source, _SHOWN)})" if self.source else said


def shown(endpoint: str) -> str:
    """Show an endpoint in a line, without the password that may stand in it, quoted as a URL wants it or not."""
    scheme, separator, rest = endpoint.partition("://")
    if not separator:
        scheme, rest = "", endpoint
    secret, _, host = rest.rpartition("@")
    if secret and not rest.startswith("/"):  # the path of a socket holds none
        endpoint = f"{scheme}{separator}...@{host}"
    return brief(endpoint, _SHOWN)


def base_url(endpoint: str) -> str | None:
    """Return the URL below which an endpoint is asked; None where it is none of HTTP. ValueError, a sentence."""
    if not endpoint.lower().startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:  # which may quote a password
        raise ValueError(f"{shown(endpoint)}: not a URL: its host or port is none") from None
    if not parts.hostname or port == 0:
        raise ValueError(f"{shown(endpoint)}: not a URL: it names no host, or port 0")
    if " " in endpoint or not endpoint.isprintable():
        raise ValueError(f"{shown(endpoint)}: not a URL: it has blanks")
    if parts.query or parts.fragment:
        raise ValueError(f"{shown(endpoint)}: a service's URL has neither ? nor #")
    return endpoint.rstrip("/")


def submission(log_path: str, intent: Intent, job: JobMetadata, cycle: int | None = None) -> bytes:
    """Write the body of `POST /logs`: JSON, in ASCII. What is not known is left out.

    `cycle` is the number of the cycle; the service finds it in names that end in `_cycle<N>.log`.
    """
    told = {"log_path": log_path, "user": job.user, "job_id": job.job_id, "cycle_id": cycle}
    body = {key: value for key, value in told.items() if value is not None}
    return json.dumps(body | {"analysis_intent": intent.value}).encode("ascii")


def question(log_path: str) -> str:
    """Write the query of `GET /logs`; nobody waits for the analysis there. A path's bytes are sent as they are."""
    return urlencode({"log_path": log_path, "wait": "false"}, errors="surrogateescape")


def read(status: int, body: bytes) -> Recommendation:
    """Tell what an answer to `GET /logs` means.

    As NVRx reads it, an answer without a `status` is of an analysis that is done, and a done one without an action
    that is known is no reason to stop. `candidate_recommendation` is not looked at.
    """
    if status in _TRY_AGAIN:
        return Recommendation(Verdict.UNDECIDED, f"HTTP {status}")
    if status != _OK:
        return Recommendation(Verdict.MISSING, f"HTTP {status}", _message(body))
    is_too_long = len(body) > MAX_ANSWER
    found = None if is_too_long else _object(body) if body.strip() else {}
    if found is None:
        why = f"the answer has more than {MAX_ANSWER} bytes" if is_too_long else "the answer is no JSON object"
        return Recommendation(Verdict.MISSING, "HTTP 200", why)
    state = (_text(found.get("status")) or "completed").strip().lower()
    if state == "failed":
        return Recommendation(Verdict.FAILED, state, _message(body))
    if state != "completed":
        return Recommendation(Verdict.UNDECIDED, state)
    told = found.get("recommendation")
    told = told if isinstance(told, dict) else {}
    word = _action(told.get("action"))
    verdict = Verdict.STOP if word == "STOP" else Verdict.CONTINUE
    return Recommendation(verdict, word, _text(told.get("reason")), _text(told.get("source")))


def refusal(status: int, body: bytes) -> str | None:
    """Tell why a log was not accepted, after a `POST /logs`; None where it was."""
    if _OK <= status < _OK + 100:
        return None
    message = _message(body)
    return f"HTTP {status}" + (f": {brief(message, _SHOWN)}" if message else "")


def _action(value: object) -> str:
    """Take the word for what to do: of `Action.stop` it is STOP, and UNKNOWN where there is none."""
    return _text(value).rpartition(".")[2].strip().upper() or "UNKNOWN"


def _message(body: bytes) -> str:
    """Take the service's words from an answer that is none; empty where there are none."""
    found = _object(body) or {}
    return next(filter(None, (_text(found.get(key)) for key in ("message", "error", "detail"))), "")


def _object(body: bytes) -> dict[str, Any] | None:
    """Read a JSON object; None where it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

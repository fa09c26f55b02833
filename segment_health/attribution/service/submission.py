"""What clients send, as values: `POST /logs`'s body and `GET /logs`'s query. Pure.

The forms are those of NVRx 0.7.0. What is optional and not known to us is passed over.
"""

from __future__ import annotations

import json
import posixpath
import re
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from .refusal import INVALID_PARAMETER, INVALID_PATH, Refusal

MAX_BODY = 64 << 10
"""Bytes of a submission: a path has 4096 at the most, each of which JSON may write as six."""
MAX_QUERY = 16 << 10
"""Bytes of a query, in which each byte of a path may be written as three."""
_MAX_PATH = 4096
_MAX_WORD = 256
"""Characters of a user's name and of a job's id."""
_MAX_CYCLE = 1 << 31
_MAX_FIELDS = 16
_CYCLE = re.compile(r"_cycle([0-9]{1,9})(?=\.log\Z)", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


class Intent(str, Enum):
    """What a log is announced for."""

    TRACK_ONLY = "track_only"
    PROGRESSIVE = "progressive"
    TERMINAL = "terminal"


class Submission(NamedTuple):
    """A log that was announced. `job_id` is empty where none was told, `cycle` None; `user` may be "unknown"."""

    log_path: str
    user: str = "unknown"
    job_id: str = ""
    cycle: int | None = None
    intent: Intent = Intent.TRACK_ONLY


class Question(NamedTuple):
    """What is asked of a log; whether the answer may wait for the analysis."""

    log_path: str
    wait: bool = True


def submission_of(body: bytes) -> Submission:
    """Read a submission. Raises Refusal."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(INVALID_PARAMETER, "the body is not JSON") from None
    if not isinstance(told, dict):
        raise Refusal(INVALID_PARAMETER, "the body is not a JSON object")
    return Submission(
        path_of(told.get("log_path")),
        _word(told, "user") or "unknown",
        _word(told, "job_id"),
        _cycle(told.get("cycle_id")),
        _intent(told.get("analysis_intent")),
    )


def question_of(query: bytes) -> Question:
    """Read a question about a log. Raises Refusal.

    Of one log with several restarts in it, which `file` and `wl_restart` choose from, we know as little as NVRx's
    own backend of today.
    """
    told = fields_of(query)
    if "file" in told or "wl_restart" in told:
        raise Refusal(INVALID_PARAMETER, "file and wl_restart are not supported: a log is that of one cycle")
    wait = told.get("wait", "true").strip().lower()
    if wait not in _TRUE | _FALSE:
        raise Refusal(INVALID_PARAMETER, "wait: neither true nor false")
    return Question(path_of(told.get("log_path")), wait in _TRUE)


def fields_of(query: bytes) -> dict[str, str]:
    """Read a query; of a field that comes twice the last one counts. Raises Refusal.

    A path's bytes may be any: those that are not UTF-8 become what os.fsdecode makes of them.
    """
    if len(query) > MAX_QUERY:
        raise Refusal(INVALID_PARAMETER, f"the query has more than {MAX_QUERY} bytes")
    try:
        text = query.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Refusal(INVALID_PARAMETER, "the query cannot be read") from None
    return dict(pairs)


def path_of(told: object) -> str:
    """Return a path that could be one. Raises Refusal."""
    if not isinstance(told, str) or not told:
        raise Refusal(INVALID_PATH, "log_path is missing, or not a text")
    try:
        length = len(told.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise Refusal(INVALID_PATH, "log_path holds what no path holds") from None
    if "\0" in told:
        raise Refusal(INVALID_PATH, "log_path holds a NUL")
    if not told.startswith("/"):
        raise Refusal(INVALID_PATH, "log_path is not absolute")
    if length > _MAX_PATH:
        raise Refusal(INVALID_PATH, f"log_path has more than {_MAX_PATH} bytes")
    return told


def cycle_of(path: str) -> int | None:
    """Return a cycle's number by the name of its log, `<prefix>_cycle<N>.log`; None where that has none."""
    match = _CYCLE.search(path)
    return int(match[1]) if match else None


def series_of(path: str) -> str:
    """Return what the logs of all cycles of one training have in common."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, _CYCLE.sub("", name))


def _word(told: dict[str, Any], field: str) -> str:
    """Return a name. NVRx's clients send texts; a number is understood too."""
    value = told.get(field)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        value = str(value)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _MAX_WORD or not value.isprintable():
        raise Refusal(INVALID_PARAMETER, f"{field}: not a text of at most {_MAX_WORD} printable characters")
    return value.strip()


def _cycle(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_CYCLE:
        raise Refusal(INVALID_PARAMETER, "cycle_id: not a number of a cycle")
    return value


def _intent(value: object) -> Intent:
    if value is None:
        return Intent.TRACK_ONLY
    try:
        return Intent(value.strip().lower() if isinstance(value, str) else value)
    except ValueError:
        known = ", ".join(intent.value for intent in Intent)
        raise Refusal(INVALID_PARAMETER, f"analysis_intent: not one of {known}") from None

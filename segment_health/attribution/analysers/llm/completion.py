"""OpenAI's chat completions, as many servers speak them: what is sent, and what came back. Pure.

Not all servers take all that there is. A request has three forms, and where one is refused the next is tried: with
a schema for the answer; the same as OpenAI's models that reason want it, which know no `max_tokens` and no
temperature; and without a schema, for servers that know none.
"""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUTE = "/chat/completions"
FORMS = 3
_MAX_WAIT = 86_400
"""Seconds; who asks for a longer pause means never."""


class Prompt(NamedTuple):
    """What a model is told: by us, and of the log."""

    system: str
    user: str


class NoContentError(Exception):
    """Why an answer has nothing to read; a sentence, with the server's own words if it said any."""


def request(
    form: int, model: str, prompt: Prompt, schema: Mapping[str, object], answer_tokens: int
) -> dict[str, Any]:
    """Write the body of a request, in one of the FORMS, from 0."""
    wanted = {"type": "json_schema", "json_schema": {"name": "finding", "strict": True, "schema": dict(schema)}}
    usual: dict[str, Any] = {"max_tokens": answer_tokens, "temperature": 0}
    more: dict[str, Any] = (
        {**usual, "response_format": wanted},
        {"max_completion_tokens": answer_tokens, "response_format": wanted},
        usual,
    )[form]
    messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
    return {"model": model, "messages": messages, **more}


def content(body: bytes) -> str:
    """Take what the model wrote from an answer of status 200. Raises NoContentError."""
    told = _object(body)
    if told is None:
        raise NoContentError("the answer is no JSON object")
    choices = told.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise NoContentError(_with("the answer has no message of a model", message_of(body)))
    refusal, text = message.get("refusal"), message.get("content")
    if isinstance(refusal, str) and refusal.strip():
        raise NoContentError(_with("the model refused", refusal))
    if choice.get("finish_reason") == "content_filter":
        raise NoContentError("the model's answer was held back by a filter")
    if choice.get("finish_reason") == "length":
        raise NoContentError("the model's answer was cut off at its limit")
    if not isinstance(text, str) or not text.strip():
        raise NoContentError("the model answered nothing")
    return text


def message_of(body: bytes) -> str:
    """Take a server's words from an answer that is an error; empty where there are none."""
    told = _object(body) or {}
    error = told.get("error")
    inner = error if isinstance(error, dict) else {}
    words = (inner.get("message"), error, told.get("message"), told.get("detail"))
    return next((word for word in words if isinstance(word, str) and word), "")


def wait_seconds(retry_after: str, now: float) -> float | None:
    """Read the header Retry-After, seconds or a date, at `now`; None where it says nothing that can be read."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), _MAX_WAIT))
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, OSError):
        return None
    return min(max(seconds, 0.0), float(_MAX_WAIT))


def _with(what: str, words: str) -> str:
    return f"{what}: {words}" if words else what


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None

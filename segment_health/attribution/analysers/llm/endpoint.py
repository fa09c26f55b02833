"""Asks an endpoint that speaks OpenAI's chat completions: again where it is busy, and never beyond a deadline."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from segment_health.attribution import wire
from segment_health.attribution.http import Answer, Http, NoAnswerError, Question, TooLongError
from segment_health.record import brief

from . import completion
from .key import Key, KeyFileError, open_to_others, read_key

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ANSWER = 1 << 20
"""Bytes of an answer."""
_MAX_CONTENT = 1 << 16
"""Characters that a model writes."""
_TRIES = 4
_FIRST_WAIT = 1.0
"""Seconds from the first try to the second, where nothing else is asked for; twice as many to the third."""
_AT_A_TIME = 8
_READ, _SHOWN = 4000, 300
"""Characters of a server's own words that are looked at, and that are shown."""
_OK = 200
_REFUSED_AS_WRITTEN = frozenset({400, 422})
"""HTTP statuses by which servers say that they do not know something in a request."""
_TRY_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Model(NamedTuple):
    """A model: the URL below which its API is, its name there, and the file of the key, if one is needed."""

    base_url: str
    name: str
    key_file: str | None = None


class Told(NamedTuple):
    """What a model wrote, and the key, which must be in nothing that is made of that."""

    content: str
    key: Key


class Endpoint:
    """Asks a model. Use it from as many threads as you like.

    ValueError where its URL is none of HTTP, or has a user or a password in it.
    """

    def __init__(self, model: Model, environ: Mapping[str, str]) -> None:
        self._name = wire.shown(model.base_url)
        url = wire.base_url(model.base_url)
        if url is None:
            raise ValueError(f"{self._name}: not a URL of HTTP")
        if "@" in url:
            raise ValueError(f"{self._name}: a user or a password has no place in it; a key is in a file")
        self._url = f"{url}{completion.ROUTE}"
        self._model = model
        self._http = Http(self._url, self._name, most=MAX_ANSWER, at_a_time=_AT_A_TIME, environ=environ)
        self._closed = threading.Event()
        self._form = 0  # in which it took a request; two threads that find out set the same

    def complete(
        self, prompt: completion.Prompt, schema: Mapping[str, object], answer_tokens: int, seconds: float
    ) -> Told:
        """Return what the model writes, within these seconds. Raises NoAnswerError, a sentence without the key."""
        deadline = time.monotonic() + seconds
        form, tries = self._form, 0
        while True:
            body = completion.request(form, self._model.name, prompt, schema, answer_tokens)
            pause: float | None = None
            try:
                key, answer = self._ask(body, deadline)
            except (KeyFileError, TooLongError):
                raise
            except NoAnswerError as error:
                why = str(error)
            else:
                if answer.status == _OK:
                    self._form = form
                    return _told(answer, key, self._name)
                why = self._refusal(answer, key)
                if answer.status in _REFUSED_AS_WRITTEN and form + 1 < completion.FORMS:
                    form += 1
                    continue
                if answer.status not in _TRY_AGAIN:
                    raise NoAnswerError(why)
                pause = completion.wait_seconds(answer.retry_after, time.time())
            tries += 1
            pause = _FIRST_WAIT * 2 ** (tries - 1) if pause is None else pause
            if tries == _TRIES or time.monotonic() + pause >= deadline:
                raise NoAnswerError(f"{why} (asked {tries} times within {seconds:g} s)" if tries > 1 else why)
            if self._closed.wait(pause):
                raise NoAnswerError(f"{self._name} was not asked: the service ends")

    def warnings(self) -> list[str]:
        """Say who else may read the key, on disk and on its way. Raises KeyFileError where it cannot be read."""
        if self._model.key_file is None:
            return []
        read_key(self._model.key_file)
        told = []
        others = open_to_others(self._model.key_file)
        if others is not None:
            told.append(others)
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        if parts.scheme.lower() != "https" and host not in {"localhost", "::1"} and not host.startswith("127."):
            told.append(f"{self._name}: the API key is sent there without encryption; https keeps it")
        return told

    def close(self) -> None:
        """End all waiting, and ask no more."""
        self._closed.set()
        self._http.close()

    def _ask(self, body: dict[str, Any], deadline: float) -> tuple[Key, Answer]:
        keys = [Key()]

        def question() -> Question:
            headers = [("Content-Type", "application/json")]
            if self._model.key_file is not None:
                keys.append(read_key(self._model.key_file))  # now, so that a new one counts at once
                headers.append(("Authorization", f"Bearer {keys[-1].text}"))
            return Question("POST", self._url, json.dumps(body).encode("ascii"), tuple(headers))

        left = max(0.1, deadline - time.monotonic())
        try:
            answer = self._http.ask(question, left)
        except (KeyFileError, TooLongError):
            raise
        except NoAnswerError as error:
            raise NoAnswerError(keys[-1].hide(str(error))) from None
        return keys[-1], answer

    def _refusal(self, answer: Answer, key: Key) -> str:
        words = key.hide(completion.message_of(answer.body)[:_READ])
        told = f"{self._name}: HTTP {answer.status}" + (f": {brief(words, _SHOWN)}" if words else "")
        if answer.status in (401, 403):
            whose = "the key in the file that was named" if self._model.key_file is not None else "no key"
            told += f" (it was sent {whose})"
        return told


def _told(answer: Answer, key: Key, name: str) -> Told:
    try:
        content = completion.content(answer.body)
    except completion.NoContentError as error:
        raise NoAnswerError(f"{name}: {brief(key.hide(str(error)[:_READ]), _SHOWN)}") from None
    if len(content) > _MAX_CONTENT:
        raise NoAnswerError(f"{name}: the model wrote more than {_MAX_CONTENT} characters")
    return Told(content, key)

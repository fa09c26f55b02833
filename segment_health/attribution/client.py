"""Asks an attribution service: announces logs to it, and asks what came of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import wire
from .http import Http, NoAnswerError, Question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .metadata import JobMetadata

TIMEOUT = 2.0
"""Seconds from a question to its whole answer, as NVRx has them."""


class ServiceError(Exception):
    """A question was not answered, or a log not accepted. The message says who was asked, and why not."""


class Client:
    """Asks the service at `endpoint`, a URL, of logs of one job. `seconds` bound each question.

    One at a time: none is asked while one that was late has not ended. ValueError where the endpoint is no URL of
    HTTP, or the authorities for its certificate cannot be read (see http.py).
    """

    def __init__(
        self,
        endpoint: str,
        job: JobMetadata,
        *,
        seconds: float = TIMEOUT,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        url = wire.base_url(endpoint)
        if url is None:
            raise ValueError(f"{wire.shown(endpoint)}: not a URL of HTTP")
        self._name = wire.shown(endpoint)
        self._url = f"{url}{wire.ROUTE}"
        self._job = job
        self._seconds = seconds
        self._http = Http(self._url, self._name, most=wire.MAX_ANSWER, environ=environ)

    def submit(self, log_path: str, intent: wire.Intent, cycle: int | None = None) -> None:
        """Announce a log. Raises ServiceError unless the service has accepted it."""

        def question() -> Question:
            body = wire.submission(log_path, intent, self._job, cycle)
            return Question("POST", self._url, body, (("Content-Type", "application/json"),))

        refused = wire.refusal(*self._answer(question))
        if refused is not None:
            raise ServiceError(f"{self._name} refused it ({refused})")

    def ask(self, log_path: str) -> wire.Recommendation:
        """Ask what came of a log's analysis. Raises ServiceError where nothing was answered."""

        def question() -> Question:
            return Question("GET", f"{self._url}?{wire.question(log_path)}")

        return wire.read(*self._answer(question))

    def close(self) -> None:
        """Let go of what is held, whatever is still being asked."""
        self._http.close()

    def _answer(self, question: Callable[[], Question]) -> tuple[int, bytes]:
        try:
            answer = self._http.ask(question, self._seconds)
        except NoAnswerError as error:
            raise ServiceError(str(error)) from error
        return answer.status, answer.body

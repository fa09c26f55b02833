"""Asks over HTTP or HTTPS: each question has one deadline, from its beginning to the last byte of its answer.

httpx limits a connect and each read, which bounds neither a name server that hangs nor an answer that comes a
byte a second. So each question is asked in a thread of its own, for which nobody waits beyond the deadline. Those
that are late count as long as they are there, so that a dead service holds so many threads and no more.

Redirects are not followed and proxies not used: what is told goes to whom the URL names, and to nobody else. An
answer is taken as it comes, and never unpacked: a small one cannot become a large one.
"""

from __future__ import annotations

import os
import queue
import ssl
import threading
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple

import httpx

from segment_health.record import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_GRACE_SECONDS = 0.2
"""What httpx may need to notice a deadline of its own, after ours has passed."""
_SHOWN = 300
"""Characters of somebody else's words that are shown."""


class Question(NamedTuple):
    """What is asked: a method, a URL, in which a password may stand, a body, and headers beside the usual ones."""

    method: str
    url: str
    content: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Answer(NamedTuple):
    """A status, a body as it was sent, and the header Retry-After, empty where there was none."""

    status: int
    body: bytes
    retry_after: str = ""


class NoAnswerError(Exception):
    """A question was not answered. The message says who was asked, as a person is told, and why not."""


class TooLongError(NoAnswerError):
    """An answer had more bytes than anything that is expected: its status, and as much of it as was read."""

    def __init__(self, told: str, status: int, body: bytes) -> None:
        super().__init__(told)
        self.status = status
        self.body = body


class Http:
    """Asks whoever is at `url`, shown as `name`.

    An answer has at most `most` bytes. So many questions `at_a_time` are asked, with those that are late and have
    not ended yet; one more is refused.

    A certificate is checked against the system's authorities, or SSL_CERT_FILE and SSL_CERT_DIR of `environ`.
    ValueError where `url` is none of HTTP, or those authorities cannot be read.
    """

    def __init__(
        self, url: str, name: str, *, most: int, at_a_time: int = 1, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._name = name
        self._most = most
        self._places = threading.Semaphore(at_a_time)
        try:
            self._client = httpx.Client(
                # Nothing is kept between two questions: a service that was restarted is asked like a new one.
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"},
                transport=httpx.HTTPTransport(verify=_authorities(url, environ), trust_env=False),
                trust_env=False,
                follow_redirects=False,
            )
            httpx.URL(url)
        except (OSError, httpx.InvalidURL) as error:
            raise ValueError(f"{name}: cannot be asked: {_words(error)}") from error

    def ask(self, question: Callable[[], Question], seconds: float) -> Answer:
        """Return the answer to what `question` makes, which counts into the time. Raises NoAnswerError alone."""
        if not self._places.acquire(blocking=False):
            raise NoAnswerError(f"{self._name} was not asked: an earlier question has not ended yet")
        deadline = time.monotonic() + seconds
        done: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()

        def do() -> None:
            told: Answer | Exception
            try:
                told = self._answer(question(), seconds, deadline)
            except Exception as error:  # noqa: BLE001 - who waits raises it, and nobody does after the deadline
                told = error
            self._places.release()
            done.put(told)

        thread = threading.Thread(target=do, name=f"asks {self._name}", daemon=True)
        try:
            thread.start()
            answer = done.get(timeout=seconds)
        except queue.Empty:
            thread.join(_GRACE_SECONDS)
            raise self._too_late(seconds) from None
        except RuntimeError as error:
            self._places.release()
            raise NoAnswerError(f"{self._name} was not asked: {error}") from error
        match answer:
            case NoAnswerError():
                raise answer
            case httpx.TimeoutException():
                raise self._too_late(seconds) from answer
            case httpx.HTTPError() | httpx.StreamError() | OSError():
                raise NoAnswerError(f"{self._name}: {_words(answer)}") from answer
            case Exception():  # a bug, which must cost no more than this answer
                told = f"{self._name}: asking failed: {type(answer).__name__}: {answer}"
                raise NoAnswerError(told) from answer
            case _:
                return answer

    def close(self) -> None:
        """Let go of what is held, whatever is still being asked."""
        self._client.close()

    def _answer(self, question: Question, seconds: float, deadline: float) -> Answer:
        url = httpx.URL(question.url)
        # httpx writes the URL of each question to its log, where no password may be.
        auth = httpx.BasicAuth(url.username, url.password) if url.userinfo else None
        request = self._client.build_request(
            question.method,
            url.copy_with(userinfo=b""),
            content=question.content,
            headers=list(question.headers),
            timeout=seconds,
        )
        told = bytearray()
        response = self._client.send(request, stream=True, auth=auth)
        try:
            for data in response.iter_raw():
                told += data
                if len(told) > self._most:
                    told_more = f"{self._name}: answered more than {self._most} bytes"
                    raise TooLongError(told_more, response.status_code, bytes(told))
                if time.monotonic() > deadline:
                    raise self._too_late(seconds)
        finally:
            response.close()
        return Answer(response.status_code, bytes(told), response.headers.get("Retry-After", ""))

    def _too_late(self, seconds: float) -> NoAnswerError:
        return NoAnswerError(f"{self._name}: no whole answer within {seconds:g} s")


def _authorities(url: str, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Load whom we trust, where a certificate will be shown at all: that takes 20 ms."""
    if not url.lower().startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context(
        cafile=environ.get("SSL_CERT_FILE") or None, capath=environ.get("SSL_CERT_DIR") or None
    )


def _words(error: BaseException) -> str:
    """Say in words what lies under httpx's error."""
    deepest = error
    while below := deepest.__cause__ or deepest.__context__:
        deepest = below
        traceback.clear_frames(deepest.__traceback__)  # they may hold a socket open
    match deepest:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted: {deepest.verify_message}; name its authority by SSL_CERT_FILE, "
                "and the host as the certificate does"
            )
        case ssl.SSLError():
            return f"no TLS: {deepest.reason or deepest}; does it speak https there?"
        case ConnectionRefusedError():
            return "connection refused: nobody listens there"
        case OSError(strerror=str(strerror), filename=None):
            return strerror
        case _:
            return brief(str(deepest) or type(deepest).__name__, _SHOWN)

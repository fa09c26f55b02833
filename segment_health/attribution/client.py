"""Asks an attribution service over HTTP or HTTPS: one question at a time, each with one deadline.

httpx limits a connect and each read, which bounds neither a name server that hangs nor an answer that comes a
byte a second. So each question is asked in a thread of its own, for which nobody waits beyond the deadline. None
is asked while such a thread is still there, so that a dead service holds one thread and no more.

Redirects are not followed and proxies not used: a log's path is sent to whom the endpoint names, and to nobody
else.
"""

from __future__ import annotations

import os
import queue
import ssl
import threading
import time
import traceback
from typing import TYPE_CHECKING

import httpx

from segment_health.record import brief

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .metadata import JobMetadata

TIMEOUT = 2.0
"""Seconds from a question to its whole answer, as NVRx has them."""
_GRACE_SECONDS = 0.2
"""What httpx may need to notice a deadline of its own, after ours has passed."""
_SHOWN = 300
"""Characters of somebody else's words that are shown."""


class ServiceError(Exception):
    """A question was not answered, or a log not accepted. The message says who was asked, and why not."""


class Client:
    """Asks the service at `endpoint`, a URL, of logs of one job. `seconds` bound each question.

    A certificate is checked against the system's authorities, or SSL_CERT_FILE and SSL_CERT_DIR of `environ`.
    ValueError where the endpoint is no URL of HTTP, or those authorities cannot be read.
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
        self._late: threading.Thread | None = None
        try:
            self._client = httpx.Client(
                # Nothing is kept between two questions: a service that was restarted is asked like a new one.
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"},
                timeout=seconds,
                transport=httpx.HTTPTransport(verify=_authorities(url, environ), trust_env=False),
                trust_env=False,
                follow_redirects=False,
            )
            httpx.URL(self._url)
        except (OSError, httpx.InvalidURL) as error:
            raise ValueError(f"{self._name}: cannot be asked: {_words(error)}") from error

    def submit(self, log_path: str, intent: wire.Intent, cycle: int | None = None) -> None:
        """Announce a log. Raises ServiceError unless the service has accepted it."""

        def request() -> httpx.Request:
            body = wire.submission(log_path, intent, self._job, cycle)
            return self._client.build_request(
                "POST", self._url, content=body, headers={"Content-Type": "application/json"}
            )

        refused = wire.refusal(*self._within_deadline("POST", request))
        if refused is not None:
            raise ServiceError(f"{self._name} refused it ({refused})")

    def ask(self, log_path: str) -> wire.Recommendation:
        """Ask what came of a log's analysis. Raises ServiceError where nothing was answered."""

        def request() -> httpx.Request:
            return self._client.build_request("GET", f"{self._url}?{wire.question(log_path)}")

        return wire.read(*self._within_deadline("GET", request))

    def close(self) -> None:
        """Let go of what is held, whatever is still being asked."""
        self._client.close()

    def _within_deadline(self, method: str, request: Callable[[], httpx.Request]) -> tuple[int, bytes]:
        """Return an answer's status and body. Raises ServiceError, whatever happens."""
        if self._late is not None and self._late.is_alive():
            raise ServiceError(f"{self._name} was not asked: an earlier question has not ended yet")
        deadline = time.monotonic() + self._seconds
        done: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()

        def do() -> None:
            try:
                done.put(self._answer(request(), deadline))
            except Exception as error:  # noqa: BLE001 - who waits raises it, and nobody does after the deadline
                done.put(error)

        thread = threading.Thread(target=do, name=f"attribution {method}", daemon=True)
        try:
            thread.start()
            answer = done.get(timeout=self._seconds)
        except queue.Empty:
            thread.join(_GRACE_SECONDS)
            self._late = thread
            raise self._too_late() from None
        except RuntimeError as error:
            raise ServiceError(f"{self._name} was not asked: {error}") from error
        match answer:
            case ServiceError():
                raise answer
            case httpx.TimeoutException():
                raise self._too_late() from answer
            case httpx.HTTPError() | httpx.StreamError() | OSError():
                raise ServiceError(f"{self._name}: {_words(answer)}") from answer
            case Exception():  # a bug, which must cost no more than this answer
                raise ServiceError(f"{self._name}: asking failed: {type(answer).__name__}: {answer}") from answer
            case _:
                return answer

    def _answer(self, request: httpx.Request, deadline: float) -> tuple[int, bytes]:
        """Return an answer's status and body: of one that is too long not all of it, but too much."""
        told = bytearray()
        response = self._client.send(request, stream=True)
        try:
            for data in response.iter_raw():
                told += data
                if len(told) > wire.MAX_ANSWER:
                    break
                if time.monotonic() > deadline:
                    raise self._too_late()
        finally:
            response.close()
        return response.status_code, bytes(told)

    def _too_late(self) -> ServiceError:
        return ServiceError(f"{self._name}: no whole answer within {self._seconds:g} s")


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

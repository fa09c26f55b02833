"""The API over HTTP: routes, limits and errors. What is answered is that of NVRx 0.7.0's service."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from . import results, submission
from .attempt import Status
from .rates import Rate
from .refusal import INTERNAL, INVALID_PARAMETER, NOT_FOUND, RATE_LIMITED, TOO_LARGE, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .analyses import Analyses
    from .attempt import Attempt

    Endpoint = Callable[[Request], Awaitable[Response]]

WAIT_SECONDS = 45.0
"""How long an answer may wait for an analysis; less than a call may take (see serving)."""


class PerMinute(NamedTuple):
    """Requests a minute of one address: submissions, questions about logs, previews and each kind of list."""

    submit: int = 1200
    ask: int = 60
    preview: int = 120


class _Json(Response):
    """JSON in ASCII: names of files, and lines of logs, may hold what UTF-8 cannot say."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Write it."""
        return json.dumps(content, separators=(",", ":")).encode("ascii")


class Traits(NamedTuple):
    """What the API needs to know beside the analyses. `hosts` are the names it is called by: None for any."""

    per_minute: PerMinute
    hosts: frozenset[str] | None
    clock: Callable[[], float]
    """Gives seconds; for rates."""
    remark: Callable[[str, str], None]
    """Takes what went wrong: an event and a sentence."""


def application(analyses: Analyses, traits: Traits) -> Starlette:
    """Return what answers requests."""
    api = _Api(analyses, traits)
    routes = [
        Route("/logs", api.limited(traits.per_minute.submit, api.submit), methods=["POST"]),
        Route("/logs", api.limited(traits.per_minute.ask, api.ask), methods=["GET"]),
        Route("/print", api.limited(traits.per_minute.preview, api.preview)),
        Route("/healthz", api.health),
        *(
            Route(path, api.limited(traits.per_minute.preview, answer))
            for path, answer in (("/stats", api.stats), ("/inflight", api.in_flight), ("/jobs", api.jobs))
        ),
    ]
    handlers: dict[Any, Any] = {Refusal: api.refuse, Exception: api.fail, 404: api.no_such, 405: api.no_such}
    made = Starlette(
        routes=routes, middleware=[Middleware(_Guard, hosts=traits.hosts)], exception_handlers=handlers
    )
    made.router.redirect_slashes = False  # what is not there is not there
    return made


class _Api:
    """Answers requests, each method those of one path."""

    def __init__(self, analyses: Analyses, traits: Traits) -> None:
        self._analyses = analyses
        self._traits = traits

    def limited(self, per_minute: int, answer: Endpoint) -> Endpoint:
        """Let each address have so many answers a minute."""
        rate = Rate(per_minute)

        async def answer_or_refuse(request: Request) -> Response:
            caller = request.client.host if request.client is not None else "unix"
            seconds = rate.wait(caller, self._traits.clock())
            if seconds:
                told = Refusal(RATE_LIMITED, f"more than {per_minute} requests a minute")
                return _Json(told.body(), told.status, headers={"Retry-After": str(math.ceil(seconds))})
            return await answer(request)

        return answer_or_refuse

    async def submit(self, request: Request) -> Response:
        """Take a log."""
        told = submission.submission_of(await _body(request))
        return _Json(results.accepted(await self._analyses.submit(told)))

    async def ask(self, request: Request) -> Response:
        """Tell what was found in a log, or how far it is."""
        question = submission.question_of(request.scope["query_string"])
        attempt = await self._analyses.find(question.log_path, WAIT_SECONDS if question.wait else 0.0)
        return _Json(results.answer(attempt))

    async def preview(self, request: Request) -> Response:
        """Show how a log begins."""
        told = submission.fields_of(request.scope["query_string"])
        text = await self._analyses.preview(submission.path_of(told.get("log_path")))
        return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})

    async def health(self, _request: Request) -> Response:
        """Tell whether all is well; an answer alone says that logs are taken."""
        issues = self._analyses.issues()
        status = "degraded" if issues else "ok"
        return _Json({"status": status, "backend": self._analyses.analyser, "issues": issues})

    async def stats(self, _request: Request) -> Response:
        """Count."""
        attempts = self._analyses.attempts()
        found = [attempt.finding for attempt in attempts if attempt.finding is not None]
        counts = {status.value: 0 for status in Status} | Counter(attempt.status.value for attempt in attempts)
        told = {
            "backend": self._analyses.analyser,
            "attempts": counts,
            "actions": Counter(finding.action.value for finding in found),
            "categories": Counter(finding.category for finding in found),
        }
        return _Json(told)

    async def in_flight(self, _request: Request) -> Response:
        """Name the logs that are being analysed."""
        attempts = self._analyses.attempts()
        paths = sorted(attempt.path for attempt in attempts if attempt.status is Status.IN_FLIGHT)
        return _Json({"count": len(paths), "paths": paths})

    async def jobs(self, _request: Request) -> Response:
        """Name the logs of each job."""
        jobs: dict[str, list[dict[str, Any]]] = {}
        for attempt in sorted(self._analyses.attempts(), key=_order):
            told = {"cycle_id": attempt.cycle, "log_path": attempt.path, "status": attempt.status.value}
            jobs.setdefault(attempt.job_id or "unknown", []).append(told)
        return _Json(jobs)

    async def refuse(self, _request: Request, refused: Refusal) -> Response:
        """Say why a request is not served."""
        if refused.code == INTERNAL:
            self._traits.remark("error", refused.message)
        return _Json(refused.body(), refused.status)

    async def fail(self, request: Request, error: Exception) -> Response:
        """Say that there is a bug, and where it may be looked for."""
        told = f"{request.method} {request.url.path}: {type(error).__name__}: {error}"
        self._traits.remark("bug", told)
        return _Json(Refusal(INTERNAL, "internal error, see the service's log").body(), 500)

    async def no_such(self, _request: Request, error: Any) -> Response:
        """Say that there is nothing of this name, or not by this method."""
        told = Refusal(NOT_FOUND, "no such endpoint, or not by this method")
        return _Json(told.body(), error.status_code, headers=error.headers)


def _order(attempt: Attempt) -> tuple[str, int, str]:
    return (attempt.job_id, -1 if attempt.cycle is None else attempt.cycle, attempt.path)


async def _body(request: Request) -> bytes:
    """Read a body of bounded size. Raises Refusal."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > submission.MAX_BODY:
                raise Refusal(TOO_LARGE, f"the body has more than {submission.MAX_BODY} bytes")
    except ClientDisconnect:
        raise Refusal(INVALID_PARAMETER, "the body ended too early") from None
    return bytes(body)


class _Guard:
    """Refuses what comes out of a browser, and on loopback names that are not ours.

    A page from elsewhere that a user of this host looks at could else announce logs here, and, by a name that is
    made to resolve to this host (DNS rebinding), read them.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host
        is_of_a_page = (
            b"origin" in headers or b"sec-fetch-site" in headers
        )  # images and forms have the second alone
        if is_of_a_page or (self._hosts is not None and name not in self._hosts):
            refused = Refusal(
                INVALID_PARAMETER, "not a request of a launcher: it comes from a page, or for another host"
            )
            await _Json(refused.body(), 400)(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"cache-control", b"no-store")]
            await send(message)

        await self._app(scope, receive, send_guarded)

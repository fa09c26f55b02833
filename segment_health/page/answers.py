"""What the page's server answers, by what it was last told."""

from __future__ import annotations

import hmac
import time
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .board import Body
from .render import policy_of, render
from .sheet import template

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .board import Board

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def application(
    board: Board, *, refresh: Callable[[], None], token: str | None, hosts: frozenset[str] | None
) -> Starlette:
    """Return what answers requests by a board.

    `refresh` asks for a pass, which only who knows `token` may do; nobody if it is None. `hosts` are the names by
    which it is known: None for any.
    """
    page = template()
    answers = _Answers(board, page, refresh, token)
    routes = [
        Route("/", answers.show),
        Route("/healthz", answers.health),
        Route("/readyz", answers.readiness),
        Route("/metrics", answers.metrics),
        Route("/api/v1/nodes", answers.nodes),
        Route("/api/v1/decisions", answers.decisions),
        Route("/api/v1/refresh", answers.ask, methods=["POST"]),
    ]
    guard = Middleware(_Guard, policy=policy_of(page), hosts=hosts)
    made = Starlette(routes=routes, middleware=[guard])
    made.router.redirect_slashes = False  # what is not there is not there
    return made


class _Answers:
    """Answers requests, each method those of one path."""

    def __init__(self, board: Board, page: str, refresh: Callable[[], None], token: str | None) -> None:
        self._board = board
        self._page = page
        self._refresh = refresh
        self._token = token

    async def show(self, _request: Request) -> Response:
        """Send the page with its data in it: the first picture needs no second request."""
        bodies = self._board.bodies
        if "page" not in bodies:
            told = {name: self._board.document(name) for name in ("nodes", "decisions")}
            etags = {name: self._board.body(name).etag for name in told}
            text = render(self._page, {**told, "traits": {"live": True, "etags": etags}})
            bodies["page"] = Body(text.encode(), "")
        return HTMLResponse(bodies["page"].content)

    async def health(self, _request: Request) -> Response:
        """Tell whether the publisher's loop gives signs of life."""
        return _told(self._board.silence(time.monotonic()))

    async def readiness(self, _request: Request) -> Response:
        """Tell whether the last complete pass is one to go by."""
        return _told(self._board.unreadiness(time.monotonic()))

    async def metrics(self, _request: Request) -> Response:
        """Send the publisher's metrics."""
        if self._board.metrics is None:
            return PlainTextResponse("no metrics yet\n", 503)
        return Response(self._board.metrics, headers={"Content-Type": _PROMETHEUS})

    async def nodes(self, request: Request) -> Response:
        """Send what is known of nodes."""
        return self._document("nodes", request)

    async def decisions(self, request: Request) -> Response:
        """Send what is decided."""
        return self._document("decisions", request)

    async def ask(self, request: Request) -> Response:
        """Ask for a pass; one that was asked for already answers them all."""
        if self._token is None:
            return JSONResponse({"error": "no token is configured (--refresh-token-file)"}, 403)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            refused = {"WWW-Authenticate": "Bearer"}
            return JSONResponse({"error": "a bearer token is needed"}, 401, headers=refused)
        if not self._board.asked:
            self._board.asked = True
            self._refresh()
        return JSONResponse({"status": "asked"}, 202)

    def _document(self, name: str, request: Request) -> Response:
        body = self._board.body(name)
        headers = {"ETag": body.etag}
        if body.etag in _etags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(body.content, media_type="application/json", headers=headers)


def _told(problem: str | None) -> Response:
    return PlainTextResponse("ok\n") if problem is None else PlainTextResponse(f"{problem}\n", 503)


def _etags(header: str) -> list[str]:
    return [part.strip().removeprefix("W/") for part in header.split(",")]


class _Guard:
    """Gives every answer the headers that keep browsers in check, and refuses names that are not ours.

    A page from elsewhere whose name is made to resolve to this host (DNS rebinding) would be of our origin to its
    browser: on loopback only the names of loopback count.
    """

    def __init__(self, app: ASGIApp, policy: str, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts
        headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-cache",
        }
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        if scope["type"] == "http" and not self._is_ours(scope["headers"]):
            await PlainTextResponse("misdirected request\n", 421)(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _is_ours(self, headers: list[tuple[bytes, bytes]]) -> bool:
        if self._hosts is None:
            return True
        given = [value.decode("latin-1") for name, value in headers if name == b"host"]
        return len(given) == 1 and _name_of(given[0]) in self._hosts


def _name_of(host: str) -> str:
    """Return a Host header without its port; `[::1]` keeps its brackets."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()

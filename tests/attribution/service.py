"""An attribution service of few words, which does what a test tells it, and tells what it was asked.

    python service.py [CERTIFICATE]

Prints its port. `PUT /behaviour` takes how it answers (see Behaviour) and forgets what it was asked;
`GET /asked` returns that, each request as an object. A certificate file, with its key, makes it speak https.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Behaviour:
    """How it answers. All is in JSON, and has a default.

    `post` and `get` are lists of [status, body], a body being JSON or a text; the last one is repeated.
    `analysis` is how many seconds an analysis takes, and `action` what it recommends then: `get` is not used.
    `delay` is the seconds from each question to its answer; -1 never answers, -2 answers byte by byte, -3 begins
    an answer and sends its body so, -4 ends without one, -5 does so to a POST that it accepted, -6 sends ten
    megabytes a second without end.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self.post: list[Any] = told.get("post", [[200, {"submitted": True}]])
        self.get: list[Any] = told.get("get", [[200, {"status": "in_flight"}]])
        self.analysis: float | None = told.get("analysis")
        self.action: str = told.get("action", "STOP")
        self.delay: float = told.get("delay", 0.0)
        self.asked: list[dict[str, Any]] = []
        self.waited_for: set[str] = set()
        self.most = 0
        self.begun: dict[str, float] = {}
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Answers one request; a connection is for one."""

    behaviour = Behaviour({})

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        """Take a behaviour."""
        type(self).behaviour = Behaviour(json.loads(self._body()))
        self._send(200, {})

    def do_POST(self) -> None:
        """Take a log."""
        body = self._body()
        now = self.behaviour
        told = json.loads(body)
        with now.lock:
            self._note(body=told)
            status, answer = now.post.pop(0) if len(now.post) > 1 else now.post[0]
            if told["analysis_intent"] == "terminal" and status < 300:
                now.begun.setdefault(told["log_path"], time.monotonic())
                now.waited_for.add(told["log_path"])
                now.most = max(now.most, len(now.waited_for))
        self._answer(now, status, answer)

    def do_GET(self) -> None:
        """Tell what came of a log, or what was asked so far."""
        now = self.behaviour
        parts = urlsplit(self.path)
        if parts.path == "/asked":
            self._send(200, {"asked": now.asked, "most": now.most})
            return
        query = parse_qs(parts.query, encoding="latin-1")
        log_path = query.get("log_path", [""])[0]
        with now.lock:
            self._note(query=query)
            if now.analysis is None:
                status, answer = now.get.pop(0) if len(now.get) > 1 else now.get[0]
            else:
                status, answer = self._analysed(now, log_path)
            if status == 200 and isinstance(answer, dict) and answer.get("status") == "completed":
                now.waited_for.discard(log_path)
        self._answer(now, status, answer)

    def _analysed(self, now: Behaviour, log_path: str) -> tuple[int, dict[str, Any]]:
        begun = now.begun.get(log_path)
        if begun is None:
            return 404, {"message": "attempt has not been submitted"}
        if time.monotonic() - begun < (now.analysis or 0):
            return 200, {"status": "in_flight"}
        return 200, {"status": "completed", "recommendation": {"action": now.action, "reason": "so it is"}}

    def _note(self, **more: object) -> None:
        asked = {"method": self.command, "path": urlsplit(self.path).path, "headers": dict(self.headers)}
        self.behaviour.asked.append({**asked, "at": time.monotonic(), **more})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, now: Behaviour, status: int, answer: object) -> None:
        self.close_connection = True
        if now.delay == -4 or (now.delay == -5 and self.command == "POST"):
            return
        if now.delay == -1:
            self._drip(now, b"", b"")
        elif now.delay == -2:
            self._drip(now, b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x")
        elif now.delay == -3:
            self._drip(now, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ")
        elif now.delay == -6:
            self._drip(now, b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", b" " * 1_000_000)
        else:
            time.sleep(max(0.0, now.delay))
            self._send(status, answer)

    def _drip(self, now: Behaviour, begin: bytes, go_on: bytes) -> None:
        """Write this, and then that ten times a second, until told to behave otherwise."""
        self.wfile.write(begin)
        while self.behaviour is now:
            self.wfile.write(go_on)
            time.sleep(0.1)

    def _send(self, status: int, answer: object) -> None:
        body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Keeps quiet about callers that have gone."""

    daemon_threads = True

    def handle_error(self, *_arguments: object) -> None:
        """Say nothing: a client that gave up is what some tests are about."""


def main() -> None:
    """Serve until killed."""
    server = Server(("127.0.0.1", 0), Handler)
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

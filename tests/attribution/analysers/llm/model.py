"""A server that speaks OpenAI's chat completions as a test wants it."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "sk-Zq7RvT2mXw9LbN4cKd8e"


class Reply(NamedTuple):
    """An answer: a status, a body, headers. `drip` bytes go out at a time, ten times a second; -1 is nothing."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    drip: int = 0


def completion(content: str | None, **more: object) -> bytes:
    """Write the body of an answer in which a model said this; `more` stands in its message or its choice."""
    finish = more.pop("finish_reason", "stop")
    message = {"role": "assistant", "content": content, **more}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()


def says(content: str | None, **more: object) -> Reply:
    """Answer that a model said this."""
    return Reply(200, completion(content, **more))


def finding(action: str = "RESTART", line: int = 2, text: str = "ValueError: odd", **more: object) -> Reply:
    """Answer as was asked for."""
    told = {"category": "nan", "action": action, "reason": "so it is", "nodes": []}
    return says(json.dumps({**told, "evidence": [{"line": line, "text": text}], **more}))


class FakeModel:
    """Answers each request with the next reply, the last one again and again; a function makes one of it."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[dict[str, Any]], Reply]] = [finding()]
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"model": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self) -> FakeModel:  # noqa: PYI034 - Self is Python 3.11
        """Serve."""
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def answers(self, *replies: Reply | Callable[[dict[str, Any]], Reply]) -> None:
        """Answer so from now on."""
        self.replies = list(replies)

    def bodies(self) -> list[dict[str, Any]]:
        """Return what it was asked."""
        return [request["body"] for request in self.asked]


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    model: FakeModel

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer as the model does."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.model
        with model.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            model.asked.append({"path": self.path, "headers": headers, "body": body, "at": time.monotonic()})
            reply = model.replies.pop(0) if len(model.replies) > 1 else model.replies[0]
        if not isinstance(reply, Reply):
            reply = reply(body)
        self.close_connection = True
        try:
            self._send(reply)
        except OSError:  # it did not wait
            return

    def _send(self, reply: Reply) -> None:
        if reply.drip < 0:
            self.model.closed.wait(60)
            return
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if not reply.drip:
            self.wfile.write(reply.body)
            return
        for start in range(0, len(reply.body), reply.drip):
            self.wfile.write(reply.body[start : start + reply.drip])
            if self.model.closed.wait(0.1):
                return

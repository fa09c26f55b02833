"""Takes results, as a test tells it: `python receiver.py PORT FILE STATUS...`.

Each result is answered with the next status, the last one again and again, and is written to the file behind it,
synced before it is answered. 0 never answers, 1 takes a result and answers nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Takes one result."""

    statuses: list[int]
    file: int

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Write it down, and answer."""
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        row = {"status": status, "authorization": self.headers.get("Authorization"), "result": told}
        os.write(self.file, json.dumps(row).encode() + b"\n")
        self.close_connection = True
        if status == 0:
            threading.Event().wait()
        if status > 1:
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()


def main() -> None:
    """Serve until killed."""
    port, path, *statuses = sys.argv[1:]
    Handler.statuses = [int(status) for status in statuses]
    Handler.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    print(flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

"""A service such as nvrx-attrsvc, which a launcher starts for itself: told by the environment, answers over HTTP.

ATTRSVC_DOES says how it misbehaves, in words: `crash` (status 3 at once), `crash-again` (so, from its second
start on, counted in ATTRSVC_COUNT), `deaf` (/healthz is 500), `stubborn` (SIGTERM is ignored), `forks` (has a
child, whose number /healthz tells), `aside` (another process serves, in a session of its own).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DOES = os.environ.get("ATTRSVC_DOES", "").split()
told: dict[str, Any] = {"pid": os.getpid()}


class Answers(BaseHTTPRequestHandler):
    """GET /healthz tells who is asked; POST /logs exports a result."""

    def do_GET(self) -> None:
        """Say how it is, and what it was started with."""
        self._answer(500 if "deaf" in DOES else 200)

    def do_POST(self) -> None:
        """Post a result, as a service does that has analysed a log."""
        log = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = json.dumps({"log": log, "user": os.environ.get("USER")}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(os.environ["NVRX_ATTRSVC_EXPORT_URL"], result, headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10):
            print("exported", log, flush=True)
        self._answer(200)

    def _answer(self, status: int) -> None:
        content = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """Serve."""
    if "crash" in DOES:
        sys.exit(3)
    if "crash-again" in DOES:
        count = Path(os.environ["ATTRSVC_COUNT"])
        if count.exists():
            sys.exit(3)
        count.touch()
    if "aside" in DOES:
        aside = os.environ | {"ATTRSVC_DOES": ""}
        subprocess.Popen([sys.executable, __file__], env=aside, start_new_session=True)
        time.sleep(600)
    if "stubborn" in DOES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "forks" in DOES:
        told["child"] = subprocess.Popen(["sleep", "600"]).pid
    key = Path(os.environ["LLM_API_KEY_FILE"]).read_bytes()
    told["key"] = hashlib.sha256(key).hexdigest()
    names = ("LLM_API_KEY", "LLM_API_KEY_FILE", "NVRX_ATTRSVC_")
    told["environ"] = {name: value for name, value in os.environ.items() if name.upper().startswith(names)}
    told["signals"] = [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)]
    address = urlsplit(os.environ["NVRX_ATTRSVC_ENDPOINT"])
    server = HTTPServer((address.hostname or "", address.port or 0), Answers)
    print("serves", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

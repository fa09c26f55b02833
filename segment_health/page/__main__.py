"""`python -m segment_health.page FD`: the page's server, started by the publisher alone (see door).

FD is the number of a socket that listens. The first line on standard input is how to serve, each further one an
event.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from .server import serve


def main() -> None:
    """Serve what the publisher tells."""
    first = bytearray()
    while not first.endswith(b"\n"):  # past Python's buffer, which would keep the beginning of an event
        data = os.read(sys.stdin.fileno(), 1)
        if not data:
            return
        first += data
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        serve(listening, json.loads(first))


if __name__ == "__main__":
    main()

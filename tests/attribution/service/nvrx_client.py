"""NVRx's own AttributionService, unmodified, which does what standard input says: a line of JSON each.

    python nvrx_client.py ENDPOINT {log,no-restart}

Each line is a list, a method's name and its arguments; what it returned comes back, with the client's state.
"""

from __future__ import annotations

import json
import logging
import sys

from nvidia_resiliency_ext.shared_utils.health_check import (  # type: ignore[import-not-found]
    AttributionService,
)


def main() -> None:
    """Be a launcher that asks."""
    logging.basicConfig(level=logging.DEBUG)
    client = AttributionService(sys.argv[1], enforce_stop=sys.argv[2] == "no-restart")
    client._RESULT_POLL_INTERVAL_SECONDS = 0.1
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        told = {
            "returned": getattr(client, method)(*arguments),
            "waits_for": client._terminal_pending,
            "stop": client.stop_requested(),
            "observed": client.stop_verdict_observed(),
            "count": client.stop_verdict_count(),
        }
        print(json.dumps(told), flush=True)
    client.stop_poller()


if __name__ == "__main__":
    main()

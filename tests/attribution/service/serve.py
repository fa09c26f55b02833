"""The service with a worker of the tests' own: `python serve.py JSON`, which holds what server.Settings takes.

`rules` makes it judge by rules, with the product's own worker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from segment_health.address import parse
from segment_health.attribution.service.analyses import Limits
from segment_health.attribution.service.app import PerMinute
from segment_health.attribution.service.drain import Patience
from segment_health.attribution.service.export import Destination
from segment_health.attribution.service.server import Settings, run
from segment_health.cli.attribution_service import ServiceLog


def main() -> None:
    """Serve."""
    told = json.loads(sys.argv[1])
    patience = Patience(*told.get("patience", (0.0, 0.0, 0.5, 0.05)))
    limits = Limits(told.get("queued", 2000), told.get("analysis", 30.0), patience)
    settings = Settings(
        parse(told["listen"]),
        told["root"],
        told["state"],
        workers=told.get("workers", 4),
        keep=told.get("keep", 3000),
        per_minute=PerMinute(*told.get("per_minute", (100_000, 100_000, 100_000))),
        limits=limits,
        export=Destination(told["export"], 2.0, 0.1, 0.5) if "export" in told else None,
        blame=told.get("blame", ""),
        worker=() if told.get("rules") else (sys.executable, str(Path(__file__).with_name("analyst.py"))),
    )
    run(settings, ServiceLog("text", time.time), os.environ)


if __name__ == "__main__":
    main()

"""NVRx's own node health check, as it stands in a wheel: a program of the tests.

    python nvrx_client.py WHEEL

For each line of stdin, {"endpoint": "/...", "seconds": 2}, it makes a NodeHealthCheck, calls it, and prints
{"healthy": true, "log": [["WARNING", "..."], ...]}. A process of its own, since the messages of two releases have
the same names. Only the packages' `__init__` that import torch are left out: bare packages stand for them.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path
from types import ModuleType

WHEEL = Path(sys.argv[1])
PACKAGE = "nvidia_resiliency_ext"


class Log(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append((record.levelname, record.getMessage()))


def main() -> None:
    """Check for each line."""
    for name in (PACKAGE, f"{PACKAGE}.shared_utils"):
        package = ModuleType(name)
        package.__path__ = [str(WHEEL.joinpath(*name.split(".")))]
        sys.modules[name] = package
    module = importlib.import_module(f"{PACKAGE}.shared_utils.health_check")
    assert Path(str(module.__file__)).is_relative_to(WHEEL)
    logger = logging.getLogger("nvrx")
    logger.setLevel(logging.DEBUG)
    for line in sys.stdin:
        wanted = json.loads(line)
        log = Log()
        logger.handlers = [log]
        check = module.NodeHealthCheck(endpoint=wanted["endpoint"], request_timeout_sec=wanted["seconds"])
        print(json.dumps({"healthy": check(), "log": log.lines}), flush=True)


main()

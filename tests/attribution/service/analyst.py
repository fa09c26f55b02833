"""A worker of the service with an analyser of the tests' own, which does what a log says, in words.

STOP, RESTART, `earlier` (tells what was found in earlier cycles), `raise`, `crash`, `hang`, `print` (to standard
output), `sleep SECONDS`, `xid NODE` (as the rules blame a node). Anything else is UNKNOWN.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from segment_health.attribution.analysers.finding import Action, Finding, Line
from segment_health.attribution.service import worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def analyse(log: int, earlier: Sequence[Finding]) -> Finding:
    """Do what a log says."""
    text = os.read(log, 1000).decode("utf-8", "replace")
    first, *more = text.split() or [""]
    if first == "raise":
        raise ValueError("no\x1b[31m such thing")
    if first == "crash":
        os.abort()
    if first == "hang":
        time.sleep(600)
    if first == "print":
        print("not an answer", flush=True)
    if first == "sleep":
        time.sleep(float(more[0]))
    if first == "xid":
        return Finding("xid-hardware", Action.RESTART, text.strip(), "rules", nodes=(more[0],))
    reason = ",".join(found.reason for found in earlier) if first == "earlier" else text.strip()
    action = Action(first) if first in {"STOP", "RESTART"} else Action.UNKNOWN
    return Finding("told", action, reason, "tests", evidence=(Line(1, text.strip()),), nodes=("n1",), step=7)


def prepare(_told: Mapping[str, Any]) -> worker.Analyse:
    """Make nothing."""
    return analyse


if __name__ == "__main__":
    worker.main(prepare)

"""The real publishers of one directory, and what befalls them: a bad disk, and a kill at any instant."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import publish
from segment_health.scope import EVERYTHING, of_jobs, of_user

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from segment_health.observe import Observation

INTERVAL = 300.0
SCOPES = {
    "all": Publication("", EVERYTHING, Policy(), "0.1.0", INTERVAL),
    "job:7": Publication("", of_jobs(("7",)), Policy(FaultLevel.SeparateFault), "0.1.0", INTERVAL),
    "user:bob": Publication("", of_user("bob"), Policy(), "0.1.0", INTERVAL, precreate=True),
}
"""A site's service, an array's sidecar with another policy, and a user's publisher."""


def covers(scope: str, unit: str, owner: str) -> bool:
    """Tell whether a scope speaks for a unit."""
    return {"all": True, "job:7": unit.startswith("7_"), "user:bob": owner == "bob"}[scope]


def path_of(directory: Path, unit: str, kind: str = "segment_health_check.", end: str = "") -> Path:
    """Return where a unit's artifact is, or another file that is named alike."""
    job, _, task = unit.partition("_")
    return directory / f"{kind}{job}.{task or job}{end}"


@dataclass(frozen=True)
class Fault:
    """What happens before the `at`-th change that is made to the file system.

    `error` is what that change fails with, None kills the process there. `lasting` errors stay for the rest.
    """

    at: int
    error: int | None = None
    lasting: bool = False


@dataclass(frozen=True)
class Said:
    """What a pass said of itself: whether it came to its end, wrote everything, and which units it could not."""

    finished: bool = False
    wrote_everything: bool = False
    failed: frozenset[str] = frozenset()


def make_pass(
    publication: Publication, seen: Observation, clock: Callable[[], float], fault: Fault | None
) -> Said:
    """Publish what was seen; under a fault in a process of its own. Raises OSError."""

    def work() -> tuple[bool, list[str]]:
        done = publish(seen, publication, clock)
        return done.wrote_everything, [str(change.decision.unit) for change in done.changes if change.error]

    told = work() if fault is None else under(fault, work)
    return Said() if told is None else Said(True, told[0], frozenset(told[1]))


def under(fault: Fault, work: Callable[[], Any]) -> Any:
    """Do some work in a process that a fault befalls; return its result, or None if it did not come to its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            _arm(fault)
            os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told or "null")


def _arm(fault: Fault) -> None:
    """Let the fault befall this process: Python tells of each change before it is made (sys.addaudithook)."""
    numbers = itertools.count(1)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Ours are names in an open directory; the absolute ones are Python's own.
        creates = event == "open" and not os.path.isabs(str(arguments[0])) and arguments[2] & os.O_CREAT
        if not creates and event not in {"os.rename", "os.remove", "os.mkdir", "os.chmod"}:
            return
        number = next(numbers)
        if number == fault.at or (fault.lasting and number > fault.at):
            if fault.error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(fault.error, os.strerror(fault.error or 0))

    sys.addaudithook(hook)

"""Faults of the host's clock: it is stepped under a running publisher (see stepped.py)."""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import fault
from .laboratory import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_CLOCK = "what is decided does not depend on what time it is"


def _with_clock(lab: Laboratory) -> None:
    """Let the publisher's clock be told by a file."""
    lab.prefix += [sys.executable, "-I", str(HERE / "stepped.py"), str(lab.work / "clock")]
    _step(lab, 0)


def _step(lab: Laboratory, seconds: int) -> None:
    new = lab.work / "clock.new"
    new.write_text(str(seconds))
    new.replace(lab.work / "clock")


@contextmanager
def _stepped(lab: Laboratory, seconds: int) -> Iterator[None]:
    _step(lab, seconds)
    try:
        yield
    finally:
        _step(lab, 0)


@fault("clock a day ahead", attacks=_CLOCK, how="stepped forward, and back", before=_with_clock)
@contextmanager
def ahead(lab: Laboratory) -> Iterator[None]:
    """Step the clock forward."""
    with _stepped(lab, 86400):
        yield


@fault("clock a day behind", attacks=_CLOCK, how="stepped back, and forward", before=_with_clock)
@contextmanager
def behind(lab: Laboratory) -> Iterator[None]:
    """Step the clock back."""
    with _stepped(lab, -86400):
        yield


@fault(
    "clock jumps",
    attacks=_CLOCK,
    how="an hour forward or back, three times a second; a staleness limit of 60 s",
    before=_with_clock,
    stale_after=60,
    seconds=2,
)
@contextmanager
def jumps(lab: Laboratory) -> Iterator[None]:
    """Step the clock all the time."""
    ended = threading.Event()

    def jump() -> None:
        for seconds in itertools.cycle((3600, 0, -3600)):
            if ended.wait(0.3):
                return
            _step(lab, seconds)

    thread = threading.Thread(target=jump)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _step(lab, 0)
    lab.afterwards("nothing went stale", lambda: not lab.said('"event": "stale"'))

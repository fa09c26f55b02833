"""Faults of the host's clock: it is stepped under a running publisher (libfaketime; only its view of the time)."""

from __future__ import annotations

import glob
import itertools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_CLOCK = "what is decided does not depend on what time it is"


def _with_clock(lab: Laboratory) -> None:
    """Let the publisher's clock be told by a file; the monotonic one, and times of files, are the real ones."""
    (library,) = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    lab.environ |= {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(lab.work / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    _step(lab, "+0")


def _step(lab: Laboratory, offset: str) -> None:
    new = lab.work / "clock.new"
    new.write_text(offset)
    new.replace(lab.work / "clock")


@contextmanager
def _stepped(lab: Laboratory, offset: str) -> Iterator[None]:
    _step(lab, offset)
    try:
        yield
    finally:
        _step(lab, "+0")


@fault("clock a day ahead", attacks=_CLOCK, how="libfaketime: stepped forward, and back", before=_with_clock)
@contextmanager
def ahead(lab: Laboratory) -> Iterator[None]:
    """Step the clock forward."""
    with _stepped(lab, "+1d"):
        yield


@fault("clock a day behind", attacks=_CLOCK, how="libfaketime: stepped back, and forward", before=_with_clock)
@contextmanager
def behind(lab: Laboratory) -> Iterator[None]:
    """Step the clock back."""
    with _stepped(lab, "-1d"):
        yield


@fault(
    "clock jumps",
    attacks=_CLOCK,
    how="libfaketime: an hour forward or back, three times a second; a staleness limit of 60 s",
    before=_with_clock,
    stale_after=60,
    seconds=2,
)
@contextmanager
def jumps(lab: Laboratory) -> Iterator[None]:
    """Step the clock all the time."""
    ended = threading.Event()

    def jump() -> None:
        for offset in itertools.cycle(("+1h", "+0", "-1h")):
            if ended.wait(0.3):
                return
            _step(lab, offset)

    thread = threading.Thread(target=jump)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _step(lab, "+0")
    assert not lab.said('"event": "stale"')

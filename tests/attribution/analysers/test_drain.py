"""A log is waited for until nobody writes to it any more, and not for longer than was said."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.analysers.drain import Patience, wait_until_quiet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    """An open log."""
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def test_a_quiet_log_takes_the_least_time(log: int) -> None:
    """Nobody writes: it is not read before, since the last lines arrive late."""
    began = time.monotonic()
    assert wait_until_quiet(log, threading.Event(), Patience(0.3, 0.1, 30))
    assert 0.3 <= time.monotonic() - began < 10


def test_what_is_still_written_is_waited_for(log: int) -> None:
    """The time of quiet begins with the last write."""
    began = time.monotonic()
    written: list[float] = []

    def write() -> None:
        os.write(log, b"the cause\n")
        written.append(time.monotonic())

    timer = threading.Timer(0.2, write)
    timer.start()
    assert wait_until_quiet(log, threading.Event(), Patience(0.1, 1.0, 30))
    timer.join()
    assert time.monotonic() - written[0] >= 0.9
    assert time.monotonic() - began < 20


def test_a_log_that_is_never_quiet_is_waited_for_so_long_at_most(log: int) -> None:
    """Somebody goes on writing for ever: what is there is all that there will be."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.02):
            os.write(log, b"more\n")

    writer = threading.Thread(target=write)
    writer.start()
    began = time.monotonic()
    try:
        assert not wait_until_quiet(log, threading.Event(), Patience(0.1, 0.5, 0.8))
    finally:
        over.set()
        writer.join()
    assert 0.8 <= time.monotonic() - began < 10


def test_a_service_that_ends_does_not_wait(log: int) -> None:
    """The event ends the wait at once."""
    ending = threading.Event()
    ending.set()
    began = time.monotonic()
    assert not wait_until_quiet(log, ending)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("times", [(5, 1, 4), (1, 5, 4), (-1, 0, 1), (0, -1, 1), (0, 0, float("inf"))])
def test_times_that_nobody_can_wait_are_refused(times: tuple[float, float, float]) -> None:
    """More at least than at most, or for ever."""
    with pytest.raises(ValueError, match="least"):
        Patience(*times)

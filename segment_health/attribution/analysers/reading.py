"""Reads a log of any size, in memory and time that do not depend on it.

A short one is read whole. Of a long one the beginning and the end are, and what is around the first and the last
lines that look like a failure or like a step of training: the cause is most often the first of many messages, and
what came of it the last. All of it is searched, until the time is over.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .finding import Extract, Line
from .pieces import lines_of
from .search import Search, bytes_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_BEHIND = 6 << 10
_AHEAD = 8 << 10
_LINES_BEHIND = 6
_LINES_AHEAD = 14
"""Around a line that counts: bytes and lines."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is read of a log: a whole one, else of its head and its tail; and how long it is searched."""

    whole_bytes: int = 2 << 20
    whole_lines: int = 40_000
    head_lines: int = 400
    head_bytes: int = 256 << 10
    tail_lines: int = 2000
    tail_bytes: int = 1 << 20
    seconds: float = 120.0


USUAL = Bounds()


def read(descriptor: int, bounds: Bounds = USUAL, clock: Callable[[], float] = time.monotonic) -> Extract:
    """Read the log that is open as `descriptor`, a regular file, whose offset moves. Raises OSError.

    What is written to it meanwhile is not looked at. Where the time is over the rest is not searched, and what is
    behind it has no line numbers.
    """
    size = os.fstat(descriptor).st_size
    if size <= bounds.whole_bytes:
        data = bytes_at(descriptor, 0, size)
        if data.count(b"\n") + data.count(b"\r") <= bounds.whole_lines:
            return Extract(tuple(lines_of(data, 1)), size)
    search = Search(descriptor, size, clock() + bounds.seconds, clock)
    search.run()
    ranges = [_head(descriptor, bounds), _tail(descriptor, size, bounds)]
    ranges += [_around(descriptor, at, size) for at in search.places()]
    lines: list[Line] = []
    for begin, end in _merged(ranges):
        data = bytes_at(descriptor, begin, end - begin)
        is_cut = begin > 0 and bytes_at(descriptor, begin - 1, 1) not in {b"\n", b"\r"}
        lines += lines_of(data, search.number_at(begin), is_cut=is_cut)
    return Extract(tuple(lines), size, is_whole=False)


def _head(descriptor: int, bounds: Bounds) -> tuple[int, int]:
    data = bytes_at(descriptor, 0, bounds.head_bytes)
    end = 0
    for _ in range(bounds.head_lines):
        following = data.find(b"\n", end) + 1
        if following == 0:
            return 0, end or len(data)
        end = following
    return 0, end


def _tail(descriptor: int, size: int, bounds: Bounds) -> tuple[int, int]:
    begin = max(0, size - bounds.tail_bytes)
    data = bytes_at(descriptor, begin, size - begin)
    at = len(data) - data.endswith(b"\n")
    for _ in range(bounds.tail_lines):
        before = data.rfind(b"\n", 0, at)
        if before < 0:
            first = data.find(b"\n") + 1
            return begin + (first if begin > 0 and 0 < first < len(data) else 0), size
        at = before
    return begin + at + 1, size


def _around(descriptor: int, place: int, size: int) -> tuple[int, int]:
    """Return where some lines around a place begin and end; a line that is too long is cut."""
    start = max(0, place - _AHEAD)
    before = bytes_at(descriptor, start, place - start)
    begin = len(before)
    for _ in range(_LINES_AHEAD + 1):
        at = before.rfind(b"\n", 0, begin)
        if at < 0:
            break
        begin = at
    begin = start + begin + 1 if before[begin : begin + 1] == b"\n" else start + before.rfind(b"\r") + 1
    behind = bytes_at(descriptor, place, min(_BEHIND, size - place))
    end = 0
    for _ in range(_LINES_BEHIND + 1):
        following = behind.find(b"\n", end) + 1
        if following == 0:
            end = end or len(behind)
            break
        end = following
    return begin, place + end


def _merged(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join what overlaps or touches."""
    begin, end = 0, 0
    for start, stop in sorted(ranges):
        if start > end:
            if end > begin:
                yield begin, end
            begin, end = start, stop
        else:
            end = max(end, stop)
    if end > begin:
        yield begin, end

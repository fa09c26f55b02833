"""Finds the lines of a long log that look like a failure or like a step of training: the first, and the last.

It goes through the log from its beginning for all marks; what there is too much of is then looked for from the
end. Holes are passed over: a log that is emptied under its writer begins with one.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import steps
from .events import kind_of
from .expression import Scan, any_of
from .pieces import visible
from .spoken import spoken
from .table import MARKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_STRIDE = 1 << 20
_OVERLAP = 1 << 12
"""What of the next stride is looked at too: a mark may lie on both."""
_FORGOTTEN = 64 << 20
"""Bytes that the kernel keeps of what was searched."""
_HOLE = bytes(_STRIDE + _OVERLAP)
_KEPT = 8
"""Lines that count by one mark, from either end of the log."""
_LOOKED_AT = 1000
"""Lines that have a mark and do not count, until the mark is given up."""
_MAX_WINDOWS = 1500
_GRACE_SECONDS = 10.0
"""Behind the time for searching from the beginning: the end is what says most."""


@dataclass(slots=True)
class _Count:
    kept: int = 0
    looked_at: int = 0

    @property
    def is_over(self) -> bool:
        return self.kept >= _KEPT or self.looked_at >= _LOOKED_AT


class _Marks:
    """The marks that are still searched for."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._single = {mark: Scan(mark) for mark in marks}
        self._counts = {mark: _Count() for mark in marks}
        self.given_up: list[str] = []
        self._any: Scan | None = None
        self._compile()

    def _compile(self) -> None:
        self._any = Scan(any_of(list(self._counts))) if self._counts else None

    def next(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Find the next mark; return where it begins and ends."""
        return None if self._any is None else self._any.next(data, at)

    def counts(self, data: bytes, begin: int, end: int) -> bool:
        """Tell whether the line with a mark counts; give the mark up when it has been seen often enough."""
        mark = next((mark for mark in self._counts if self._single[mark].is_at(data, begin)), None)
        if mark is None:
            return False  # it was given up since it was found
        of_line = max(data.rfind(b"\n", 0, begin), data.rfind(b"\r", 0, begin)) + 1
        counts = _is_telling(data[of_line : _end_of_line(data, end)])
        count = self._counts[mark]
        count.kept += counts
        count.looked_at += 1
        if count.is_over:
            del self._counts[mark]
            self.given_up.append(mark)
            self._compile()
        return counts

    @property
    def are_given_up(self) -> bool:
        """Whether nothing is searched for any more."""
        return not self._counts


def _is_telling(raw: bytes) -> bool:
    text = spoken(visible(raw)).text
    return kind_of(text) is not None or steps.step_of(text) is not None or steps.is_training(text)


@dataclass(slots=True)
class Search:
    """Searches a log from its beginning, and then for what there is too much of from its end."""

    descriptor: int
    size: int
    deadline: float
    clock: Callable[[], float]
    _first: list[int] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)
    _newlines: list[int] = field(default_factory=lambda: [0])
    """How many there are before each stride."""
    _holes: set[int] = field(default_factory=set)
    _data_from: int = 0
    """Where the next data is, as far as is known."""

    def run(self) -> None:
        """Search all of it, or until the time is over."""
        marks = _Marks((*MARKS, *steps.MARKS))
        reached = self._forwards(marks)
        wanted = (*MARKS, *steps.MARKS) if reached < self.size else marks.given_up
        if wanted:
            self._backwards(_Marks(wanted), down_to=min([reached, *self._first[:1]]))

    def places(self) -> Iterator[int]:
        """Return where lines are that count, the first of them and the last."""
        half = _MAX_WINDOWS // 2
        yield from dict.fromkeys([*self._first[:half], *self._last[:half]])

    def number_at(self, offset: int) -> int | None:
        """Return the number of the line at a place; None behind what was not searched."""
        stride = offset // _STRIDE
        if stride >= len(self._newlines):
            return None
        begin = stride * _STRIDE
        return 1 + self._newlines[stride] + bytes_at(self.descriptor, begin, offset - begin).count(b"\n")

    def _forwards(self, marks: _Marks) -> int:
        for begin in range(0, self.size, _STRIDE):
            if self.clock() > self.deadline:
                return begin
            if self._is_hole(begin):
                self._holes.add(begin)
                self._newlines.append(self._newlines[-1])
                continue
            data = bytes_at(self.descriptor, begin, min(_STRIDE + _OVERLAP, self.size - begin))
            if len(data) < min(_STRIDE, self.size - begin):
                return begin  # somebody cut it short
            own = min(_STRIDE, len(data))
            self._forget(begin)
            self._newlines.append(self._newlines[-1] + data.count(b"\n", 0, own))
            if data == _HOLE[: len(data)]:
                continue
            at = 0
            while (found := marks.next(data, at)) is not None and found[0] < own:
                if marks.counts(data, *found):
                    self._first.append(begin + found[0])
                at = max(_end_of_line(data, found[1]), at + 1)
        return self.size

    def _is_hole(self, begin: int) -> bool:
        """Tell whether nothing was ever written in a stride."""
        if begin < self._data_from:
            return begin + _STRIDE + _OVERLAP <= self._data_from
        try:
            self._data_from = os.lseek(self.descriptor, begin, os.SEEK_DATA)
        except OSError as error:  # the rest is a hole, or the file system knows of none
            self._data_from = self.size if error.errno == errno.ENXIO else begin
        return begin + _STRIDE + _OVERLAP <= self._data_from

    def _forget(self, begin: int) -> None:
        """Let the kernel forget what lies behind: a log of gigabytes is not to displace what others need."""
        if begin % _FORGOTTEN == 0:
            os.posix_fadvise(self.descriptor, max(0, begin - _FORGOTTEN), _FORGOTTEN, os.POSIX_FADV_DONTNEED)

    def _backwards(self, marks: _Marks, down_to: int) -> None:
        last = (self.size - 1) // _STRIDE * _STRIDE
        for begin in range(last, -1, -_STRIDE):
            if marks.are_given_up or self.clock() > self.deadline + _GRACE_SECONDS or begin + _STRIDE <= down_to:
                return
            if begin in self._holes:
                continue
            data = bytes_at(self.descriptor, begin, min(_STRIDE + _OVERLAP, self.size - begin))
            places: list[tuple[int, int]] = []
            at = 0
            while (found := marks.next(data, at)) is not None and found[0] < _STRIDE:
                places.append(found)
                at = max(_end_of_line(data, found[1]), at + 1)
            self._last += [begin + place[0] for place in reversed(places) if marks.counts(data, *place)]


def _end_of_line(data: bytes, at: int) -> int:
    ends = [end for end in (data.find(b"\n", at), data.find(b"\r", at)) if end >= 0]
    return min(ends, default=len(data))


def bytes_at(descriptor: int, begin: int, size: int) -> bytes:
    """Read so many bytes, or what there is of them."""
    parts = []
    while size > 0 and (part := os.pread(descriptor, min(size, 1 << 22), begin)):
        parts.append(part)
        begin += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

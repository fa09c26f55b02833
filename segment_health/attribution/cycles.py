"""A launcher's restart cycles, as its application logs tell them: which began, and which failed. Pure.

ft_launcher writes one log a cycle beside the prefix that it is given (NVRx 0.7.0, cycle_info_writer.py): of
/logs/train.log they are /logs/train_cycle0.log, /logs/train_cycle1.log and so on; a prefix without an extension
gets `.log`. Nothing else tells one that stands beside the launcher when a cycle ends, so the log of a later cycle
does: the one before it failed, whatever its own log says.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_DIGITS = 9
"""More than any launcher counts to."""


class Stamp(NamedTuple):
    """What tells a log from the same log earlier: its size in bytes, its time of change in ns, its inode."""

    size: int
    changed: int
    inode: int


class Event(NamedTuple):
    """A cycle began, or has failed; `path` is that of its log."""

    cycle: int
    has_failed: bool
    path: str


class Names:
    """The names of the logs of one prefix, which is an absolute path."""

    def __init__(self, prefix: str) -> None:
        self.directory, name = posixpath.split(prefix)
        stem, extension = posixpath.splitext(name)
        self._stem, self._extension = stem, extension or ".log"
        number = rf"(0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}})"
        self._pattern = re.compile(f"{re.escape(stem)}_cycle{number}{re.escape(self._extension)}")

    def path_of(self, cycle: int) -> str:
        """Return the path of a cycle's log."""
        return posixpath.join(self.directory, f"{self._stem}_cycle{cycle}{self._extension}")

    def cycle_of(self, name: str) -> int | None:
        """Return the number of the cycle whose log has this name; None where it is no such name."""
        found = self._pattern.fullmatch(name)
        return int(found[1]) if found else None


class Cycles:
    """Follows the cycles of one launcher from one look at its logs to the next.

    `before` is what lay there when the launcher began: logs of an earlier run, which count once they change. A run
    that is requeued counts from 0 again, and may go on writing to what its predecessor left.
    """

    def __init__(self, names: Names, before: Mapping[int, Stamp]) -> None:
        self._names = names
        self._before = dict(before)
        self.current: int | None = None
        """The latest cycle that has begun."""

    def see(self, found: Mapping[int, Stamp]) -> list[Event]:
        """Return what is new, in the order in which it happened. A number below the current one is none of it."""
        began = sorted(
            cycle
            for cycle, stamp in found.items()
            if (self.current is None or cycle > self.current) and stamp != self._before.get(cycle)
        )
        return list(self._follow(began))

    def _follow(self, began: Iterable[int]) -> Iterable[Event]:
        for cycle in began:
            if self.current is not None:
                yield Event(self.current, has_failed=True, path=self._names.path_of(self.current))
            self.current = cycle
            yield Event(cycle, has_failed=False, path=self._names.path_of(cycle))

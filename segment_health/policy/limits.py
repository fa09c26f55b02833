"""How long and how many: the numbers of a policy, as people write them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HOLD_PASSES = 1_000_000
"""Passes in a row: nobody means more."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = r"([0-9]{1,9}) ?([smhd]?)"  # compiled by whoever has one to read, as those below
_LONGEST = 10 * 366 * 86_400
"""Seconds of the longest time that anybody can mean."""
_PASSES = r"([0-9]{1,6}) pass(?:es)?"
_PERCENT = r"([0-9]{1,3}) ?%"


def seconds(text: str) -> int:
    """Read `90`, `90s`, `5m`, `2h` or `1d`. Raises ValueError."""
    match = re.fullmatch(_DURATION, text)
    if match is None:
        raise ValueError("not a time such as 90s, 5m, 2h or 1d")
    found = int(match[1]) * _UNITS[match[2]]
    if found > _LONGEST:
        raise ValueError("longer than ten years")
    return found


@dataclass(frozen=True, slots=True)
class ClearAfter:
    """How much health lifts an exclusion: so many passes in a row, the first of them so many seconds ago."""

    passes: int = 1
    seconds: int = 0

    def __str__(self) -> str:
        if self.seconds:
            return f"{self.seconds}s"
        return "1 pass" if self.passes == 1 else f"{self.passes} passes"

    def is_met(self, passes: int, lasted: int) -> bool:
        """Tell whether so many passes in a row, for so many seconds, are enough."""
        return passes >= self.passes and lasted >= self.seconds


def clear_after(text: str) -> ClearAfter:
    """Read `1 pass`, `3 passes`, or a time. Raises ValueError."""
    match = re.fullmatch(_PASSES, text)
    if match is not None:
        if int(match[1]) == 0:
            raise ValueError("no pass at all is no evidence: 1 pass is the least")
        return ClearAfter(passes=int(match[1]))
    if re.fullmatch(_DURATION, text) is None or text.isdigit():  # of what?
        raise ValueError("neither passes (`3 passes`) nor a time (`10m`)")
    return ClearAfter(seconds=seconds(text))


@dataclass(frozen=True, slots=True)
class MaxNewExclusions:
    """How many units a pass may newly exclude: a count, or a percentage of the scope's units."""

    number: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)

    def of(self, units: int) -> int:
        """Return the limit for so many units. A percentage is rounded down, yet above 0 % it always allows one."""
        if not self.percent:
            return self.number
        return max(1, units * self.number // 100) if self.number else 0


def max_new_exclusions(text: str) -> MaxNewExclusions | None:
    """Read `4`, `10%` or `off`. Raises ValueError."""
    if text == "off":
        return None
    match = re.fullmatch(_PERCENT, text)
    if match is not None and int(match[1]) <= 100:  # noqa: PLR2004 - percent
        return MaxNewExclusions(int(match[1]), percent=True)
    if re.fullmatch(r"[0-9]{1,6}", text) is None:
        raise ValueError("neither a number of units, a percentage (`10%`) nor `off`")
    return MaxNewExclusions(int(text))

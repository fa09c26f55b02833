"""How many tokens may be spent on models, each day. Pure: the time is an argument."""

from __future__ import annotations

import json
from typing import NamedTuple

_DAY = 86_400


class Spent(NamedTuple):
    """Tokens that were spent, by the estimate, on a day of UTC, counted from the epoch."""

    day: int = 0
    tokens: int = 0

    def after(self, tokens: int, now: float, budget: int) -> Spent | None:
        """Return it after these tokens more, at `now` in seconds since the epoch; None beyond a day's budget."""
        day = int(now // _DAY)
        spent = tokens + (self.tokens if day == self.day else 0)
        return None if spent > budget else Spent(day, spent)


def written(spent: Spent) -> bytes:
    """Write it for a file."""
    return json.dumps(spent._asdict()).encode("ascii") + b"\n"


def read(content: bytes) -> Spent:
    """Read it back; nothing was spent where that cannot be read."""
    try:
        told = json.loads(content)
        return Spent(int(told["day"]), max(0, int(told["tokens"])))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Spent()

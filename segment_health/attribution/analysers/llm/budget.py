"""How many tokens may be spent on a model, each day. Pure: the time is an argument."""

from __future__ import annotations

from typing import NamedTuple

_DAY = 86_400


class Budget(NamedTuple):
    """Tokens of a day of UTC, by the estimate; what was spent of them on `day`, counted from the epoch."""

    tokens: int
    day: int = 0
    spent: int = 0

    def after(self, tokens: int, now: float) -> Budget | None:
        """Return it once these are spent, at `now` in seconds since the epoch; None if that is too many."""
        day = int(now // _DAY)
        spent = tokens + (self.spent if day == self.day else 0)
        return None if spent > self.tokens else Budget(self.tokens, day, spent)

"""How often one caller may ask. Pure: the time is an argument."""

from __future__ import annotations

_MINUTE = 60.0
_MAX_CALLERS = 10_000
"""Callers that are remembered; of more the one who was seen first is forgotten."""


class Rate:
    """So many requests a minute for each caller: as many at once, and then as many as time brings back."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._callers: dict[str, tuple[float, float]] = {}

    def wait(self, caller: str, now: float) -> float:
        """Count a request; return 0, or the seconds after which it may be made. `now` is in seconds."""
        left, at = self._callers.pop(caller, (self._most, now))
        left = min(self._most, left + max(0.0, now - at) * self._most / _MINUTE)
        allowed = left >= 1
        self._callers[caller] = (left - 1 if allowed else left, now)
        if len(self._callers) > _MAX_CALLERS:
            del self._callers[next(iter(self._callers))]
        return 0.0 if allowed else (1 - left) * _MINUTE / self._most

"""When a log is whole: its writers may still be at it when the launcher says that its cycle failed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .confine import FileState


class Patience(NamedTuple):
    """How long a log is waited for, in seconds: at least, unchanged, and at most."""

    least: float = 10.0
    unchanged: float = 5.0
    most: float = 40.0
    look: float = 0.5
    """From one look to the next."""


class Drain:
    """Watches one log from `began` on; every look tells its state then, None where there is no file."""

    def __init__(self, patience: Patience, began: float) -> None:
        self._patience = patience
        self._began = began
        self._state: FileState | None = None
        self._since = began

    def looked(self, state: FileState | None, now: float) -> bool:
        """Take note of a look, and tell whether the log is to be read now."""
        if state != self._state:
            self._state, self._since = state, now
        waited = now - self._began
        if waited >= self._patience.most:
            return True
        unchanged = now - self._since
        return state is not None and waited >= self._patience.least and unchanged >= self._patience.unchanged

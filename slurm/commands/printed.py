"""What all answers in text have in common: lines that arrive in pieces, free text, times, and "no such id"."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from slurm.errors import SlurmProtocolError
from slurm.fields import shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

NO_ID = "N/A"
"""How squeue writes "no such id"; nothing at all is none, and no id either."""
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
_TIME = re.compile(TIME)


class Lines:
    """Makes lines of bytes that arrive in pieces; `command` names the answer in errors.

    Split at newlines only: str.splitlines would also split at form feeds and U+2028 inside a reason.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._begun: list[bytes] = []
        """The pieces of a line whose end has not come: joined once, for it may be all there is."""
        self._is_empty = True

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return the lines that end in `data`."""
        self._is_empty = self._is_empty and not data
        first, newline, rest = data.partition(b"\n")
        self._begun.append(first)
        if not newline:
            return ()
        lines = rest.split(b"\n")
        lines.insert(0, b"".join(self._begun))
        self._begun = [lines.pop()]
        return lines

    def close(self, *, may_be_empty: bool = False) -> None:
        """End the answer. Raises SlurmProtocolError where it was cut short, or is empty and must not be."""
        if any(self._begun):
            raise SlurmProtocolError(f"{self._command}: answer cut short (no newline at its end)")
        if self._is_empty and not may_be_empty:
            raise SlurmProtocolError(f"{self._command}: empty answer")


def parse_time(text: str, zone: tzinfo | None) -> int:
    """Turn `2026-11-29T19:50:07` into seconds since the epoch; ValueError for anything else."""
    # What the zone of this process is may change; the tasks of an array begin together.
    return _time_here(text, None) if zone is None else _time_in(text, zone)


def _time_here(text: str, zone: tzinfo | None) -> int:
    if _TIME.fullmatch(text) is None:
        raise ValueError(f"not a time: {shown(text)}")
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())  # a naive one is local


_time_in = lru_cache(maxsize=1024)(_time_here)


def decode(output: bytes) -> str:
    r"""Decode what Slurm printed; a byte that is not UTF-8 becomes `\xNN`, since it is somebody's free text."""
    return output.decode("utf-8", "backslashreplace")

"""Records: the JSON that we leave on disk, one object a line, and how it is read back. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from json import JSONEncoder


_MAX_SECONDS = 1e12
"""More than any clock tells, and what arithmetic with it cannot overflow."""


class Fields:
    """A JSON object that we once wrote, read back without trusting it.

    Each method takes one field; a field that is missing is a KeyError, one of another type a TypeError or a
    ValueError. Fields that nobody asks for are ignored: a newer version wrote them.
    """

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise TypeError
        self._fields = cast("Mapping[str, Any]", value)

    def text(self, key: str) -> str:
        """Take a string."""
        value = self._fields[key]
        if not isinstance(value, str):
            raise TypeError
        return value

    def number(self, key: str) -> int:
        """Take an integer (true is none)."""
        value = self._fields[key]
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError
        return value

    def seconds(self, key: str) -> float:
        """Take a number, whole or not, but a finite one."""
        value = self._fields[key]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError
        if not -_MAX_SECONDS <= value <= _MAX_SECONDS:  # false of NaN too
            raise ValueError("no number that anybody counts to")
        return value

    def truth(self, key: str) -> bool:
        """Take true or false."""
        value = self._fields[key]
        if not isinstance(value, bool):
            raise TypeError
        return value

    def time(self, key: str) -> int:
        """Take a UTC time, as seconds since the epoch; one that utc() could not write again is a ValueError."""
        return _seconds(self.text(key))

    def many(self, key: str) -> list[Any]:
        """Take a list of anything."""
        value = self._fields[key]
        if not isinstance(value, list):
            raise TypeError
        return value

    def texts(self, key: str) -> list[str]:
        """Take a list of strings."""
        return [Fields({key: value}).text(key) for value in self.many(key)]

    def fields(self, key: str) -> Fields:
        """Take an object."""
        return Fields(self._fields[key])

    def each(self, key: str) -> list[Fields]:
        """Take a list of objects."""
        return [Fields(value) for value in self.many(key)]

    def optional(self, key: str, read: Callable[[str], Any]) -> Any:
        """Take a field with `read`, or None where it is null or missing."""
        return None if self._fields.get(key) is None else read(key)


@lru_cache(maxsize=1024)
def _seconds(text: str) -> int:
    """Read a time once: what is written in one pass has few of them, and thousands of copies."""
    seconds = int(datetime.fromisoformat(text).timestamp())
    utc(seconds)  # with an offset, the year 9999 may end in 10000
    return seconds


@lru_cache(maxsize=1024)
def utc(seconds: int) -> str:
    """Write seconds since the epoch as `2026-08-04T19:00:00+00:00`."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


@cache
def _encoder() -> JSONEncoder:
    """Make the writer of our JSON, once: a pass may write thousands of lines."""
    import json  # noqa: PLC0415 - late: `check` and `path` are called by shell scripts, and need printable() alone

    return json.JSONEncoder(ensure_ascii=True, allow_nan=False)


def one_line(document: Mapping[str, Any]) -> bytes:
    """Write a JSON object as one line that any terminal can show: ASCII, no control character but the newline."""
    # json escapes everything that is not ASCII, and of ASCII everything but DEL.
    text = _encoder().encode(document).replace("\x7f", "\\u007f")
    return text.encode("ascii") + b"\n"


def printable(text: str) -> str:
    """Escape what a terminal would act upon: control characters, and whatever has no glyph."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def brief(text: str, limit: int) -> str:
    """Cut what is longer than `limit`, and escape as printable() does: for a message that quotes it."""
    return printable(text if len(text) <= limit else f"{text[:limit]}...")

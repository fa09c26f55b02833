"""Expressions of RE2 over lines of a log: they need time in proportion to the text, whatever it is. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import re2

_MAX_MEMORY = 32 << 20
"""Bytes that an expression may use to search."""


class Expression:
    """An expression over a text, compiled when it is first used."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _compiled(self) -> re2._Regexp:
        return _compiled(self.text, never_capture=False)

    def search(self, text: str) -> re2._Match | None:
        """Find it anywhere in a text."""
        return self._compiled.search(text)

    def match(self, text: str) -> re2._Match | None:
        """Find it at the beginning of a text."""
        return self._compiled.match(text)

    def finds(self, text: str) -> bool:
        """Tell whether it is anywhere in a text."""
        return self._compiled.search(text) is not None

    def begins(self, text: str) -> bool:
        """Tell whether a text begins with it."""
        return self._compiled.match(text) is not None


class Scan:
    """An expression over many lines as they stand in a file; `^` and `$` are where a line begins and ends."""

    def __init__(self, text: str) -> None:
        self._compiled = _compiled(f"(?m){text}".encode(), never_capture=True)

    def next(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Find it from a place on; return where it begins and ends."""
        found = self._compiled.search(data, at)
        return None if found is None else found.span()

    def is_at(self, data: bytes, at: int) -> bool:
        """Tell whether it begins at a place."""
        return self._compiled.match(data, at) is not None


def any_of(texts: Sequence[str]) -> str:
    """Return the expression that finds what one of several finds."""
    return "|".join(f"(?:{text})" for text in texts)


def _compiled(text: str | bytes, *, never_capture: bool) -> re2._Regexp:
    import re2  # noqa: PLC0415 - 10 ms that nobody pays who reads no log

    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    options.never_capture = never_capture
    return re2.compile(text, options)

"""On which line of a TOML text a key stands, which tomllib does not tell. Pure.

The text has been accepted by tomllib before: so it is enough to know keys, brackets and commas, and to pass over
strings and comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_Location = tuple[str | int, ...]

_DEEPEST = 6
"""Parts of a location that are told apart: a policy has four, `rule, 2, state, 0`; a hostile one has thousands."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PART = r""""(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+"""
_NAME = re.compile(rf"(\[\[?)?[ \t]*((?:{_PART})(?:[ \t]*\.[ \t]*(?:{_PART}))*)[ \t]*(?:=|\]\]?)")
_SCALAR = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}'  # strings of several lines may end in one or two quotes more
    r'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
    r"|[^\"'#\[\]{},\n]+",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class Lines:
    """Where things stand, lines counted from 1, by location: `("rule", 2, "level")` is the third rule's level."""

    where: dict[_Location, int]

    def of(self, *location: str | int) -> int | None:
        """Return the line of a location, or of the nearest one that holds it; None if there is none."""
        for length in range(len(location), 0, -1):
            if location[:length] in self.where:
                return self.where[location[:length]]
        return None


def lines_of(text: str) -> Lines:
    """Find the lines of the tables, keys and elements of a TOML text."""
    scan = _Scan(text)
    while scan.step():
        pass
    return Lines(scan.where)


class _Scan:
    """Goes through a text, value by value; what is no TOML ends it."""

    def __init__(self, text: str) -> None:
        self.where: dict[_Location, int] = {}
        self._text = text
        self._position = 0
        self._line = 1
        self._table: _Location = ()
        self._sizes: dict[_Location, int] = {}
        """Tables so far of each `[[array]]`."""
        self._open: list[tuple[str, _Location, int]] = []
        """Brackets that have not been closed: which, of what, and the commas in it so far."""

    def step(self) -> bool:
        """Read a bracket, a comma, or the beginning of a value with the key before it; False at the end."""
        self._pass_over(_SPACE)
        here = self._text[self._position : self._position + 1]
        bracket, location, commas = self._open[-1] if self._open else ("", self._table, 0)
        if here in {"]", "}", ","} and self._open:
            self._position += 1
            self._open.pop()
            if here == ",":
                self._open.append((bracket, location, commas + 1))
            return True
        if bracket == "[":
            return self._value(self._note(location, [commas]))
        name = self._pass_over(_NAME)
        if name is None:
            return False
        parts = [_unquoted(part) for part in re.findall(_PART, name[2])[:_DEEPEST]]
        if name[1]:
            self._header(parts, is_array=name[1] == "[[")
            return True
        location = self._note(location, parts)
        self._pass_over(_SPACE)
        return self._value(location)

    def _header(self, parts: list[str], *, is_array: bool) -> None:
        self._table = ()
        for part in parts:
            if self._table in self._sizes:  # what stands below an array of tables is about the last of them
                self._table = (*self._table, self._sizes[self._table] - 1)
            self._table = self._note(self._table, [part])
        if is_array:
            index = self._sizes.get(self._table, 0)
            self._sizes[self._table] = index + 1
            self._table = self._note(self._table, [index])

    def _value(self, location: _Location) -> bool:
        here = self._text[self._position : self._position + 1]
        if here in {"[", "{"}:
            self._open.append((here, location, 0))
            self._position += 1
            return True
        return self._pass_over(_SCALAR) is not None

    def _note(self, location: _Location, parts: Iterable[str | int]) -> _Location:
        """Write down where each part below a location stands first; return the location of the last."""
        for part in parts:
            if len(location) < _DEEPEST:
                location = (*location, part)
                self.where.setdefault(location, self._line)
        return location

    def _pass_over(self, what: re.Pattern[str]) -> re.Match[str] | None:
        match = what.match(self._text, self._position)
        if match is not None:
            self._line += self._text.count("\n", self._position, match.end())
            self._position = match.end()
        return match


def _unquoted(part: str) -> str:
    if part.startswith("'"):
        return part[1:-1]
    if part.startswith('"'):
        return _ESCAPE.sub(_character, part[1:-1])
    return part


def _character(escape: re.Match[str]) -> str:
    number = escape[1] or escape[2] or escape[3]
    return chr(int(number, 16)) if number else _ESCAPED.get(escape[4], escape[4])

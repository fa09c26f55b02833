"""On which line of a TOML text a key stands, which tomllib does not tell. Pure.

The text has been accepted by tomllib before: so it is enough to pass over strings, comments and brackets to find
where each statement begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}'  # strings of several lines may end in one or two quotes more
    r'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
    r"|\#[^\n]*|[\[\]{}]|\n|[^\"'\#\[\]{}\n]+",
    re.DOTALL,
)
_TABLE = re.compile(r"\[(\[?)\s*(.*?)\s*\]?\]\s*(?:#.*)?", re.DOTALL)
_KEY = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([A-Za-z0-9_-]+))""")


@dataclass(frozen=True, slots=True)
class Lines:
    """Where things stand, lines counted from 1.

    `tables` are the lines of each array of tables' headers, `keys` those of keys by (table, its index or -1, key);
    a key before the first header is in the table "".
    """

    tables: dict[str, list[int]]
    keys: dict[tuple[str, int, str], int]

    def of(self, *location: str | int) -> int | None:
        """Return the line of a location such as `"rule", 2, "level"`, or the nearest one that holds it."""
        match location:
            case (str(table), int(index), str(key), *_) if (table, index, key) in self.keys:
                return self.keys[table, index, key]
            case (str(table), int(index), *_) if index < len(self.tables.get(table, [])):
                return self.tables[table][index]
            case (str(key), *_):
                return self.keys.get(("", -1, key)) or next(iter(self.tables.get(key, [])), None)
            case _:
                return None


def lines_of(text: str) -> Lines:
    """Find the lines of the tables and keys of a TOML text."""
    found = Lines({}, {})
    table, index = "", -1
    for line, statement in _statements(text):
        header = _TABLE.fullmatch(statement) if statement.startswith("[") else None
        if header is not None:
            table, index = _name(header[2]), -1
            numbers = found.tables.setdefault(table, [])
            numbers.append(line)
            if header[1]:
                index = len(numbers) - 1
        else:
            found.keys.setdefault((table, index, _name(statement)), line)
    return found


def _statements(text: str) -> list[tuple[int, str]]:
    """Split a text into statements, each with the line on which it begins; blank lines and comments are none."""
    statements: list[tuple[int, str]] = []
    line, begun, depth, current = 1, 1, 0, ""
    for piece in (*_TOKEN.findall(text), "\n"):
        if piece == "\n" and depth == 0:
            if current.strip():
                statements.append((begun, current.strip()))
            current = ""
        elif not piece.startswith("#"):
            if not current.strip():
                begun = line
            current += piece
            depth += (piece in {"[", "{"}) - (piece in {"]", "}"})
        line += piece.count("\n")
    return statements


def _name(text: str) -> str:
    """Return the first part of a dotted key, its quotes taken off."""
    match = _KEY.match(text)
    return next((part for part in match.groups() if part is not None), "") if match else ""

"""Bytes of a log made lines that can be read: whatever programs, terminals and file systems put between. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .finding import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHARACTERS = 2000
"""Of a line; no message of failure needs more."""
_CUT = "\N{HORIZONTAL ELLIPSIS}"
"""Stands where a line begins in its midst: what follows is the beginning of no message."""
_MAX_REDRAWN = 32
"""Of what was drawn over one another on a line: so many last ones, and the first."""
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:?<=>]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def lines_of(data: bytes, number: int | None, *, is_cut: bool = False) -> Iterator[Line]:
    """Take lines apart; `number` is that of the first, and `is_cut` says that its beginning is missing.

    What a progress bar drew again and again on one line become lines of the same number: the first, and the last.
    Escapes and control characters are left out, what is no UTF-8 is replaced, long lines are cut.
    """
    for raw in data.removesuffix(b"\n").split(b"\n") if data else ():
        drawn = [piece for piece in raw.split(b"\r") if piece] or [b""]
        if len(drawn) > _MAX_REDRAWN + 1:
            drawn = [drawn[0], *drawn[-_MAX_REDRAWN:]]
        for place, piece in enumerate(drawn):
            text = visible(piece)
            yield Line(number, f"{_CUT}{text}" if is_cut and place == 0 else text)
        is_cut = False
        number = None if number is None else number + 1


def visible(piece: bytes) -> str:
    """Return what a terminal would show of a line."""
    room = piece.lstrip(b"\0")[: MAX_CHARACTERS * 8].replace(b"\0", b"")  # a file written at two places has holes
    return _CONTROLS.sub("", _ESCAPES.sub(b"", room).decode("utf-8", "replace"))[:MAX_CHARACTERS]

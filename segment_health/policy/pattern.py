"""Finds a text or a regular expression in a reason, in a time that neither can stretch.

Reasons are anybody's text, and a policy may come from anybody too. RE2 needs time in proportion to the program
that an expression becomes and to the text; both are bounded here, so a search is over in some milliseconds
whatever either of them says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re2

MAX_REASON = 1024
"""Bytes of a reason that are looked at. What follows is not evidence for anything."""
MAX_PROGRAM = 1000
"""Instructions that an expression may become; some 40 phrases of 20 letters are as many."""
MAX_TEXT = 10_000
"""Characters of an expression."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to find in a reason, whatever the case of its letters: an expression of RE2, or a text as it stands."""

    text: str
    literal: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no expression, or too large a one. Raises ValueError."""
        if len(self.text) > MAX_TEXT:
            raise ValueError(f"longer than {MAX_TEXT} characters: make it several rules")
        size = _compiled(self.text, self.literal).programsize
        if size > MAX_PROGRAM:
            raise ValueError(f"becomes {size} instructions, more than {MAX_PROGRAM}: make it several rules")

    def found_in(self, reason: str | None) -> bool:
        """Tell whether a reason holds it anywhere; no reason is an empty one."""
        return _found(self.text, self.literal, (reason or "")[:MAX_REASON])


@lru_cache(maxsize=1024)  # many nodes share a reason
def _found(text: str, literal: bool, reason: str) -> bool:
    told = reason.encode("utf-8", "replace")[:MAX_REASON]
    return _compiled(text, literal).search(told) is not None


@lru_cache(maxsize=1024)  # all of a policy's: with fewer, every search would compile anew
def _compiled(text: str, literal: bool) -> re2._Regexp:
    import re2  # noqa: PLC0415 - 10 ms that a policy without reasons never pays

    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    options.literal = literal
    try:
        return re2.compile(text.encode(), options)  # bytes: for str it counts every character of the reason
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(_cause(error)) from error


def _cause(error: Exception) -> str:
    cause = error.args[0] if error.args else "not an expression"
    return cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(error)

"""What people write, settings and policies: how it is read, wherever it lies, and TOML."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from typing import Any

from .bounded import bounded

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10
    import tomli as tomllib


MAX_PARTS = 16
"""Parts of a key, `a.b.c`: tomllib needs time and memory by their square, 1.5 GB for a key of 40 kB."""

_STRING = r""""(?:\\.|[^"\\\n])*"?|'[^'\n]*'?"""  # whether or not it is closed: so no text is searched twice
_PART = rf"(?:{_STRING}|[A-Za-z0-9_-]+)"
# Of a key that is too long one part too many is enough: all of 500,000 would be 200 MB.
_WORDS = re.compile(rf"#[^\n]*|{_PART}((?:[ \t]*\.[ \t]*{_PART}){{0,{MAX_PARTS}}})")

READ_SECONDS = 60.0
"""How long the storage of such a file may take."""


class NotToml(ValueError):  # noqa: N818 - what the text is
    """A text that is no TOML; `line` is where, None if that cannot be told."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


def content_of(path: str, limit: int) -> bytes:
    """Return what stands in a file that a person wrote, wherever it lies, of at most `limit` bytes.

    Raises OSError, for a larger one too, and ValueError for what is no path.
    """

    def work() -> bytes:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            content = file.read(limit + 1)
            if len(content) > limit:
                raise OSError(errno.EFBIG, f"larger than {limit} bytes")
            return content

    return bounded(work, READ_SECONDS, path)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file for reading: a fifo must not hold us up."""
    return os.open(path, flags | os.O_NONBLOCK)


def read(content: bytes) -> dict[str, Any]:
    """Return what a file says. Raises NotToml."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotToml(f"not TOML: {error}", _line(content, error.start)) from error
    if text.startswith("\ufeff"):
        raise NotToml("not TOML: begins with a byte order mark, which no editor shows", 1)
    for found in _WORDS.finditer(text):
        if len(found[1] or "") > MAX_PARTS and len(re.findall(_PART, found[0])) > MAX_PARTS:
            line = text.count("\n", 0, found.start()) + 1
            raise NotToml(f"not TOML that we read: a key of more than {MAX_PARTS} parts", line)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        place = re.search(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", str(error))
        if place is None:
            raise NotToml(f"not TOML: {error}", None) from error
        line = int(place[1]) if place[1] else _line(content, len(content.rstrip()))
        raise NotToml(f"not TOML: {str(error)[: place.start()]}", line) from error


def _line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1

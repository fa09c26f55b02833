"""TOML, as people write it: settings and policies."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10
    import tomli as tomllib


class NotToml(ValueError):  # noqa: N818 - what the text is
    """A text that is no TOML; `line` is where, None if that cannot be told."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


def read(content: bytes) -> dict[str, Any]:
    """Return what a file says. Raises NotToml."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        place = re.search(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", str(error))
        if place is None:
            raise NotToml(f"not TOML: {error}", None) from error
        line = int(place[1]) if place[1] else content.rstrip().count(b"\n") + 1
        raise NotToml(f"not TOML: {str(error)[: place.start()]}", line) from error

"""Times as people write and read them."""

from __future__ import annotations

import re

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int | None:
    """Read `90`, `90s`, `15m`, `1h` or `2d`; None if it is none of these."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def ago(elapsed: int) -> str:
    """Say how long ago something was, in a unit of which there are two at least."""
    if elapsed < 0:
        return "from the future"
    for unit, name in (("d", "d"), ("h", "h"), ("m", "min")):
        if elapsed >= 2 * _SECONDS[unit]:
            return f"{elapsed // _SECONDS[unit]} {name} ago"
    return f"{elapsed} s ago"

"""The token that a refresh by the page asks for."""

from __future__ import annotations

import os
import stat

_MAX_TOKEN = 4096
"""Bytes of a token."""


def read_token(path: str) -> str:
    """Return the token in a file that nobody but its owner can read. Raises OSError and ValueError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a regular file")
        if found.st_mode & 0o077:
            raise ValueError(f"others can read it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600")
        if found.st_uid not in {os.geteuid(), 0}:
            raise ValueError(f"it belongs to uid {found.st_uid}")
        content = file.read(_MAX_TOKEN + 1).strip()
    if not 0 < len(content) <= _MAX_TOKEN or not all(0x21 <= byte <= 0x7E for byte in content):  # noqa: PLR2004
        raise ValueError("not one word of ASCII")
    return content.decode("ascii")

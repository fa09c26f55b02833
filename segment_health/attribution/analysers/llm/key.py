"""The API key: where it is read, and that nothing which is said holds it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from segment_health.attribution.http import NoAnswerError

_MAX_KEY = 1 << 14
"""Bytes of a key's file; what an identity provider signs may have thousands."""
_MARK = 8
"""Characters of a key, in a row, by which a part of it is known in a text; what is shorter may be any word."""


class KeyFileError(NoAnswerError):
    """Why there is no key; a sentence, without a word of what is in the file."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key; empty where the endpoint wants none."""

    text: str = field(default="", repr=False)

    def hide(self, text: str) -> str:
        """Take the key, and every part of it, out of a text: who answers may repeat what it was asked."""
        if not self.text:
            return text
        mark = min(_MARK, len(self.text))
        told, start = "", 0
        while start < len(text):
            end = start + mark
            if end > len(text) or text[start:end] not in self.text:
                told, start = told + text[start], start + 1
                continue
            while end < len(text) and text[start : end + 1] in self.text:
                end += 1
            told, start = f"{told}(key)", end
        return told


def read_key(path: str) -> Key:
    """Read the key of a file: its one line of printable ASCII. Raises KeyFileError."""
    name = _shown(path)
    try:
        # O_NONBLOCK: a pipe that nobody fills is no key, and nothing to wait for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise KeyFileError(f"{name}: the API key cannot be read: not a regular file")
            content = file.read(_MAX_KEY + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        raise KeyFileError(f"{name}: the API key cannot be read: {why}") from error
    if len(content) > _MAX_KEY:
        raise KeyFileError(f"{name}: more than {_MAX_KEY} bytes, which is no API key")
    line = content.decode("latin-1").strip()
    if not line:
        raise KeyFileError(f"{name}: there is no API key in it")
    if not (line.isascii() and line.isprintable()) or " " in line:
        raise KeyFileError(f"{name}: not one line of printable ASCII without blanks, which an API key is")
    return Key(line)


def open_to_others(path: str) -> str | None:
    """Say who else may read a key's file, for the one who starts a service; None where nobody may."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    return f"{_shown(path)}: others than its owner can read the API key (mode {mode:04o}); chmod 0600 keeps it"


def _shown(path: str) -> str:
    """Show a path only where it can be nothing else: some write the key itself there."""
    return path if path.startswith("/") and path.isprintable() else "what was named as the API key's file"

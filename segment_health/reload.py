"""A policy file that may change while a publisher runs."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .policy.assess import Policy

_MAX_CONTENT = (1 << 20) + 1
"""Bytes that are compared: one more than a policy may have."""


class PolicyFile:
    """Tells when the content of a policy file is another one, and reads it; `load` raises PolicyError."""

    def __init__(self, path: str, load: Callable[[], Policy]) -> None:
        self._path = path
        self._load = load
        self._known = _fingerprint(path)

    def has_changed(self) -> bool:
        """Tell whether the content differs from what was last read; a file that is gone has changed too."""
        return _fingerprint(self._path) != self._known

    def read(self) -> Policy:
        """Return the policy that the file holds now; what is written meanwhile is a change, read the next time.

        Raises PolicyError: then it is not tried again until it changes.
        """
        self._known = _fingerprint(self._path)
        return self._load()


def _fingerprint(path: str) -> str:
    """Return what tells one content from another; of what cannot be read, why."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "not a file"
            return hashlib.sha256(file.read(_MAX_CONTENT)).hexdigest()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # a NUL byte
        return str(error)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file for reading: a fifo must not hold us up."""
    return os.open(path, flags | os.O_NONBLOCK)

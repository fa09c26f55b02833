"""A policy file that may change while a publisher runs."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .policy.assess import Policy


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
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a fifo must not hold us up
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "not a file"
            return hashlib.sha256(file.read(_MAX_CONTENT)).hexdigest()
    except OSError as error:
        return error.strerror or str(error)


_MAX_CONTENT = 1 << 20
"""Bytes that are compared; a larger file is no policy."""

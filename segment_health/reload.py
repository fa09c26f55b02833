"""A policy file that may change while a publisher runs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .policy.content import PolicyError, content_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .policy.assess import Policy


class PolicyFile:
    """Tells when the content of a policy file is another one, and reads it.

    `parse` makes a policy of the content, or raises PolicyError.
    """

    def __init__(self, path: str, parse: Callable[[bytes], Policy]) -> None:
        self._path = path
        self._parse = parse
        self._known = ""

    def has_changed(self) -> bool:
        """Tell whether the content differs from what was last read; a file that is gone has changed too."""
        return _fingerprint(self._look()) != self._known

    def read(self) -> Policy:
        """Return the policy that the file holds now.

        Raises PolicyError: then it is not tried again until it changes.
        """
        content = self._look()
        self._known = _fingerprint(content)
        if isinstance(content, PolicyError):
            raise content
        return self._parse(content)

    def _look(self) -> bytes | PolicyError:
        """Return the content, or why there is none."""
        try:
            return content_of(self._path)
        except PolicyError as error:
            return error


def _fingerprint(content: bytes | PolicyError) -> str:
    """Return what tells one content from another."""
    return str(content) if isinstance(content, PolicyError) else hashlib.sha256(content).hexdigest()

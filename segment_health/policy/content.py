"""What stands in a policy file, and what is said of one that cannot be in force; what it means says `file`.

A publisher without such a file loads this and no more.
"""

from __future__ import annotations

from segment_health.record import printable

MAX_CONTENT = 1 << 20
"""Bytes of a policy file."""
MAX_PROBLEM = 500
"""Characters of what is said of a wrong file, which may quote it: it goes into logs and heartbeats."""


class PolicyError(Exception):
    """A policy file that cannot be in force; `line` is None where none is to blame. One line, for a person."""

    def __init__(self, path: str, line: int | None, problem: str) -> None:
        if len(problem) > MAX_PROBLEM:
            problem = f"{problem[:MAX_PROBLEM]}..."
        super().__init__(printable(f"{path}:{line}: {problem}" if line is not None else f"{path}: {problem}"))
        self.path = path
        self.line = line
        self.problem = problem


def content_of(path: str) -> bytes:
    """Return what stands in a policy file, or the beginning of what is too long for one. Raises PolicyError."""
    from segment_health import toml  # noqa: PLC0415 - only who has such a file reads one

    try:
        return toml.content_of(path, MAX_CONTENT + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        cause = error.strerror if isinstance(error, OSError) else error
        raise PolicyError(path, None, f"the policy cannot be read: {cause}") from error

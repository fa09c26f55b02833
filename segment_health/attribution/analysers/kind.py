"""A row of the table of failures, and how its messages are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .expression import Expression, any_of

_DOTTED = r"(?:\w+\.)*"
_ANY_ERROR = rf"(?:\[[^\]]+\] ?|{_DOTTED}\w+(?:Error|Exception): ?)*"


class Role(IntEnum):
    """How near to the cause a message is; of several in a log the lowest counts, and of those the first."""

    LOST = 0
    """Hardware that broke, or somebody who ended the job: whatever else is in the log follows from it."""
    CAUSE = 1
    """What ends a training by itself."""
    DOUBTFUL = 2
    """As often a cause as the trace of another rank's end."""
    CONSEQUENCE = 3
    """What the others say of a rank that is gone, and summaries."""


class Blame(IntEnum):
    """Which node a message blames."""

    NOBODY = 0
    SPEAKER = 1
    """The host that says it."""
    NAMED = 2
    """The one that it names: the group `node`."""
    PEERS = 3
    """The one that several others name (the group `peer`), or the only one that names several others."""
    ODD = 4
    """The host that says it, where others speak and do not."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure: its category, what it means to people, and what it is worth.

    `message`: how its messages begin, behind rank, time and host (see spoken.py).
    `is_certain`: the same script fails so each time, so that it is a STOP at once where training had not begun.
    `repeats`: how many consecutive cycles have to fail so at the same step for a STOP; None: no number is enough.
    `is_outage`: it passes by itself, or with the node, so that a cycle more is needed.
    `needs_traceback`: without one it is only a text.
    """

    category: str
    meaning: str
    role: Role
    message: Expression
    is_certain: bool = False
    repeats: int | None = 2
    is_outage: bool = False
    needs_traceback: bool = False
    blame: Blame = Blame.NOBODY


def raised(*names: str) -> Expression:
    """Find exceptions as Python prints them, with the name of their module or without."""
    return Expression(f"{_DOTTED}(?:{any_of(names)})")


def told(*texts: str) -> Expression:
    """Find messages that an exception may carry, or a program print by itself."""
    return Expression(f"{_ANY_ERROR}(?:{any_of(texts)})")


def plain(*texts: str) -> Expression:
    """Find messages as they stand."""
    return Expression(any_of(texts))

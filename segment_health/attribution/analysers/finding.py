"""What an analyser is given, and what it finds. Pure: values, and the one method that an analyser has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Action(str, Enum):
    """What is to become of the job, in NVRx's words."""

    STOP = "STOP"
    RESTART = "RESTART"
    UNKNOWN = "UNKNOWN"


class Line(NamedTuple):
    """A line of a log, without its end, and its number from 1; None where what is before it was not read."""

    number: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Extract:
    """What was read of a log: `lines` in their order, cut to a length, with gaps where `is_whole` is False.

    `size` is that of the file, in bytes.
    """

    lines: tuple[Line, ...]
    size: int
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What one log shows.

    `category` is a word of the table of failures, or "unknown"; `signature` is the same for two cycles that failed
    alike. `evidence` are lines of the log. `nodes` are those that the log itself blames. `step` is the last step
    of training that the log shows, None where it shows none.
    """

    category: str
    action: Action
    reason: str
    source: str
    signature: str = ""
    evidence: tuple[Line, ...] = ()
    nodes: tuple[str, ...] = ()
    step: int | None = None


class Analyser(Protocol):
    """Reads an extract; `earlier` are the findings of the same job's earlier cycles, oldest first.

    It raises nothing for what a log may hold. It may take long, and is called in a thread.
    """

    def analyse(self, extract: Extract, earlier: Sequence[Finding]) -> Finding:
        """Find out what failed, and what to do."""

"""A blame as it stands on disk: what one failed cycle of one job says against one node. Pure.

The service writes them (service/blame.py), a publisher reads them (directory.py). A file holds one, as a line of
JSON, and its name begins with the node's: so nothing is ever read, changed and written back, by however many.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from segment_health.level import FaultLevel
from segment_health.record import Fields, brief, one_line, printable, utc

if TYPE_CHECKING:
    from typing import Any

SCHEMA = 1
MARKER = "segment-health-blame"
"""A file that shows that this is the directory, and not the empty place where it is to be mounted."""
SUFFIX = ".blame"
LEVELS = frozenset({FaultLevel.NotHandleFault, FaultLevel.PreSeparateFault})
"""What a log may ask for. It is text that a job wrote: never enough for what a SeparateFault sets off."""
MAX_BYTES = 16384
"""Of a file; what encode() writes is shorter."""
MAX_EVIDENCE = 3
_MAX_TEXT = 300
"""Characters kept of a text."""

_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_JOB = re.compile(r"[0-9]{1,20}", re.ASCII)
_NAME = re.compile(rf"({_NODE.pattern})@[0-9a-f]{{16}}{re.escape(SUFFIX)}")


class Evidence(NamedTuple):
    """A line of a log: its number from 1, None where that is not known, and its text."""

    number: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Blame:
    """What one cycle says against a node.

    `category` is a word of the table of failures. `job_id` and `cycle` are what the service was told; `cycle`
    None where it was not. `log` is the name of the log without its folders, and `owner` the uid whose file it is,
    None where nobody looked. `time` is when the analysis ended, in seconds since the epoch, UTC.
    """

    node: str
    category: str
    job_id: str
    time: int
    cycle: int | None = None
    log: str = ""
    owner: int | None = None
    level: FaultLevel = FaultLevel.PreSeparateFault
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        """Refuse with ValueError what must not become a file's name, or a rule's."""
        if not is_node(self.node):
            raise ValueError("its node is no name of a node")
        if _WORD.fullmatch(self.category) is None:
            raise ValueError("its category is no word")
        if _JOB.fullmatch(self.job_id) is None:
            raise ValueError("its job has no id of Slurm's")
        if self.level not in LEVELS:
            raise ValueError(f"its level is {self.level.name}, and a log is never proof of that")

    @property
    def name(self) -> str:
        """The name of its file: the same for the same failure, so that a second analysis of a log adds nothing."""
        digest = sha256(f"{self.category} {self.job_id} {self.cycle}".encode("ascii")).hexdigest()
        return f"{self.node}@{digest[:16]}{SUFFIX}"


def is_node(text: str) -> bool:
    """Tell whether a text can be the name of a node, and the beginning of a file's."""
    return _NODE.fullmatch(text) is not None


def node_of(name: str) -> str | None:
    """Tell which node a file of this name is about; None for every other file."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1]


def encode(blame: Blame) -> bytes:
    """Write a blame as one line of ASCII; what the log says is cut and escaped."""
    return one_line(
        {
            "schema": SCHEMA,
            "node": blame.node,
            "category": blame.category,
            "level": blame.level.name,
            "job_id": blame.job_id,
            "time": utc(blame.time),
            "cycle": blame.cycle,
            "log": _shown(blame.log),
            "owner": blame.owner,
            "evidence": [
                {"line": line.number, "text": _shown(line.text)} for line in blame.evidence[:MAX_EVIDENCE]
            ],
        }
    )


def decode(content: bytes, name: str) -> Blame:
    """Read what stands in the file of that name back. Raises ValueError, with a cause for people.

    Unknown keys are ignored, and a newer schema is read if its fields make sense.
    """
    try:
        document: Any = json.loads(content)
        told = Fields(document)
        is_ours = told.number("schema") >= SCHEMA
        facts = {
            "node": told.text("node"),
            "category": told.text("category"),
            "job_id": told.text("job_id"),
            "time": told.time("time"),
            "cycle": told.optional("cycle", told.number),
            "log": printable(told.text("log")),
            "owner": told.optional("owner", told.number),
            "level": FaultLevel[told.text("level")],
            "evidence": tuple(
                Evidence(line.optional("line", line.number), printable(line.text("text")))
                for line in told.each("evidence")[:MAX_EVIDENCE]
            ),
        }
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError("it is no blame, or a damaged one") from error
    blame = Blame(**facts)
    if not is_ours or blame.node != node_of(name):
        raise ValueError("it is about another node than its name says, or of no schema that there ever was")
    return blame


def _shown(text: str) -> str:
    # A byte that was no UTF-8 is a lone surrogate here, which is not printable either.
    return brief(text, _MAX_TEXT)

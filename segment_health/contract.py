"""The artifact: what it is called and what stands in it (docs/contract.md). Pure: text and values, no files.

The name is the consumer's affair too, and the consumer is one file that can be vendored alone: so the name is
defined there, and used here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from .consumer import ARTIFACT_PREFIX, artifact_name, is_id
from .level import FaultLevel
from .record import Fields, one_line, utc

SCHEMA = 1
MAX_NODES = 64
"""Node entries in one artifact; its `unavailable` always names all."""
MAX_REASON = 1000
"""Characters kept of one reason: whatever an administrator pastes, an artifact stays small."""
ARTIFACT_MODE = 0o644


class UnitId(NamedTuple):
    """An allocation unit: an array task, or a job (both ids the job's). Ids are ASCII digits."""

    job_id: str
    task_id: str

    @property
    def artifact_name(self) -> str:
        """The file name of its artifact."""
        return artifact_name(self.job_id, self.task_id)

    def __str__(self) -> str:
        """Write it as Slurm's users do: `123_7` for an array task, `123` for a job."""
        return self.job_id if self.task_id == self.job_id else f"{self.job_id}_{self.task_id}"


def unit_of_artifact(name: str) -> UnitId | None:
    """Tell which unit a file name belongs to; None for every other file."""
    if not name.startswith(ARTIFACT_PREFIX):
        return None
    ids = name[len(ARTIFACT_PREFIX) :].split(".")
    if len(ids) != 2 or not all(map(is_id, ids)):  # noqa: PLR2004 - job id and task id
        return None
    return UnitId(*ids)


class Generation(NamedTuple):
    """One run of a unit. A requeue keeps the ids and changes this; compared as numbers, never as text."""

    restart_count: int
    start_time: int
    """Seconds since the epoch, UTC."""

    def is_older_than(self, other: Generation) -> bool:
        """Whether this run of a unit came before `other`.

        Either number tells: Slurm's clock may be set back between two restarts, and a job id that is used again
        after MaxJobId (slurm.conf(5)) begins with no restarts.
        """
        return self.restart_count < other.restart_count or self.start_time < other.start_time


class Publisher(NamedTuple):
    """Who wrote an artifact. `scope` is the text of a Scope; it and `cluster` identify the writer's opinion."""

    host: str
    pid: int
    version: str
    cluster: str
    scope: str


@dataclass(frozen=True, slots=True)
class NodeFault:
    """Why one node of a unit is not to be used: its state (base first), reason, level and the deciding rule."""

    name: str
    state: tuple[str, ...]
    reason: str | None
    reason_user: str | None
    reason_since: int | None
    level: FaultLevel
    rule: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """The content of an exclusion. Times are in seconds since the epoch, UTC.

    `nodes` has at most MAX_NODES entries, sorted by name; `unavailable` is the hostlist of all of them;
    `nodelist` that of the unit's nodes as they were when this generation began.
    """

    unit: UnitId
    level: FaultLevel
    nodes: tuple[NodeFault, ...]
    unavailable: str
    generation: Generation
    nodelist: str
    first_published: int
    updated: int
    publisher: Publisher

    def says_the_same_as(self, other: Artifact) -> bool:
        """Whether a reader would learn nothing new: level, node set and generation are the same."""
        return (self.level, self.unavailable, self.generation) == (
            other.level,
            other.unavailable,
            other.generation,
        )


class Content(Enum):
    """What can stand in an artifact that is not an Artifact of ours."""

    FOREIGN = "foreign"
    """Somebody else wrote it."""
    REFERENCE = "reference"
    """Somebody else wrote it as NVRx's reference producer does: names of nodes with commas between, and no
    more."""


_REFERENCE = re.compile(rb"[A-Za-z0-9._-]+(?:,[A-Za-z0-9._-]+)*")


def classify(content: bytes, unit: UnitId) -> Artifact | Content:
    """Tell what stands in the artifact of `unit`."""
    if _REFERENCE.fullmatch(content):
        return Content.REFERENCE
    return decode(content, unit) or Content.FOREIGN


def encode(artifact: Artifact) -> bytes:
    """Write an artifact as one line of JSON, keys in the contract's order.

    Pure ASCII: what is not, and every control character, is escaped, since reasons are anybody's text and
    people print these files.
    """
    return one_line(document_of(artifact))


def document_of(artifact: Artifact) -> dict[str, Any]:
    """Return what stands in an artifact, as a JSON object."""
    return {
        "schema": SCHEMA,
        "job_id": artifact.unit.job_id,
        "task_id": artifact.unit.task_id,
        "level": artifact.level.name,
        "nodes": [
            {
                "name": node.name,
                "state": list(node.state),
                "reason": node.reason,
                "reason_user": node.reason_user,
                "reason_since": None if node.reason_since is None else utc(node.reason_since),
                "level": node.level.name,
                "rule": node.rule,
            }
            for node in artifact.nodes
        ],
        "unavailable": artifact.unavailable,
        "generation": {
            "restart_count": artifact.generation.restart_count,
            "start_time": artifact.generation.start_time,
            "nodelist": artifact.nodelist,
        },
        "first_published": utc(artifact.first_published),
        "updated": utc(artifact.updated),
        "publisher": artifact.publisher._asdict(),
    }


def decode(content: bytes, unit: UnitId) -> Artifact | None:
    """Read the artifact of `unit` back; None unless a publisher of this project wrote it for that unit.

    Unknown keys are ignored and a newer schema is read if its fields make sense: an older publisher must not
    take a newer one's exclusion for a stranger's.
    """
    try:
        artifact, schema = _artifact(Fields(json.loads(content)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return artifact if artifact.unit == unit and schema >= SCHEMA else None


def artifact_of(document: Fields) -> Artifact:
    """Read an artifact that stands inside something else. Raises what Fields raises."""
    return _artifact(document)[0]


def _artifact(document: Fields) -> tuple[Artifact, int]:
    """Return an artifact and its schema."""
    generation, publisher = document.fields("generation"), document.fields("publisher")
    artifact = Artifact(
        unit=UnitId(document.text("job_id"), document.text("task_id")),
        level=FaultLevel[document.text("level")],
        nodes=tuple(_node_fault(node) for node in document.each("nodes")),
        unavailable=document.text("unavailable"),
        generation=Generation(generation.number("restart_count"), generation.number("start_time")),
        nodelist=generation.text("nodelist"),
        first_published=document.time("first_published"),
        updated=document.time("updated"),
        publisher=Publisher(
            host=publisher.text("host"),
            pid=publisher.number("pid"),
            version=publisher.text("version"),
            cluster=publisher.text("cluster"),
            scope=publisher.text("scope"),
        ),
    )
    return artifact, document.number("schema")


def _node_fault(node: Fields) -> NodeFault:
    return NodeFault(
        name=node.text("name"),
        state=tuple(node.texts("state")),
        reason=node.optional("reason", node.text),
        reason_user=node.optional("reason_user", node.text),
        reason_since=node.optional("reason_since", node.time),
        level=FaultLevel[node.text("level")],
        rule=node.text("rule"),
    )

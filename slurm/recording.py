"""Recordings: a whole Snapshot in a file, to be played again elsewhere. What a user attaches to a bug report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .commands.config import CLUSTER_NAME
from .errors import SlurmProtocolError
from .fields import Held, allocation_of, shown, time_of_reason
from .hostlist import is_node_name
from .json.stream import JsonStream
from .node import Node
from .saved import contents
from .snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .commands.config import Config
    from .job import Allocation
    from .traffic import Traffic

SCHEMA = 1
_ROOT = {"user": "root", "id": "0"}
_FIRST_SCRUBBED_ID = 100_001


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Head(_Strict):
    # `schema` is a name of pydantic's own
    version: Annotated[Literal[1], Field(alias="schema")]
    cluster: Annotated[str, Field(pattern=f"^{CLUSTER_NAME.pattern}$")]
    slurm_version: str | None
    visible_user: str | None
    source: str
    recorded: str
    scrubbed: bool = False


class _NodeRow(_Strict):
    name: str
    state: Annotated[list[str], Field(min_length=1)]
    reason: str | None = None
    reason_user: str | None = None
    reason_since: int | None = None


class _AllocationRow(_Strict):
    job_id: str
    array_job_id: str | None = None
    array_task_id: str | None = None
    het_job_id: str | None = None
    state: str
    restart_count: int
    start_time: int
    user: str
    user_id: str
    partition: str
    nodelist: str


class RecordingReader:
    """Plays a recording, of the cluster that is wanted if one is; `-` is standard input."""

    def __init__(self, path: str, cluster: str | None = None) -> None:
        self._path = path
        self._cluster = cluster
        self.config: Config | None = None  # it is not recorded
        self.traffic: dict[str, Traffic] = {}  # nobody is asked
        self.remarks: list[str] = []

    def read(self) -> Snapshot:
        """Read the file. Raises SlurmUnavailable or SlurmProtocolError."""
        snapshot = load(contents(self._path), self._path)
        if self._cluster not in {None, snapshot.cluster}:
            raise SlurmProtocolError(f"{self._path}: a recording of {snapshot.cluster}, not of {self._cluster}")
        return snapshot

    def close(self) -> None:
        """Keep nothing open."""


def dump(snapshot: Snapshot, *, source: str, recorded: str, scrubbed: bool = False) -> str:
    """Write a snapshot as one JSON object, a line a node and a line an allocation.

    `source` is the door it came through and `recorded` the time (ISO 8601): for whoever reads the file.
    """
    head = {
        "schema": SCHEMA,
        "cluster": snapshot.cluster,
        "slurm_version": snapshot.slurm_version,
        "visible_user": snapshot.visible_user,
        "source": source,
        "recorded": recorded,
        "scrubbed": scrubbed,
    }
    nodes = _lines(
        {
            "name": node.name,
            "state": list(node.state),
            "reason": node.reason,
            "reason_user": node.reason_user,
            "reason_since": node.reason_since,
        }
        for _, node in sorted(snapshot.nodes.items())
    )
    allocations = _lines(
        {name: getattr(allocation, name) for name in _AllocationRow.model_fields}
        for allocation in snapshot.allocations
    )
    opened = json.dumps(head)[:-1]
    return f'{opened},\n"nodes": [\n{nodes}\n],\n"allocations": [\n{allocations}\n]}}\n'


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps({key: value for key, value in row.items() if value is not None}) for row in rows)


def load(chunks: Iterable[bytes], what: str) -> Snapshot:
    """Read what dump() wrote; `what` names it in errors.

    Raises SlurmProtocolError for anything else, and for a recording that is not whole.
    """
    nodes: dict[str, Node] = {}
    allocations: dict[str, Allocation] = {}
    held = Held()

    def take_node(element: object) -> None:
        row = _checked(_NodeRow, element, what)
        base, *flags = row.state
        if not is_node_name(row.name):
            raise SlurmProtocolError(f"{what}: not the name of a node: {shown(row.name)}")
        said = (row.reason, row.reason_user, time_of_reason(row.reason_since)) if row.reason is not None else ()
        _put(nodes, row.name, Node(row.name, base, frozenset(flags), *said), what)

    def take_allocation(element: object) -> None:
        row = _checked(_AllocationRow, element, what)
        try:
            allocation = allocation_of(**row.model_dump())
            held.add(allocation)
            _put(allocations, row.job_id, allocation, what)
        except ValueError as error:
            raise SlurmProtocolError(f"{what}: job {shown(row.job_id)}: {error}") from error

    stream = JsonStream(what, {"nodes": take_node, "allocations": take_allocation})
    for chunk in chunks:
        stream.feed(chunk)
    members, counts = stream.close()
    head = _checked(_Head, members, what)
    if not counts.get("nodes") or "allocations" not in counts:
        raise SlurmProtocolError(f"{what}: a recording has nodes and allocations, this has not")
    return Snapshot(
        head.cluster, head.slurm_version, nodes, tuple(allocations.values()), visible_user=head.visible_user
    )


def scrub(snapshot: Snapshot) -> Snapshot:
    """Replace who people are and what they wrote: users, and reasons; root stays.

    The same user or reason gets the same word wherever it stands. Names of jobs are not in a snapshot; names of
    nodes, partitions and the cluster stay, as a report makes no sense without them.
    """
    users = _numbered("user", _ROOT["user"])
    ids = _numbered("", _ROOT["id"], first=_FIRST_SCRUBBED_ID)
    reasons = _numbered("reason ")
    return replace(
        snapshot,
        nodes={
            name: node._replace(reason=reasons(node.reason), reason_user=users(node.reason_user))
            for name, node in snapshot.nodes.items()
        },
        allocations=tuple(
            allocation._replace(user=users(allocation.user) or "", user_id=ids(allocation.user_id) or "")
            for allocation in snapshot.allocations
        ),
        visible_user=ids(snapshot.visible_user),
    )


def _numbered(word: str, *kept: str, first: int = 1) -> Callable[[str | None], str | None]:
    seen: dict[str, str] = dict(zip(kept, kept, strict=True))

    def name(text: str | None) -> str | None:
        return seen.setdefault(text, f"{word}{first + len(seen) - len(kept)}") if text else text

    return name


def _checked(model: type[Any], element: object, what: str) -> Any:
    try:
        return model.model_validate(element)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "a row"
        raise SlurmProtocolError(f"{what}: no recording of ours: {where}: {first['msg']}") from error


def _put(rows: dict[str, Any], key: str, row: object, what: str) -> None:
    if key in rows:
        raise SlurmProtocolError(f"{what}: {shown(key)} is recorded twice")
    rows[key] = row

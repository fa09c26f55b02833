"""Slurm's JSON, of every version and of both who write it (its commands and slurmrestd).

One shape for every data_parser from v0.0.39 on, in default and `+complex` forms, and for openapi v0.0.38 of 22.05:
the models name the few fields that a decision needs, take each in every form that a version gives it, and refuse
what would be a guess. A newer version is read if these fields make sense.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.fields import NO_VAL, Held, node_of, numbered_allocation, shown
from slurm.job import holds_nothing

from .stream import JsonStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.job import Allocation
    from slurm.node import Node

_NO_JOBS = "Zero jobs to dump"
"""The warning that comes with every answer without jobs since 24.11, and is none."""
_UNSET = frozenset({NO_VAL, NO_VAL + 1, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
"""NO_VAL and INFINITE of 32 and of 64 bits: what plain numbers of 22.05 say for "not set"."""
_RELEASE = re.compile(r"[0-9A-Za-z.+~-]{1,40}")
"""What may be a version of Slurm: it is printed."""
_BASES = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "INVALID", "MIXED", "UNKNOWN"})


def _number(value: object) -> object:
    """Read an int, null, `{"set": ..., "infinite": ..., "number": ...}` or "Infinity"; None is "not set"."""
    if isinstance(value, Mapping):
        if not isinstance(value.get("set"), bool):
            raise ValueError("a number that does not say whether it is set")  # noqa: TRY004 - pydantic's word
        if not value["set"] or value.get("infinite"):
            return None
        value = value.get("number")
        if value is None:
            raise ValueError("a number that is set, and is not there")
    if value in (None, "", "Infinity", math.inf):
        return None
    return None if isinstance(value, int) and value in _UNSET else value


def _words(value: object) -> object:
    """Read a state that is one word (22.05; jobs of v0.0.39) or a list of them."""
    return [value] if isinstance(value, str) else value


Number = Annotated[int, Field(ge=0, strict=True)]
Optional = Annotated[Number | None, BeforeValidator(_number)]
Words = Annotated[list[str], BeforeValidator(_words)]
Text = str | None


class NodeRow(BaseModel):
    """What is read of a node."""

    name: str
    state: str | list[str]
    state_flags: list[str] | None = None
    reason: Text = None
    reason_set_by_user: Text = None
    reason_changed_at: Optional = None


class JobRow(BaseModel):
    """What is read of a job. All of it has been there, in some form, in every version."""

    job_id: Optional
    array_job_id: Optional
    array_task_id: Optional
    het_job_id: Optional
    het_job_id_set: Text = None
    job_state: Words
    restart_cnt: Optional
    start_time: Optional
    user_id: Optional
    user_name: Text
    partition: Text
    nodes: Text
    cluster: Text = None


class JsonAnswer:
    """One answer, fed bit by bit: nodes, jobs, or a recording with both.

    `what` names the question in errors.
    """

    def __init__(self, what: str) -> None:
        self.nodes: dict[str, Node] = {}
        self.allocations: dict[str, Allocation] = {}
        self.members: dict[str, object] = {}
        self.remarks: list[str] = []
        self.cluster: str | None = None
        self.version: str | None = None
        self._what = what
        self._held = Held()
        self._refusal: SlurmProtocolError | None = None
        self.counts: dict[str, int] = {}
        rows = {"nodes": self._unless_refused(self._take_node), "jobs": self._unless_refused(self._take_job)}
        self._stream = JsonStream(what, rows)
        self.feed = self._stream.feed

    def end(self) -> dict[str, object]:
        """End the text; return what stands beside the rows. Raises SlurmProtocolError if it is not whole."""
        self.members, self.counts = self._stream.close()
        return self.members

    def close(self, wanted: str) -> None:
        """End the answer, which must have the rows that are `wanted`: "nodes" or "jobs".

        Raises SlurmUnavailable if Slurm reports an error in it, and SlurmProtocolError if it is not whole, lists
        no node where nodes are wanted, or lists something twice.
        """
        members = self.end()
        self._must_have_no_errors()
        if self._refusal is not None:
            raise self._refusal
        if wanted not in self.counts:
            hint = "; since 23.02 it groups nodes: take scontrol show nodes --json" if "sinfo" in members else ""
            raise SlurmProtocolError(f"{self._what}: no {wanted} in the answer{hint}")
        if wanted == "nodes" and not self.nodes:
            raise SlurmProtocolError(f"{self._what}: no node in the answer")
        self._note_meta(members.get("meta"))
        warnings = members.get("warnings")
        if isinstance(warnings, list):
            told = dict.fromkeys(map(_told, warnings))  # 23.11 without slurmdbd says the same of every job
            self.remarks = [f"{self._what}: {text}" for text in told if _NO_JOBS not in text]

    def _note_meta(self, meta: object) -> None:
        """Note whose answer this is; `Slurm` until 23.02, `slurm` since, the cluster only since 23.11."""
        slurm = (meta.get("slurm") or meta.get("Slurm")) if isinstance(meta, Mapping) else None
        if not isinstance(slurm, Mapping):
            return
        cluster, release = slurm.get("cluster"), slurm.get("release")
        self.cluster = cluster if isinstance(cluster, str) and cluster else self.cluster
        self.version = release if isinstance(release, str) and _RELEASE.fullmatch(release) else None

    def _must_have_no_errors(self) -> None:
        errors = self.members.get("errors")
        if errors is None or errors == []:
            return
        if not isinstance(errors, list):
            raise SlurmProtocolError(f"{self._what}: errors that are no list")
        raise SlurmUnavailable(f"{self._what}: {'; '.join(map(_told, errors[:3]))}")

    def _unless_refused(self, take: Callable[[object], None]) -> Callable[[object], None]:
        """Remember the first row that cannot be read, until it is known what Slurm itself says.

        23.02 without slurmdbd ends in the middle of its first job, and reports behind it, with exit 0, why.
        """

        def taken(element: object) -> None:
            if self._refusal is None:
                try:
                    take(element)
                except SlurmProtocolError as error:
                    self._refusal = error

        return taken

    def _take_node(self, element: object) -> None:
        row = self._read(NodeRow, element)
        if isinstance(row.state, str) and row.state_flags is None:
            raise SlurmProtocolError(f"{self._what}: {shown(row.name)} has the base of a state without its flags")
        words = [row.state] if isinstance(row.state, str) else row.state
        words = [word.upper() for word in (*words, *(row.state_flags or ()))]
        words.sort(key=lambda word: word not in _BASES)  # the base first, wherever it stood
        node = node_of(
            row.name,
            "+".join(words),
            reason=row.reason,
            reason_user=row.reason_set_by_user,
            reason_since=row.reason_changed_at,
        )
        if node.name in self.nodes:
            raise SlurmProtocolError(f"{self._what}: {node.name} is described twice")
        self.nodes[node.name] = node

    def _take_job(self, element: object) -> None:
        row = self._read(JobRow, element)
        job = shown(str(row.job_id))
        if not any(row.job_state):
            raise SlurmProtocolError(f"{self._what}: job {job} has no state")
        self.cluster = self.cluster or row.cluster
        state = ",".join(word.strip().upper() for word in row.job_state)
        if holds_nothing(state):
            return
        try:
            allocation = _allocation(row, state)
            self._held.add(allocation)
        except (ValueError, SlurmProtocolError) as error:
            raise SlurmProtocolError(f"{self._what}: job {job} in state {shown(state)}: {error}") from error
        if allocation.job_id in self.allocations:
            raise SlurmProtocolError(f"{self._what}: job {job} is listed twice")
        self.allocations[allocation.job_id] = allocation

    def _read(self, model: type[Any], element: object) -> Any:
        try:
            return model.model_validate(element)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "the row"
            raise SlurmProtocolError(
                f"{self._what}: {field}: {first['msg']}, got {shown(repr(first['input']))}"
            ) from error


def _allocation(row: JobRow, state: str) -> Allocation:
    # Outside an array its id is 0; task 0 is a task like any other.
    if bool(row.array_job_id) != (row.array_task_id is not None):
        raise ValueError(f"array {row.array_job_id} and task {row.array_task_id} do not go together")
    if row.het_job_id_set and not row.het_job_id:
        raise ValueError(f"a part of heterogeneous job {shown(row.het_job_id_set)}, and it is not told of which")
    return numbered_allocation(
        job_id=row.job_id,
        array_job_id=row.array_job_id,
        array_task_id=row.array_task_id,
        het_job_id=row.het_job_id,
        state=state,
        restart_count=row.restart_cnt,
        start_time=row.start_time,
        user=row.user_name,
        user_id=row.user_id,
        partition=row.partition,
        nodelist=row.nodes,
    )


def _told(error: object) -> str:
    """Return an entry of `errors` or `warnings` as a person reads it."""
    if not isinstance(error, Mapping):
        return shown(str(error))
    parts = [str(error[key]) for key in ("source", "error", "description") if error.get(key)]
    return shown(": ".join(dict.fromkeys(parts)) or str(dict(error)))

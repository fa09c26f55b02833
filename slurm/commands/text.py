"""Parses what `scontrol` and `squeue` print.

Everything here is written against hostile text. Features, gres, reasons and comments of nodes are free text
that may hold newlines, escapes, invalid UTF-8 and forged fields; so are names and comments of jobs, which is why
a live job query asks for none of them. A row that cannot be read makes the whole answer unusable
(SlurmProtocolError): half a table would read as "these nodes are fine".
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from slurm import hostlist
from slurm.errors import SlurmProtocolError
from slurm.fields import Held, allocation_of, digits, shown, state_of, time_of_reason
from slurm.job import holds_nothing
from slurm.node import Node
from slurm.snapshot import Snapshot, existing

from .config import SHOW_CONFIG, Known, config_of

if TYPE_CHECKING:
    from datetime import tzinfo

    from slurm.job import Allocation

    from .config import Config
    from .run import Commands

SHOW_NODES = ("scontrol", "--all", "--future", "--local", "show", "nodes", "--oneliner")

_FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "State",
    "RestartCnt",
    "StartTime",
    "UserName",
    "UserID",
    "Partition",
    "NodeList",
)
# `Field:|` (a suffix and no width) does not truncate and costs one RPC; only -O has RestartCnt and HetJobID.
# No state filter: it compares whole states, so `-t R` misses a configuring, resizing or signalled job (22.05).
# No -r: the tasks that hold nodes have rows of their own anyway, and pending arrays stay one row.
SHOW_JOBS = ("squeue", "--all", "--local", "--noheader", "--Format=" + ",".join(f"{name}:|" for name in _FIELDS))

# What may follow the reason of a node on its line, free text again: Slurm 22.05 ends with the first two.
_AFTER_REASON = re.compile(r" (?:Comment|Extra|InstanceId|InstanceType|ReservationName|ResumeAfterTime)=")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_STAMP = re.compile(rf"\[([^\[\]]+)@({_TIME.pattern})\]")
_NEXT_LINE_OF_REASON = " " * 7
"""scontrol puts the stamp behind a reason's first line, and indents the other lines behind the stamp."""
_FREE_TEXT = re.compile(r" (?:Reason|Comment|Extra)=")
_BEFORE_STATE = " Boards="
"""The field before a node's state; features and gres, free text too (`x State=IDLE`), stand before both."""
_BEHIND_STATE = " ThreadsPerCore="
NO_ID = "N/A"
"""How squeue writes "no such id"; nothing at all is none, and no id either."""


class TextReader:
    """Asks a living slurmctld through `scontrol` and `squeue`: the cheapest door that every site has.

    One node query and one job query a pass, side by side, however many jobs there are; the first pass also asks
    who the cluster is.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._cluster = Known(commands)
        self.traffic = {"text": commands.traffic}
        self.remarks: list[str] = []

    @property
    def config(self) -> Config | None:
        """What the cluster said of itself; None before the first answer."""
        return self._cluster.config

    def read(self) -> Snapshot:
        """Ask slurmctld once."""
        self._commands.begin()
        cluster = self._cluster
        if cluster.config is None and self._commands.cluster is not None:  # first of all find out where it is
            cluster.ask()
        queries = (SHOW_NODES, SHOW_JOBS) if cluster.config else (SHOW_NODES, SHOW_JOBS, SHOW_CONFIG)
        answers = self._commands.ask(*queries)
        self.remarks = [answer.remark for answer in answers if answer.remark]
        nodes, jobs, *config = (answer.stdout for answer in answers)
        if cluster.config is None:
            cluster.config = config_of(config[0])
        allocations = parse_jobs(jobs)
        told = cluster.beside(allocations)
        return Snapshot(
            cluster=told.cluster,
            slurm_version=told.slurm_version,
            nodes=existing(parse_nodes(nodes), allocations),
            allocations=allocations,
            visible_user=told.visible_user,
        )

    def close(self) -> None:
        """Keep nothing open."""


def parse_nodes(output: bytes, zone: tzinfo | None = timezone.utc) -> dict[str, Node]:
    """Read `scontrol show nodes --oneliner`: nodes by name, never none.

    `zone` is that of the printed times; None is this process's own. Raises SlurmProtocolError for an answer
    that is empty, cut short or has a malformed row, or that describes a node twice.
    """
    nodes: dict[str, Node] = {}
    may_go_on = False
    marked = _BEFORE_STATE.encode() in output
    for row in _lines(output, "scontrol show nodes"):
        if not row.startswith("NodeName="):
            if may_go_on and _BEFORE_STATE not in row:
                continue  # a line break in the comment of the node above
            raise SlurmProtocolError(f"scontrol show nodes: not a node: {shown(row)}")
        may_go_on = _FREE_TEXT.search(row) is not None  # once a node: a comment may have a million lines
        node = _parse_node(row, zone, marked=marked)
        if node.name in nodes:
            raise SlurmProtocolError(
                f"scontrol show nodes: {node.name} is described twice; look for a line break in the comment of "
                "a node listed before it (scontrol show nodes -o), and remove it"
            )
        nodes[node.name] = node
    if not nodes:
        raise SlurmProtocolError("scontrol show nodes: no node in the answer")
    return nodes


def _parse_node(row: str, zone: tzinfo | None, *, marked: bool) -> Node:
    """Read one row; when the answer is `marked`, _BEFORE_STATE is expected once, and the state behind it."""
    name = row[len("NodeName=") :].split(" ", 1)[0]
    _, mark, rest = row.partition(_BEFORE_STATE)
    is_forged = bool(mark) != marked or _BEFORE_STATE in rest
    _, state_found, rest = (rest if mark else row).partition(" State=")  # the first: later ones are free text
    if is_forged or not state_found or not hostlist.is_node_name(name):
        raise SlurmProtocolError(
            f"scontrol show nodes: malformed row (a record pasted into a reason or comment?): {shown(row)}"
        )
    try:
        base, flags = state_of(rest.partition(_BEHIND_STATE if mark else " ")[0])
    except ValueError as error:
        raise SlurmProtocolError(f"scontrol show nodes: {name}: {error}") from error
    _, found, reason = rest.partition(" Reason=")
    if not found:
        return Node(name, base, flags)
    return Node(name, base, flags, *_parse_reason(reason, zone))


def _parse_reason(text: str, zone: tzinfo | None) -> tuple[str | None, str | None, int | None]:
    """Split `bad fan [root@2026-11-29T19:50:07]` into reason, user and time; the rest of the row is dropped."""
    stamps = list(_STAMP.finditer(text))
    if not stamps:
        text = _AFTER_REASON.split(text, maxsplit=1)[0].strip()
        return (None if text in {"", "(null)"} else text), None, None
    stamp = next((found for found in stamps if _ends_first_line(text, found.end())), stamps[-1])
    further = _AFTER_REASON.split(text[stamp.end() :], maxsplit=1)[0]
    reason = " ".join(filter(None, [text[: stamp.start()].strip(), " ".join(further.split())]))
    try:
        since = parse_time(stamp[2], zone)
    except ValueError:  # [me@9999-99-99T99:99:99], written by hand: a reason never spoils its node
        since = None
    return reason, stamp[1], time_of_reason(since)


def _ends_first_line(text: str, at: int) -> bool:
    return at == len(text) or text.startswith(_NEXT_LINE_OF_REASON, at) or bool(_AFTER_REASON.match(text, at))


def parse_jobs(output: bytes, zone: tzinfo | None = timezone.utc) -> tuple[Allocation, ...]:
    """Read what SHOW_JOBS prints: every job that holds nodes, or may.

    Nothing at all is a valid answer: no job. `zone` is as in parse_nodes(). Raises SlurmProtocolError for an
    answer that is cut short or has a malformed row.
    """
    allocations = {}
    held = Held()
    for row in _lines(output, "squeue", may_be_empty=True):
        allocation = _parse_job(row, zone)
        if allocation is None:
            continue
        if allocation.job_id in allocations:
            raise SlurmProtocolError(f"squeue: job {allocation.job_id} is listed twice")
        held.add(allocation)
        allocations[allocation.job_id] = allocation
    return tuple(allocations.values())


def _parse_job(row: str, zone: tzinfo | None) -> Allocation | None:
    values = row.split("|")
    if len(values) != len(_FIELDS) + 1 or values[-1]:
        raise SlurmProtocolError(f"squeue: row without its {len(_FIELDS)} fields: {shown(row)}")
    job, array, task, het, state, restarts, start, user, user_id, partition, nodelist, _ = values
    return printed_allocation(
        job_id=job,
        array_job_id=array,
        array_task_id=task,
        het_job_id=het,
        state=state,
        restart_count=restarts,
        start_time=start,
        user=user,
        user_id=user_id,
        partition=partition,
        nodelist=nodelist,
        zone=zone,
    )


def printed_allocation(  # noqa: PLR0913 - one parameter a printed field
    *,
    job_id: str,
    array_job_id: str,
    array_task_id: str,
    het_job_id: str,
    state: str,
    restart_count: str,
    start_time: str,
    user: str,
    user_id: str,
    partition: str,
    nodelist: str,
    zone: tzinfo | None,
) -> Allocation | None:
    """Make an Allocation of printed fields, or None of a job that surely holds nothing; no such id is NO_ID.

    Raises SlurmProtocolError when a job that may hold nodes has an id, a count, a time or a node list that
    cannot be one: guessing would name the wrong unit.
    """
    if not state:
        raise SlurmProtocolError(f"job {shown(job_id)} has no state")
    if holds_nothing(state):
        return None
    try:
        return allocation_of(
            job_id=job_id,
            array_job_id=None if array_job_id == NO_ID else array_job_id,
            array_task_id=None if array_task_id == NO_ID else array_task_id,
            het_job_id=None if het_job_id == NO_ID else het_job_id,
            state=state,
            restart_count=int(digits(restart_count)),
            start_time=parse_time(start_time, zone),
            user=user,
            user_id=user_id,
            partition=partition,
            nodelist=nodelist,
        )
    except (ValueError, SlurmProtocolError) as error:
        raise SlurmProtocolError(f"job {shown(job_id)} in state {shown(state)}: {error}") from error


def parse_time(text: str, zone: tzinfo | None) -> int:
    """Turn `2026-11-29T19:50:07` into seconds since the epoch; ValueError for anything else."""
    if _TIME.fullmatch(text) is None:
        raise ValueError(f"not a time: {shown(text)}")
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())  # a naive one is local


def decode(output: bytes) -> str:
    r"""Decode what Slurm printed; a byte that is not UTF-8 becomes `\xNN`, since it is somebody's free text."""
    return output.decode("utf-8", "backslashreplace")


def _lines(output: bytes, command: str, *, may_be_empty: bool = False) -> list[str]:
    """Split at newlines only: str.splitlines would also split at form feeds and U+2028 inside a reason."""
    if not output:
        if may_be_empty:
            return []
        raise SlurmProtocolError(f"{command}: empty answer")
    if not output.endswith(b"\n"):
        raise SlurmProtocolError(f"{command}: answer cut short (no newline at its end)")
    return [line for line in decode(output).split("\n") if line.strip(" ")]

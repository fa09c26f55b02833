"""The history: every change of a decision, one line each, who made it and why.

`history.jsonl` is appended to by every publisher of the directory; past MAX_HISTORY bytes it becomes
`history.jsonl.1`, the older half, and there is no third. Whoever may publish may append: it tells people what
happened, and nothing is decided by it.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .atomic import read_file
from .consumer import is_id
from .contract import UnitId
from .record import Fields, one_line, utc
from .situation import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .contract import Publisher
    from .situation import Decision

HOLD, STALE, MANUAL = "hold", "stale", "manual"
"""Words for what is no action of a pass: held back, lifted unconfirmed, lifted by a person."""
MAX_HISTORY = 8 << 20
"""Bytes after which the history is rotated; two halves of this size are all that is kept."""
_NEW, _OLD = "history.jsonl", "history.jsonl.1"
_MAX_HALF = 8 * MAX_HISTORY
"""Bytes of a half that is read: one pass may write 10,000 exclusions behind the mark."""
_WHY = 300
"""Characters of a reason that is composed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history. `time` is in seconds since the epoch, UTC, and `nodes` is a hostlist.

    `who` is a person, or a publisher's scope and cluster. `document` is all of the line. What it says is other
    people's text.
    """

    time: int
    action: str
    unit: UnitId
    level: str | None
    nodes: str
    who: str
    why: str
    rules: tuple[str, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: entries, the oldest first; how many lines on the way were damaged; what could not be read."""

    entries: tuple[Entry, ...]
    damaged: int
    remarks: tuple[str, ...]


def entry(
    action: str,
    decision: Decision,
    publisher: Publisher,
    now: int,
    **further: str,
) -> dict[str, Any]:
    """Return one line of the history: what was done to which unit, by whom, why, and which rules decided.

    The nodes' reasons are the why, and the publisher is the who, where `further` has no other.
    """
    artifact = decision.artifact or decision.lifted
    faults = () if artifact is None else artifact.nodes
    reasons = dict.fromkeys(fault.reason or fault.rule for fault in faults)
    return {
        "time": utc(now),
        "action": action,
        "job_id": decision.unit.job_id,
        "task_id": decision.unit.task_id,
        "level": None if decision.level is None else decision.level.name,
        "nodes": decision.nodes,
        "who": writer(publisher),
        "why": "; ".join(reasons)[:_WHY],
        "faults": [
            {"name": n.name, "rule": n.rule, "reason": n.reason, "reason_user": n.reason_user} for n in faults
        ],
        "generation": None if artifact is None else artifact.generation._asdict(),
        "publisher": publisher._asdict(),
        **further,
    }


def append(folder: int, entries: Sequence[Mapping[str, Any]]) -> None:
    """Append entries to the history in an open folder, one line each, in one write. Raises OSError."""
    # O_NONBLOCK: a fifo under that name must not hang.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:  # without O_CREAT: fs.protected_regular refuses it on another user's file in a sticky directory
        descriptor = os.open(_NEW, flags, dir_fd=folder)
    except FileNotFoundError:
        descriptor = os.open(_NEW, flags | os.O_CREAT, 0o600, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            # By a second name it is another file as well: where fs.protected_hardlinks is 0, anybody's.
            raise OSError(errno.EINVAL, "history.jsonl is not a file of its own")
        if found.st_size == 0 and found.st_uid == os.geteuid():
            # Who may publish here may append here.
            os.fchmod(descriptor, 0o644 | (stat.S_IMODE(os.fstat(folder).st_mode) & 0o022))
        lines = b"".join(map(one_line, entries))
        if os.write(descriptor, lines) < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
    if found.st_size > MAX_HISTORY:
        os.replace(_NEW, _OLD, src_dir_fd=folder, dst_dir_fd=folder)


def read(folder: int, wanted: Callable[[Entry], bool], limit: int | None = None) -> Reading:
    """Read both halves in an open folder; of what is wanted the last `limit` entries."""
    # The newer half first: should it become the older one meanwhile it is read twice, which can be seen.
    new, told = _content(folder, _NEW)
    old, of_old = _content(folder, _OLD)
    older = b"" if new and old.startswith(new) else old
    kept: list[Entry] = []
    damaged = 0
    # From the end: who wants the last hundred does not wait for forty thousand to be decoded.
    for line in reversed([*io.BytesIO(older), *io.BytesIO(new)]):
        if len(kept) == limit:
            break
        found = decode(line)
        if found is None:
            damaged += 1
        elif wanted(found):
            kept.append(found)
    return Reading(
        tuple(reversed(kept)), damaged, tuple(remark for remark in (of_old, told) if remark is not None)
    )


def _content(folder: int, name: str) -> tuple[bytes, str | None]:
    try:
        return read_file(folder, name, _MAX_HALF), None
    except FileNotFoundError:
        return b"", None
    except OSError as error:
        return b"", f"{name} is left out: {error.strerror or error}"


def decode(line: bytes) -> Entry | None:
    """Read a line; None if it is damaged. What an older version did not write is empty."""
    try:
        document = json.loads(line)
        told = Fields(document)
        unit = UnitId(told.text("job_id"), told.text("task_id"))
        if not all(map(is_id, unit)):
            return None
        one_line(document)  # what cannot be written again is not JSON
        publisher = told.fields("publisher")
        faults = told.each("faults")
        reasons = dict.fromkeys(fault.optional("reason", fault.text) or fault.text("rule") for fault in faults)
        who = told.optional("who", told.text) or f"{publisher.text('scope')}@{publisher.text('cluster')}"
        why = told.optional("why", told.text) or "; ".join(reasons)
        return Entry(
            told.time("time"),
            told.text("action"),
            unit,
            told.optional("level", told.text),
            told.text("nodes"),
            who,
            why,
            tuple(dict.fromkeys(fault.text("rule") for fault in faults)),
            document,
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None

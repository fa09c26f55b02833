"""Parses `scontrol show nodes --oneliner`, line by line as it arrives.

Features, gres, reasons and comments of nodes are free text that may hold newlines, escapes, invalid UTF-8 and
forged fields. A row that cannot be read makes the whole answer unusable (SlurmProtocolError): half a table would
read as "these nodes are fine".

Of a node that is well a state is kept and no more, and its row stays bytes: 10,000 nodes print 6 MB.
"""

from __future__ import annotations

import re
from datetime import timezone
from typing import TYPE_CHECKING

from slurm import hostlist
from slurm.errors import SlurmProtocolError
from slurm.fields import shown, state_of, time_of_reason
from slurm.nodes import NodeTable

from .printed import TIME, Lines, decode, parse_time

if TYPE_CHECKING:
    from datetime import tzinfo

    from slurm.nodes import Reason, State

_COMMAND = "scontrol show nodes"
_NAME = b"NodeName="
_NAMED = re.compile(rb"NodeName=([A-Za-z0-9._-]{1,%d})(?: |\Z)" % hostlist.MAX_NAME)
_REASON = b" Reason="
_FREE_TEXT = re.compile(rb" (?:Reason|Comment|Extra)=")
_BEFORE_STATE = b" Boards="
"""The field before a node's state; features and gres, free text too (`x State=IDLE`), stand before both."""
_STATE = b" State="
_BEHIND_STATE = b" ThreadsPerCore="
# What may follow the reason of a node on its line, free text again: Slurm 22.05 ends with the first two.
_AFTER_REASON = re.compile(r" (?:Comment|Extra|InstanceId|InstanceType|ReservationName|ResumeAfterTime)=")
_STAMP = re.compile(rf"\[([^\[\]]+)@({TIME})\]")
_NEXT_LINE_OF_REASON = " " * 7
"""scontrol puts the stamp behind a reason's first line, and indents the other lines behind the stamp."""


class NodeRows:
    """The node table in the making. `zone` is that of the printed times; None is this process's own."""

    def __init__(self, zone: tzinfo | None = timezone.utc) -> None:
        self._zone = zone
        self._lines = Lines(_COMMAND)
        self._states: dict[str, State] = {}
        self._reasons: dict[str, Reason] = {}
        self._read: dict[bytes, State] = {}
        """States as they are printed: some dozens, whatever the number of nodes."""
        self._is_marked: bool | None = None
        """Whether _BEFORE_STATE stands in each row, which the first one tells."""
        self._row = b""
        self._may_go_on: bool | None = None
        """Whether the last row has free text, None if nobody has looked: a comment may have a million lines."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises SlurmProtocolError for a malformed row or a node that is described twice."""
        for row in self._lines.feed(data):
            named = _NAMED.match(row)
            if named is not None:
                self._take(row, named[1].decode())
            elif row.startswith(_NAME):
                raise _malformed(row)
            elif not self._goes_on(row):
                raise SlurmProtocolError(f"{_COMMAND}: not a node: {shown(decode(row))}")

    def close(self) -> NodeTable:
        """End the answer. Raises SlurmProtocolError where it is empty or cut short."""
        self._lines.close()
        if not self._states:
            raise SlurmProtocolError(f"{_COMMAND}: no node in the answer")
        return NodeTable(self._states, self._reasons)

    def _goes_on(self, row: bytes) -> bool:
        """Tell whether a row is a line break in the comment of the node above; a blank one is nothing."""
        if not row.strip(b" "):
            return True
        if self._may_go_on is None:
            self._may_go_on = _FREE_TEXT.search(self._row) is not None
        return self._may_go_on and _BEFORE_STATE not in row

    def _take(self, row: bytes, name: str) -> None:
        """Read one row; where rows are marked, _BEFORE_STATE is expected once, and the state behind it."""
        mark = row.find(_BEFORE_STATE)
        if self._is_marked is None:
            self._is_marked = mark >= 0
        begin = row.find(_STATE, max(mark, 0)) + len(_STATE)  # the first: later ones are free text
        is_forged = mark < 0 if self._is_marked else mark >= 0
        if is_forged or begin < len(_STATE) or row.find(_BEFORE_STATE, begin) >= 0:
            raise _malformed(row)
        end = row.find(_BEHIND_STATE if self._is_marked else b" ", begin)
        printed = row[begin : end if end >= 0 else None]
        state = self._read.get(printed)
        if state is None:
            try:
                state = self._read[printed] = state_of(decode(printed))
            except ValueError as error:
                raise SlurmProtocolError(f"{_COMMAND}: {name}: {error}") from error
        if name in self._states:
            raise SlurmProtocolError(
                f"{_COMMAND}: {name} is described twice; look for a line break in the comment of "
                "a node listed before it (scontrol show nodes -o), and remove it"
            )
        self._states[name] = state
        reason = row.find(_REASON, begin)
        if reason >= 0:
            self._reasons[name] = parse_reason(decode(row[reason + len(_REASON) :]), self._zone)
        self._row, self._may_go_on = row, None


def _malformed(row: bytes) -> SlurmProtocolError:
    told = "malformed row (a record pasted into a reason or comment?)"
    return SlurmProtocolError(f"{_COMMAND}: {told}: {shown(decode(row))}")


def parse_nodes(output: bytes, zone: tzinfo | None = timezone.utc) -> NodeTable:
    """Read a whole answer: nodes by name, never none. Raises SlurmProtocolError, as NodeRows does."""
    rows = NodeRows(zone)
    rows.feed(output)
    return rows.close()


def parse_reason(text: str, zone: tzinfo | None) -> Reason:
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

"""One node, as slurmctld describes it: for those who ask of themselves, a thousand at a time.

`scontrol show node NAME` fetches the table of all nodes and prints a row of it; `sinfo --nodes` with one name is
answered with that node alone (REQUEST_NODE_INFO_SINGLE), and with the partitions.
"""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING

from slurm import hostlist
from slurm.errors import SlurmProtocolError
from slurm.fields import shown, state_of, time_of_reason
from slurm.node import Node

from .printed import decode, parse_time

if TYPE_CHECKING:
    from .run import Commands

# The state with all its flags, which %T of sinfo(1) folds into one word. The reason is free text: it comes last.
_FIELDS = ("NodeList", "StateComplete", "Timestamp", "User", "Reason")
_FORMAT = "--Format=" + ",".join(f"{name}:|" for name in _FIELDS)
_NOBODY = "Unknown"
_NO_REASON = "none"


def node_of(name: str, commands: Commands) -> Node:
    """Ask for one node by its NodeName.

    Raises SlurmUnavailable; SlurmProtocolError where there is no such node, or the answer is another's, is cut
    short or cannot be read.
    """
    if not hostlist.is_node_name(name):
        raise SlurmProtocolError(f"not the name of a node: {shown(name)}")
    commands.begin()
    query = ("sinfo", "--all", "--local", "--noheader", "--Node", f"--nodes={name}", _FORMAT)
    return parse_node(commands.ask(query)[0].stdout, name)


def parse_node(output: bytes, name: str) -> Node:
    """Read what node_of() asks for: a row for each partition of the node, all of them the same.

    What stands before the first reason is Slurm's own, whatever the reason says. Raises SlurmProtocolError.
    """
    if not output:
        raise SlurmProtocolError(f"sinfo: no node {name} (its NodeName is wanted, and it must be in a partition)")
    text = decode(output)
    fields = text.split("|", len(_FIELDS) - 1)
    if len(fields) != len(_FIELDS) or not text.endswith("|\n"):
        raise SlurmProtocolError(f"sinfo: a malformed row, or half of one: {shown(text)}")
    listed, state, since, user, rest = fields
    if listed != name:
        raise SlurmProtocolError(f"sinfo: asked for {name}, and was told of {shown(listed)}")
    try:
        base, flags = state_of(state)
    except ValueError as error:
        raise SlurmProtocolError(f"sinfo: {name}: {error}") from error
    reason = rest.split(f"|\n{name}|{state}|", 1)[0].removesuffix("|\n")
    if user == _NOBODY or reason == _NO_REASON:
        return Node(name, base, flags)
    return Node(name, base, flags, " ".join(reason.split()), user, time_of_reason(_time(since)))


def _time(text: str) -> int | None:
    try:
        return parse_time(text, timezone.utc)
    except ValueError:  # "Unknown"; a reason never spoils its node
        return None

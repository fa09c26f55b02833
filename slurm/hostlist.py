"""Hostlists: `n[01-03],gpu7` to names and back.

ClusterShell expands and folds, behind a validator (the plainest form, `n[01-18]`, is expanded here): given text
from Slurm or from a file it would also resolve groups (`@all`), take `!`, `&` and `/2` for operators, accept
NUL and newline, and need minutes for `n[0-999999999]`. What the validator lets through is the syntax of
scontrol(1) and no more. It is fed part by part, since it merges each part of `r1n[1-2],r2n[3-4],...` with all
before it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from .errors import SlurmProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT = 1 << 20
"""Characters of one hostlist; the folded list of 10,000 scattered nodes has some 60,000."""
MAX_RANGE = 1 << 16
"""Hosts of one bracket: Slurm's own limit (MAX_RANGE in its hostlist.c)."""
MAX_HOSTS = 1 << 18
"""Hosts of one hostlist, all its parts and brackets multiplied."""
MAX_DIGITS = 18
"""Digits of one number: past 19 Slurm's own parser overflows. Refused, never truncated."""
MAX_NAME = 255
"""Characters of one node's name."""

_NO_NODES = frozenset({"", "(null)", "None", "None assigned", "N/A"})
"""How Slurm's commands write "no nodes"."""

_NAME = r"[A-Za-z0-9._-]"
_BRACKET = re.compile(r"\[([0-9,-]+)\]")
# Name and bracket alternate, and a part is not empty: nothing here can be matched in two ways, so it is linear.
_PART = re.compile(rf"(?=[^,]){_NAME}*(?:\[[0-9,-]+\]{_NAME}*)*")
_HOSTLIST = re.compile(rf"{_PART.pattern}(?:,{_PART.pattern})*")
_PLAIN = re.compile(rf"({_NAME}*)\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_ENDS = re.compile(r"[,-]")
_LONG_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
_PLAIN_NAME = re.compile(rf"{_NAME}{{1,{MAX_NAME}}}")


def is_node_name(text: str) -> bool:
    """Tell whether `text` can be the name of one node (letters, digits, `.`, `_`, `-`)."""
    return _PLAIN_NAME.fullmatch(text) is not None


def expand(text: str) -> tuple[str, ...]:
    """Name every node of a hostlist, each once.

    Slurm's words for "none" (`(null)`, `None assigned` and the empty text) give the empty tuple.
    Raises SlurmProtocolError for anything that is not a hostlist, or is larger than the limits above.
    """
    if text.strip(" ") in _NO_NODES:
        return ()
    return (text,) if is_node_name(text) else _expand(text)


@lru_cache(maxsize=4096)  # pass after pass lists the same jobs
def _expand(text: str) -> tuple[str, ...]:
    if len(text) > MAX_TEXT:
        raise SlurmProtocolError(f"hostlist of {len(text)} characters, more than {MAX_TEXT}")
    if _HOSTLIST.fullmatch(text) is None:
        raise SlurmProtocolError(f"not a hostlist: {_shown(text)}")
    parts = _PART.findall(text)
    if sum(map(_size, parts)) > MAX_HOSTS:
        raise SlurmProtocolError(f"hostlist names more than {MAX_HOSTS} hosts: {_shown(text)}")
    return tuple(dict.fromkeys(name for part in parts for name in _expanded(part)))


def fold(names: Iterable[str]) -> str:
    """Write node names as one hostlist, brackets on the last number only, as Slurm itself prefers.

    `expand(fold(names))` is the same set of names. No name gives the empty text.
    """
    wanted = list(names)
    if not wanted:
        return ""
    if len(wanted) == 1:
        return wanted[0]
    from ClusterShell.NodeSet import (  # noqa: PLC0415 - 23 ms that a pass without a decision never pays
        RESOLVER_NOGROUP,
        NodeSet,
    )

    # expand() reads no number that is longer, so a name with one stands for itself.
    unfolded = sorted({name for name in wanted if _LONG_NUMBER.search(name)})
    nodes = NodeSet(resolver=RESOLVER_NOGROUP)
    # Folding every axis is quadratic in the number of names (r1n1 ... r50n20); one axis is linear.
    nodes.fold_axis = (-1,)
    nodes.updaten(set(wanted).difference(unfolded))
    return ",".join(filter(None, [str(nodes), *unfolded]))


def _size(part: str) -> int:
    """Count the hosts of one part, all its brackets multiplied; refuse a name that is too long."""
    pieces = _BRACKET.split(part)  # text, inside, text, inside ... text
    between, brackets = pieces[::2], pieces[1::2]
    if sum(map(len, between)) + sum(map(_widest, brackets)) > MAX_NAME:
        raise SlurmProtocolError(f"hostlist has a name of more than {MAX_NAME} characters: {_shown(part)}")
    return prod(map(_hosts_in, brackets))


def _widest(bracket: str) -> int:
    return max(map(len, _ENDS.split(bracket)))


def _hosts_in(bracket: str) -> int:
    """Count the hosts of one bracket's inside, `1-3,07`."""
    hosts = 0
    for item in bracket.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise SlurmProtocolError(f"not a hostlist: [{_shown(bracket)}]")
        first, last = match[1], match[2] or match[1]
        if max(len(first), len(last)) > MAX_DIGITS:
            raise SlurmProtocolError(f"hostlist has a number of more than {MAX_DIGITS} digits: {_shown(bracket)}")
        if int(last) < int(first):
            raise SlurmProtocolError(f"hostlist has a range that runs backwards: {_shown(bracket)}")
        hosts += int(last) - int(first) + 1
        if hosts > MAX_RANGE:
            raise SlurmProtocolError(f"hostlist has a range of more than {MAX_RANGE} hosts: {_shown(bracket)}")
    return hosts


def _expanded(part: str) -> Iterable[str]:
    """Name the nodes of one part, which has been found good."""
    if "[" not in part:
        return (part,)
    plain = _PLAIN.fullmatch(part)
    if plain is not None:
        return _counted(plain[1], plain[2])
    from ClusterShell.NodeSet import (  # noqa: PLC0415 - 23 ms that a cluster of plain names never pays
        RESOLVER_NOGROUP,
        NodeSet,
        NodeSetParseError,
    )

    try:
        return tuple(NodeSet(_BRACKET.sub(_with_even_widths, part), resolver=RESOLVER_NOGROUP))
    except (NodeSetParseError, AssertionError) as error:  # the latter for r[1-2]000000000, "range too large"
        raise SlurmProtocolError(f"not a hostlist: {_shown(part)}: {_shown(str(error))}") from error


def _counted(prefix: str, bracket: str) -> Iterable[str]:
    """Name the nodes of a part with one bracket, at its end: as most are, and ClusterShell needs 0.3 ms for one.

    Slurm pads every number of a range to the width of its first.
    """
    for item in bracket.split(","):
        first, _, last = item.partition("-")
        width = len(first)
        for number in range(int(first), int(last or first) + 1):
            yield f"{prefix}{number:0{width}}"


def _with_even_widths(bracket: re.Match[str]) -> str:
    """Write each range with ends of one width, as ClusterShell wants it: `08-100` is `08-99,100`.

    Slurm pads every number of a range to the width of its first, whatever the width of its last.
    """
    items = []
    for item in bracket[1].split(","):
        first, _, last = item.partition("-")
        width, number, end = len(first), int(first), int(last or first)
        widest = 10**width - 1
        if number <= widest:
            items.append(f"{number:0{width}}-{min(end, widest):0{width}}")
        if end > widest:
            items.append(f"{max(number, widest + 1)}-{end}")
    return f"[{','.join(items)}]"


def _shown(text: str) -> str:
    """Quote text from outside for an error, short and with control characters escaped."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")  # noqa: PLR2004 - one line of a terminal

"""What a line of a log says, and who says it: without its rank, host, time and level. Pure.

The rest begins as the program wrote it, so a failure is told from a text that merely speaks of one: a comment, a
quoted log, a printed setting begin otherwise.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MAX_NAME = 64
MAX_NODES = 4
"""More nodes than these do not fail at once by themselves: then none is blamed."""
_MAX_PREFIXES = 6
_NODE = re.compile(r"(?=[^.]*[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")
_NO_HOST = (
    r"(?!(?i:rank|worker|gpu|cuda|step|stage|epoch|proc|process|local|node|task|dp|tp|pp|mp|mlx|layer)[\d._-])"
)
"""What stands alone before a message and is more often something else than a host."""
_PREFIXES = tuple(
    re.compile(expression)
    for expression in (
        # Who: srun --label and NVRx's logs, torch, Ray, syslog, NCCL, pdsh.
        r"\s{0,6}(?P<rank>\d{1,6}): ",
        r"\[(?:rank|default|Rank )(?P<rank>\d{1,6})\]:? ?",
        r"\((?:\w+(?:\([^)]{0,40}\))? )?(?:rank|pid)=(?P<rank>\d{1,8})(?:, ip=[\d.]{7,15})?\) ?",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[\w.-]{1,64}) [\w./-]{1,40}(?:\[\d{1,8}\])?: ?",
        r"(?P<host>[\w.-]{1,64}):\d{1,8}:\d{1,8} (?:\[\d{1,3}\] )?",
        # What the kernel says comes from a host, whatever its name. Else worker-3 may be one (DeepSpeed), or not.
        r"(?P<host>[a-z][a-z.-]{0,40}\d[a-z0-9.-]{0,40}): (?=(?:\[ {0,6}\d{1,9}\.\d{3,6}\] )?NVRM: )",
        r"(?P<label>(?i:worker|node)[._-]?\d{1,6}): ",
        _NO_HOST + r"(?P<host>[a-z][a-z.-]{0,40}\d[a-z0-9.-]{0,40}): ",
        # When.
        r"\[?\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:? ?(?:- )?",
        r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?:? ?(?:- )?",
        r"\[ {0,6}\d{1,9}\.\d{1,9}\] ",
        # How loud; glog and torch say when and where in one.
        r"\[?(?P<letter>[WEIFC])\d{3,4} \d\d:\d\d:\d\d\.\d{1,9}(?: \d{1,8})? [\w./-]{1,120}:\d{1,6}\] ?",
        r"\[?(?P<letter>[WEI]) [\w./-]{1,120}:\d{1,6}\] ?",
        r"\[(?P<letter>[WEI])\] ?",
        r"[\w./-]{1,80}\.(?:cpp|cc|cu|h|py):\d{1,6}\]? ",
        r"\[[\w./-]{1,80}\.py:\d{1,6}(?::\w{1,60})?\] ?",
        (
            r"\[?(?P<level>DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?"
            r"(?::[\w.]{1,60}:|:| -|(?=\s))[ \t]{0,4}"
        ),
    )
)
_QUIET = frozenset({"DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "W", "I"})


class Spoken(NamedTuple):
    """What is said, by which rank (as printed) and host where the line tells; `is_quiet` is below an error."""

    text: str
    rank: str | None = None
    host: str | None = None
    is_quiet: bool = False


def spoken(line: str) -> Spoken:
    """Take a line apart."""
    rank = host = label = None
    is_quiet = False
    at = 0
    for _ in range(_MAX_PREFIXES):
        found = next((match for prefix in _PREFIXES if (match := prefix.match(line, at))), None)
        if found is None:
            break
        told = found.groupdict()
        if told.get("host") is not None and node_named(told["host"]) is None:
            break
        rank = rank or told.get("rank")
        host = host or told.get("host")
        label = label or told.get("label")
        is_quiet = is_quiet or (told.get("level") or told.get("letter")) in _QUIET
        at = found.end()
    return Spoken(line[at:], rank or label, host, is_quiet)


def node_named(text: str) -> str | None:
    """Return a text that can be a node's name as it is; None for an address or anything else."""
    return text if len(text) <= _MAX_NAME and _NODE.fullmatch(text) and not text.startswith("localhost") else None

"""One node, as Slurm describes it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""The one-character suffixes of sinfo(1), which scontrol printed too before Slurm 21.08 (`DOWN*+DRAIN`)."""
_SUFFIX_CHARACTERS = "".join(_SUFFIXES)

_COLLAPSED = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
}
"""Words in which sinfo(1) folds a flag into the base."""


class Node(NamedTuple):
    """A node of the node table.

    `base` is the one base state, `flags` what stands beside it, both in Slurm's words (`scontrol show node`,
    the STATE part of sinfo(1)); neither is checked against a list, so a newer Slurm's words arrive as they are.
    `reason` and `reason_user` are free text that anybody with operator rights wrote: escape before printing.
    `reason_since` is in seconds since the epoch, UTC.
    """

    name: str
    base: str
    flags: frozenset[str] = frozenset()
    reason: str | None = None
    reason_user: str | None = None
    reason_since: int | None = None

    @property
    def state(self) -> tuple[str, ...]:
        """The base, then the flags sorted."""
        return (self.base, *sorted(self.flags))


@lru_cache(maxsize=1024)  # a cluster of 10,000 nodes has a few dozen distinct states
def parse_state(text: str) -> tuple[str, frozenset[str]]:
    """Split a printed state, `MIXED+DRAIN` or `DOWN*+DRAIN`, into its base and its flags.

    Never fails: what is not known is returned as it stands, and an empty text gives an empty base. Whoever
    judges a node must treat an unknown base as "no verdict".
    """
    flags: set[str] = set()
    words = []
    for printed in text.strip().upper().split("+"):
        word = printed.rstrip(_SUFFIX_CHARACTERS)
        flags.update(_SUFFIXES[suffix] for suffix in set(printed[len(word) :]))
        words.append(word)
    base, *rest = words
    flags.update(filter(None, rest))
    if base in _COLLAPSED:
        base, implied = _COLLAPSED[base]
        flags.add(implied)
    return base, frozenset(flags)

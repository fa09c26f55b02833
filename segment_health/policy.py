"""What a node's state means (docs/contract.md, Levels). Pure.

Only the flag set counts, never a printed word: sinfo's `%T` shows one word and hides the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .level import FaultLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm.node import Node

_OK, _PRE, _SEPARATE = FaultLevel

_BASES = {
    "IDLE": _OK,
    "ALLOCATED": _OK,
    "MIXED": _OK,  # may hide DOWN: libslurm writes MIXED over it while CPUs are partly in use
    "DOWN": _SEPARATE,
    "ERROR": _SEPARATE,
    "FUTURE": _OK,  # inside an allocation: see _IN_ALLOCATION
}
"""Base states that we understand. UNKNOWN is not among them: slurmctld has just started and does not know."""

_FLAGS = {
    "DRAIN": _PRE,
    "POWER_DOWN": _PRE,
    "POWER_DRAIN": _PRE,
    "NOT_RESPONDING": _PRE,
    "FAIL": _SEPARATE,
    "REBOOT_ISSUED": _SEPARATE,
    "INVALID_REG": _SEPARATE,
}
"""Flags that are faults wherever the node is."""

_IN_ALLOCATION = {"POWERING_DOWN": _SEPARATE, "POWERED_DOWN": _SEPARATE, "FUTURE": _SEPARATE}
"""Flags and bases that are faults only under a running allocation: elsewhere they save power."""

_HARMLESS = frozenset(
    {
        "BLOCKED",
        "CLOUD",
        "COMPLETING",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "MAINTENANCE",
        "PLANNED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_UP",
        "REBOOT_REQUESTED",
        "RESERVED",
        "UNDRAIN",
    }
)

_EVIDENCE_WITHOUT_BASE = frozenset({"DRAIN", "FAIL", "INVALID_REG", "REBOOT_ISSUED"})
"""Flags that count beside a base that is not understood: a restarted slurmctld shows UNKNOWN+DRAIN for seconds."""

_STARTING = frozenset({"POWERING_UP", "POWER_UP"})
_EXCUSED_BY_STARTING = frozenset({"NOT_RESPONDING", "POWERING_DOWN", "POWERED_DOWN"})
"""What a node that is powering up shows until it is up: not ready is not faulty."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a node's state means. `level` None is *no verdict*: neither fit nor faulty.

    `rule` names what decided, `state:DRAIN`; `unknown` are flags that no rule knows.
    """

    level: FaultLevel | None
    rule: str
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Policy:
    """Which levels are published, by the contract's table. `publish_at` is the lowest level that excludes."""

    publish_at: FaultLevel = FaultLevel.PreSeparateFault
    name: str = "default"

    def assess(self, node: Node, *, allocated: bool = True) -> Assessment:
        """Judge one node; `allocated` says whether a running allocation holds it."""
        return _assess(node.base, node.flags, allocated=allocated)


@lru_cache(maxsize=4096)  # few distinct states, many nodes
def _assess(base: str, flags: frozenset[str], *, allocated: bool) -> Assessment:
    understood = base in _BASES
    unknown = flags - _FLAGS.keys() - _HARMLESS
    faults = dict(_faults(base, flags, allocated=allocated))
    if not understood:
        faults = {word: level for word, level in faults.items() if word in _EVIDENCE_WITHOUT_BASE}
    if faults:
        word = max(sorted(faults), key=faults.__getitem__)
        return Assessment(faults[word], f"state:{word}", unknown)
    if not understood:
        return Assessment(None, f"state:{base or 'empty'}", unknown)
    return Assessment(_OK, f"state:{base}", unknown)


def _faults(base: str, flags: frozenset[str], *, allocated: bool) -> Iterator[tuple[str, FaultLevel]]:
    """Yield each word of a state that is a fault, with its level."""
    counted = flags
    if "UNDRAIN" in flags:
        counted -= {"DRAIN"}
    if flags & _STARTING:
        counted -= _EXCUSED_BY_STARTING
    table = _FLAGS | _IN_ALLOCATION if allocated else _FLAGS
    for word in (base, *counted):
        level = _BASES.get(word, _OK) if word == base else _OK
        level = max(level, table.get(word, _OK))
        if level > _OK:
            yield word, level

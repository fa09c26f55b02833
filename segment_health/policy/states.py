"""What each word of a node's state means where no rule says otherwise (docs/contract.md, Levels). Pure.

Only the flag set counts, never a printed word: sinfo's `%T` shows one word and hides the rest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from segment_health.level import FaultLevel

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

NOT_UNDERSTOOD = frozenset({"UNKNOWN"})
"""Words of which nobody can say what they mean: no verdict, unless a rule names them."""

WORDS = frozenset(_BASES) | frozenset(_FLAGS) | _HARMLESS | NOT_UNDERSTOOD
"""Every word of a state that a rule can speak of."""

STAMPED = frozenset({"DRAIN", "FAIL", "DOWN", "INVALID_REG"})
"""Words at whose beginning Slurm writes down a reason, and when."""


def is_understood(base: str) -> bool:
    """Tell whether a base state is one of which we know what it means."""
    return base in _BASES


class Reading(NamedTuple):
    """A state, word by word.

    `words` are those that count, each with its default level, None for a base that is not understood; sorted, so
    that the same state always reads the same. `unknown` are flags that nobody knows, and that count for nothing.
    """

    words: tuple[tuple[str, FaultLevel | None], ...]
    unknown: frozenset[str]


@lru_cache(maxsize=4096)  # few distinct states, many nodes
def read(base: str, flags: frozenset[str], *, allocated: bool) -> Reading:
    """Read a node's state; `allocated` says whether a running allocation holds the node."""
    unknown = flags - _FLAGS.keys() - _HARMLESS
    counted = flags - unknown
    if "UNDRAIN" in flags:
        counted -= {"DRAIN"}
    if flags & _STARTING:
        counted -= _EXCUSED_BY_STARTING
    if base not in _BASES:
        words: dict[str, FaultLevel | None] = {base: None}
        words |= {word: _FLAGS[word] for word in (counted | {base}) & _EVIDENCE_WITHOUT_BASE}
        return Reading(tuple(sorted(words.items())), unknown)
    table = _FLAGS | _IN_ALLOCATION if allocated else _FLAGS
    levels = {word: table.get(word, _OK) for word in counted}
    levels[base] = max(_BASES[base], table.get(base, _OK))
    return Reading(tuple(sorted(levels.items())), unknown)


def defaults() -> dict[str, FaultLevel | None]:
    """Return the default of every word inside a running allocation; None is no verdict."""
    return {word: (_FLAGS | _BASES | _IN_ALLOCATION).get(word, _OK) for word in sorted(WORDS - {"UNKNOWN"})} | {
        "UNKNOWN": None
    }

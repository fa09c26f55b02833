"""What a report is worth: each fault code by the configuration in force, and the rest by what it says. Pure.

Upstream drops codes that are in no list, and with them the fault. Here nothing that was reported is dropped: what
is not understood counts as bad as the site says, or is no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segment_health.level import FaultLevel, NodeStatus
from segment_health.policy.assess import Assessment, Finding

from . import codes as own
from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .report import Device, Report

_NAMED = 3
"""How many of many a remark names."""
_NOT_UNDERSTOOD = "not-understood"


@dataclass(frozen=True, slots=True)
class Graded:
    """A report's worth. `remarks` are sentences about it that do not name the node, a few at most."""

    assessment: Assessment
    remarks: tuple[str, ...] = ()


def grade(report: Report, codes: Mapping[str, FaultLevel], unknown_level: FaultLevel) -> Graded:
    """Grade a report by the levels of the codes in force; `unknown_level` is the least for codes in no list.

    The configuration has the last word on a code that it lists, whatever the report says of the device. A code
    that it does not list counts as the higher of `unknown_level` and the device's own level. One that our own
    export wrote, and a device without codes, count as the device's own level, and a status counts that is above
    what the devices say by themselves. A level or a status that is no word of NodeD's makes the assessment not
    final: the node is at least as bad as the rest says.
    """
    found: dict[str, FaultLevel | None] = {}
    unlisted: dict[FaultLevel, dict[str, None]] = {}
    not_understood: dict[str, None] = {}
    for device in report.devices or ():
        told = _level(device)
        if told is None:
            not_understood[f"FaultLevel `{wire.shown(device.level)}`"] = None
        for word, level, listed in _faults(device, told, codes, unknown_level):
            _add(found, word, level)
            if level is not None and not listed:
                unlisted.setdefault(level, {})[wire.shown(word)] = None
    remarks = [
        f"{_named(words, 'fault code')} in no list of the configuration: taken for {level.name}"
        for level, words in unlisted.items()
    ]
    status = NodeStatus.__members__.get(report.status)
    if status is None:
        not_understood[f"NodeStatus `{wire.shown(report.status)}`"] = None
    elif status.value > max((_level(device) or 0 for device in report.devices or ()), default=0):
        _add(found, status.name, status.value)
        remarks.append(f"NodeStatus {status.name} is worse than what its devices say, and counts")
    if not_understood:
        found[_NOT_UNDERSTOOD] = None
        remarks.append(f"{_named(not_understood)} not understood: no verdict")
    return Graded(_summed_up(found), tuple(remarks))


def no_verdict(what: str) -> Assessment:
    """Return what a report is worth that tells nothing; `what` names why, in a word."""
    word = f"noded:{what}"
    return Assessment(None, word, final=False, findings=(Finding(word, None, None),))


def _faults(
    device: Device, told: FaultLevel | None, codes: Mapping[str, FaultLevel], unknown_level: FaultLevel
) -> Iterable[tuple[str, FaultLevel | None, bool]]:
    """Return the faults of a device: the code, its level, and whether anybody listed it."""
    if not device.codes:
        yield _NOT_UNDERSTOOD if told is None else told.name, told, True
    for code in device.codes or ():
        word = code.upper()
        if word in codes:
            yield word, codes[word], True
        elif own.is_ours(word):
            yield word, told, True
        else:
            yield code or "empty", max(unknown_level, told or FaultLevel.NotHandleFault), False


def _level(device: Device) -> FaultLevel | None:
    return FaultLevel.__members__.get(device.level)


def _add(found: dict[str, FaultLevel | None], word: str, level: FaultLevel | None) -> None:
    """Keep the worse of what is said of one word; no verdict gives way to one, and is counted apart."""
    found[word] = max(filter(None, (found.get(word), level)), default=level)


def _summed_up(found: Mapping[str, FaultLevel | None]) -> Assessment:
    findings = tuple(Finding(f"noded:{wire.shown(word)}", level, level) for word, level in found.items())
    final = all(finding.is_final for finding in findings)
    if not findings:
        return Assessment(FaultLevel.NotHandleFault, f"noded:{NodeStatus.Healthy.name}")
    leading = min(findings, key=lambda finding: (-(finding.level or 0), finding.is_final, finding.word))
    level = leading.level if leading.level or final else None
    return Assessment(level, leading.word, final=final, findings=findings)


def _named(words: Iterable[str], what: str = "") -> str:
    """Name three of many, and count the rest: `fault codes A, B, C and 4 more are`."""
    told = list(words)
    text = ", ".join(told[:_NAMED]) + (f" and {len(told) - _NAMED} more" if len(told) > _NAMED else "")
    several = len(told) > 1
    head = f"{what}{'s' if several else ''} " if what else ""
    return f"{head}{text} {'are' if several else 'is'}"

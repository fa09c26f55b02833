"""What the rules and a model make of one log together. Pure.

The rules' word stands wherever they have one. Only where they have none does a model's count, and its STOP only by
repetition, which is settled as for what the rules found: what a log says can be made up by whoever writes to it,
that a job ended twice at the same step cannot.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from segment_health.attribution.analysers.finding import Action, Finding
from segment_health.attribution.analysers.history import settle
from segment_health.attribution.analysers.table import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.attribution.analysers.llm.answer import Claim

SOURCE = "llm"
"""Whose word a finding is, where it is a model's; it stands in that of each finding for which one was asked."""
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\d+")
"""What of a line is another one in each cycle."""


class Silence(NamedTuple):
    """A model said nothing that counts, and why; or was not even asked."""

    why: str
    was_asked: bool = True


def questions(earlier: Sequence[Finding]) -> int:
    """Count the cycles of a job about which a model was asked."""
    return sum(SOURCE in finding.source for finding in earlier)


def together(found: Finding, said: Claim | Silence, earlier: Sequence[Finding]) -> Finding:
    """Return what the rules found and a model said, given the same job's earlier cycles, oldest first."""
    if found.action is Action.STOP:
        return found
    if isinstance(said, Silence):
        source = f"{found.source}+{SOURCE}" if said.was_asked else found.source
        return replace(found, reason=_joined(found.reason, f"no word of a model: {said.why}"), source=source)
    if found.action is Action.RESTART or found.category != UNKNOWN:
        words = "llm said STOP, unconfirmed" if said.action is Action.STOP else f"llm said {said.action.value}"
        reason = _joined(found.reason, f"{words}: {said.category}: {said.reason}")
        return replace(found, reason=reason, source=f"{found.source}+{SOURCE}")
    finding = Finding(
        said.category,
        said.action,
        said.reason,
        SOURCE,
        signature=_signature(said),
        evidence=said.evidence,
        nodes=said.nodes,
        step=found.step,
    )
    if said.action is not Action.STOP:
        return finding
    unconfirmed = replace(finding, action=Action.UNKNOWN, reason=f"llm said STOP, unconfirmed: {said.reason}")
    # Without a step nothing but the log says that two cycles ended at one place.
    if found.step is None or settle(unconfirmed, earlier).action is not Action.STOP:
        return unconfirmed
    return replace(finding, reason=f"{said.reason} (and so before, at the same step {found.step})")


def _signature(said: Claim) -> str:
    """Return what is the same for two cycles of which a model says the same, and shows the same line."""
    line = _VARYING.sub("#", " ".join(said.evidence[0].text.split())) if said.evidence else ""
    digest = hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{SOURCE}:{said.action.value}:{said.category}:{digest}"


def _joined(first: str, second: str) -> str:
    return f"{first}; {second}" if first else second

"""Makes the analyser that a service was told to use, in each of its workers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from segment_health.attribution.analysers.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segment_health.attribution.analysers.finding import Analyser
    from segment_health.attribution.analysers.llm.analyser import Llm

RULES, LLM = "rules", "llm"
"""What analysers are called, in an order's `name`."""


def analyser_of(told: Mapping[str, Any]) -> Analyser:
    """Return the analyser of an order. ValueError, a sentence, where there cannot be one."""
    return llm_of(told) if told["name"] == LLM else Rules()


def llm_of(told: Mapping[str, Any]) -> Llm:
    """Return the one that asks a language model. ValueError, a sentence.

    An order says `base_url`, `model`, `key_file` (or None), `seconds`, `tokens_per_day`, and the `spent_file`, in
    which all workers count these.
    """
    from segment_health.attribution.analysers.llm.analyser import Limits, Llm  # noqa: PLC0415 - loads httpx
    from segment_health.attribution.analysers.llm.endpoint import Model  # noqa: PLC0415

    model = Model(told["base_url"], told["model"], told["key_file"])
    limits = Limits(seconds=told["seconds"], tokens_per_day=told["tokens_per_day"], spent_file=told["spent_file"])
    return Llm(Rules(), model, limits, os.environ)

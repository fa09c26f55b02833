"""Whatever a server or a model sends: it is a claim with evidence, or a sentence."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.attribution.analysers.finding import Action
from segment_health.attribution.analysers.llm import answer, completion
from segment_health.attribution.analysers.llm.prompt import Shown

from .conftest import LOG

SHOWN = {number: Shown(line, line.text) for number, line in enumerate(LOG.lines, 1)}
WORDS = st.sampled_from(
    [
        "category",
        "action",
        "reason",
        "evidence",
        "nodes",
        "line",
        "text",
        "STOP",
        "RESTART",
        "UNKNOWN",
        "python",
        "n042",
    ]
    + ["choices", "message", "content", "refusal", "finish_reason", "stop", "length", "error"]
    + [line.text for line in LOG.lines]
)
LEAVES = st.none() | st.booleans() | st.integers(-3, 5) | st.floats() | WORDS | st.text(max_size=30)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6))
QUOTES = st.fixed_dictionaries({"line": st.integers(-1, 5), "text": WORDS})
ANSWERS = st.fixed_dictionaries(
    {
        "category": WORDS,
        "action": st.sampled_from(["STOP", "RESTART", "UNKNOWN"]),
        "reason": st.text(max_size=600),
        "evidence": st.lists(QUOTES, max_size=10),
        "nodes": st.lists(WORDS | st.text(max_size=5), max_size=10),
    }
)
SPOILT = st.tuples(ANSWERS, WORDS, JSON).map(lambda told: {**told[0], told[1]: told[2]})


@settings(deadline=None)
@given(ANSWERS | SPOILT | JSON)
def test_any_json_is_a_claim_or_none(told: Any) -> None:
    """A STOP or RESTART shows a line of the log, and nobody is blamed whom no line names."""
    with contextlib.suppress(answer.NoClaimError):
        claim = answer.read(json.dumps(told), SHOWN, ("python", "network"))
        assert claim.evidence or claim.action is Action.UNKNOWN
        assert set(claim.evidence) <= set(LOG.lines)
        assert claim.category in {"python", "network", "unknown"}
        assert set(claim.nodes) <= {"n042"}
        assert claim.reason.isprintable()


@settings(deadline=None)
@given(st.text(max_size=200) | st.text(alphabet='{}[]"`:,\\ \njson<think>/', max_size=60))
def test_any_text_is_a_claim_or_none(content: str) -> None:
    """Nothing else is raised, and what is said of it can be shown."""
    said = ""
    try:
        answer.read(content, SHOWN, ("python",))
    except answer.NoClaimError as error:
        said = str(error)
    assert said.isprintable()


@settings(deadline=None)
@given(JSON.map(lambda told: json.dumps(told).encode()) | st.binary(max_size=100))
def test_any_body_has_content_or_none(body: bytes) -> None:
    """An answer of a server is a text to read, or a sentence."""
    with contextlib.suppress(completion.NoContentError):
        assert completion.content(body).strip()
    assert isinstance(completion.message_of(body), str)

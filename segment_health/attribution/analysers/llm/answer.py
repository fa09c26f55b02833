"""What a model answered, and what of it can be believed: only what it shows in the log. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from segment_health.attribution.analysers.finding import Action, Line
from segment_health.attribution.analysers.spoken import node_named
from segment_health.attribution.analysers.table import UNKNOWN
from segment_health.record import brief

from .prompt import MAX_EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .prompt import Shown

MAX_NODES = 8
_MAX_REASON = 400
"""Characters of a reason that are kept."""
_QUOTE = 20
"""Characters of a line that are enough to show that it was meant; of a shorter one all are needed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){0,8}")
"""What may be a node's name, or any word."""


class NoClaimError(Exception):
    """Why nothing can be made of what a model answered; a sentence."""


class Claim(NamedTuple):
    """What a model says of a failure, with what was found of that in the log."""

    action: Action
    category: str
    reason: str
    evidence: tuple[Line, ...]
    nodes: tuple[str, ...]


class _Quote(BaseModel):
    """A line, as the model quotes it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    line: int
    text: str = Field(max_length=4000)


class _Answer(BaseModel):
    """An answer as it is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True)
    category: str = Field(max_length=100)
    action: Literal["STOP", "RESTART", "UNKNOWN"]
    reason: str = Field(max_length=4000)
    evidence: list[_Quote] = Field(max_length=4 * MAX_EVIDENCE)
    nodes: list[str] = Field(max_length=4 * MAX_NODES)


def schema(categories: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an answer, in the part of JSON schema that servers enforce."""
    quote = _closed({"line": {"type": "integer"}, "text": {"type": "string"}})
    return _closed(
        {
            "category": {"type": "string", "enum": list(categories)},
            "action": {"type": "string", "enum": [action.value for action in Action]},
            "reason": {"type": "string"},
            "evidence": {"type": "array", "items": quote},
            "nodes": {"type": "array", "items": {"type": "string"}},
        }
    )


def read(content: str, shown: Mapping[int, Shown], categories: Sequence[str]) -> Claim:
    """Read what a model answered about the lines that it was shown. Raises NoClaimError.

    A quote counts where the line of that number has that text, or a part of it that is long enough; blanks apart.
    A node counts where one of these lines has its name. Without evidence there is no claim but UNKNOWN.
    """
    answer = _parsed(content)
    quoted = {quote.line for quote in answer.evidence if _is_in(quote.text, shown.get(quote.line))}
    evidence = [shown[number] for number in sorted(quoted)[:MAX_EVIDENCE]]
    action = Action(answer.action)
    if not evidence and action is not Action.UNKNOWN:
        none = (
            "none of the lines that it quotes is in the log" if answer.evidence else "it quotes no line of the log"
        )
        raise NoClaimError(f"the model said {action.value}, and {none}")
    words = {word for line in evidence for word in _NAME.findall(line.text)}
    words |= {word.partition(".")[0] for word in words}
    nodes = [node for node in dict.fromkeys(answer.nodes) if node in words and _may_be_a_node(node)]
    return Claim(
        action,
        answer.category if answer.category in categories else UNKNOWN,
        brief(" ".join(answer.reason.split()), _MAX_REASON),
        tuple(line.line for line in evidence),
        tuple(nodes[:MAX_NODES]),
    )


def _parsed(content: str) -> _Answer:
    text = _bare(content)
    try:
        told = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise NoClaimError(f"the model answered no JSON object, but: {brief(text, 200)}") from None
    try:
        return _Answer.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        what = f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {first['msg']}"
        raise NoClaimError(f"the model's answer is not as asked for: {brief(what, 200)}") from None


def _bare(content: str) -> str:
    """Take off what some models put around an answer: their thoughts before it, and the fence of a block."""
    text = content.strip()
    if text.startswith("<think>"):
        text = text.partition("</think>")[2].strip()
    first, _, rest = text.partition("\n")
    if first in {"```", "```json"} and rest.endswith("```"):
        text = rest[:-3]
    return text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of pairs, of which none may be said twice: who reads it then might see another."""
    told = dict(pairs)
    if len(told) != len(pairs):
        raise ValueError("a key is there twice")
    return told


def _is_in(quote: str, shown: Shown | None) -> bool:
    if shown is None:
        return False
    text, part = " ".join(shown.text.split()), " ".join(quote.split())
    return part in text and len(part) >= max(1, min(_QUOTE, len(text)))


def _may_be_a_node(node: str) -> bool:
    """Whether a word looks like the name of a node: any other word of a line may be taken for one by a model."""
    return node_named(node) is not None and any(c.isdigit() for c in node.partition(".")[0])


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }

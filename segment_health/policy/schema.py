"""What may stand in a policy file, key by key, and what is said of what may not. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError

from segment_health.level import FaultLevel

from . import limits
from .states import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_RULES = 1000
NO_VERDICT = "no-verdict"
_LEVELS = (*(level.name for level in FaultLevel), NO_VERDICT)
_PUBLISHED = ("PreSeparateFault", "SeparateFault")
_UNKNOWN_STATE, _UNKNOWN_LEVEL = "unknown state", "unknown level"
"""What is said at first; the nearest name is looked for once, though a file may hold 100,000 wrong words."""
_PRINTED = {
    "DRAINED": "DRAIN",
    "DRAINING": "DRAIN",
    "DRNG": "DRAIN",
    "FAILING": "FAIL",
    "FAILG": "FAIL",
    "MAINT": "MAINTENANCE",
    "NO_RESPOND": "NOT_RESPONDING",
    "INVAL": "INVALID_REG",
    "REBOOT": "REBOOT_REQUESTED",
    "ALLOC": "ALLOCATED",
    "MIX": "MIXED",
    "COMP": "COMPLETING",
    "PLND": "PLANNED",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
}
"""Words of sinfo(1) and squeue(1), and what of the state they stand for."""


def _many(value: object) -> object:
    """Take a single text for a list of one."""
    return [value] if isinstance(value, str) else value


def _read_by(read: Callable[[str], Any], *, numbers: bool = False) -> BeforeValidator:
    def convert(value: object) -> Any:
        if numbers and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise ValueError("not a text" + (" or a whole number" if numbers else ""))  # noqa: TRY004 - pydantic's
        return read(value)

    return BeforeValidator(convert)


def _state(word: str) -> str:
    upper = word.upper()
    if upper in _PRINTED:
        raise ValueError(f"{word!a} is how Slurm prints it; the state holds {_PRINTED[upper]!r}")
    if upper not in WORDS:
        raise ValueError(_UNKNOWN_STATE)
    return upper


def _level(word: str) -> str:
    if word not in _LEVELS:
        raise ValueError(_UNKNOWN_LEVEL)
    return word


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters")
    return text


def _unknown(problem: str, word: str, known: Iterable[str]) -> str:
    return f"{problem} {word!a}{_nearest(word.upper() if known is WORDS else word, known)}"


def _nearest(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0)
    return f"; the nearest known one is {found[0]!r}" if found else ""


_Text = Annotated[str, Field(strict=True, min_length=1)]
# One wrong element says enough: 100,000 of them, all explained, would be 300 MB.
_Texts = Annotated[list[_Text], Field(min_length=1, fail_fast=True), BeforeValidator(_many)]


class Row(BaseModel):
    """One `[[rule]]`."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[_Text, Field(max_length=80), AfterValidator(_printable)]
    level: Annotated[_Text, AfterValidator(_level)]
    state: Annotated[
        list[Annotated[_Text, AfterValidator(_state)]], Field(min_length=1, fail_fast=True), BeforeValidator(_many)
    ] = []
    reason: _Text | None = None
    reason_literal: _Text | None = None
    reason_user: _Texts = []
    node: _Texts = []
    partition: _Texts = []
    min_duration: Annotated[int, _read_by(limits.seconds, numbers=True)] = 0


class Document(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    publish_at: Literal["PreSeparateFault", "SeparateFault"] = "PreSeparateFault"
    clear_after: Annotated[Any, _read_by(limits.clear_after)] = limits.ClearAfter()
    max_new_exclusions: Annotated[Any, _read_by(limits.max_new_exclusions, numbers=True)] = None
    hold_passes: Annotated[StrictInt, Field(ge=1, le=limits.MAX_HOLD_PASSES)] = 3
    rule: Annotated[list[Row], Field(max_length=MAX_RULES, fail_fast=True)] = []


class Refused(ValueError):  # noqa: N818 - what became of the file
    """What does not belong into a policy file; `location` is the path of keys and positions that leads to it."""

    def __init__(self, problem: str, location: tuple[str | int, ...]) -> None:
        super().__init__(problem)
        self.location = location


def validated(document: dict[str, Any]) -> Document:
    """Check a file's content. Raises Refused."""
    try:
        return Document.model_validate(document)
    except ValidationError as error:
        # A misspelt key is the cause of a missing one.
        first = min(
            error.errors(include_url=False, include_context=False),
            key=lambda one: one["type"] != "extra_forbidden",
        )
        raise Refused(_explain(first, document), first["loc"]) from error


def _explain(error: Any, document: dict[str, Any]) -> str:
    """Say what is wrong with one value, as a person would."""
    location, problem = error["loc"], error["msg"].removeprefix("Value error, ")
    rule = ""
    model: type[BaseModel] = Document
    match location:
        case ("rule", int(index), *_):
            model = Row
            row = document["rule"][index]
            name = row.get("name") if isinstance(row, dict) else None
            rule = f"rule {name!a}: " if isinstance(name, str) else f"rule {index + 1}: "
    key = next((part for part in reversed(location) if isinstance(part, str)), "")
    if error["type"] == "extra_forbidden":
        return f"{rule}unknown key {key!a}{_nearest(key, model.model_fields)}"
    if error["type"] == "missing":
        return f"{rule}{key} is missing"
    if error["type"] == "literal_error" and not isinstance(error["input"], str):
        problem = "not a text"
    elif error["type"] == "literal_error":
        problem = _unknown("unknown level", error["input"], _PUBLISHED)
    elif problem == _UNKNOWN_LEVEL:
        problem = _unknown(problem, error["input"], _LEVELS)
    elif problem == _UNKNOWN_STATE:
        problem = _unknown(problem, error["input"], WORDS)
    if error["type"] in {"too_short", "string_too_short"}:
        return f"{rule}{key} is empty: leave it out, or say what it asks for"
    if location == ("rule",) and error["type"] == "list_type":
        return "rules are written [[rule]], in double brackets"
    return f"{rule}{key}: {problem}"

"""What is found in a reason, and what is refused or cut so that no search takes long."""

from __future__ import annotations

import pytest

from segment_health.policy import pattern, schema
from segment_health.policy.pattern import MAX_PROGRAM, MAX_REASON, MAX_TEXT, Pattern


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        pytest.param("maintenance", "Planned MAINTENANCE on Monday", True, id="anywhere-in-any-case"),
        pytest.param("maintenance|reboot asap", "Reboot ASAP : root", True, id="alternatives"),
        pytest.param("xid (48|79)", "NHC: Xid 74", False, id="another-number"),
        pytest.param("^nhc:", "GPU nhc: x", False, id="anchored"),
        pytest.param("^$", None, True, id="no-reason"),
        pytest.param("^$", "", True, id="empty-reason"),
        pytest.param("^$", "x", False, id="a-reason-is-not-none"),
        pytest.param(".", None, False, id="no-reason-has-no-letter"),
        pytest.param("ÜBER", "über Nacht", True, id="letters-of-other-languages"),
        pytest.param("(?-i)GPU", "gpu", False, id="case-if-asked-for"),
        pytest.param("a.b", "a\nb", False, id="dot-ends-at-a-line"),
        pytest.param("link", "\udcff link \x00 \x1b[2J", True, id="bytes-that-are-no-text"),
    ],
)
def test_what_an_expression_finds(text: str, reason: str | None, expected: bool) -> None:
    """It is found anywhere in the reason, whatever the case; no reason is an empty one."""
    assert Pattern(text).found_in(reason) is expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("GPU (0) [ECC]* fell", True), ("gpu (0) [ecc]*", True), ("GPU 0 ECC", False), (None, False)],
    ids=["as-it-stands", "in-any-case", "not-as-an-expression", "no-reason"],
)
def test_what_a_literal_finds(reason: str | None, expected: bool) -> None:
    """Brackets and stars of a literal are brackets and stars."""
    assert Pattern("(0) [ECC]*", literal=True).found_in(reason) is expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("(", r"missing \)", id="open-bracket"),
        pytest.param("*a", "no argument for repetition", id="star"),
        pytest.param(r"(a)\1", "invalid escape", id="back-reference"),
        pytest.param("a(?=b)", "invalid perl operator", id="look-ahead"),
        pytest.param("a{1001}", "bad repetition|invalid repetition", id="repetition"),
        pytest.param("\ud800", "surrogates not allowed", id="half-a-character"),
        pytest.param("x" * (MAX_TEXT + 1), f"longer than {MAX_TEXT} characters", id="too-long"),
    ],
)
def test_what_is_no_expression(text: str, problem: str) -> None:
    """What RE2 does not take, or needs more than linear time for, is refused with its cause."""
    with pytest.raises(ValueError, match=f"(?i){problem}"):
        Pattern(text)


@pytest.mark.parametrize(
    "text",
    ["(a{100}){10}", "(x+x+){500}y", r"\pL{900}", "(.*a){9}.{500}x", "|".join(f"{n} gpus" for n in range(999))],
    ids=["repeated", "backtracking", "unicode-class", "many-states", "alternatives"],
)
def test_an_expression_that_becomes_too_large(text: str) -> None:
    """The time of a search is in proportion to the program: so the program is bounded."""
    with pytest.raises(ValueError, match=f"instructions, more than {MAX_PROGRAM}|too large"):
        Pattern(text)


def test_forty_phrases_fit() -> None:
    """What a site may write in one rule is far below the bound, and a long literal too."""
    assert Pattern("|".join(f"phrase {n:02} of a few words" for n in range(40))).found_in(
        "Phrase 39 of a few words"
    )
    assert Pattern("x" * 900, literal=True).found_in("x" * 900)


@pytest.mark.parametrize("letter", ["a", "ü", "😀", "\udc80"], ids=["ascii", "two-bytes", "four-bytes", "no-text"])
def test_only_the_beginning_of_a_reason_is_looked_at(letter: str) -> None:
    """The time of a search is in proportion to the reason: what lies beyond so many bytes is not there."""
    size = len(letter.encode("utf-8", "replace"))
    room = (MAX_REASON - len("fault")) // size
    assert Pattern("fault").found_in(letter * room + "fault")
    assert not Pattern("fault").found_in(letter * (room + 1) + "fault")
    assert not Pattern("fault").found_in(letter * (1 << 20) + "fault")


def test_the_end_of_what_is_looked_at_is_cut_within_a_character() -> None:
    """Half a character at the end spoils nothing before it."""
    assert Pattern("^xü").found_in("x" + "ü" * MAX_REASON)


def test_expressions_are_equal_by_what_they_say() -> None:
    """A literal is another one than an expression of the same text."""
    assert Pattern("a.b") == Pattern("a.b") != Pattern("a.b", literal=True)


def test_every_rule_of_a_policy_keeps_its_expression() -> None:
    """With less room than rules each search would compile its expression anew: some 100 times slower."""
    room = pattern._compiled.cache_info().maxsize
    assert room is not None
    assert room >= schema.MAX_RULES

"""What the rules and a model make of a log together: the whole table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from segment_health.attribution.analysers.finding import Action, Finding, Line
from segment_health.attribution.analysers.llm.answer import Claim
from segment_health.attribution.analysers.llm.verdict import Silence, questions, together

EVIDENCE = (Line(7, "OSError: shard 12 on n042 is short"),)
SILENCE = Silence("HTTP 500")


def found(action: Action | str) -> Finding:
    """Return what the rules found; a category is one of which they do not say what is to be done."""
    category = {Action.UNKNOWN: "unknown"}.get(action, "network") if isinstance(action, Action) else action
    action = action if isinstance(action, Action) else Action.UNKNOWN
    return Finding(category, action, "a link was lost", "rules", "sig", (Line(3, "lost"),), ("n001",), 1200)


def said(action: Action) -> Claim:
    """Return what a model says."""
    return Claim(action, "nan", "a shard is short", EVIDENCE, ("n042",))


def before(action: Action, step: int | None = 1200, line: str = EVIDENCE[0].text) -> Finding:
    """Return what the cycle before came to, when a model said this of it."""
    claim = said(action)._replace(evidence=(Line(9, line),))
    return together(replace(found(Action.UNKNOWN), step=step), claim, ())


STOP, RESTART, UNKNOWN = Action.STOP, Action.RESTART, Action.UNKNOWN


@pytest.mark.parametrize(
    ("rules", "model", "earlier", "action", "whose"),
    [
        pytest.param(STOP, SILENCE, (), STOP, "rules", id="stop-silence"),
        pytest.param(STOP, said(STOP), (), STOP, "rules", id="stop-stop"),
        pytest.param(STOP, said(RESTART), (), STOP, "rules", id="stop-restart"),
        pytest.param(STOP, said(UNKNOWN), (), STOP, "rules", id="stop-unknown"),
        pytest.param(RESTART, SILENCE, (), RESTART, "rules+llm", id="restart-silence"),
        pytest.param(RESTART, said(STOP), (), RESTART, "rules+llm", id="restart-stop"),
        pytest.param(RESTART, said(STOP), (before(STOP),), RESTART, "rules+llm", id="restart-repeated-stop"),
        pytest.param(RESTART, said(RESTART), (), RESTART, "rules+llm", id="restart-restart"),
        pytest.param(RESTART, said(UNKNOWN), (), RESTART, "rules+llm", id="restart-unknown"),
        pytest.param("cancelled", said(STOP), (), UNKNOWN, "rules+llm", id="known-stop"),
        pytest.param("cancelled", said(STOP), (before(STOP),), UNKNOWN, "rules+llm", id="known-repeated-stop"),
        pytest.param("cancelled", said(RESTART), (), UNKNOWN, "rules+llm", id="known-restart"),
        pytest.param(UNKNOWN, SILENCE, (), UNKNOWN, "rules+llm", id="unknown-silence"),
        pytest.param(UNKNOWN, said(STOP), (), UNKNOWN, "llm", id="unknown-stop"),
        pytest.param(UNKNOWN, said(STOP), (before(STOP),), STOP, "llm", id="unknown-repeated-stop"),
        pytest.param(UNKNOWN, said(RESTART), (), RESTART, "llm", id="unknown-restart"),
        pytest.param(UNKNOWN, said(RESTART), (before(STOP),), RESTART, "llm", id="unknown-restart-after-stop"),
        pytest.param(UNKNOWN, said(UNKNOWN), (), UNKNOWN, "llm", id="unknown-unknown"),
    ],
)
def test_the_table(
    rules: Action | str, model: Claim | Silence, earlier: tuple[Finding, ...], action: Action, whose: str
) -> None:
    """The rules' word stands; where they have none, a model's RESTART counts, and its STOP by repetition."""
    both = together(found(rules), model, earlier)
    assert (both.action, both.source) == (action, whose)
    if whose == "llm":
        assert (both.category, both.evidence, both.nodes, both.step) == ("nan", EVIDENCE, ("n042",), 1200)
        assert both.signature.startswith("llm:")
    else:
        assert replace(both, reason="", source="") == replace(found(rules), reason="", source="")


@pytest.mark.parametrize(
    "earlier",
    [
        pytest.param((), id="first-cycle"),
        pytest.param((before(STOP, step=1100),), id="progress"),
        pytest.param((before(STOP, step=None),), id="no-step-before"),
        pytest.param((before(STOP, line="OSError: a shard is missing"),), id="another-line"),
        pytest.param((before(RESTART),), id="no-stop-before"),
        pytest.param((before(STOP), found(RESTART)), id="another-failure-between"),
        pytest.param((before(STOP), before(UNKNOWN)), id="not-in-a-row"),
    ],
)
def test_what_is_no_repetition(earlier: tuple[Finding, ...]) -> None:
    """The cycle just before has to have failed so too, and come no further."""
    both = together(found(UNKNOWN), said(STOP), earlier)
    assert both.action is UNKNOWN
    assert both.reason == "llm said STOP, unconfirmed: a shard is short"


def test_a_failure_before_the_first_step_is_not_confirmed_by_repetition() -> None:
    """Without a step nothing but the log says that two cycles ended at one place."""
    nowhere = replace(found(UNKNOWN), step=None)
    assert together(nowhere, said(STOP), (before(STOP, step=None),)).action is UNKNOWN


@pytest.mark.parametrize("category", ["preemption", "node-failure"])
def test_what_the_table_never_stops_for_a_model_cannot(category: str) -> None:
    """However often it says so."""
    claim = said(STOP)._replace(category=category)
    first = together(found(UNKNOWN), claim, ())
    assert together(found(UNKNOWN), claim, (first, first)).action is UNKNOWN


def test_hardware_of_another_node_is_another_failure() -> None:
    """A model's word for it is settled as that of the rules, which want a cycle more where it may pass."""
    claim = said(STOP)._replace(category="xid-hardware")
    again = together(found(UNKNOWN), claim, ())
    assert together(found(UNKNOWN), claim, (again,)).action is UNKNOWN
    assert together(found(UNKNOWN), claim, (again, again)).action is STOP
    assert together(found(UNKNOWN), claim._replace(nodes=("n041",)), (again, again)).action is UNKNOWN


def test_numbers_are_other_ones_each_time() -> None:
    """Addresses and counts do not make another failure of the same one."""
    earlier = (before(STOP, line="OSError: shard 977 on n017 is short"),)
    assert together(found(UNKNOWN), said(STOP), earlier).action is STOP


def test_a_repeated_stop_may_be_repeated() -> None:
    """A launcher that only counts verdicts hears it of each cycle."""
    second = together(found(UNKNOWN), said(STOP), (before(STOP),))
    assert together(found(UNKNOWN), said(STOP), (second,)).action is STOP


def test_the_words_of_both_are_kept() -> None:
    """What a model says of a log whose failure the rules know stands behind it, and blames nobody."""
    both = together(found(RESTART), said(STOP), ())
    assert both.reason == "a link was lost; llm said STOP, unconfirmed: nan: a shard is short"
    assert both.nodes == ("n001",)
    assert together(found(RESTART), said(UNKNOWN), ()).reason.endswith("llm said UNKNOWN: nan: a shard is short")


def test_whoever_was_asked_is_counted() -> None:
    """A silence for which nobody was asked costs a job no question."""
    not_asked = together(found(UNKNOWN), Silence("no tokens", was_asked=False), ())
    assert not_asked.source == "rules"
    assert questions([not_asked, before(STOP), together(found(RESTART), SILENCE, ())]) == 2

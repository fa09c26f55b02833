"""What the earlier cycles of a job make of a finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from segment_health.attribution.analysers.finding import Action, Finding
from segment_health.attribution.analysers.history import settle

STOP, RESTART, UNKNOWN = Action.STOP, Action.RESTART, Action.UNKNOWN


def finding(category: str = "cuda-oom", step: int | None = 100, *nodes: str, signature: str = "same") -> Finding:
    """Make what one log shows."""
    return Finding(category, RESTART, "it means: do so", "rules", signature, nodes=nodes, step=step)


OOM = finding()
START = finding(step=None)
OUTAGE = finding("storage-lost")
HARDWARE = finding("cuda-ecc", 100, "n1")


@pytest.mark.parametrize(
    ("cycles", "action"),
    [
        pytest.param([OOM], RESTART, id="once"),
        pytest.param([OOM, OOM], STOP, id="same-step"),
        pytest.param([START, START], STOP, id="before-any-step"),
        pytest.param([OOM, finding(step=101)], RESTART, id="a-step-further"),
        pytest.param([START, finding(step=0)], RESTART, id="a-first-step"),
        pytest.param([OOM, finding(step=99)], RESTART, id="not-so-far"),
        pytest.param([finding(step=500), OOM, OOM], RESTART, id="it-got-further-once"),
        pytest.param([finding(step=500), OOM, OOM, OOM], STOP, id="it-got-further-once-but-never-again"),
        pytest.param([OOM, START, START], RESTART, id="it-had-begun-once"),
        pytest.param([OOM, finding("nan", signature="other"), OOM], RESTART, id="not-consecutive"),
        pytest.param([OOM, finding(signature="other")], RESTART, id="another-message"),
        pytest.param([finding(signature=""), finding(signature="")], RESTART, id="not-comparable"),
        pytest.param([OUTAGE, OUTAGE], RESTART, id="outage-twice"),
        pytest.param([OUTAGE, OUTAGE, OUTAGE], STOP, id="outage-thrice"),
        pytest.param([HARDWARE, HARDWARE, HARDWARE], STOP, id="one-node-thrice"),
        pytest.param([finding("cuda-ecc", 100, "n2"), HARDWARE, HARDWARE], RESTART, id="other-nodes"),
        pytest.param([finding("preemption")] * 5, RESTART, id="preempted-all-the-time"),
        pytest.param([finding("time-limit", None)] * 5, RESTART, id="no-time-at-all"),
        pytest.param([finding("of-a-model"), finding("of-a-model")], STOP, id="a-category-of-another-analyser"),
    ],
)
def test_what_repetition_and_progress_make_of_it(cycles: list[Finding], action: Action) -> None:
    """The same at the same step is a STOP, in so many cycles in a row as its kind wants; progress never is."""
    *earlier, last = cycles
    assert settle(last, earlier).action is action


def test_progress_is_a_restart_whatever_was_found() -> None:
    """An analyser's STOP, and what nobody understands, are overruled by a job that gets on."""
    for action in (STOP, UNKNOWN):
        settled = settle(replace(OOM, action=action), [finding(step=50)])
        assert settled.action is RESTART
        assert "from step 50 to step 100" in settled.reason


def test_a_cycle_of_which_nothing_is_known_is_no_progress() -> None:
    """It may have got further: nothing is said of it."""
    unknown = Finding("unknown", UNKNOWN, "nobody was asked", "service")
    assert settle(OOM, [unknown]) is OOM
    assert settle(OOM, [unknown, OOM]).action is STOP


def test_the_reason_says_what_came_again() -> None:
    """Where, and how often."""
    assert settle(OOM, [OOM]).reason == "it means: the same at step 100 in 2 consecutive cycles"
    assert settle(START, [START]).reason == "it means: the same before the first step in 2 consecutive cycles"


def test_what_is_unlike_stays_as_it_was_found() -> None:
    """An earlier cycle that says nothing about this one changes nothing."""
    alone = replace(OOM, action=UNKNOWN)
    assert settle(alone, []) is alone
    assert settle(alone, [finding(signature="other")]) is alone

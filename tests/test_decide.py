"""Deciding: a unit of which nothing has changed is left as it is, and that is what a look at it would find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segment_health import decide as deciding
from segment_health.contract import Content, Generation, Publisher, UnitId
from segment_health.decide import decide
from segment_health.level import FaultLevel
from segment_health.policy.assess import Assessment, Finding, Policy
from segment_health.policy.rule import Rule
from segment_health.scope import EVERYTHING, of_user
from segment_health.situation import Memory, Override, Remembered, Situation
from segment_health.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.situation import Outcome

US = Publisher("head1", 1, "0.1.0", "fleet", "all")
UNIT, OTHER = UnitId("7", "1"), UnitId("7", "2")
BEGAN = Generation(0, 1_795_000_000)
KNOWN = Remembered(BEGAN, "n[1-2]", "1001")
WORD = Override(BEGAN, "n1", "it is fine", "root", 1)


def cluster_of_two() -> FakeCluster:
    """Two tasks of an array, on two nodes each."""
    cluster = FakeCluster("n[1-6]")
    cluster.run("7_1", "n[1-2]")
    cluster.run("7_2", "n[3-4]")
    return cluster


def situation(cluster: FakeCluster, **facts: Any) -> Situation:
    """Return what a later pass knows; both units are remembered, and nothing is published."""
    memory = Memory({UNIT: KNOWN, OTHER: KNOWN._replace(nodelist="n[3-4]")})
    told: dict[str, Any] = {
        "published": {},
        "memory": memory,
        "scope": EVERYTHING,
        "policy": Policy(),
        "publisher": US,
        "now": 1_796_000_000,
        "began": 1_796_000_000,
        **facts,
    }
    return Situation(cluster.snapshot(), **told)


def with_memory(**further: Any) -> dict[str, Any]:
    """Return a memory in which one unit is known otherwise."""
    return {"memory": Memory({UNIT: KNOWN._replace(**further), OTHER: KNOWN._replace(nodelist="n[3-4]")})}


def looked_at(what: Situation, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome, list[str]]:
    """Decide, and tell which units somebody had a look at."""
    looked: list[str] = []
    look: Callable[..., None] = deciding._decide_present

    def noting(unit: Any, *rest: Any) -> None:
        looked.append(str(unit.id))
        look(unit, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(deciding, "_decide_present", noting)
        return decide(what), looked


def with_a_look_at_each(what: Situation, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Decide without leaving anything out."""
    with monkeypatch.context() as patch:
        patch.setattr(deciding, "_is_left", lambda *_: False)
        return decide(what)


def state(name: str, printed: str) -> Callable[[FakeCluster], None]:
    """Return what lets a node show a state."""
    return lambda cluster: cluster.set_node(name, printed, "why")


WAITS = Rule("wait", FaultLevel.SeparateFault, frozenset({"IDLE"}), min_duration=60)
FORGIVES = Rule("any of lab", FaultLevel.NotHandleFault, partitions=frozenset({"lab"}))
REPORTED = Assessment(
    FaultLevel.PreSeparateFault, "noded:x", findings=(Finding("noded:x", None, FaultLevel.PreSeparateFault),)
)
SILENT = Assessment(None, "noded:unread", final=False, findings=(Finding("noded:unread", None, None),))
FIT = Assessment(FaultLevel.NotHandleFault, "noded:none")

CASES: dict[str, tuple[Callable[[FakeCluster], None], dict[str, Any], int]] = {
    "nothing": (lambda _: None, {}, 0),
    "what an older version folded": (lambda _: None, with_memory(nodelist="n1,n2"), 1),
    "published once, and lifted": (lambda _: None, with_memory(published=True), 0),
    "separated once": (lambda _: None, with_memory(separated=True), 0),
    "missed once": (lambda _: None, with_memory(misses=1), 1),
    "held": (lambda _: None, with_memory(held=True), 1),
    "fit for a while": (lambda _: None, with_memory(fit_passes=1, fit_since=5), 1),
    "another user's": (lambda _: None, with_memory(user_id="1002"), 1),
    "a new generation": (lambda cluster: cluster.requeue("7_1", "n[1-2]"), {}, 1),
    "shrunk": (lambda cluster: cluster.shrink("7_1", "n1"), {}, 1),
    "new": (lambda cluster: cluster.run("8", "n5"), {}, 1),
    "in a state that nobody knows": (lambda cluster: cluster.change("7_1", state="MELTING"), {}, 1),
    "draining": (state("n2", "ALLOCATED+DRAIN"), {}, 1),
    "down": (state("n1", "DOWN"), {}, 1),
    "unknown": (state("n1", "UNKNOWN"), {}, 1),
    "saving power under a job": (state("n1", "IDLE+POWERED_DOWN"), {}, 1),
    "a node that is not listed": (lambda cluster: cluster.forget_node("n1"), {}, 1),
    "a bad node elsewhere": (state("n6", "DOWN"), {}, 0),
    "a rule that waits": (lambda _: None, {"policy": Policy(rules=(WAITS,))}, 2),
    "a rule for a partition": (lambda _: None, {"policy": Policy(rules=(FORGIVES,))}, 2),
    "reported": (lambda _: None, {"reports": {"n1": REPORTED}, "asked": frozenset({"noded:"})}, 1),
    "a report that cannot be read": (lambda _: None, {"reports": {"n1": SILENT}}, 1),
    "reported to be fit": (lambda _: None, {"reports": {"n1": FIT}}, 0),
    "an empty artifact of ours": (lambda _: None, {"empty": {UNIT: True}}, 1),
    "an empty artifact of ours, remembered": (
        lambda _: None,
        {"empty": {UNIT: True}, **with_memory(published=True)},
        0,
    ),
    "an empty artifact of somebody": (lambda _: None, {"empty": {UNIT: False}}, 0),
    "one to be made": (lambda _: None, {"precreate": True, "empty": {OTHER: False}}, 1),
    "somebody's artifact": (lambda _: None, {"published": {UNIT: Content.FOREIGN}}, 1),
    "a person's word": (lambda _: None, {"overrides": {UNIT: WORD}}, 1),
    "out of the scope": (lambda cluster: cluster.change("7_1", user="bob"), {"scope": of_user("alice")}, 0),
}


@pytest.mark.parametrize(("change", "facts", "looks"), CASES.values(), ids=CASES.keys())
def test_leaving_a_unit_is_what_a_look_at_it_would_do(
    change: Callable[[FakeCluster], None], facts: dict[str, Any], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only units of which something is new are looked at, and the outcome is as if all had been."""
    cluster = cluster_of_two()
    change(cluster)
    what = situation(cluster, **facts)
    outcome, looked = looked_at(what, monkeypatch)
    assert outcome == with_a_look_at_each(what, monkeypatch)
    assert len(looked) == looks


def test_parts_of_a_heterogeneous_job_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of several parts is never left on the word of one of them."""
    cluster = FakeCluster("n[1-6]")
    cluster.run("7", "n[1-2]", het_job_id="7")
    cluster.run("8", "n3", het_job_id="7")
    what = situation(cluster, memory=Memory({UnitId("7", "7"): KNOWN}))
    outcome, looked = looked_at(what, monkeypatch)
    assert looked == ["7"]
    assert outcome == with_a_look_at_each(what, monkeypatch)

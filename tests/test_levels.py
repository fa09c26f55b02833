"""What every node of a cluster is worth, whoever holds it."""

from __future__ import annotations

import pytest

from segment_health.level import FaultLevel
from segment_health.levels import levels
from segment_health.policy.assess import Assessment, Policy
from segment_health.policy.file import parse
from segment_health.sources import node_names
from segment_health.testing import FakeCluster

NOW = 1_796_000_000
BY_PARTITION = """
[[rule]]
name = "spare parts"
state = ["DRAIN"]
partition = ["lab"]
level = "NotHandleFault"
"""
SETTLED = """
[[rule]]
name = "settled"
state = ["DOWN"]
min_duration = "10m"
level = "SeparateFault"
"""


def policy_of(text: str) -> Policy:
    """Make a policy of what a file says."""
    return parse(text.encode(), "p.toml", node_names)


POLICIES = {"no rule": Policy(), "rules": policy_of(BY_PARTITION)}


def shown(cluster: FakeCluster, policy: Policy, **further: object) -> dict[str, str | None]:
    """Name the level of each node; None where there is no verdict."""
    facts = {"reports": {}, "seen": {}, "now": NOW, **further}
    told = levels(cluster.snapshot(), policy, **facts)  # type: ignore[arg-type]  # by name
    return {
        name: None if assessment is None or assessment.level is None else assessment.level.name
        for name, assessment in told.items()
    }


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_every_node_has_its_level(policy: Policy) -> None:
    """Held or not, each node is judged; one without a row, or in a state that nobody knows, has no verdict."""
    cluster = FakeCluster("n[1-6]")
    cluster.set_node("n2", "ALLOCATED+DRAIN", "fan")
    cluster.set_node("n3", "DOWN", "gone")
    cluster.set_node("n4", "MELTED")
    cluster.run("7_1", "n[1-2,5]")
    cluster.forget_node("n5")
    assert shown(cluster, policy) == {
        "n1": "NotHandleFault",
        "n2": "PreSeparateFault",
        "n3": "SeparateFault",
        "n4": None,
        "n5": None,
        "n6": "NotHandleFault",
    }


def test_a_node_that_is_powered_down_is_a_fault_to_its_holder_alone() -> None:
    """Nobody's node may sleep; one that a unit holds is lost to it."""
    cluster = FakeCluster("n[1-2]")
    cluster.set_node("n1", "IDLE+POWERED_DOWN")
    cluster.set_node("n2", "ALLOCATED+POWERED_DOWN")
    cluster.run("8", "n2")
    assert shown(cluster, Policy()) == {"n1": "NotHandleFault", "n2": "SeparateFault"}


def test_of_two_partitions_the_worse_word_counts() -> None:
    """A rule of one partition does not make a node healthy that a unit of another one holds too."""
    cluster = FakeCluster("n[1-2]")
    for name in ("n1", "n2"):
        cluster.set_node(name, "MIXED+DRAIN", "swap")
    cluster.run("1", "n[1-2]", partition="lab")
    cluster.run("2", "n2", partition="main")
    assert shown(cluster, policy_of(BY_PARTITION)) == {"n1": "NotHandleFault", "n2": "PreSeparateFault"}


def test_a_rule_that_waits_asks_since_when() -> None:
    """Until its time is over there is no verdict."""
    cluster = FakeCluster("n1")
    cluster.set_node("n1", "DOWN", "silent")
    policy = policy_of(SETTLED)
    assert shown(cluster, policy, seen={("n1", "DOWN"): NOW - 60}) == {"n1": None}
    assert shown(cluster, policy, seen={("n1", "DOWN"): NOW - 600}) == {"n1": "SeparateFault"}


def test_another_source_makes_it_worse() -> None:
    """What is reported beside Slurm counts, of a node without a row as well."""
    cluster = FakeCluster("n[1-3]")
    cluster.run("3", "n[2-3]")
    cluster.forget_node("n3")
    lost = Assessment(FaultLevel.SeparateFault, "noded:0x1")
    assert shown(cluster, Policy(), reports={"n1": lost, "n3": lost}) == {
        "n1": "SeparateFault",
        "n2": "NotHandleFault",
        "n3": "SeparateFault",
    }


def test_nodes_stay_in_the_order_in_which_slurm_lists_them() -> None:
    """Whatever their states, racks are drawn as people know them; what nobody lists comes last."""
    cluster = FakeCluster("n[1-4]")
    cluster.set_node("n2", "DOWN", "gone")
    cluster.run("7_1", "n[1-2],n9")
    assert list(shown(cluster, Policy())) == ["n1", "n2", "n3", "n4", "n9"]

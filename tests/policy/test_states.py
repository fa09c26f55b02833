"""What a word of sinfo hides, what each flag is worth, what the reason adds: the Slurm side of NodeD's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segment_health.level import FaultLevel, NodeStatus
from segment_health.policy.assess import Policy
from segment_health.policy.content import PolicyError
from segment_health.policy.file import parse
from segment_health.policy.states import WORDS, defaults
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING
from segment_health.sources import node_names
from segment_health.testing import FakeClock, FakeCluster
from slurm.node import Node, parse_state

if TYPE_CHECKING:
    from pathlib import Path

_OK, _PRE, _SEPARATE = FaultLevel

# The word that sinfo prints, the state that it hides, and what that is worth.
COLLAPSED = [
    ("DRAINED", "DOWN+DRAIN", _SEPARATE),
    ("FAIL", "DOWN+FAIL", _SEPARATE),
    ("INVAL", "IDLE+DRAIN+INVALID_REG", _SEPARATE),
    ("INVAL", "ALLOCATED+DRAIN+INVALID_REG", _SEPARATE),
    ("REBOOT", "IDLE+DRAIN+REBOOT_REQUESTED", _PRE),
    ("REBOOT^", "DOWN+REBOOT_ISSUED", _SEPARATE),
    ("REBOOT^", "DOWN+REBOOT_ISSUED+DRAIN", _SEPARATE),
    ("REBOOT^", "DOWN+REBOOT_ISSUED+NOT_RESPONDING", _SEPARATE),
    ("MAINT", "IDLE+MAINTENANCE+FAIL", _SEPARATE),
    ("ALLOCATED$", "ALLOCATED+MAINTENANCE+NOT_RESPONDING", _PRE),
    ("DRAINED$", "IDLE+DRAIN+MAINTENANCE+NOT_RESPONDING", _PRE),
    ("DOWN*", "DOWN+NOT_RESPONDING", _SEPARATE),
]

# One flag or base at a time, outside of an allocation and inside one.
MAPPED = [
    *((state, _OK, _OK) for state in ("IDLE", "ALLOCATED", "MIXED", "IDLE+COMPLETING")),
    *((f"IDLE+{flag}", _OK, _OK) for flag in ("PLANNED", "RESERVED", "BLOCKED", "MAINTENANCE", "EXTERNAL")),
    ("IDLE+REBOOT_REQUESTED", _OK, _OK),
    ("IDLE+POWER_DOWN", _PRE, _PRE),
    ("IDLE+POWER_DRAIN+DRAIN", _PRE, _PRE),
    ("IDLE+POWERING_UP", _OK, _OK),
    ("IDLE+POWER_UP", _OK, _OK),
    ("IDLE+POWERING_DOWN", _OK, _SEPARATE),
    ("IDLE+POWERED_DOWN", _OK, _SEPARATE),
    ("ALLOCATED+POWERED_DOWN+POWERING_UP", _OK, _OK),
    ("ALLOCATED+POWERED_DOWN+POWER_UP", _OK, _OK),
    ("ALLOCATED+DRAIN", _PRE, _PRE),
    ("ALLOCATED+NOT_RESPONDING", _PRE, _PRE),
    ("ALLOCATED+INVALID_REG", _SEPARATE, _SEPARATE),
    ("ALLOCATED+FAIL", _SEPARATE, _SEPARATE),
    ("DOWN", _SEPARATE, _SEPARATE),
    ("DOWN+REBOOT_ISSUED", _SEPARATE, _SEPARATE),
    ("FUTURE", _OK, _SEPARATE),
    ("FUTURE+DYNAMIC_FUTURE", _OK, _SEPARATE),
    ("ERROR", _SEPARATE, _SEPARATE),
    ("UNKNOWN", None, None),
    ("", None, None),
    ("SOMETHING", None, None),
]

# The counterpart of NodeD's three lists: what a reason raises, lowers and leaves.
REASONS = """
[[rule]]
name = "hardware"
reason = "count reported lower than configured|^Low RealMemory|xid|ecc"
level = "SeparateFault"
[[rule]]
name = "planned"
state = "DRAIN"
reason = "^Reboot ASAP|maintenance|POWER_DOWN_ASAP"
level = "NotHandleFault"
"""

REASONED = [
    ("ALLOCATED+DRAIN+INVALID_REG", "gres/gpu count reported lower than configured (7 < 8)", _SEPARATE),
    ("ALLOCATED+DRAIN", "gres/gpu count reported lower than configured (7 < 8)", _SEPARATE),
    ("ALLOCATED+DRAIN", "Low RealMemory (reported:900 < 100.00% of configured:1000)", _SEPARATE),
    ("ALLOCATED+DRAIN", "NHC: Xid 79, GPU fell off", _SEPARATE),
    ("ALLOCATED+DRAIN", "uncorrectable ECC | see, ticket 12", _SEPARATE),
    ("ALLOCATED+DRAIN+REBOOT_REQUESTED", "Reboot ASAP", _OK),
    ("ALLOCATED+DRAIN", "planned MAINTENANCE, next week", _OK),
    ("ALLOCATED+DRAIN+POWER_DOWN", "POWER_DOWN_ASAP", _PRE),
    ("ALLOCATED+DRAIN", "nobody knows why", _PRE),
    ("ALLOCATED+DRAIN", None, _PRE),
    ("DOWN+DRAIN", "maintenance", _SEPARATE),
    ("UNKNOWN", "maintenance", None),
]


@pytest.mark.parametrize(("_word", "state", "level"), COLLAPSED, ids=[state for _, state, _ in COLLAPSED])
def test_what_a_word_of_sinfo_hides(_word: str, state: str, level: FaultLevel) -> None:
    """The flags count, not the word."""
    assert Policy().assess(Node("n1", *parse_state(state))).level == level


@pytest.mark.parametrize(
    ("state", "elsewhere", "inside"), MAPPED, ids=[state or "empty" for state, _, _ in MAPPED]
)
def test_each_flag(state: str, elsewhere: FaultLevel | None, inside: FaultLevel | None) -> None:
    """What a flag is worth, with and without an allocation on the node."""
    node = Node("n1", *parse_state(state))
    assert [Policy().assess(node, allocated=held).level for held in (False, True)] == [elsewhere, inside]


@pytest.mark.parametrize(("state", "reason", "level"), REASONED)
def test_what_a_reason_adds(state: str, reason: str | None, level: FaultLevel | None) -> None:
    """A reason raises or lowers; one that no rule knows leaves the state's default, and is never dropped."""
    policy = parse(REASONS.encode(), "policy.toml", node_names)
    assert policy.assess(Node("n1", *parse_state(state), reason, "root", 0)).level == level


def test_a_node_has_the_status_of_its_level() -> None:
    """NodeD's names for its three levels."""
    assert [NodeStatus(level).name for level in FaultLevel] == ["Healthy", "PreSeparate", "UnHealthy"]


def test_every_word_has_a_default() -> None:
    """The table that `policy show` prints is whole, and is that by which nodes are judged inside an allocation."""
    table = defaults()
    assert table.keys() == WORDS
    for word in WORDS - {"UNDRAIN", "UNKNOWN"}:
        base = word if word in {"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE"} else "ALLOCATED"
        assert Policy().assess(Node("n1", base, frozenset({word} - {base}))).level == table[word], word


def test_a_pattern_in_two_lists_is_refused() -> None:
    """The same condition at two levels: the second would never have a say."""
    twice = (
        REASONS + '[[rule]]\nname = "again"\nstate = "DRAIN"\nreason = "^Reboot ASAP|maintenance|POWER_DOWN_ASAP"'
    )
    with pytest.raises(PolicyError, match=r"policy.toml:11: rule 'again' never has a say: rule 'planned'"):
        parse(f'{twice}\nlevel = "SeparateFault"'.encode(), "policy.toml", node_names)


@pytest.mark.parametrize(
    "state", ["IDLE+INVALID_REG+DRAIN", "DOWN+REBOOT_ISSUED", "IDLE+MAINTENANCE+FAIL", "PERHAPS"]
)
def test_odd_nodes_elsewhere_spoil_nothing(state: str, tmp_path: Path) -> None:
    """One node in a state that a word of sinfo cannot show must not end the whole refresh."""
    cluster = FakeCluster()
    cluster.run("7", "n[3-4]")
    cluster.set_node("n9", state)
    cluster.set_node("n4", "ALLOCATED+DRAIN")
    publication = Publication(str(tmp_path), EVERYTHING, Policy(), "0.1.0", interval=300.0)
    (change,) = run_once(publication, cluster.source, FakeClock()).changes
    assert (change.decision.action.value, change.decision.nodes) == ("exclude", "n4")

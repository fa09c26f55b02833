"""Node states: a printed state is one base and a set of flags, and the set decides what it means."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.level import FaultLevel
from segment_health.policy.assess import Policy
from slurm.fields import state_of
from slurm.node import Node, parse_state

CASES = json.loads((Path(__file__).parent / "data/cases/node_states.json").read_text())

SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}

# Words of sinfo(1): a flag folded into the base, or a base that we leave as it is.
SINFO = {
    "drained": ("IDLE", {"DRAIN"}, FaultLevel.PreSeparateFault),
    "draining": ("ALLOCATED", {"DRAIN"}, FaultLevel.PreSeparateFault),
    "drained*": ("IDLE", {"DRAIN", "NOT_RESPONDING"}, FaultLevel.PreSeparateFault),
    "failing": ("ALLOCATED", {"FAIL"}, FaultLevel.SeparateFault),
    "fail": ("FAIL", set[str](), FaultLevel.SeparateFault),
    "down*": ("DOWN", {"NOT_RESPONDING"}, FaultLevel.SeparateFault),
    "idle~": ("IDLE", {"POWERED_DOWN"}, FaultLevel.SeparateFault),
    "allocated#": ("ALLOCATED", {"POWERING_UP"}, FaultLevel.NotHandleFault),
    "mixed-": ("MIXED", {"PLANNED"}, FaultLevel.NotHandleFault),
    "unknown": ("UNKNOWN", set[str](), None),
    "inval": ("INVAL", set[str](), None),
}

# The contract's table of levels, word for word, beside IDLE or as a base inside a running allocation.
LEVELS = [
    *((f"IDLE+{flag}", FaultLevel.NotHandleFault) for flag in (
        "COMPLETING", "PLANNED", "RESERVED", "BLOCKED", "MAINTENANCE", "REBOOT_REQUESTED", "POWERING_UP",
        "POWER_UP", "EXTERNAL", "CLOUD", "DYNAMIC_NORM",
    )),
    *((base, FaultLevel.NotHandleFault) for base in ("IDLE", "ALLOCATED", "MIXED")),
    *((f"MIXED+{flag}", FaultLevel.PreSeparateFault) for flag in (
        "DRAIN", "POWER_DOWN", "POWER_DRAIN", "NOT_RESPONDING",
    )),
    *((f"ALLOCATED+{flag}", FaultLevel.SeparateFault) for flag in (
        "FAIL", "REBOOT_ISSUED", "INVALID_REG", "POWERING_DOWN", "POWERED_DOWN",
    )),
    *((base, FaultLevel.SeparateFault) for base in ("DOWN", "ERROR", "FUTURE")),
    *((f"ALLOCATED+{flag}+POWERING_UP", FaultLevel.NotHandleFault) for flag in (
        "NOT_RESPONDING", "POWERING_DOWN", "POWERED_DOWN",
    )),
    ("ALLOCATED+NOT_RESPONDING+POWER_UP", FaultLevel.NotHandleFault),
    ("DOWN+POWERING_UP", FaultLevel.SeparateFault),
    ("UNKNOWN+DRAIN", FaultLevel.PreSeparateFault),
    ("UNKNOWN+DRAIN+UNDRAIN", None),
    *((f"UNKNOWN+{flag}", FaultLevel.SeparateFault) for flag in ("FAIL", "INVALID_REG", "REBOOT_ISSUED")),
    *((f"UNKNOWN+{flag}", None) for flag in ("NOT_RESPONDING", "POWER_DOWN", "POWERED_DOWN", "MAINTENANCE")),
    ("+DRAIN", FaultLevel.PreSeparateFault),
]  # fmt: skip


def level_of(state: str, *, allocated: bool = True) -> FaultLevel | None:
    """Judge a node that shows `state`."""
    return Policy().assess(Node("n1", *parse_state(state)), allocated=allocated).level


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case_is_split(case: dict[str, object]) -> None:
    """Every state of the cases has its base and its flags."""
    base, flags = parse_state(str(case["state"]))
    assert (base, sorted(flags)) == (case["base"], case["flags"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case_has_its_level(case: dict[str, object]) -> None:
    """Every state of the cases has its level, or none where there is no verdict."""
    level = level_of(str(case["state"]), allocated=bool(case["in_running_allocation"]))
    assert (level.name if level is not None else None) == case["level"]


@pytest.mark.parametrize(("state", "level"), LEVELS, ids=[state for state, _ in LEVELS])
def test_level(state: str, level: FaultLevel | None) -> None:
    """Every word of the contract's table has its level inside a running allocation."""
    assert level_of(state) == level


@pytest.mark.parametrize("state", ["IDLE+POWERING_DOWN", "IDLE+POWERED_DOWN", "FUTURE"])
def test_saving_power_is_no_fault_elsewhere(state: str) -> None:
    """Outside of running allocations a node that is powered down, or reserved for later, is fit."""
    assert level_of(state, allocated=False) == FaultLevel.NotHandleFault


@pytest.mark.parametrize(("suffix", "flag"), SUFFIXES.items(), ids=SUFFIXES.values())
def test_suffix(suffix: str, flag: str) -> None:
    """Each suffix character of sinfo(1) is the flag that newer versions print."""
    assert parse_state(f"IDLE{suffix}") == ("IDLE", frozenset({flag}))
    assert parse_state(f"idle{suffix}+drain") == ("IDLE", frozenset({flag, "DRAIN"}))


def test_several_suffixes() -> None:
    """More than one suffix is more than one flag, and one on a flag counts too."""
    assert parse_state("DOWN*$") == ("DOWN", frozenset({"NOT_RESPONDING", "MAINTENANCE"}))
    assert parse_state("DOWN+DRAIN*") == ("DOWN", frozenset({"DRAIN", "NOT_RESPONDING"}))


@pytest.mark.parametrize(("word", "expected"), SINFO.items(), ids=SINFO.keys())
def test_word_of_sinfo(word: str, expected: tuple[str, set[str], FaultLevel | None]) -> None:
    """A word of sinfo(1), in lower case and with a flag folded in, is never healthier than what it hides."""
    base, flags, level = expected
    assert parse_state(word) == (base, frozenset(flags))
    assert level_of(word) == level


def test_order_of_flags_does_not_matter() -> None:
    """The same flags in another order are the same state."""
    assert parse_state("IDLE+DRAIN+REBOOT_REQUESTED") == parse_state("IDLE+REBOOT_REQUESTED+DRAIN")


def test_state_is_base_then_flags() -> None:
    """What is shown of a node is its base, then its flags sorted."""
    node = Node("n1", *parse_state("MIXED+NOT_RESPONDING+DRAIN"))
    assert node.state == ("MIXED", "DRAIN", "NOT_RESPONDING")


def test_unknown_flag_is_named() -> None:
    """A flag of a newer Slurm is reported, and hides none of its neighbours."""
    assessment = Policy().assess(Node("n1", *parse_state("IDLE+SOMETHING_NEW+DRAIN")))
    assert assessment.unknown == {"SOMETHING_NEW"}
    assert assessment.level == FaultLevel.PreSeparateFault


@given(st.text(max_size=40) | st.text("IDLEDOWN+*~#!%$@^- \n\0", max_size=40))
@settings(deadline=None, max_examples=500)
def test_never_fails(text: str) -> None:
    """Whatever Slurm prints there is a base, a set of flags and a judgement, and no flag is empty."""
    base, flags = parse_state(text)
    assert "" not in flags
    assert Policy().assess(Node("n1", base, flags)).level in {None, *FaultLevel}


def test_a_long_state_is_none() -> None:
    """A million suffixes or words cost no more than reading them, and are refused before that."""
    before = time.process_time()
    assert parse_state("DOWN" + "*" * (1 << 20)) == ("DOWN", frozenset({"NOT_RESPONDING"}))
    for text in ("DOWN" + "*" * 1000, "DOWN" + "+A" * 500):
        with pytest.raises(ValueError, match="not the state of a node"):
            state_of(text)
    assert time.process_time() - before < 5


@given(st.sampled_from(["IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN", "BANANA", ""]), st.sets(st.sampled_from([
    "DRAIN", "FAIL", "INVALID_REG", "REBOOT_ISSUED", "PLANNED", "CLOUD", "MAINTENANCE", "COMPLETING", "NEW",
])))  # fmt: skip
@settings(deadline=None)
def test_printed_and_read_back(base: str, flags: set[str]) -> None:
    """A base and flags joined by plus signs are the same base and flags again."""
    assert parse_state("+".join([base, *flags])) == (base, frozenset(flags))

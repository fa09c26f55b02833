"""The page about reliability names what the harness tries, and its sum is that of a whole run."""

from __future__ import annotations

from tests.faults.fault import FAULTS
from tests.faults.kinds import KINDS
from tests.faults.page import TITLES, figures_in, missing, names_in
from tests.faults.pairs import PAIRS


def test_every_fault_and_pair_is_on_the_page() -> None:
    """Whoever adds a fault runs `make test-faults`, which writes the page."""
    assert missing([*((name,) for name in FAULTS), *PAIRS]) == set()


def test_the_page_names_no_other() -> None:
    """What was removed, or has another name now, is not promised any more."""
    rows = {("fault",), ("---",), ("fault", "and in the middle of it"), ("---", "---")}
    assert names_in() - {(name,) for name in FAULTS} - set(PAIRS) - rows == set()


def test_every_kind_has_a_heading() -> None:
    """Else a run of 20 minutes ends before its page is written."""
    assert {kind.__name__.rpartition(".")[2] for kind in KINDS} == TITLES.keys()
    assert {fault.kind for fault in FAULTS.values()} == TITLES.keys()


def test_pairs_are_of_faults() -> None:
    """Each is of two faults that there are, and is tried once."""
    assert all({one, other} <= FAULTS.keys() and one != other for one, other in PAIRS)
    assert len(set(PAIRS)) == len(PAIRS)


def test_the_page_is_of_a_whole_run_without_a_violation() -> None:
    """At least as many faults, pairs and kills as were promised, all of them played."""
    figures = figures_in()
    assert figures == {**figures, "faults": len(FAULTS), "pairs": len(PAIRS), "violations": 0}
    assert figures["faults"] >= 30
    assert figures["pairs"] >= 10
    assert figures["kills"] >= 1000

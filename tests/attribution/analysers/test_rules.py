"""What the rules make of logs: those that people labelled, and the edges of each rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from segment_health.attribution.analysers.finding import Action

from .logs import Labelled, confusion, judged, kinds, labelled

LABELLED = labelled()
MISLEADING = [case for case in LABELLED if case.is_misleading]
PAGE = Path(__file__).parents[3] / "docs" / "attribution-analysers.md"


@pytest.mark.parametrize("case", LABELLED, ids=lambda case: case.name)
def test_a_labelled_log_is_judged_as_by_a_person(case: Labelled) -> None:
    """Category, action, nodes and step are those of the label."""
    finding = judged(*case.earlier, case.log)
    assert (finding.category, finding.action, finding.nodes, finding.step) == (
        case.category,
        case.action,
        case.nodes,
        case.step,
    ), finding.reason


def test_stop_is_precise() -> None:
    """Of the logs that are a STOP for the rules 19 in 20 at least are one for people."""
    stops = [case for case in LABELLED if judged(*case.earlier, case.log).action is Action.STOP]
    assert len(stops) > 3
    assert sum(case.action is Action.STOP for case in stops) / len(stops) >= 0.95


def test_there_are_logs_enough() -> None:
    """Forty at least, fifteen of which mislead who only looks for words; each category that there is has one."""
    assert len(LABELLED) >= 40
    assert len(MISLEADING) >= 15
    assert len({case.name for case in LABELLED}) == len(LABELLED)


def test_the_page_has_the_tables_as_they_are() -> None:
    """What the documentation says of the failures and of the rules' precision is what came of them here."""
    page = PAGE.read_text()
    assert kinds() in page, kinds()
    assert confusion(LABELLED) in page, confusion(LABELLED)
    assert confusion(MISLEADING) in page, confusion(MISLEADING)
    assert f"{len(LABELLED)} logs" in page
    assert f"{len(MISLEADING)} of them" in page

"""What the rules make of logs: those that people labelled, and the edges of each rule."""

from __future__ import annotations

import pytest

from segment_health.attribution.analysers.finding import Action

from .logs import Labelled, judged, labelled

LABELLED = labelled()


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

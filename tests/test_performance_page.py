from __future__ import annotations

import pytest

from benchmarks import report
from benchmarks.goals import GOALS, Goal

RESULTS = report.read()


def test_the_page_is_what_the_results_make_of_it() -> None:
    """What stands between the markers was made from results.json, each number of it too."""
    text = report.PAGE.read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1
    assert report.made_part(text) == report.page(RESULTS)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_every_goal_has_a_row(goal: Goal) -> None:
    """A goal that is not met, or not measured, is not left out."""
    assert f"| {goal.name}, {goal.text} |" in report.page(RESULTS)
    assert f"| {goal.name}, {goal.text} |" in report.page({})

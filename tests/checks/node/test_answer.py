"""How an answer is read: every row of tests/data/cases/nvhcd.json by the rule of the seed, and anything else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health.checks import answer, message

CASES = json.loads((Path(__file__).parents[2] / "data/cases/nvhcd.json").read_text())


def answered(**told: Any) -> message.Response:
    """Make an answer; a text may be {"repeat": "x", "times": N}."""
    usual: dict[str, Any] = {"success": True, "exit_code": 0, "output": "", "error": ""}
    whole = {
        key: value["repeat"] * value["times"] if isinstance(value, dict) else value for key, value in told.items()
    }
    return message.response(**(usual | whole))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_an_answer_is_read_by_the_rule_of_the_seed(case: Any) -> None:
    """Healthy or not, and why, or what could not be read; one line, whatever was answered."""
    finding = answer.read(answered(**case["answer"]))
    assert finding.is_healthy is case["seed"]
    told = [*finding.problems, *finding.remarks]
    assert len(told) == (1 if case["says"] else 0)
    for sentence in told:
        assert re.search(case["says"], sentence), sentence
        assert sentence.isprintable()
        assert len(sentence) < 4000


TEXT = st.text('a1 "[]{},:\\\0\n\r\t\x1b\x9b\u202e\u00e9\U0001f600', max_size=9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=9,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "failed_checks": JSON,
        "fail_count": JSON,
        "failed_checks_ignored": JSON,
        "remarks": JSON,
        "x": JSON,
    },
)


@settings(deadline=None)  # a busy machine is no failure
@given(found=OBJECTS)
def test_only_a_list_that_is_not_empty_makes_a_success_unhealthy(found: dict[str, Any]) -> None:
    """Whatever else stands in the object, of whatever type."""
    failed = found.get("failed_checks")
    finding = answer.read(answered(output=json.dumps(found)))
    assert finding.is_healthy is not (isinstance(failed, list) and len(failed) > 0)


@settings(deadline=None)
@given(success=st.booleans(), output=TEXT | JSON.map(json.dumps), error=TEXT, code=st.integers(-9, 255))
def test_anything_can_be_read_and_printed(success: bool, output: str, error: str, code: int) -> None:
    """Nothing is raised, a failure is a failure, and no control character is left."""
    finding = answer.read(answered(success=success, output=output, error=error, exit_code=code))
    assert success or not finding.is_healthy
    assert all(sentence.isprintable() for sentence in (*finding.problems, *finding.remarks))


def test_what_cannot_be_shown_is_still_a_failure() -> None:
    """Names nested deeper than Python can write them again."""
    nested: Any = []
    for _ in range(3_000):
        nested = [nested]
    assert answer._shown(nested) == "(nested too deep to be shown)"

"""What the checks answer together: the union of failures, and no answer where nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from segment_health.checks.builtin import answer
from segment_health.checks.builtin.answer import Verdict
from segment_health.checks.health_check import Finding

FINE = Verdict("paths", Finding())
ODD = Verdict("nhc", Finding(remarks=("made no\x1b checks",)))
SICK = Verdict("slurm", Finding(("n1 is\nDOWN", "n1 is late")))
LOST = Verdict("storage", None, "no answer")


@pytest.mark.parametrize(
    ("verdicts", "document"),
    [
        pytest.param([FINE], {"fail_count": 0, "failed_checks": []}, id="healthy"),
        pytest.param(
            [FINE, ODD],
            {"fail_count": 0, "failed_checks": [], "remarks": [r"nhc: made no\x1b checks"]},
            id="healthy-with-a-remark",
        ),
        pytest.param(
            [SICK, FINE],
            {"fail_count": 2, "failed_checks": [r"slurm: n1 is\nDOWN", "slurm: n1 is late"]},
            id="unhealthy",
        ),
        pytest.param([LOST], None, id="unknown"),
        pytest.param([FINE, LOST, ODD], None, id="healthy-and-unknown"),
        pytest.param(
            [LOST, SICK],
            {
                "fail_count": 2,
                "failed_checks": [r"slurm: n1 is\nDOWN", "slurm: n1 is late"],
                "remarks": ["storage: no answer (not known)"],
            },
            id="unhealthy-and-unknown",
        ),
    ],
)
def test_the_answer(verdicts: list[Verdict], document: dict[str, Any] | None) -> None:
    """A failure counts whatever else is not known; without one, what is not known is no all-clear."""
    assert answer.document(verdicts) == document
    assert answer.unknowns(verdicts) == (["storage: no answer"] if LOST in verdicts else [])

"""Which blames count against a node, for whom, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from segment_health.attribution.blame.grade import Bar, grade
from segment_health.attribution.blame.record import Blame
from segment_health.level import FaultLevel
from segment_health.publication import Holder

NOW = 1_800_000_000
DAY = 86400
ALICE, BOB = Holder("7", "1001"), Holder("8", "1002")


def by(job: str, age: int = 0, **further: Any) -> Blame:
    """Return a blame by a job's log of this age in seconds."""
    return Blame(
        **{"node": "n1", "category": "xid-hardware", "job_id": job, "time": NOW - age, "cycle": 1, **further}
    )


COUNTS: list[Any] = [
    pytest.param([], {ALICE}, 2, None, id="nobody-blames"),
    pytest.param([by("7")], {ALICE}, 2, "xid-hardware", id="the-job-that-holds-it"),
    pytest.param([by("7")], {BOB}, 2, None, id="another-job-alone-is-not-enough"),
    pytest.param([by("7")], set(), 2, None, id="one-job-against-an-idle-node"),
    pytest.param([by("7"), by("7", cycle=2)], {BOB}, 2, None, id="two-cycles-are-one-job"),
    pytest.param([by("7"), by("9")], {BOB}, 2, "xid-hardware", id="two-jobs-count-for-everybody"),
    pytest.param([by("7"), by("9")], set(), 2, "xid-hardware", id="two-jobs-against-an-idle-node"),
    pytest.param([by("7"), by("9", category="cuda-ecc")], {BOB}, 2, "cuda-ecc", id="whatever-each-saw"),
    pytest.param([by("7"), by("9")], {BOB}, 3, None, id="a-site-wants-three"),
    pytest.param([by("7")], {BOB}, 1, "xid-hardware", id="a-site-is-content-with-one"),
    pytest.param([by("7", DAY)], {ALICE}, 2, "xid-hardware", id="a-day-old"),
    pytest.param([by("7", DAY + 1)], {ALICE}, 2, None, id="older-than-a-day"),
    pytest.param([by("7", DAY + 1), by("9")], {BOB}, 2, None, id="an-old-one-is-not-counted"),
    pytest.param([by("7", owner=1001)], {ALICE}, 2, "xid-hardware", id="a-log-of-the-jobs-user"),
    pytest.param([by("7", owner=0)], {ALICE}, 2, "xid-hardware", id="a-log-of-roots"),
    pytest.param([by("7", owner=1002)], {ALICE}, 2, None, id="a-strangers-log-in-the-jobs-name"),
    pytest.param([by("7", owner=1001)], {Holder("7", "")}, 2, "xid-hardware", id="slurm-tells-no-user"),
    pytest.param([by("7")], {BOB, ALICE}, 2, "xid-hardware", id="a-shared-node"),
]


@pytest.mark.parametrize(("blames", "holders", "jobs", "expected"), COUNTS)
def test_what_counts(blames: list[Blame], holders: set[Holder], jobs: int, expected: str | None) -> None:
    """A blame counts while its job holds the node, and for everybody once several jobs blame it."""
    told = grade(blames, holders, Bar(DAY, jobs), NOW)
    if expected is None:
        assert told is None
    else:
        assert told is not None
        assert (told.level, told.rule) == (FaultLevel.PreSeparateFault, f"attribution:{expected}")
        assert told.final


def test_a_harmless_one_is_said_and_excludes_nothing() -> None:
    """A level below a fault's stays what it is beside a worse one."""
    harmless = by("7", category="gpu-warned", level=FaultLevel.NotHandleFault)
    told = grade([harmless, by("7")], {ALICE}, Bar(DAY, 2), NOW)
    assert told is not None
    assert [(one.word, one.level) for one in told.findings] == [
        ("attribution:gpu-warned", FaultLevel.NotHandleFault),
        ("attribution:xid-hardware", FaultLevel.PreSeparateFault),
    ]
    assert told.rule == "attribution:xid-hardware"

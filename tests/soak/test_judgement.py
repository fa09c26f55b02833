"""The soak's judgement can fail: each wrong directory, lift and life is told from a right one."""

from __future__ import annotations

import json

import pytest

from tests.soak import judgement
from tests.soak.judgement import GRACE, Life, expand, growth, left_over, truth_of, unexplained, wrong

NODES = """\
NodeName=c00001 Arch=x Boards=1 State=ALLOCATED+DRAIN ThreadsPerCore=1 Reason=State=IDLE [root@2026-11-30T08:30:13]
NodeName=c00002 Arch=x Boards=1 State=ALLOCATED ThreadsPerCore=1
NodeName=c00003 Arch=x Boards=1 State=IDLE+FAIL ThreadsPerCore=1
NodeName=c00004 Arch=x Boards=1 State=MIXED+NOT_RESPONDING ThreadsPerCore=1
NodeName=c00005 Arch=x Boards=1 State=ALLOCATED ThreadsPerCore=1
"""
JOBS = """\
7|0|8|RUNNING|2026-11-30T08:29:57|c[00001-00002]
7|1|9|SUSPENDED|2026-11-30T08:29:57|c00005
7|2|10|PENDING|N/A|
12|N/A|12|CONFIGURING|2026-11-30T08:29:58|c00004
"""
TRUTH = truth_of(NODES, JOBS)
HISTORY = ".segment-health/history.jsonl"
RIGHT = {
    "segment_health_check.7.0": b'{"unavailable": "c00001"}\n',
    "segment_health_check.7.1": b"",
    "segment_health_check.12.12": b'{"unavailable": "c00004"}\n',
    HISTORY: b'{"action": "exclude"}\n',
}


def override(start_time: int, unavailable: str) -> dict[str, bytes]:
    """Return the right directory in which a person has said that 7.0 is to be used."""
    word = json.dumps({"start_time": start_time, "unavailable": unavailable}).encode()
    return {**RIGHT, "segment_health_check.7.0": b"", ".segment-health/override/7.0.json": word}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("c1", {"c1"}),
        ("c[08-10,12],d3,e[1]", {"c08", "c09", "c10", "c12", "d3", "e1"}),
    ],
)
def test_hostlists_are_read(text: str, names: set[str]) -> None:
    """What Slurm folds becomes names again, zeros included."""
    assert expand(text) == names


def test_truth_is_read() -> None:
    """Units are what holds nodes; a bad node is one with a bad word, wherever that word stands."""
    assert TRUTH.units.keys() == {"7.0", "7.1", "12.12"}
    assert TRUTH.bad == {"c00001", "c00003", "c00004"}
    assert TRUTH.excluded({}) == {"7.0": {"c00001"}, "12.12": {"c00004"}}
    assert (TRUTH.is_settled, TRUTH.waiting) == (True, 1)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param((NODES.replace("IDLE+FAIL", "UNKNOWN"), JOBS), id="unknown node"),
        pytest.param((NODES, JOBS.replace("PENDING", "COMPLETING")), id="ending job"),
    ],
)
def test_a_cluster_in_motion_is_not_settled(texts: tuple[str, str]) -> None:
    """Nothing is concluded while slurmctld knows nothing of a node, or while a job is ending."""
    assert not truth_of(*texts).is_settled


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(RIGHT, id="all files"),
        pytest.param({name: text for name, text in RIGHT.items() if text}, id="no empty ones"),
        pytest.param(override(1796027397, "c00001"), id="overridden"),
    ],
)
def test_a_right_directory_is_right(files: dict[str, bytes]) -> None:
    """An artifact may be empty or missing where nothing is excluded, and a person's word counts."""
    assert wrong(files, TRUTH) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {name: text for name, text in RIGHT.items() if not name.endswith(".7.0")},
            "7.0: the artifact is missing",
        ),
        ({**RIGHT, "segment_health_check.12.12": b""}, "12.12: the artifact is empty"),
        ({**RIGHT, "segment_health_check.7.1": b'{"unavailable": "c00005"}'}, "7.1: the artifact is non-empty"),
        ({**RIGHT, "segment_health_check.7.0": b'{"unavailable": "c00002"}'}, "7.0: the artifact does not name"),
        ({**RIGHT, "segment_health_check.7.0": b'{"unavailable": "c0000'}, "7.0: the artifact does not name"),
        ({**RIGHT, "segment_health_check.6.0": b""}, "left over: the artifact of 6.0"),
        ({**RIGHT, "segment_health_check.7.2": b""}, "left over: the artifact of 7.2"),
        ({**RIGHT, ".segment-health.tmp.host.1.2": b""}, "left over: .segment-health.tmp.host.1.2"),
        (
            {**RIGHT, ".segment-health/override/.segment-health.tmp.host.1.2": b"{"},
            "left over: .segment-health/ov",
        ),
        (override(1796027396, "c00001"), "7.0: the artifact is empty"),
        (override(1796027397, "c[00001-00002]"), "7.0: the artifact is empty"),
        ({**RIGHT, HISTORY: b'{"action": "ex{"action": "exclude"}\n'}, "not a line of the history"),
        (
            {**RIGHT, HISTORY: b'{"x": "%s"}\n' % (b"x" * judgement.LEDGER_BYTES)},
            ".segment-health holds 41943050 bytes",
        ),
    ],
)
def test_a_wrong_directory_is_wrong(files: dict[str, bytes], said: str) -> None:
    """Whatever differs from the truth is said, and nothing else."""
    assert [said in line for line in wrong(files, TRUTH)] == [True]


def test_what_is_left_over_is_seen_after_a_while() -> None:
    """An artifact may outlive its unit, and a temporary its writer, by two passes; a pass is never that late."""
    heartbeat = {".segment-health/heartbeat/all@fleet.json": 1001.0}
    files = heartbeat | {"segment_health_check.7.0": 0.0, ".segment-health.tmp.host.1.2": 1000.0}
    assert left_over(files, {"7.0": 1000.0}, 1000 + GRACE) == []
    assert len(left_over(files, {"7.0": 1000.0}, 1001 + GRACE)) == 2
    assert len(left_over(files, {}, 1000)) == 1
    assert left_over(heartbeat, {}, 1002 + GRACE) == [f"no complete pass for {1 + GRACE:.0f} s"]


@pytest.mark.parametrize(
    ("acts", "count"),
    [({"7.0": [99.0]}, 0), ({}, 1), ({"7.1": [99.0]}, 1), ({"7.0": [101.0]}, 1), ({"7.0": [99.0 - GRACE]}, 1)],
    ids=["resumed", "nothing", "another unit", "afterwards", "long ago"],
)
def test_a_lift_needs_a_cause(acts: dict[str, list[float]], count: int) -> None:
    """An exclusion that goes away, if only for an instant, does so because something was done to that unit."""
    assert len(unexplained([(100.0, "7.0")], acts)) == count


def life(*resident: int, descriptors: tuple[int, ...] = (7,)) -> Life:
    """Return a life with one sample a second, after the start."""
    samples = [(30.0 + at, size, descriptors[at % len(descriptors)]) for at, size in enumerate(resident)]
    return Life(1, [(0.0, 1000, 3), *samples])


FLAT = life(*[60_000, 62_000, 59_000] * 10, descriptors=(7, 7, 12))


def test_flat_lives_are_flat() -> None:
    """Neither what a pass needs for a moment nor the start is growth; nothing is said of a short life."""
    assert growth([FLAT, life(90_000), FLAT, FLAT]) == []


@pytest.mark.parametrize(
    ("lives", "said"),
    [
        ([], "long enough"),
        ([life(90_000)], "long enough"),
        ([life(*range(60_000, 75_000, 500))], "memory grew from 62250 to 72250 KiB in 59 s"),
        ([life(*[60_000] * 30, descriptors=tuple(range(7, 37)))], "descriptors grew"),
        ([FLAT, FLAT, life(*[70_000] * 30)], "the last publishers need 70000 KiB, the first needed 60000"),
    ],
    ids=["none", "too short", "memory", "descriptors", "from life to life"],
)
def test_growth_is_seen(lives: list[Life], said: str) -> None:
    """A leak is seen within a life, and what one life leaves to the next as well."""
    (line,) = growth(lives)
    assert said in line


def test_every_bad_word_counts() -> None:
    """One word is enough, alone and beside others."""
    for word in judgement.BAD:
        assert truth_of(f"NodeName=c1 State={word} X=", "").bad == {"c1"}
        assert truth_of(f"NodeName=c1 State=ALLOCATED+{word}+PLANNED X=", "").bad == {"c1"}

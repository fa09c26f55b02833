"""The judge of the fault harness finds what is wrong: logs that break the promise, and logs that keep it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.promise import Bound, Health, Span, Step, Told, Transition, Violation, longest_lag, violations
from tests.faults.promise import without as left_over

READER = Path(__file__).parent / "reader.py"
FIT, BAD, EITHER = Health.FIT, Health.BAD, Health.EITHER
EXCLUDED, EMPTY, MISSING, IGNORED, TORN = Told.EXCLUDED, Told.EMPTY, Told.MISSING, Told.IGNORED, Told.TORN
UNTIL = 1000
BOUND = Bound(settle=10)

# name: what was true, what was told, the faults, what must be found. Times are small numbers of nanoseconds.
Log = tuple[list[tuple[int, Health]], list[tuple[int, Told]], list[Span], list[tuple[Told, int, int]]]
ALWAYS_BAD, ALWAYS_FIT = [(0, BAD)], [(0, FIT)]
DRAINED = [(0, FIT), (100, EITHER), (110, BAD)]
RESUMED = [(0, BAD), (100, EITHER), (110, FIT)]
HOLDS = Span("a fault", 105, 300, holds={"unit"})
BLINDS = Span("a fault", 105, 300, blinds={"unit"})
LOGS: dict[str, Log] = {
    "told_the_truth_at_once": (DRAINED, [(0, MISSING), (105, EXCLUDED)], [], []),
    "told_within_the_stated_time": (DRAINED, [(0, MISSING), (119, EXCLUDED)], [], []),
    "told_after_the_stated_time": (DRAINED, [(0, MISSING), (121, EXCLUDED)], [], [(MISSING, 120, 121)]),
    "never_told": (DRAINED, [(0, MISSING)], [], [(MISSING, 120, UNTIL)]),
    "told_before_it_was_true": (DRAINED, [(0, MISSING), (99, EXCLUDED)], [], [(EXCLUDED, 99, 100)]),
    "lifted_in_time": (RESUMED, [(0, EXCLUDED), (115, EMPTY)], [], []),
    "lifted_late": (RESUMED, [(0, EXCLUDED), (130, EMPTY)], [], [(EXCLUDED, 120, 130)]),
    "lifted_before_it_was_true": (RESUMED, [(0, EXCLUDED), (90, EMPTY)], [], [(EMPTY, 90, 100)]),
    "missing_between_two_exclusions": (
        ALWAYS_BAD,
        [(0, EXCLUDED), (50, MISSING), (51, EXCLUDED)],
        [],
        [(MISSING, 50, 51)],
    ),
    "empty_between_two_exclusions": (
        ALWAYS_BAD,
        [(0, EXCLUDED), (50, EMPTY), (51, EXCLUDED)],
        [],
        [(EMPTY, 50, 51)],
    ),
    "not_to_be_looked_at": (ALWAYS_BAD, [(0, EXCLUDED), (50, IGNORED)], [], [(IGNORED, 50, UNTIL)]),
    "torn_though_bad": (ALWAYS_BAD, [(0, EXCLUDED), (50, TORN), (51, EXCLUDED)], [], [(TORN, 50, 51)]),
    "excluded_though_fit": (ALWAYS_FIT, [(0, MISSING), (50, EXCLUDED)], [], [(EXCLUDED, 50, UNTIL)]),
    "excluded_for_an_instant_though_fit": (
        ALWAYS_FIT,
        [(0, MISSING), (50, EXCLUDED), (51, EMPTY)],
        [],
        [(EXCLUDED, 50, 51)],
    ),
    "held_while_the_fault_is_in_force": (DRAINED, [(0, MISSING), (305, EXCLUDED)], [HOLDS], []),
    "held_for_longer": (DRAINED, [(0, MISSING), (320, EXCLUDED)], [HOLDS], [(MISSING, 310, 320)]),
    "held_by_a_fault_that_came_too_late": (
        DRAINED,
        [(0, MISSING), (305, EXCLUDED)],
        [Span("a fault", 150, 300, holds={"unit"})],
        [(MISSING, 120, 305)],
    ),
    "held_by_two_faults_in_a_row": (
        DRAINED,
        [(0, MISSING), (505, EXCLUDED)],
        [HOLDS, Span("another", 305, 500, holds={"unit"})],
        [],
    ),
    "held_by_a_fault_that_is_not_about_it": (
        DRAINED,
        [(0, MISSING), (305, EXCLUDED)],
        [Span("a fault", 105, 300, holds={"another"})],
        [(MISSING, 120, 305)],
    ),
    "a_fault_that_holds_lifts_nothing": (
        ALWAYS_BAD,
        [(0, EXCLUDED), (150, EMPTY), (305, EXCLUDED)],
        [HOLDS],
        [(EMPTY, 150, 305)],
    ),
    "a_fault_that_holds_excludes_nothing": (
        ALWAYS_FIT,
        [(0, MISSING), (150, EXCLUDED), (305, EMPTY)],
        [HOLDS],
        [(EXCLUDED, 150, 305)],
    ),
    "hidden_while_the_storage_is_away": (
        ALWAYS_BAD,
        [(0, EXCLUDED), (150, IGNORED), (305, EXCLUDED)],
        [BLINDS],
        [],
    ),
    "hidden_for_longer": (
        ALWAYS_BAD,
        [(0, EXCLUDED), (150, MISSING), (320, EXCLUDED)],
        [BLINDS],
        [(MISSING, 310, 320)],
    ),
    "storage_that_is_away_excludes_nothing": (
        ALWAYS_FIT,
        [(0, MISSING), (150, EXCLUDED)],
        [BLINDS],
        [(EXCLUDED, 150, UNTIL)],
    ),
}


def found(log: Log, passes: list[int], bound: Bound) -> list[tuple[Told, int, int]]:
    """Judge a log of one unit."""
    steps, told, spans, _ = log
    transitions = [Transition(at, "unit", word) for at, word in told]
    truth = {"unit": [Step(at, health) for at, health in steps]}
    judged = violations(transitions, truth, passes, bound, spans=spans, until=UNTIL)
    return [(violation.told, violation.begin, violation.end) for violation in judged]


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_judged(name: str) -> None:
    """What is explained passes, and of the rest exactly the part that is not explained is found."""
    assert found(LOGS[name], [0], BOUND) == LOGS[name][3]


@pytest.mark.parametrize(
    ("passes", "told", "expected"),
    [
        pytest.param([0], [(0, EXCLUDED), (250, EMPTY)], [], id="after_so_long_without_a_pass"),
        pytest.param([0], [(0, EXCLUDED), (150, EMPTY)], [(EMPTY, 150, 200)], id="too_early"),
        pytest.param([0, 150], [(0, EXCLUDED), (250, EMPTY)], [(EMPTY, 250, 350)], id="a_pass_in_between"),
        pytest.param([0, 300], [(0, EXCLUDED), (250, EMPTY), (305, EXCLUDED)], [], id="excluded_by_the_next_pass"),
        pytest.param(
            [0, 300, 400, 500, 600, 700, 800, 900],
            [(0, EXCLUDED), (250, EMPTY)],
            [(EMPTY, 310, UNTIL)],
            id="not_excluded_by_the_next_pass",
        ),
    ],
)
def test_staleness_lifts(passes: list[int], told: list[tuple[int, Told]], expected: list[object]) -> None:
    """A bad unit is told healthy only when no pass was complete for long, and until the next one is."""
    assert found((ALWAYS_BAD, told, [], []), passes, Bound(settle=10, stale_after=200)) == expected


def test_staleness_excludes_nothing() -> None:
    """A fit unit is not excluded because nobody looked for long."""
    told = [(0, MISSING), (500, EXCLUDED)]
    assert found((ALWAYS_FIT, told, [], []), [0], Bound(settle=10, stale_after=200)) == [(EXCLUDED, 500, UNTIL)]


def test_a_unit_of_which_nothing_is_known_is_not_judged() -> None:
    """Unless what it is told is torn."""
    transitions = [Transition(0, "other", EXCLUDED), Transition(5, "other", TORN), Transition(7, "other", MISSING)]
    judged = violations(transitions, {}, [0], BOUND, spans=[], until=UNTIL)
    assert judged == [Violation("other", TORN, 5, 7)]
    assert str(judged[0]) == "torn artifact: other told torn (-) for 0.0 ms"


@pytest.mark.parametrize(
    ("steps", "told", "expected"),
    [
        pytest.param(DRAINED, [(0, MISSING), (150, EXCLUDED)], 40, id="from_the_end_of_the_change"),
        pytest.param(DRAINED, [(0, MISSING), (105, EXCLUDED)], 0, id="told_in_time"),
        pytest.param(RESUMED, [(0, EXCLUDED), (130, EMPTY)], 20, id="lifted"),
        pytest.param(DRAINED, [(0, MISSING), (120, EMPTY), (150, EXCLUDED)], 40, id="two_words_for_healthy"),
        pytest.param(DRAINED, [(0, MISSING)], UNTIL - 110, id="never"),
    ],
)
def test_the_longest_time_of_the_old_thing(
    steps: list[tuple[int, Health]], told: list[tuple[int, Told]], expected: int
) -> None:
    """It is counted from the moment when Slurm showed the change, through every word that says the same."""
    transitions = [Transition(at, "unit", word) for at, word in told]
    assert longest_lag(transitions, {"unit": [Step(at, health) for at, health in steps]}, UNTIL) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], [(0, 10)]),
        ([(0, 10)], []),
        ([(-5, 3), (2, 4), (6, 7)], [(4, 6), (7, 10)]),
        ([(3, 20)], [(0, 3)]),
        ([(20, 30)], [(0, 10)]),
        ([(-9, -5)], [(0, 10)]),
    ],
)
def test_what_is_left_of_an_interval(parts: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """Overlapping, outside, in any order."""
    assert left_over((0, 10), parts) == expected


def test_the_reader_sees_what_the_consumer_would(tmp_path: Path) -> None:
    """Each change of each artifact, in order, and a torn one for what it is."""
    artifact, heartbeat = tmp_path / "artifact", tmp_path / "heartbeat"
    argv = [sys.executable, "-I", "-S", str(READER), str(heartbeat), f"unit={artifact}", "dir=/"]
    reader = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None

    def next_words() -> list[str]:
        assert reader.stdout is not None
        at, *words = reader.stdout.readline().split()
        assert time.monotonic_ns() - int(at) < 60e9
        return words

    try:
        assert [next_words(), next_words()] == [["unit", "missing", "-"], ["dir", "ignored", "not_regular"]]
        artifact.touch()
        assert next_words() == ["unit", "empty", "-"]
        (tmp_path / "whole").write_text('{"schema": 1}\n')
        (tmp_path / "whole").rename(artifact)
        assert next_words() == ["unit", "excluded", "-"]
        (tmp_path / "half").write_text('{"schema": 1')
        (tmp_path / "half").rename(artifact)
        assert next_words() == ["unit", "torn", "-"]
        artifact.unlink()
        assert next_words() == ["unit", "missing", "-"]
        artifact.symlink_to(artifact)
        assert next_words() == ["unit", "ignored", "ELOOP"]
        heartbeat.touch()
        assert next_words() == ["*", "pass", "-"]
    finally:
        reader.terminate()
        last, _ = reader.communicate(timeout=30)
    assert " * looks " in last

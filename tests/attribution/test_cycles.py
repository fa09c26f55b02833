"""Cycles as logs tell them: which began, which failed, and what an earlier run left."""

from __future__ import annotations

import pytest

from segment_health.attribution.cycles import Cycles, Names, Stamp

NAMES = Names("/logs/train.log")
OLD, NEW, NEWER = Stamp(5, 1, 1), Stamp(6, 2, 1), Stamp(7, 3, 1)


def told(cycles: Cycles, found: dict[int, Stamp]) -> list[str]:
    """Look once, and write each event in a word."""
    return [f"{event.cycle} {'failed' if event.has_failed else 'began'}" for event in cycles.see(found)]


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        ("/logs/train.log", "/logs/train_cycle12.log"),
        ("/logs/train", "/logs/train_cycle12.log"),
        ("/logs/train.out", "/logs/train_cycle12.out"),
        ("/logs/a.b/train", "/logs/a.b/train_cycle12.log"),
        ("/logs/a (1)+.log", "/logs/a (1)+_cycle12.log"),
        ("/.hidden", "/.hidden_cycle12.log"),
    ],
    ids=["log", "none", "another", "dotted-directory", "pattern", "hidden"],
)
def test_a_log_is_named_as_ft_launcher_names_it(prefix: str, path: str) -> None:
    """The extension is the prefix's or `.log`, and the name is found again."""
    names = Names(prefix)
    assert names.path_of(12) == path
    assert names.cycle_of(path.rpartition("/")[2]) == 12
    assert names.directory == (path.rpartition("/")[0] or "/")


@pytest.mark.parametrize(
    "name",
    [
        "train.log",
        "train_cycle.log",
        "train_cycle01.log",
        "train_cycle-1.log",
        "train_cycle1.log.gz",
        "train_cycle1_attribution.log",
        "xtrain_cycle1.log",
        "train_cycle1.log\n",
        "train_cycle１.log",
        f"train_cycle{10**9}.log",
    ],
)
def test_what_is_no_log_of_a_cycle(name: str) -> None:
    """Another name, another program's, or a number that no launcher writes."""
    assert NAMES.cycle_of(name) is None


def test_a_later_cycle_says_that_the_one_before_failed() -> None:
    """Each begins once and fails once, in order, and the last one has not failed yet."""
    cycles = Cycles(NAMES, {})
    assert told(cycles, {}) == []
    assert cycles.current is None
    assert told(cycles, {0: NEW}) == ["0 began"]
    assert told(cycles, {0: NEWER}) == []
    assert told(cycles, {0: NEWER, 1: NEW}) == ["0 failed", "1 began"]
    assert told(cycles, {0: NEWER, 1: NEW}) == []
    assert cycles.current == 1


def test_several_between_two_looks() -> None:
    """A fast crash loop, and numbers that are left out: none is lost, and none invented."""
    cycles = Cycles(NAMES, {})
    assert told(cycles, {2: NEW, 0: NEW, 5: NEW}) == ["0 began", "0 failed", "2 began", "2 failed", "5 began"]


def test_logs_of_an_earlier_run_count_once_they_change() -> None:
    """A requeued run counts from 0 again, into files of its predecessor or new ones."""
    cycles = Cycles(NAMES, {0: OLD, 1: OLD, 2: OLD})
    assert told(cycles, {0: OLD, 1: OLD, 2: OLD}) == []
    assert told(cycles, {0: NEW, 1: OLD, 2: OLD}) == ["0 began"]
    assert told(cycles, {0: NEW, 1: Stamp(5, 1, 9), 2: OLD}) == ["0 failed", "1 began"]


def test_a_lower_number_is_no_cycle() -> None:
    """What is still written to an old log neither begins nor ends anything."""
    cycles = Cycles(NAMES, {})
    assert told(cycles, {3: NEW}) == ["3 began"]
    assert told(cycles, {1: NEW, 3: NEWER}) == []
    assert cycles.current == 3


def test_the_path_is_that_of_the_log() -> None:
    """What is told of an event is enough to submit its log."""
    assert [event.path for event in Cycles(NAMES, {}).see({7: NEW})] == ["/logs/train_cycle7.log"]

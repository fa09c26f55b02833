"""What the server makes of what it heard, and of how long ago that was."""

from __future__ import annotations

from typing import Any

import pytest

from segment_health.page.board import Board

COMPLETE: dict[str, Any] = {"nodes": {"nodes": [1]}, "decisions": {"units": []}, "interval": 300, "age": 0.0}


@pytest.mark.parametrize(
    ("events", "now", "problem"),
    [
        ([], 1000.0, None),
        ([], 1000.0 + 5 * 300 + 61, "nothing was heard of the publisher's loop for 1561 s"),
        ([(1000.0, {"interval": 10})], 1000.0 + 109, None),
        ([(1000.0, {"interval": 10})], 1000.0 + 111, "nothing was heard of the publisher's loop for 111 s"),
        ([(1000.0, COMPLETE), (2000.0, {"why": "no answer"})], 3500.0, None),
    ],
)
def test_signs_of_life(events: list[tuple[float, dict[str, Any]]], now: float, problem: str | None) -> None:
    """Any event is a sign of life, for as long as a loop may be silent: while Slurm is away it waits longer."""
    board = Board(1000.0)
    for time, event in events:
        board.hear(event, time)
    assert board.silence(now) == problem


@pytest.mark.parametrize(
    ("events", "now", "problem"),
    [
        ([], 0.0, "no pass was complete yet"),
        ([(0.0, COMPLETE)], 599.0, None),
        ([(0.0, COMPLETE)], 600.0, "the last complete pass was 600 s ago"),
        ([(0.0, COMPLETE), (300.0, {"why": "no answer", "age": 300.0})], 599.0, None),
        (
            [(0.0, COMPLETE), (300.0, {"why": "no answer", "age": 300.0})],
            700.0,
            "the last complete pass was 700 s ago: no answer",
        ),
        ([(0.0, {"why": "no answer", "age": None})], 1.0, "no answer"),
        ([(0.0, {**COMPLETE, "age": 599.0})], 0.5, None),  # a server that was started anew is told how old it is
        ([(0.0, {**COMPLETE, "age": 599.0})], 1.5, "the last complete pass was 600 s ago"),
        (
            [(0.0, COMPLETE), (1.0, {"standby": True})],
            2.0,
            "standing by: another publisher of this scope is alive",
        ),
    ],
)
def test_readiness(events: list[tuple[float, dict[str, Any]]], now: float, problem: str | None) -> None:
    """Ready is who has a complete pass younger than two intervals, and does not stand by; else it says why."""
    board = Board(0.0)
    for time, event in events:
        board.hear(event, time)
    assert board.unreadiness(now) == problem


def test_what_an_event_does_not_tell_stays() -> None:
    """A failed pass brings no picture: the last one is still sent, under the same ETag, and the reason is new."""
    board = Board(0.0)
    board.hear(COMPLETE, 0.0)
    nodes, decisions = board.body("nodes"), board.body("decisions")
    board.hear({"why": "no answer", "metrics": "up 1\n"}, 1.0)
    assert board.body("nodes") == nodes
    assert board.body("decisions").etag != decisions.etag
    assert board.document("decisions")["why"] == "no answer"
    assert board.metrics == "up 1\n"


def test_an_event_answers_who_asked() -> None:
    """After an event the next request for a pass is passed on again."""
    board = Board(0.0)
    board.asked = True
    board.hear({"why": "no answer"}, 1.0)
    assert not board.asked

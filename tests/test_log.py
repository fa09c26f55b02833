"""The log of a loop: a line a transition, silence in steady state, and the same trouble once an hour."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.cli.lines import REPEAT_SECONDS
from segment_health.cli.log import Log
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING
from segment_health.testing import FakeClock, FakeCluster
from segment_health.watch import Cause

if TYPE_CHECKING:
    from pathlib import Path

PASS = 300.0
SILENT = "Slurm's state is unknown, so every decision stays: no answer within 30 s"


@dataclass
class Loop:
    """Passes of a loop, five minutes apart, and what its log says of each."""

    directory: Path
    capture: pytest.CaptureFixture[str]
    format_: str = "json"
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.cluster.run("1", "n[1-2]")
        self.begin()

    def begin(self) -> None:
        """Start another process."""
        self.log = Log(self.format_, self.clock)

    def said(self) -> list[str]:
        """Return the lines since this was last called."""
        return self.capture.readouterr().err.splitlines()

    def events(self) -> list[str]:
        """Return the events of the lines since this was last called."""
        return [json.loads(line)["event"] for line in self.said()]

    def complete(self) -> None:
        """Make a pass."""
        self.clock.advance(PASS)
        publication = Publication(str(self.directory), EVERYTHING, Policy(), "1", PASS)
        self.log.completed(run_once(publication, self.cluster.source, self.clock), 0.1)

    def fail(self, why: str = SILENT, cause: Cause = Cause.SLURM) -> None:
        """Fail to make one."""
        self.clock.advance(PASS)
        self.log.failed(cause, why, 30.0)


@pytest.fixture
def loop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Loop:
    """A loop that has said nothing yet."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    return Loop(directory, capfd)


def test_a_summary_then_silence(loop: Loop) -> None:
    """The first pass is summed up; those after it, in which nothing changes, are not mentioned."""
    loop.complete()
    (line,) = loop.said()
    assert json.loads(line)["message"] == "complete: 9 nodes, 0 unavailable; 1 units, 0 excluded"
    for _ in range(30):
        loop.complete()
    assert loop.said() == []


def test_a_line_a_transition(loop: Loop) -> None:
    """An exclusion and its end are said once each, whatever the number of passes."""
    loop.complete()
    loop.said()
    loop.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    loop.complete()
    loop.complete()
    assert loop.events() == ["exclude", "new_exclusions"]
    loop.cluster.set_node("n1", "ALLOCATED")
    loop.complete()
    loop.complete()
    assert loop.events() == ["clear"]


def test_the_same_failure_is_said_once_an_hour(loop: Loop) -> None:
    """Of a night without Slurm there are as many lines as hours, and one that says how many passes it cost."""
    for _ in range(36):
        loop.fail()
    assert loop.events() == ["unknown"] * 3
    loop.complete()
    (line,) = loop.said()
    assert json.loads(line)["failed_passes"] == 36
    assert "complete after 36 passes that were not: " in line


def test_other_numbers_are_the_same_failure(loop: Loop) -> None:
    """An age or a process id in its words makes no new one."""
    for number in range(8):
        loop.fail(f"the decision directory: no answer within 60 s from process {4000 + number}", Cause.DIRECTORY)
    assert len(loop.said()) == 1


def test_another_cause_is_said_at_once(loop: Loop) -> None:
    """So is the first one when it comes back."""
    for cause, why in ((Cause.SLURM, SILENT), (Cause.DIRECTORY, "EIO"), (Cause.SLURM, SILENT)):
        loop.fail(why, cause)
        loop.fail(why, cause)
    told = [json.loads(line)["cause"] for line in loop.said()]
    assert told == ["slurm", "directory", "slurm"]


def test_a_failure_after_a_complete_pass_is_said_again(loop: Loop) -> None:
    """Passes that begin to fail are a transition, however little time has gone by."""
    for _ in range(3):
        loop.fail()
        loop.complete()
    assert loop.events() == ["unknown", "complete"] * 3


def test_what_is_stale_and_cannot_be_lifted_is_one_line(loop: Loop) -> None:
    """It is told of after each failed pass, and does not make that a new trouble each time."""
    for _ in range(6):
        loop.fail()
        loop.log.failed(Cause.LIFT, "stale exclusions could not be lifted: EIO", 0.0)
    assert len(loop.said()) == 2
    loop.complete()
    assert json.loads(loop.said()[0])["failed_passes"] == 6


def test_the_same_remark_is_said_once_an_hour(loop: Loop) -> None:
    """What is wrong beside passes is repeated no more often than passes that fail."""
    for _ in range(5):
        loop.log.remark("metrics", "the file cannot be written")
        loop.clock.advance(REPEAT_SECONDS / 4)
    assert loop.events() == ["metrics"] * 2


@pytest.mark.parametrize("format_", ["text", "json"])
def test_hostile_words(loop: Loop, format_: str) -> None:
    """Neither form lets anybody's text begin a line, move the cursor or be taken for another record."""
    loop.format_ = format_
    loop.begin()
    loop.fail("no\n2026-01-01 INFO all is well \x1b[2J \x7f \u202e \ud800")
    (line,) = loop.said()
    assert line.isprintable()
    assert ("all is well" in json.loads(line)["message"]) if format_ == "json" else line.isascii()


def test_for_people(loop: Loop) -> None:
    """A time, a level and a sentence."""
    loop.format_ = "text"
    loop.begin()
    loop.complete()
    (line,) = loop.said()
    assert line == "2026-11-30T00:58:20+00:00 INFO complete: 9 nodes, 0 unavailable; 1 units, 0 excluded"


def test_every_record_has_the_same_fields(loop: Loop) -> None:
    """Programs find a time, a level, an event and a message in each, and a change where one was made."""
    loop.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    loop.complete()
    loop.fail()
    records: list[dict[str, Any]] = [json.loads(line) for line in loop.said()]
    assert all([*record][:4] == ["time", "level", "event", "message"] for record in records)
    changes = [record["change"] for record in records if record["event"] == "exclude"]
    assert [(change["job_id"], change["level"]) for change in changes] == [("1", "PreSeparateFault")]

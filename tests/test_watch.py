"""The loop: when it passes, how long it waits, when it lets go, and what signals do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from segment_health import signals as signals_module
from segment_health.atomic import host_name
from segment_health.cli.log import Log
from segment_health.consumer import SegmentHealthCheck
from segment_health.level import FaultLevel
from segment_health.lift import override, prune
from segment_health.policy.assess import Policy
from segment_health.policy.file import parse
from segment_health.publication import Publication
from segment_health.reload import PolicyFile
from segment_health.scope import EVERYTHING, of_jobs
from segment_health.service import Plan, Service
from segment_health.signals import Signals
from segment_health.sources import SourceUnknown, node_names
from segment_health.testing import FakeClock, FakeCluster
from segment_health.watch import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass
class Bell:
    """A bell whose waits take no time: each lets `clock` pass and the next step of the story happen."""

    clock: FakeClock
    story: list[Callable[[], None] | None]
    ending: int | None = None
    waits: list[float] = field(default_factory=list)
    reload: bool = False
    outdated: list[bool] = field(default_factory=list)

    def wait(self, seconds: float, until: Callable[[], bool]) -> None:
        """Let the time pass, and the next thing happen; end when the story is over."""
        self.waits.append(seconds)
        self.clock.advance(seconds)
        step = self.story.pop(0) if self.story else None
        if step is not None:
            step()
        self.outdated.append(until())
        if not self.story:
            self.ending = signal.SIGTERM

    def take_reload(self) -> bool:
        """Take a reload that a step asked for."""
        wanted, self.reload = self.reload, False
        return wanted


class Said(Log):
    """A log that keeps what it says."""

    def __init__(self, clock: FakeClock, lines: list[str]) -> None:
        super().__init__("text", clock)
        self._lines = lines

    def say(self, level: str, event: str, message: str, **_: object) -> None:
        """Keep a line."""
        self._lines.append(f"{level} {event} {message}")


@dataclass
class Loop:
    """A publisher in a loop, told as a story of what happens during each wait."""

    directory: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=FakeClock)
    stale_after: float | None = 1800.0
    standby: bool = False
    guarded: bool = False
    said: list[str] = field(default_factory=list)

    def service(self, scope: str = "all") -> Service:
        """Make the publisher."""
        chosen = EVERYTHING if scope == "all" else of_jobs((scope,))
        publication = Publication(
            str(self.directory), chosen, Policy(), "0.1.0", interval=300.0, loop=True, guarded=self.guarded
        )
        return Service(Plan(publication, self.cluster.source, self.stale_after, self.standby, None), self.clock)

    def tell(self, *story: Callable[[], None] | None, random: float = 0.5) -> Bell:
        """Run the loop through a story; return the bell."""
        bell = Bell(self.clock, list(story))
        service = self.service()
        run(
            service,
            bell,
            Said(self.clock, self.said),
            monotonic=self.clock,
            random=lambda: random,
            age=service.age(),
        )
        return bell

    def history(self) -> list[dict[str, Any]]:
        """Read the history."""
        lines = (self.directory / ".segment-health/history.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def excluded(self, unit: str) -> bool:
        """Ask the consumer."""
        job, _, task = unit.partition("_")
        return not SegmentHealthCheck(self.directory, job, task or job)()


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    """A cluster of n1 to n9 in which 123_7 runs on n[3-4]."""
    made = Loop(tmp_path)
    made.cluster.run("123_7", "n[3-4]")
    return made


def test_it_passes_waits_and_ends(loop: Loop) -> None:
    """A pass before each wait; asked to end it ends, and what is excluded stays so."""
    loop.cluster.set_node("n4", "DOWN")
    bell = loop.tell(None, None, None)
    assert bell.waits == [300.0, 300.0, 300.0]
    assert loop.excluded("123_7")


@pytest.mark.parametrize(("random", "wait"), [(0.0, 270.0), (0.5, 300.0), (1.0, 330.0)])
def test_waits_differ_by_a_tenth(loop: Loop, random: float, wait: float) -> None:
    """A thousand sidecars that were started at once do not ask at once for ever."""
    assert loop.tell(None, random=random).waits == [pytest.approx(wait)]


def test_it_backs_off_while_slurm_does_not_answer(loop: Loop) -> None:
    """The wait doubles to four intervals, never past going stale, and is one interval again after an answer."""
    loop.stale_after = None

    def fail() -> None:
        loop.cluster.unknown = "no answer"

    def answer() -> None:
        loop.cluster.unknown = None

    bell = loop.tell(fail, None, None, None, answer, None)
    assert bell.waits == [300.0, 300.0, 600.0, 1200.0, 1200.0, 300.0]
    assert [line for line in loop.said if line.startswith("ERROR")] == [
        "ERROR unknown Slurm's state is unknown, so every decision stays: no answer"
    ]
    assert (
        loop.said[-1]
        == "INFO complete complete after 4 passes that were not: 9 nodes, 0 unavailable; 1 units, 0 excluded"
    )


def test_want_of_memory_ends_no_loop(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer for which there is no memory is a pass that was not made; the next one may be."""

    def fail() -> None:
        def snapshot(_: FakeCluster) -> None:
            raise MemoryError

        monkeypatch.setattr(FakeCluster, "snapshot", snapshot)

    loop.tell(fail, monkeypatch.undo, None)
    assert "ERROR unknown memory ran out, so every decision stays" in loop.said
    assert loop.said[-1].startswith("INFO complete complete after 1 pass that was not")


def test_it_lets_go_of_what_nothing_confirms(loop: Loop) -> None:
    """After 1800 s without a complete pass its exclusions are lifted once and aloud, other scopes' stay."""
    loop.cluster.set_node("n4", "DOWN")
    loop.cluster.run("55", "n[5-6]")
    loop.cluster.set_node("n5", "DOWN")
    loop.service("55").attempt()
    began = loop.clock.now

    def fail() -> None:
        loop.cluster.unknown = "no answer"

    lifted_at: list[float] = []

    def look() -> None:
        if not loop.excluded("123_7") and not lifted_at:
            lifted_at.append(loop.clock.now - began)

    loop.tell(fail, look, look, look, look, look, look)
    assert not loop.excluded("123_7")
    assert loop.excluded("55")
    assert 1800 <= lifted_at[0] <= 1800 + 1200
    assert next(line for line in loop.said if " stale " in line).endswith("1 exclusions lifted (fail open)")
    assert [entry["action"] for entry in loop.history()] == ["exclude", "exclude", "stale"]


def test_it_lets_go_of_nothing_of_another_cluster(loop: Loop) -> None:
    """A publisher that never had an answer does not know its cluster, and lifts no other one's exclusions."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    loop.cluster.name = "second"
    loop.cluster.run("8", "n1")
    loop.service().attempt()
    loop.clock.advance(1801)
    loop.cluster.unknown = "no answer"
    loop.tell(None)
    assert loop.excluded("123_7")


def test_it_lets_go_of_nothing_that_somebody_confirms(loop: Loop) -> None:
    """While another host's publisher of the same scope sees Slurm, a blind one lifts nothing."""
    loop.cluster.set_node("n4", "DOWN")
    sighted = loop.service()
    blind = FakeCluster()
    blind.unknown = "no route"
    service = loop.service()
    service._plan.source = blind.source

    def look() -> None:
        sighted.attempt()

    bell = Bell(loop.clock, [look] * 8)
    run(service, bell, Said(loop.clock, loop.said), monotonic=loop.clock, random=lambda: 0.5)
    assert loop.clock.now > FakeClock().now + 1800
    assert loop.excluded("123_7")


@pytest.mark.parametrize("step", [86_400.0, -86_400.0], ids=["forward", "back"])
def test_a_stepped_clock_lifts_nothing(loop: Loop, step: float) -> None:
    """Staleness is measured by a clock that nobody sets: a day's step of the other one changes no decision."""
    loop.cluster.set_node("n4", "DOWN")
    service, monotonic = loop.service(), FakeClock(0.0)

    def jump() -> None:
        loop.clock.advance(step)
        loop.cluster.unknown = "no answer"

    def answer() -> None:
        loop.cluster.unknown = None

    class Both(Bell):
        def wait(self, seconds: float, until: Callable[[], bool]) -> None:
            monotonic.advance(seconds)
            super().wait(seconds, until)

    seen: list[bool] = []
    story = [
        jump,
        lambda: seen.append(loop.excluded("123_7")),
        answer,
        lambda: seen.append(loop.excluded("123_7")),
    ]
    run(service, Both(loop.clock, [*story]), Said(loop.clock, loop.said), monotonic=monotonic, random=lambda: 0.5)
    assert seen == [True, True]
    assert loop.excluded("123_7")


def test_never_keeps_them(loop: Loop) -> None:
    """With `--stale-after never` an exclusion waits for evidence however long it takes."""
    loop.stale_after = None
    loop.cluster.set_node("n4", "DOWN")

    def fail() -> None:
        loop.cluster.unknown = "no answer"

    loop.tell(fail, *[None] * 20)
    assert loop.excluded("123_7")


def test_a_restart_does_not_renew_what_is_stale(loop: Loop) -> None:
    """The last complete pass of an earlier process counts: one that starts late lifts when it has asked twice."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    loop.clock.advance(1801)
    loop.cluster.unknown = "no answer"
    loop.tell()
    assert loop.excluded("123_7")
    assert loop.tell(None, None).waits[0] == 1.0
    assert not loop.excluded("123_7")


def test_going_stale_puts_another_scopes_exclusion_back(loop: Loop) -> None:
    """What the loop has raised is not its own to lift: the living scope's exclusion under it stands again."""
    loop.cluster.set_node("n4", "ALLOCATED+DRAIN")
    loop.service("123").attempt()
    loop.cluster.set_node("n4", "DOWN")
    loop.stale_after = 400.0
    path = loop.directory / "segment_health_check.123.7"

    def fail() -> None:
        assert json.loads(path.read_text())["publisher"]["scope"] == "all"
        loop.cluster.unknown = "no answer"

    loop.tell(fail, None, None)
    told = json.loads(path.read_text())
    assert (told["level"], told["publisher"]["scope"]) == ("PreSeparateFault", "job:123")
    assert [entry["action"] for entry in loop.history()][-1] == "stale"


def test_a_directory_that_others_may_write_to_is_no_reason_to_lift(loop: Loop) -> None:
    """Slurm has answered all the time: what may not be written there may not be lifted there either."""
    loop.cluster.set_node("n4", "DOWN")
    loop.guarded = True
    loop.tell(lambda: loop.directory.chmod(0o777), *[None] * 6)
    assert loop.excluded("123_7")
    assert any("everybody may write to" in line and "could not be lifted" in line for line in loop.said)


@pytest.mark.root
def test_a_file_system_that_is_not_mounted_any_more(loop: Loop) -> None:
    """What lies under its mount point is another directory: nothing is decided there until it is mounted again."""
    loop.cluster.set_node("n4", "DOWN")
    under = loop.directory / "mount"
    under.mkdir()
    loop.directory = under
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(under)]
    subprocess.run(mount, check=True)
    kept = under.parent / "kept"
    try:

        def move() -> None:
            kept.mkdir()
            subprocess.run(["mount", "--bind", str(under), str(kept)], check=True)
            subprocess.run(["umount", str(under)], check=True)

        def come_back() -> None:
            assert list(under.iterdir()) == []
            subprocess.run(["mount", "--bind", str(kept), str(under)], check=True)

        loop.tell(move, None, come_back, None)
        assert any("it is in another file system than in the last pass" in line for line in loop.said)
        assert loop.excluded("123_7")
        assert loop.said[-1].startswith("INFO complete complete after 2 passes")
    finally:
        subprocess.run(["umount", str(under)], check=False)
        subprocess.run(["umount", str(kept)], check=False)


def test_after_staleness_the_truth_returns(loop: Loop) -> None:
    """The first complete pass excludes again what is bad."""
    loop.cluster.set_node("n4", "DOWN")

    def fail() -> None:
        loop.cluster.unknown = "no answer"

    def answer() -> None:
        loop.cluster.unknown = None

    loop.tell(fail, None, None, None, answer, None)
    assert loop.excluded("123_7")


def test_a_directory_that_is_gone_is_waited_for(loop: Loop, tmp_path: Path) -> None:
    """It is said, the loop goes on, and once the directory is back everything is published again."""
    loop.directory = tmp_path / "decisions"
    loop.directory.mkdir()
    loop.cluster.set_node("n4", "DOWN")
    aside = tmp_path / "aside"

    def vanish() -> None:
        loop.directory.rename(aside)

    loop.tell(vanish, None, loop.directory.mkdir, None)
    assert loop.excluded("123_7")
    assert any("the decision directory: No such file" in line for line in loop.said)


def test_a_standby_waits_for_the_end_of_the_living(loop: Loop) -> None:
    """It asks Slurm nothing while another process's heartbeat is young, and takes over within two intervals."""
    loop.standby = True
    other = loop.service()
    other.attempt()
    beat = loop.directory / ".segment-health/heartbeat/all@fake.json"
    beat.write_text(beat.read_text().replace(f'"pid": {os.getpid()}', '"pid": 1'))
    loop.cluster.set_node("n4", "DOWN")
    seen: list[bool] = []
    bell = loop.tell(*[lambda: seen.append(loop.excluded("123_7"))] * 125)
    assert seen.index(True) == pytest.approx(2 * 300 / 5, abs=2)  # it looks every 5 s
    assert bell.waits[0] == 5.0
    assert len([line for line in loop.said if "standing by" in line]) == 1


def test_a_standby_need_not_wait_for_what_has_ended(loop: Loop) -> None:
    """A single pass, and a loop that was asked to end, make no next pass: a standby begins at once."""
    loop.standby = True
    loop.service().attempt()
    loop.service().retire()
    beat = loop.directory / ".segment-health/heartbeat/all@fake.json"
    beat.write_text(beat.read_text().replace(f'"pid": {os.getpid()}', '"pid": 1'))
    loop.cluster.set_node("n4", "DOWN")
    loop.tell(None)
    assert loop.excluded("123_7")


def test_a_reload_takes_the_new_plan(loop: Loop) -> None:
    """SIGHUP takes effect with the next pass."""
    service = loop.service()
    bell = Bell(loop.clock, [None, None])
    bell.reload = True
    plan = service._plan
    service._reread = lambda _: replace(plan, publication=plan.publication._replace(interval=60.0))
    run(service, bell, Log("text", loop.clock), monotonic=loop.clock, random=lambda: 0.5)
    assert bell.waits == [60.0, 60.0]


def test_an_exclusion_that_cannot_be_written_is_said_once(loop: Loop, capfd: pytest.CaptureFixture[str]) -> None:
    """Not with every pass, and as trouble: nothing was excluded yet. When it is, that is said."""
    in_the_way = loop.directory / "segment_health_check.123.7"
    loop.cluster.set_node("n4", "DOWN")
    in_the_way.mkdir()
    bell = Bell(loop.clock, [None, None, None, in_the_way.rmdir, None])
    run(loop.service(), bell, Log("json", loop.clock), monotonic=loop.clock, random=lambda: 0.5)
    said = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert said == ["trouble", "complete", "exclude", "new_exclusions"]


PLANNED = '[[rule]]\nname = "planned"\nstate = ["DRAIN"]\nreason = "maintenance"\nlevel = "NotHandleFault"\n'
NOTHING = "# nothing yet\n"
WRONG = PLANNED.replace("DRAIN", "DRIAN")


@dataclass
class Followed:
    """A publisher of `loop` that follows a policy file, and what it says of it."""

    loop: Loop
    path: Path
    said: list[str] = field(default_factory=list)
    plan: Plan = field(init=False)
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        self.path.write_text(NOTHING)
        file = PolicyFile(str(self.path), lambda content: parse(content, str(self.path), node_names))
        publication = Publication(str(self.loop.directory), EVERYTHING, file.read(), "0.1.0", 300.0, loop=True)
        self.plan = Plan(publication, self.loop.cluster.source, 1800.0, False, None, policy_file=file)
        self.service = Service(
            self.plan, self.loop.clock, say=lambda level, sentence: self.said.append(f"{level} {sentence}")
        )

    def write(self, text: str | None) -> None:
        """Change the file, or remove it."""
        if text is None:
            self.path.unlink()
        else:
            self.path.write_text(text)

    def error(self) -> str | None:
        """Read from the heartbeat why the newest policy is not in force."""
        beat = json.loads((self.loop.directory / ".segment-health/heartbeat/all@fake.json").read_text())
        error: str | None = beat["policy_error"]
        return error


@pytest.fixture
def followed(loop: Loop, tmp_path: Path) -> Followed:
    """A policy file without a rule; n4 drains for maintenance, so that 123_7 is excluded."""
    loop.cluster.set_node("n4", "ALLOCATED+DRAIN", "maintenance")
    loop.directory = tmp_path / "decisions"
    loop.directory.mkdir()
    made = Followed(loop, tmp_path / "policy.toml")
    made.service.attempt()
    assert loop.excluded("123_7")
    return made


@pytest.mark.parametrize(
    ("steps", "excluded", "said", "error"),
    [
        ([PLANNED], [False], ["INFO policy "], None),
        ([PLANNED, WRONG], [False, False], ["INFO policy ", "ERROR the policy in force stays: "], ":3: "),
        ([WRONG], [True], ["ERROR the policy in force stays: "], ":3: "),
        ([WRONG, PLANNED], [True, False], ["ERROR the policy", "INFO policy "], None),
        ([PLANNED, ""], [False, False], ["INFO policy ", "ERROR the policy in force stays: "], "says nothing"),
        ([PLANNED, None], [False, False], ["INFO policy ", "ERROR the policy in force stays: "], "No such file"),
        ([None, PLANNED], [True, False], ["ERROR the policy in force stays: ", "INFO policy "], None),
        ([None, NOTHING], [True, True], ["ERROR the policy in force stays: ", "INFO policy "], None),
        ([WRONG, WRONG + "#"], [True, True], ["ERROR the policy", "ERROR the policy"], ":3: "),
        ([PLANNED, PLANNED], [False, False], ["INFO policy "], None),
    ],
    ids=[
        "good",
        "good-bad",
        "bad",
        "bad-good",
        "emptied",
        "gone",
        "gone-back",
        "gone-same",
        "bad-worse",
        "touched",
    ],
)
def test_a_policy_file_is_followed(
    followed: Followed, steps: list[str | None], excluded: list[bool], said: list[str], error: str | None
) -> None:
    """The next pass judges by what the file says; what is wrong is said once, and is in every heartbeat."""
    seen = []
    for step in steps:
        before = followed.path.read_text() if followed.path.exists() else None
        followed.write(step)
        assert followed.service.is_outdated() == (step != before)
        for _ in range(2):
            done = followed.service.attempt()
            assert not followed.service.is_outdated()  # a wrong file is read once, not all the time
        seen.append(followed.loop.excluded("123_7"))
    assert seen == excluded
    assert [line[: len(begin)] for line, begin in zip(followed.said, said, strict=True)] == said
    told = followed.error()
    assert told is None if error is None else told is not None and error in told
    assert any("the policy in force is an older one" in remark for remark in done.remarks) == (error is not None)


def test_a_changed_policy_is_not_waited_for(followed: Followed) -> None:
    """The loop asks the service during each wait, and a new file ends it."""
    bell = Bell(followed.loop.clock, [None, lambda: followed.write(PLANNED), None])
    log = Said(followed.loop.clock, followed.loop.said)
    run(followed.service, bell, log, monotonic=followed.loop.clock, random=lambda: 0.5)
    assert bell.outdated == [False, True, False]
    assert not followed.loop.excluded("123_7")


def test_a_policy_that_changes_while_slurm_is_silent(followed: Followed) -> None:
    """It is read all the same, and judges in the first pass that is complete."""
    followed.write(PLANNED)
    followed.loop.cluster.unknown = "no answer"
    with pytest.raises(SourceUnknown):
        followed.service.attempt()
    assert not followed.service.is_outdated()
    assert followed.loop.excluded("123_7")
    followed.loop.cluster.unknown = None
    followed.service.attempt()
    assert not followed.loop.excluded("123_7")


def test_an_override_holds_for_its_generation_and_nodes(loop: Loop) -> None:
    """What a person clears stays cleared, for every scope, until the bad nodes or the generation change."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    path = str(loop.directory)
    changes, foreign = override(
        path, "0.1.0", lambda unit: unit.job_id == "123", "vendor says fine", int(loop.clock())
    )
    assert (len(changes), foreign) == (1, [])
    for scope in ("all", "123"):
        assert loop.service(scope).attempt().changes == []
    assert not loop.excluded("123_7")
    loop.cluster.set_node("n3", "ALLOCATED+DRAIN")
    loop.service().attempt()
    assert loop.excluded("123_7")
    assert list((loop.directory / ".segment-health/override").iterdir()) == []
    override(path, "0.1.0", lambda _: True, "again", int(loop.clock()))
    loop.cluster.requeue("123_7", "n[3-4]")
    loop.service().attempt()
    assert loop.excluded("123_7")
    assert [(e["action"], e["why"]) for e in loop.history() if e["action"] == "manual"] == [
        ("manual", "vendor says fine"),
        ("manual", "again"),
    ]


def test_an_override_outlives_another_publishers_bar(loop: Loop) -> None:
    """To a publisher that leaves draining nodes alone the unit looks fit; the word is about its nodes."""
    loop.cluster.set_node("n4", "ALLOCATED+DRAIN")
    loop.service().attempt()
    override(str(loop.directory), "0.1.0", lambda _: True, "fine", int(loop.clock()))
    strict = loop.service("123")
    publication = strict._plan.publication
    strict._plan.publication = publication._replace(policy=Policy(FaultLevel.SeparateFault))
    strict.attempt()
    assert loop.service().attempt().changes == []
    assert not loop.excluded("123_7")


def test_an_override_outlives_a_failed_look(loop: Loop) -> None:
    """A node without a verdict neither voids the override nor excludes the unit."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    override(str(loop.directory), "0.1.0", lambda _: True, "fine", int(loop.clock()))
    loop.cluster.set_node("n4", "UNKNOWN")
    loop.service().attempt()
    loop.cluster.set_node("n4", "DOWN")
    assert loop.service().attempt().changes == []
    assert not loop.excluded("123_7")


def test_an_override_outlives_half_a_failed_look(loop: Loop) -> None:
    """One of two bad nodes without a verdict, as while slurmctld starts, makes no other set of bad nodes."""
    loop.cluster.set_node("n3", "DOWN")
    loop.cluster.set_node("n4", "DOWN+DRAIN")
    loop.service().attempt()
    override(str(loop.directory), "0.1.0", lambda _: True, "fine", int(loop.clock()))
    loop.cluster.set_node("n3", "UNKNOWN")
    loop.cluster.set_node("n4", "UNKNOWN+DRAIN")
    assert loop.service().attempt().changes == []
    loop.cluster.set_node("n3", "DOWN")
    loop.cluster.set_node("n4", "DOWN+DRAIN")
    assert loop.service().attempt().changes == []
    assert not loop.excluded("123_7")


def test_an_override_ends_when_its_node_is_fit(loop: Loop) -> None:
    """Whatever is unclear about another node, the next fault is a new one, of which nobody has spoken."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    override(str(loop.directory), "0.1.0", lambda _: True, "fine", int(loop.clock()))
    loop.cluster.set_node("n3", "UNKNOWN")
    loop.cluster.set_node("n4", "ALLOCATED")
    loop.service().attempt()
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    assert loop.excluded("123_7")


def test_what_a_killed_clear_left_is_swept(loop: Loop) -> None:
    """The temporary of a word that was never given goes with the next pass."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    override(str(loop.directory), "0.1.0", lambda _: True, "fine", int(loop.clock()))
    killed = subprocess.Popen(["true"])
    killed.wait()
    folder = loop.directory / ".segment-health/override"
    (folder / f".segment-health.tmp.{host_name()}.{killed.pid}.0").write_text("half")
    loop.service().attempt()
    assert [path.name for path in folder.iterdir()] == ["123.7.json"]


def test_an_override_lifts_nothing_foreign(loop: Loop) -> None:
    """A stranger's decision is the stranger's to lift, and is named."""
    artifact = loop.directory / "segment_health_check.123.7"
    artifact.write_text("n4")
    _, foreign = override(str(loop.directory), "0.1.0", lambda _: True, "x", 0)
    assert foreign == [("123", "7")]
    assert artifact.read_text() == "n4"


def test_prune_is_for_the_dead(loop: Loop) -> None:
    """An exclusion goes when its publisher is dead and no complete pass has confirmed it for so long."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    loop.clock.advance(1000)
    loop.service().attempt()  # confirms it without rewriting it
    for seconds, pruned in ((599, 0), (3000, 0), (2, 1)):
        loop.clock.advance(seconds)
        assert len(prune(str(loop.directory), "0.1.0", 3600, int(loop.clock()))) == pruned
    assert not loop.excluded("123_7")


def test_prune_leaves_the_living_and_the_foreign_alone(loop: Loop) -> None:
    """However small the age, what a living publisher holds, or a stranger wrote, stays."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service().attempt()
    foreign = loop.directory / "segment_health_check.9.9"
    foreign.write_text("n4")
    loop.clock.advance(599)
    assert prune(str(loop.directory), "0.1.0", 0, int(loop.clock())) == []
    loop.clock.advance(10_000)
    assert len(prune(str(loop.directory), "0.1.0", 0, int(loop.clock()))) == 1
    assert foreign.read_text() == "n4"


def test_prune_spares_what_another_living_publisher_watches(loop: Loop) -> None:
    """A publisher that agrees with a dead one's exclusion leaves the file, and still stands for it."""
    loop.cluster.set_node("n4", "DOWN")
    loop.service("123").attempt()
    loop.clock.advance(10_000)
    loop.service().attempt()
    assert prune(str(loop.directory), "0.1.0", 0, int(loop.clock())) == []
    assert loop.excluded("123_7")


def test_a_heartbeat_from_the_future_is_nobodys(loop: Loop) -> None:
    """A clock that was set back since must not keep a dead publisher alive for a year."""
    loop.standby = True
    loop.clock.advance(365 * 86_400)
    loop.service().attempt()
    loop.clock.advance(-365 * 86_400)
    beat = loop.directory / ".segment-health/heartbeat/all@fake.json"
    beat.write_text(beat.read_text().replace(f'"pid": {os.getpid()}', '"pid": 1'))
    assert not loop.service().stands_by()


def test_the_ledgers_of_the_long_dead_are_buried(loop: Loop) -> None:
    """Each job's own publisher leaves two files, which any other removes after a week."""
    loop.service("123").attempt()
    folder = loop.directory / ".segment-health"
    for name in ("heartbeat", "state"):
        os.utime(folder / name / "job:123@fake.json", (0, loop.clock.now - 8 * 86_400))
        os.utime(folder / name, None)
    loop.service().attempt()
    assert sorted(p.name for p in folder.rglob("*@*")) == ["all@fake.json", "all@fake.json"]


def test_on_separate_is_not_run_without_a_memory_of_it(loop: Loop, tmp_path: Path) -> None:
    """A state that cannot be written would have it run again and again."""
    told = tmp_path / "told"
    loop.directory = tmp_path / "decisions"
    (loop.directory / ".segment-health").mkdir(parents=True)
    (loop.directory / ".segment-health/state").write_text("not a folder")
    loop.cluster.set_node("n4", "DOWN")
    service = loop.service()
    service._plan.on_separate = f"touch {told}"
    assert any("was not run" in failure for failure in service.attempt().failures)
    assert not told.exists()
    assert loop.excluded("123_7")


def test_on_separate_runs_once_per_generation(loop: Loop, tmp_path: Path) -> None:
    """The site's command gets the unit and its nodes, once per generation, across restarts of the publisher."""
    told = tmp_path / "told"
    loop.directory = tmp_path / "decisions"
    loop.directory.mkdir()
    command = f"""sh -c 'echo $SEGMENT_JOB_ID $SEGMENT_TASK_ID $SEGMENT_NODES $SEGMENT_LEVEL >> {told}'"""

    def attempt() -> list[str]:
        service = loop.service()
        service._plan.on_separate = command
        return service.attempt().failures

    loop.cluster.set_node("n4", "ALLOCATED+DRAIN")
    attempt()
    assert not told.exists()
    loop.cluster.set_node("n4", "DOWN")
    assert attempt() + attempt() == []
    assert told.read_text() == "123 7 n4 SeparateFault\n"
    loop.cluster.requeue("123_7", "n[3-4]")
    assert attempt() == []
    assert told.read_text() == "123 7 n4 SeparateFault\n" * 2
    command = "/nonexistent --now"
    loop.cluster.requeue("123_7", "n[3-4]")
    (failure,) = attempt()
    assert "--on-separate for 123_7: cannot be started" in failure


@pytest.mark.usefixtures("own_signals")
def test_signals_only_take_notes() -> None:
    """Ten pokes are one; asked to end it says by what; then only such a signal counts."""
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        for _ in range(10):
            signal.raise_signal(signal.SIGUSR1)
        began = time.monotonic()
        signals.wait(60)
        assert time.monotonic() - began < 30
        began = time.monotonic()
        signals.wait(0.2)
        assert time.monotonic() - began >= 0.19
        signal.raise_signal(signal.SIGHUP)
        signals.wait(60)
        assert signals.take_reload()
        assert not signals.take_reload()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        signals.wait(60)
        assert signals.ending == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    for number in (signal.SIGUSR1, signal.SIGHUP):
        signal.raise_signal(number)  # a poke meets a process that is about to end: it must not be killed by it


@pytest.mark.usefixtures("own_signals")
def test_a_wait_ends_soon_after_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after `until` says so, without a signal; after the time that was given, if it never does."""
    monkeypatch.setattr(signals_module, "LOOK_SECONDS", 0.1)
    with Signals() as signals:
        began = time.monotonic()
        signals.wait(60, lambda: time.monotonic() - began > 0.35)
        assert 0.35 < time.monotonic() - began < 10
        began = time.monotonic()
        signals.wait(0.35, lambda: False)
        assert 0.34 <= time.monotonic() - began < 10
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        signals.wait(60, lambda: False)


WEEKS = """
import gc, sys, tracemalloc
from segment_health.cli.log import Log
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.scope import EVERYTHING
from segment_health.service import Plan, Service
from segment_health.testing import FakeClock, FakeCluster

cluster, clock = FakeCluster(), FakeClock()
cluster.run("123_7", "n[3-4]")
cluster.set_node("n4", "DOWN")
publication = Publication(sys.argv[1], EVERYTHING, Policy(), "0.1.0", interval=300.0, loop=True)
service, log = Service(Plan(publication, cluster.source, 1800.0, False, None), clock), Log("text", clock)
tracemalloc.start()
for _ in range(4):
    for _ in range(500):
        clock.advance(300)
        log.completed(service.attempt(), 0.0)
    gc.collect()
    print(tracemalloc.get_traced_memory()[0])
"""


@pytest.mark.timeout(1200)  # each pass starts a child; on a busy machine that adds up
def test_memory_is_flat_over_2000_passes(tmp_path: Path) -> None:
    """A loop that runs for weeks keeps nothing from pass to pass; in a process of its own, as in life."""
    weeks = [sys.executable, "-c", WEEKS, str(tmp_path)]
    ended = subprocess.run(weeks, capture_output=True, text=True, check=True)
    sizes = [int(size) for size in ended.stdout.split()]
    assert len(sizes) == 4
    # What is loaded once in between is no leak; a leak grows in every quarter.
    assert min(later - earlier for earlier, later in pairwise(sizes)) < 16 * 1024, sizes

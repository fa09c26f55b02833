"""The history: every change of a decision is told, by whom and why, and what is damaged hides nothing else."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health import history
from segment_health.cli import main
from segment_health.lift import lift_stale, override, prune
from segment_health.policy.assess import Policy
from segment_health.policy.limits import max_new_exclusions
from segment_health.publication import Publication
from segment_health.publish import Pass, run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs
from segment_health.store import open_decisions
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Scene:
    """A directory, a cluster of n1 to n9 with array tasks 123_0 and 123_7 and job 55, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.cluster = FakeCluster()
        self.cluster.run("123_0", "n[1-2]")
        self.cluster.run("123_7", "n[3-4]")
        self.cluster.run("55", "n[5-7]")

    @property
    def file(self) -> Path:
        """The newer half."""
        return self.directory / ".segment-health/history.jsonl"

    def publish(self, scope: Scope = EVERYTHING, **options: Any) -> Pass:
        """Make one pass."""
        publication = Publication(str(self.directory), scope, Policy(), "0.1.0", interval=300.0)._replace(
            **options
        )
        return run_once(publication, self.cluster.source, self.clock)

    def read(
        self, wanted: Callable[[history.Entry], bool] = lambda _: True, limit: int | None = None
    ) -> history.Reading:
        """Read both halves."""
        with open_decisions(str(self.directory)) as directory:
            return directory.ledger("", "").recorded(wanted, limit)

    def told(self) -> list[tuple[str, str, str, str]]:
        """Read what was done to which unit, by whom and why."""
        return [(e.action, str(e.unit), e.who, e.why) for e in self.read().entries]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """All is healthy, and nothing published."""
    return Scene(tmp_path)


def test_no_history_is_an_empty_one(scene: Scene) -> None:
    """Where nobody ever published there is nothing to read, and nothing is made."""
    assert scene.read() == history.Reading((), 0, ())
    assert list(scene.directory.iterdir()) == []


def test_a_life_of_an_exclusion(scene: Scene) -> None:
    """Excluded for a reason, updated, lifted on evidence, and gone with its unit: each with rule and run."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    scene.cluster.set_node("n3", "DOWN", "Not responding")
    scene.publish()
    for name in ("n3", "n4"):
        scene.cluster.set_node(name, "ALLOCATED")
    scene.publish()
    scene.cluster.end("123_7")
    scene.publish()
    scene.publish()
    assert scene.told() == [
        ("exclude", "123_7", "all@fake", "Xid 79"),
        ("update", "123_7", "all@fake", "Not responding; Xid 79"),
        ("clear", "123_7", "all@fake", "every node is fit"),
        ("retire", "123_7", "all@fake", "the unit is gone"),
    ]
    exclude, update, clear, retire = scene.read().entries
    assert (exclude.level, exclude.nodes, exclude.rules) == ("PreSeparateFault", "n4", ("state:DRAIN",))
    assert update.rules == clear.rules == ("state:DOWN", "state:DRAIN")
    assert (clear.level, clear.nodes) == ("SeparateFault", "n[3-4]")
    for entry in (exclude, update, clear):
        assert entry.document["generation"] == {"restart_count": 0, "start_time": 1_795_000_000}
        assert entry.document["publisher"]["scope"] == "all"
        assert entry.time == int(scene.clock())
    assert (retire.level, retire.nodes) == (None, "")


def test_what_is_retired_while_excluded_keeps_what_it_said(scene: Scene) -> None:
    """The artifact is gone, and the history has its level, nodes, rules and generation."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    scene.cluster.end("123_7")
    scene.publish()
    scene.publish()
    retire = scene.read().entries[-1]
    assert (retire.action, retire.level, retire.nodes) == ("retire", "PreSeparateFault", "n4")
    assert retire.rules == ("state:DRAIN",)
    assert retire.document["generation"] is not None


def test_a_requeue_is_a_reason_of_its_own(scene: Scene) -> None:
    """A new run does not inherit its predecessor's decision, and that is why it is lifted."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    scene.cluster.requeue("123_7", "n[1-2]")
    scene.publish()
    assert scene.told()[-1] == ("clear", "123_7", "all@fake", "the unit runs anew")


def test_what_left_the_scope_runs_anew(scene: Scene) -> None:
    """A run that is somebody else's now loses what this scope said of the one before."""
    scene.cluster.run("77", "n8", partition="other")
    scene.cluster.set_node("n8", "DOWN")
    scope = Scope("partition", ("other",))
    scene.publish(scope)
    scene.cluster.requeue("77", "n9")
    scene.cluster.change("77", partition="main")
    scene.publish(scope)
    assert scene.told()[-1] == ("clear", "77", "partition:other@fake", "the unit runs anew")


def test_a_reason_that_nobody_gave_is_the_rule(scene: Scene) -> None:
    """A node without a reason is bad for its state, and that is told."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    assert scene.told() == [("exclude", "123_7", "all@fake", "state:DOWN")]


def test_a_persons_word_has_the_person_and_the_reason(scene: Scene) -> None:
    """What is cleared by hand says who did so and why, and which nodes, rules and run it was about."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish()
    override(str(scene.directory), "0.1.0", lambda _: True, "vendor says fine", int(scene.clock()))
    entry = scene.read().entries[-1]
    assert (entry.action, entry.why, entry.nodes, entry.rules) == (
        "manual", "vendor says fine", "n4", ("state:DRAIN",),
    )  # fmt: skip
    assert "@" in entry.who
    assert entry.document["publisher"]["scope"] == "manual"
    assert entry.document["generation"]["restart_count"] == 0


def test_a_person_is_the_reason_where_another_scope_had_excluded(scene: Scene) -> None:
    """A pass that clears for a person's word says so."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN")
    scene.publish()
    before = scene.directory / "segment_health_check.123.7"
    content = before.read_bytes()
    override(str(scene.directory), "0.1.0", lambda _: True, "fine", int(scene.clock()))
    before.write_bytes(content)  # as a pass that was under way may do
    scene.publish()
    assert scene.told()[-1] == ("clear", "123_7", "all@fake", "a person's word")


def test_what_goes_stale_says_so(scene: Scene) -> None:
    """A loop that lifts its own, unconfirmed, leaves the rules and the run behind."""
    scene.cluster.set_node("n4", "DOWN")
    done = scene.publish()
    publisher = done.changes[0].decision.artifact
    assert publisher is not None
    lift_stale(str(scene.directory), publisher.publisher, int(scene.clock()))
    entry = scene.read().entries[-1]
    assert (entry.action, entry.who) == ("stale", "all@fake")
    assert entry.why == "no complete pass has confirmed it for too long"
    assert (entry.rules, entry.document["generation"]["restart_count"]) == (("state:DOWN",), 0)


def test_what_is_pruned_says_by_whom(scene: Scene) -> None:
    """Cron prunes as somebody, and that one is named."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.clock.advance(5000)
    prune(str(scene.directory), "0.1.0", 3600, int(scene.clock()))
    entry = scene.read().entries[-1]
    assert (entry.action, entry.rules) == ("stale", ("state:DOWN",))
    assert "@" in entry.who
    assert entry.who != "all@fake"


def test_what_is_handed_back_says_to_whom(scene: Scene) -> None:
    """A scope that raised another's exclusion puts it back once only that one's reason is left."""
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish(of_jobs(("123",)))
    lenient = replace(Policy(), publish_at=type(Policy().publish_at).SeparateFault)
    scene.cluster.set_node("n4", "DOWN", "Xid 79")
    scene.publish(policy=lenient)
    scene.cluster.set_node("n4", "ALLOCATED+DRAIN", "Xid 79")
    scene.publish(policy=lenient)
    assert scene.told()[-1] == ("update", "123_7", "all@fake", "handed back to job:123@fake")


def test_what_is_held_is_told_once_an_episode(scene: Scene) -> None:
    """Passes that hold the same again say nothing; one more unit is news, and so is the next episode."""
    policy = replace(Policy(), max_new_exclusions=max_new_exclusions("0"), hold_passes=9)
    scene.cluster.set_node("n1", "DOWN")
    scene.publish(policy=policy)
    scene.publish(policy=policy)
    limit = "more new exclusions at once than max_new_exclusions = 0 allows"
    assert scene.told() == [("hold", "123_0", "all@fake", limit)]
    assert scene.read().entries[0].rules == ("state:DOWN",)
    scene.cluster.set_node("n4", "DOWN")
    scene.publish(policy=policy)
    scene.publish(policy=policy)
    assert [(action, unit) for action, unit, _, _ in scene.told()] == [("hold", "123_0"), ("hold", "123_7")]
    for name in ("n1", "n4"):
        scene.cluster.set_node(name, "ALLOCATED")
    scene.publish(policy=policy)
    scene.cluster.set_node("n1", "DOWN")
    scene.publish(policy=policy)
    assert [unit for _, unit, _, _ in scene.told()] == ["123_0", "123_7", "123_0"]
    scene.cluster.requeue("123_0", "n[1-2]")
    scene.publish(policy=policy)
    assert [unit for _, unit, _, _ in scene.told()] == ["123_0", "123_7", "123_0", "123_0"]
    scene.publish(policy=policy, force=True)
    assert scene.told()[-1] == ("exclude", "123_0", "all@fake", "state:DOWN")


def test_a_change_that_failed_is_none(scene: Scene) -> None:
    """What could not be written did not happen, and the heartbeat says what failed."""
    scene.cluster.set_node("n4", "DOWN")
    (scene.directory / "segment_health_check.123.7").mkdir()
    done = scene.publish()
    assert scene.told() == []
    assert done.changes[0].error is not None
    with open_decisions(str(scene.directory)) as directory:
        (beat,) = directory.ledger("", "").heartbeats()
    assert beat.failures == (f"{scene.directory}/segment_health_check.123.7: {done.changes[0].error}",)


def test_both_halves_are_read_the_older_first(scene: Scene) -> None:
    """What was rotated away is told before what came after."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    scene.file.rename(scene.file.with_name("history.jsonl.1"))
    scene.cluster.set_node("n4", "ALLOCATED")
    scene.publish()
    assert [action for action, _, _, _ in scene.told()] == ["exclude", "clear"]


def test_a_half_that_is_turned_over_while_it_is_read_counts_once(scene: Scene) -> None:
    """A history that becomes the older half between two reads is not told twice."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    os.link(scene.file, scene.file.with_name("history.jsonl.1"))  # as if it had been renamed in between
    assert len(scene.told()) == 1


def test_of_many_the_last_ones_are_told(scene: Scene) -> None:
    """A limit counts what is wanted, from the end."""
    for state in ("DOWN", "ALLOCATED") * 3:
        scene.cluster.set_node("n4", state)
        scene.cluster.set_node("n5", state)
        scene.publish()
    told = scene.read(lambda entry: str(entry.unit) == "55", limit=2)
    assert [(entry.action, str(entry.unit)) for entry in told.entries] == [("exclude", "55"), ("clear", "55")]


DAMAGED = {
    "half a line": b'{"time": "2026-11-30T10:00:00+00:00", "act',
    "no JSON": b"\x00" * 100,
    "not UTF-8": b'{"a": "\xff"}',
    "no object": b"[1, 2]",
    "an empty line": b"",
    "NaN": None,
    "a path for an id": None,
    "a time of nowhere": None,
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_line_is_counted_and_hides_no_other(scene: Scene, kind: str) -> None:
    """Whatever stands there, the lines before and behind it are told."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    good = scene.file.read_bytes()
    document = json.loads(good)
    bad = {
        "NaN": b"NaN".join(json.dumps({**document, "x": "NAN"}).encode().split(b'"NAN"')),
        "a path for an id": json.dumps({**document, "job_id": "../../etc"}).encode(),
        "a time of nowhere": json.dumps({**document, "time": "9999-12-31T23:59:59-23:00"}).encode(),
    }
    scene.file.write_bytes(good + (DAMAGED[kind] or bad.get(kind, b"")) + b"\n" + good)
    told = scene.read()
    assert ([entry.action for entry in told.entries], told.damaged) == (["exclude", "exclude"], 1)


@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "huge"])
def test_a_half_that_is_no_file_is_named_and_hides_not_the_other(scene: Scene, kind: str) -> None:
    """Nothing that is put there hangs us, or takes our memory."""
    scene.cluster.set_node("n4", "DOWN")
    scene.publish()
    older = scene.file.with_name("history.jsonl.1")
    if kind == "directory":
        older.mkdir()
    elif kind == "link":
        older.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(older)
    else:
        older.touch()
        os.truncate(older, 1 << 40)
    told = scene.read()
    assert [entry.action for entry in told.entries] == ["exclude"]
    assert len(told.remarks) == 1
    assert told.remarks[0].startswith("history.jsonl.1 is left out: ")


def test_what_an_older_version_wrote_is_told(scene: Scene) -> None:
    """Lines without who and why are read: who is the publisher, why are the reasons."""
    scene.cluster.set_node("n4", "DOWN", "fell over")
    scene.publish()
    document = json.loads(scene.file.read_bytes())
    del document["who"], document["why"]
    scene.file.write_text(json.dumps(document) + "\n")
    assert scene.told() == [("exclude", "123_7", "all@fake", "fell over")]


def test_a_why_of_many_reasons_is_short(scene: Scene) -> None:
    """A thousand characters of one reason do not make a line that nobody reads."""
    scene.cluster.set_node("n4", "DOWN", "x" * 900)
    scene.publish()
    assert scene.read().entries[0].why == "x" * 300


# ── the command ────────────────────────────────────────────────────────────────────────────────────────────────


def run(scene: Scene, *options: str, code: int = 0) -> tuple[str, str]:
    """Run `segment-health history`, which must end with `code`; return its stdout and stderr."""
    ended = CliRunner().invoke(main, ["history", "--dir", str(scene.directory), *options])
    assert ended.exit_code == code, ended.output
    return ended.stdout, ended.stderr


def asked(scene: Scene, *options: str) -> list[str]:
    """Ask for JSON; return what was done to which unit."""
    rows = [json.loads(line) for line in run(scene, *options, "--format", "json")[0].splitlines()]
    return [f"{row['action']} {row['job_id']}_{row['task_id']}" for row in rows]


@pytest.fixture
def told(scene: Scene) -> Scene:
    """123_0 was excluded three hours ago for n1 and n2, 55 for n5 an hour ago, and 123_7 is for n4, just now."""
    began = time.time()
    for ago, names in ((10_800, ("n1", "n2")), (3600, ("n5",)), (0, ("n4",))):
        scene.clock.now = began - ago
        for name in names:
            scene.cluster.set_node(name, "ALLOCATED+DRAIN", f"Xid of {name}")
        scene.publish()
    return scene


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param([], ["exclude 123_0", "exclude 55_55", "exclude 123_7"], id="all"),
        pytest.param(["123_7"], ["exclude 123_7"], id="task"),
        pytest.param(["123"], ["exclude 123_0", "exclude 123_7"], id="array"),
        pytest.param(["55"], ["exclude 55_55"], id="job"),
        pytest.param(["55_55"], ["exclude 55_55"], id="job-twice"),
        pytest.param(["n2"], ["exclude 123_0"], id="node-in-a-list"),
        pytest.param(["n3"], [], id="a-fit-node-of-a-bad-unit"),
        pytest.param(["12"], [], id="no-prefix"),
        pytest.param(["--since", "2h"], ["exclude 55_55", "exclude 123_7"], id="hours"),
        pytest.param(["--since", "60"], ["exclude 123_7"], id="seconds"),
        pytest.param(["--since", "2h", "123"], ["exclude 123_7"], id="both"),
        pytest.param(["--limit", "2"], ["exclude 55_55", "exclude 123_7"], id="limit"),
        pytest.param(["--limit", "1", "123"], ["exclude 123_7"], id="limit-of-a-unit"),
        pytest.param(
            ["--since", "2026-01-01T10:00"], ["exclude 123_0", "exclude 55_55", "exclude 123_7"], id="old"
        ),
        pytest.param(["--since", "2099-01-01"], [], id="future"),
        pytest.param(["--since", "2099-01-01T00:00Z"], [], id="zulu"),
    ],
)
def test_what_is_asked_for_is_told(told: Scene, options: list[str], expected: list[str]) -> None:
    """A unit, an array, a node of the bad ones, a time and a number each narrow it down."""
    assert asked(told, *options) == expected


def test_a_time_without_a_zone_is_utc(told: Scene) -> None:
    """As every time is that we print, wherever the reader is."""
    (entry,) = told.read(lambda entry: entry.nodes == "n5").entries
    at = datetime.fromtimestamp(entry.time, timezone.utc)
    assert asked(told, "--since", at.strftime("%Y-%m-%dT%H:%M:%S")) == ["exclude 55_55", "exclude 123_7"]
    later = (at + timedelta(seconds=1)).astimezone(timezone(timedelta(hours=9)))
    assert asked(told, "--since", later.isoformat()) == ["exclude 123_7"]


def test_a_line_says_when_what_and_why(told: Scene) -> None:
    """Time, action, unit, level, nodes, by whom, the reason and the rule, with columns that line up."""
    lines = run(told)[0].splitlines()
    assert re.fullmatch(
        r"\S+\+00:00  exclude  123_0        PreSeparateFault n\[1-2\]  "
        r"by all@fake: Xid of n1; Xid of n2 \(state:DRAIN\)",
        lines[0],
    )
    assert len({line.index("PreSeparateFault") for line in lines}) == 1


def test_the_json_is_the_line_as_it_stands(told: Scene) -> None:
    """Programs get every field, in the order in which it was written."""
    assert run(told, "--format", "json")[0].encode() == told.file.read_bytes()


def test_damage_is_counted_on_stderr(told: Scene) -> None:
    """The rest is told, the exit status is 0, and how much is missing is said beside it."""
    with told.file.open("ab") as file:
        file.write(b'{"time": "20\n\x00\x00\n')
    out, err = run(told)
    assert len(out.splitlines()) == 3
    assert err == "segment-health: 2 damaged lines of the history were passed over\n"


def test_hostile_lines_move_no_cursor(told: Scene) -> None:
    """Whoever may publish may append: what they wrote is escaped, and a list of nodes that is none is no match."""
    document = json.loads(told.file.read_bytes().splitlines()[0])
    hostile = "\x1b[2J\u202e" + "x" * 5000
    document |= {"action": hostile, "nodes": "n[1-", "level": hostile, "who": hostile, "why": hostile}
    document["faults"][0]["rule"] = hostile
    with told.file.open("a") as file:
        file.write(json.dumps(document) + "\n")
    lines = run(told)[0].splitlines()
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert len(lines[3]) < 3000
    assert asked(told, "n2") == ["exclude 123_0"]
    assert run(told, "--format", "json")[0].isascii()


@pytest.mark.parametrize("since", ["2x", "yesterday", "-5", "99999999999999999999", "2026-13-01"])
def test_a_time_that_is_none_is_a_usage_error(told: Scene, since: str) -> None:
    """One line that says what a time looks like."""
    out, err = run(told, f"--since={since}", code=2)
    assert out == ""
    assert err.startswith("segment-health: --since: not a time such as 2h, 3d or 2026-11-30T10:00: ")


def test_a_directory_without_a_history_says_nothing(scene: Scene) -> None:
    """Nothing happened, and that is no failure."""
    assert run(scene) == ("", "")


def test_a_directory_that_is_not_there_is_a_usage_error(scene: Scene) -> None:
    """It is never taken for one in which nothing happened."""
    scene.directory = scene.directory / "elsewhere"
    assert "No such file or directory" in run(scene, code=2)[1]


def test_a_ledger_that_cannot_be_read_is_unknown(scene: Scene) -> None:
    """What happened is there, and nobody can tell."""
    (scene.directory / ".segment-health").touch()
    assert "Not a directory" in run(scene, code=3)[1]


def test_who_wants_the_last_does_not_wait_for_the_first(scene: Scene) -> None:
    """Lines before the wanted ones are not even decoded: a damaged one among them is not counted."""
    scene.cluster.set_node("n4", "DOWN", "x")
    scene.publish()
    path = scene.directory / ".segment-health/history.jsonl"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with open_decisions(str(scene.directory)) as directory:
        last = directory.ledger("", "").recorded(lambda _: True, 1)
        whole = directory.ledger("", "").recorded(lambda _: True)
    assert (len(last.entries), last.damaged) == (1, 0)
    assert (len(whole.entries), whole.damaged) == (1, 1)
    assert last.entries == whole.entries

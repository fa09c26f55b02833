"""What Prometheus is told of a publisher: the figures, their text, and the file that holds it."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from segment_health.cli import main
from segment_health.metrics.figures import COUNTERS, GAUGES, HISTOGRAMS, PREFIX, Distribution
from segment_health.metrics.registry import DamagedError, Metrics
from segment_health.metrics.textfile import Textfile
from segment_health.policy.assess import Policy
from segment_health.policy.limits import max_new_exclusions
from segment_health.publication import Publication
from segment_health.publish import run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs, of_partition, of_user
from segment_health.service import Plan, Service
from segment_health.sources import Source, recording
from segment_health.testing import FakeClock, FakeCluster
from segment_health.watch import Cause
from slurm.traffic import Traffic

if TYPE_CHECKING:
    from click.testing import Result

    from segment_health.publish import Pass

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


@dataclass
class Watched:
    """A publisher that is asked for its figures."""

    interval: float = 300.0
    stale_after: float | None = 1800.0
    policy_error: str | None = None
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Return what was asked."""
        return self.asked


@dataclass
class Site:
    """A cluster, a decision directory, and the metrics of a publisher of both."""

    directory: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=FakeClock)
    watched: Watched = field(default_factory=Watched)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        self.metrics = self.begin()

    def begin(self, scope: Scope = EVERYTHING) -> Metrics:
        """Make the metrics of another process."""
        return Metrics(self.watched, scope, "1.2.3", self.clock)

    def publish(self, seconds: float = 0.2) -> Pass:
        """Make a pass that takes so long, and let the metrics know."""
        publication = Publication(str(self.directory), EVERYTHING, self.policy, "1.2.3", 300.0)
        done = run_once(publication, self.cluster.source, self.clock)
        self.metrics.completed(done, seconds)
        return done

    def artifact(self, unit: str) -> Path:
        """Return where an artifact is."""
        return self.directory / f"segment_health_check.{unit}"

    def shown(self, name: str, **labels: str) -> float:
        """Return one value from the text, of this scope unless `labels` say otherwise."""
        return values(self.metrics.exposition().decode())[name, frozenset({"scope": "all", **labels}.items())]

    def is_shown(self, name: str) -> bool:
        """Whether the metric has any value."""
        return any(found == name for found, _ in values(self.metrics.exposition().decode()))


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read metrics as Prometheus does: values by name, without the common beginning, and labels."""
    return {
        (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Nodes n1 to n9; unit 1 holds n[1-2], unit 2 n[3-4], unit 3 n[5-6]."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    made = Site(directory)
    for number in (1, 2, 3):
        made.cluster.run(str(number), f"n[{2 * number - 1}-{2 * number}]")
    return made


def promtool_accepts(text: bytes) -> None:
    """Let Prometheus' own tool judge a text; it complains of names and help as well."""
    told = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, b"", b"")


# --- figures ----------------------------------------------------------------------------------------------


def test_a_complete_pass(site: Site) -> None:
    """Units, exclusions and nodes are counted by level, and when the pass was is told."""
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    site.cluster.set_node("n3", "DOWN", "dead")
    site.cluster.set_node("n9", "MELTED")
    site.artifact("3.3").write_text("by hand, for now\n")
    site.publish()
    promtool_accepts(site.metrics.exposition())
    assert site.shown("passes_total", result="complete") == 1
    assert site.shown("last_pass_success") == 1
    assert site.shown("last_complete_pass_timestamp_seconds") == site.clock.now
    assert site.shown("units") == 3
    levels = ("PreSeparateFault", "SeparateFault", "foreign")
    assert [site.shown("excluded_units", level=level) for level in levels] == [1, 1, 1]
    every = ("NotHandleFault", "PreSeparateFault", "SeparateFault", "no_verdict")
    assert [site.shown("nodes", level=level) for level in every] == [6, 1, 1, 1]
    assert site.shown("changes_total", action="exclude") == 2
    assert site.shown("failing_artifacts") == 0


def test_a_change_of_level_moves_a_unit(site: Site) -> None:
    """An exclusion that is raised, and one that is lifted, leave their old level."""
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    site.publish()
    site.cluster.set_node("n1", "DOWN", "fan")
    site.publish()
    assert site.shown("excluded_units", level="PreSeparateFault") == 0
    assert site.shown("excluded_units", level="SeparateFault") == 1
    assert site.shown("changes_total", action="update") == 1
    site.cluster.set_node("n1", "ALLOCATED")
    site.publish()
    assert site.shown("excluded_units", level="SeparateFault") == 0
    assert site.shown("changes_total", action="clear") == 1
    site.publish()
    assert site.shown("changes_total", action="clear") == 1


def test_what_cannot_be_written_is_failing_and_not_excluded(site: Site) -> None:
    """The file that is in the way is no exclusion; the next pass that can write says so."""
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    site.artifact("1.1").mkdir()
    done = site.publish()
    assert [change.error is None for change in done.changes] == [False]
    assert site.shown("failing_artifacts") == 1
    assert site.shown("excluded_units", level="PreSeparateFault") == 0
    assert site.shown("changes_total", action="exclude") == 0
    site.artifact("1.1").rmdir()
    site.publish()
    assert site.shown("failing_artifacts") == 0
    assert site.shown("excluded_units", level="PreSeparateFault") == 1


def test_held_exclusions(site: Site) -> None:
    """What is held back is counted as held and not as excluded."""
    site.policy = Policy(max_new_exclusions=max_new_exclusions("1"))
    for name in ("n1", "n3"):
        site.cluster.set_node(name, "ALLOCATED+DRAIN", "fan")
    site.publish()
    assert site.shown("held_units") == 2
    assert site.shown("excluded_units", level="PreSeparateFault") == 0


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.LIFT])
def test_a_pass_that_was_not_made(site: Site, cause: Cause) -> None:
    """It is counted by its cause, and all that the last complete one said stays."""
    site.publish()
    before = site.shown("last_complete_pass_timestamp_seconds")
    site.clock.advance(300)
    site.metrics.failed(cause, "a sentence that no label holds", 1.0)
    assert site.shown("passes_total", result=cause.value) == 1
    assert site.shown("last_pass_success") == 0
    assert site.shown("last_complete_pass_timestamp_seconds") == before
    assert site.shown("units") == 3
    assert b"sentence" not in site.metrics.exposition()


def test_exclusions_that_could_not_be_lifted_are_no_pass(site: Site) -> None:
    """The loop tells of them beside the pass that failed, which is counted already."""
    site.publish()
    site.metrics.failed(Cause.LIFT, "stale exclusions could not be lifted", 0.0)
    assert site.shown("pass_duration_seconds_count") == 1
    assert site.shown("last_pass_success") == 1
    assert b'lift"' not in site.metrics.exposition()


def test_stale_exclusions(site: Site) -> None:
    """What is lifted without evidence is counted apart, and excluded no more."""
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    site.publish()
    plan = Plan(
        Publication(str(site.directory), EVERYTHING, site.policy, "1.2.3", 300.0), site.cluster.source,
        1800.0, standby=False, on_separate=None,
    )  # fmt: skip
    site.clock.advance(3600)
    changes = Service(plan, site.clock).lift_stale()
    assert changes is not None
    site.metrics.went_stale(changes, 3600.0)
    assert site.shown("stale_lifted_total") == 1
    assert site.shown("excluded_units", level="PreSeparateFault") == 0
    assert site.shown("changes_total", action="clear") == 0


def test_a_standby(site: Site) -> None:
    """One that waits says so, and until its first pass nothing that it does not know."""
    site.metrics.standing_by()
    assert site.shown("standby") == 1
    for name in ("units", "last_pass_success", "last_complete_pass_timestamp_seconds", "nodes"):
        assert not site.is_shown(name), name
    site.publish()
    assert site.shown("standby") == 0


@pytest.mark.parametrize(
    ("since", "start", "seconds"),
    [
        pytest.param(-100, -1000, 100, id="from-the-reason"),
        pytest.param(-5000, -30, 30, id="from-the-start-of-a-unit-on-bad-nodes"),
        pytest.param(50, -1000, 0, id="from-a-clock-that-is-fast"),
    ],
)
def test_from_the_reason_to_the_artifact(site: Site, since: int, start: int, seconds: float) -> None:
    """A new exclusion tells how long it took since it could have been known; one that stands does not."""
    now = int(site.clock.now)
    site.cluster.run("7", "n[7-8]", start_time=now + start)
    site.cluster.set_node("n7", "ALLOCATED+DRAIN", "old", since=now - 9000)
    site.cluster.set_node("n8", "ALLOCATED+DRAIN", "new", since=now + since)
    site.publish()
    site.publish()
    assert site.shown("reason_to_artifact_seconds_count") == 1
    assert site.shown("reason_to_artifact_seconds_sum") == seconds


def test_a_fault_without_a_reason_has_no_beginning(site: Site) -> None:
    """A node that is just DOWN does not tell since when."""
    site.cluster.set_node("n1", "DOWN")
    site.publish()
    assert site.shown("reason_to_artifact_seconds_count") == 0
    assert site.shown("changes_total", action="exclude") == 1


def test_what_is_asked_for_anew(site: Site) -> None:
    """Settings may be reread while a loop runs."""
    assert site.shown("interval_seconds") == 300
    assert site.shown("policy_error") == 0
    site.watched.interval, site.watched.stale_after, site.watched.policy_error = 60.0, None, "p.toml:3: wrong"
    assert site.shown("interval_seconds") == 60
    assert site.shown("stale_after_seconds") == math.inf
    assert site.shown("policy_error") == 1
    assert b"p.toml" not in site.metrics.exposition()


def test_traffic_is_counted_once(site: Site) -> None:
    """However often the text is asked for, a question counts once."""
    site.watched.asked["text"] = (3, 1000)
    assert site.shown("slurm_queries_total", door="text") == 3
    assert site.shown("slurm_bytes_total", door="text") == 1000
    site.watched.asked["text"] = (5, 1500)
    site.watched.asked["pyslurm"] = (1, 1)
    assert site.shown("slurm_queries_total", door="text") == 5
    assert site.shown("slurm_queries_total", door="pyslurm") == 1


def test_traffic_survives_a_new_source(site: Site) -> None:
    """After a reload another source counts on from where the old one stopped."""

    class Asked(Source):
        """A door that was asked so many questions."""

        def __init__(self, queries: int) -> None:
            counted = Traffic()
            counted.count(queries=queries, received=10 * queries)
            self._traffic = {"text": counted}

        @property
        def traffic(self) -> dict[str, Traffic]:
            """What was asked."""
            return self._traffic

        def close(self) -> None:
            """Keep nothing open."""

    def plan(queries: int) -> Plan:
        publication = Publication(str(site.directory), EVERYTHING, Policy(), "1", 300.0)
        return Plan(publication, Asked(queries), None, standby=False, on_separate=None)

    service = Service(plan(3), site.clock, lambda _: plan(2))
    assert service.traffic() == {"text": (3, 30)}
    service.reload()
    assert service.traffic() == {"text": (5, 50)}


@pytest.mark.parametrize(
    ("scope", "shown"),
    [
        (EVERYTHING, "all"), (of_partition("gpu"), "partition:gpu"), (of_user("alice"), "user"),
        (of_jobs(("123", "124")), "job"),
    ],
)  # fmt: skip
def test_no_label_grows_without_end(site: Site, scope: Scope, shown: str) -> None:
    """A scope of jobs or of a user does not name them."""
    text = site.begin(scope).exposition().decode()
    assert set(re.findall(r'scope="([^"]*)"', text)) == {shown}


def test_every_label_is_of_a_short_list(site: Site) -> None:
    """Whatever the cluster is called and whatever stands in reasons, there are some hundred series."""
    for number in range(1, 10):
        site.cluster.set_node(f"n{number}", "DOWN", f'reason {number}"\n')
    site.watched.asked = dict.fromkeys(COUNTERS["slurm_queries"].values, (1, 1))
    site.publish()
    text = site.metrics.exposition().decode()
    assert len(values(text)) < 100
    assert "reason 1" not in text
    promtool_accepts(text.encode())


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_bounds_rise(name: str) -> None:
    """A histogram's bounds are in order."""
    assert all(low < high for low, high in pairwise(HISTOGRAMS[name][1]))


def test_a_value_on_a_bound_is_within_it() -> None:
    """The label `le` says less or equal."""
    kept = Distribution((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 9.0):
        kept.observe(value)
    assert (kept.counts, kept.total) == ([1, 2, 1], 13.5)


# --- what is read back ------------------------------------------------------------------------------------


def test_another_process_goes_on(site: Site) -> None:
    """Counters and distributions of a single pass go on from what the last one wrote; gauges stay known."""
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan", since=int(site.clock.now) - 40)
    site.watched.asked["text"] = (3, 1000)
    site.publish(seconds=0.7)
    before = site.metrics.exposition()
    again = site.begin()
    site.watched.asked = {}
    again.restore(before.decode())
    assert again.exposition() == before
    site.metrics = again
    site.watched.asked = {"text": (2, 500)}
    again.failed(Cause.SLURM, "", 30.0)
    assert site.shown("slurm_queries_total", door="text") == 5
    assert site.shown("passes_total", result="complete") == 1
    assert site.shown("passes_total", result="slurm") == 1
    assert site.shown("pass_duration_seconds_count") == 2
    assert site.shown("excluded_units", level="PreSeparateFault") == 1
    promtool_accepts(again.exposition())


def test_what_another_scope_wrote_is_not_ours(site: Site) -> None:
    """Its counters are not taken over."""
    site.publish()
    theirs = site.begin(of_partition("gpu"))
    theirs.restore(site.metrics.exposition().decode())
    assert 'passes_total{result="complete",scope="partition:gpu"} 0.0' in theirs.exposition().decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('result="complete",scope="all"} 1.0', 'result="complete",scope="all"} NaN', id="nan"),
        pytest.param('result="complete",scope="all"} 1.0', 'result="complete",scope="all"} -1', id="negative"),
        pytest.param('result="complete",scope="all"} 1.0', 'result="complete",scope="all"} 1e99', id="absurd"),
        pytest.param('result="complete",scope="all"} 1.0', 'result="complete",scope="all"', id="no-value"),
        pytest.param('result="complete",scope="all"} 1.0', 'result="complete,scope="all"} 1.0', id="no-quote"),
        pytest.param('seconds_bucket{le="0.5",scope="all"} 1.0\n', "", id="a-bucket-is-gone"),
        pytest.param('bucket{le="0.5",scope="all"} 1.0', 'bucket{le="0.5",scope="all"} 2', id="counts-backwards"),
        pytest.param('seconds_sum{scope="all"}', 'seconds_mus{scope="all"}', id="no-sum"),
    ],
)
def test_damage(site: Site, old: str, new: str) -> None:
    """A text that is not what was written is refused whole, and all begins anew."""
    site.publish()
    text = site.metrics.exposition().decode()
    assert old in text
    again = site.begin()
    with pytest.raises(DamagedError):
        again.restore(text.replace(old, new, 1))
    assert again.exposition() == site.begin().exposition()


def test_a_megabyte_of_damage_is_not_repeated(site: Site) -> None:
    """The complaint is a line for a log, whatever stands in the file."""
    for text in ("x" * 1_000_000, "segment_health_units{" + 'a="b",' * 100_000, "{" * 1_000_000):
        with pytest.raises(DamagedError) as caught:
            site.metrics.restore(text)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["", "\0", "{", "# HELP", "up 1\n", '{"schema": 1}', "\ud800"])
def test_other_text(site: Site, text: str) -> None:
    """Neither an empty file nor somebody else's is taken for ours."""
    with pytest.raises(DamagedError):
        site.metrics.restore(text)


# --- the file ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where metrics go, in the directory of a collector."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    return folder / "ours.prom"


def textfile(site: Site, file: Path, said: list[str]) -> Textfile:
    """Return what writes the file, and keep what it says."""
    return Textfile(str(file), site.metrics.exposition, 30.0, said.append)


def test_the_file_is_written_whole_for_everybody(site: Site, file: Path) -> None:
    """Mode 0644 whatever the umask, nothing beside it, and what a killed publisher left is gone."""
    left = file.parent / f".segment-health.tmp.{os.uname().nodename}.{2**22 + 1}.0"
    left.write_text("half")
    said: list[str] = []
    before = os.umask(0o077)
    try:
        textfile(site, file, said).completed(site.publish(), 0.2)
    finally:
        os.umask(before)
    assert file.read_bytes() == site.metrics.exposition()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert (os.listdir(file.parent), said) == (["ours.prom"], [])


def test_the_file_follows_what_happens(site: Site, file: Path) -> None:
    """Passes, failures, stale exclusions and waiting are in it at once; it goes when its publisher ends well."""
    writing = textfile(site, file, [])
    for to in (site.metrics, writing):
        to.failed(Cause.SLURM, "", 1.0)
    assert f'{PREFIX}passes_total{{result="slurm",scope="all"}} 1.0' in file.read_text()
    for to in (site.metrics, writing):
        to.standing_by()
    assert f'{PREFIX}standby{{scope="all"}} 1.0' in file.read_text()
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    lifted = site.publish().changes
    for to in (site.metrics, writing):
        to.went_stale(lifted, 1800.0)
    assert f'{PREFIX}stale_lifted_total{{scope="all"}} 1.0' in file.read_text()
    number = file.stat().st_ino
    writing.standing_by()  # which has nothing new: it looks every few seconds
    assert file.stat().st_ino == number
    writing.remove()
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_a_remark(site: Site, tmp_path: Path) -> None:
    """Nobody is ended by it, and a file that was never written is nobody's to remove."""
    said: list[str] = []
    nowhere = tmp_path / "gone" / "ours.prom"
    writing = textfile(site, nowhere, said)
    writing.completed(site.publish(), 0.2)
    assert said == [f"{nowhere}: No such file or directory; the metrics there stay as they were"]
    nowhere.parent.mkdir()
    nowhere.write_text("a stranger's")
    writing.remove()
    assert nowhere.exists()


# --- a single pass ----------------------------------------------------------------------------------------


def once(site: Site, file: Path, *options: str) -> Result:
    """Run `publish --once` on a recording of the cluster."""
    saved = site.directory.parent / "cluster.json"
    now = datetime.now(timezone.utc)
    saved.write_text(recording(site.cluster.snapshot(), site.cluster.source, now=now, scrubbed=False))
    given = ["--replay", str(saved), "--dir", str(site.directory), "--all", "--metrics-file", str(file)]
    return CliRunner().invoke(main, ["publish", "--once", *given, *options])


def test_single_passes_count_on(site: Site, file: Path) -> None:
    """Each goes on from the file of the last; what damaged it is said, and the pass is as good as any."""
    for number in (1, 2):
        ended = once(site, file)
        assert (ended.exit_code, ended.stderr) == (0, "")
        assert f'passes_total{{result="complete",scope="all"}} {number}.0' in file.read_text()
    promtool_accepts(file.read_bytes())
    file.write_bytes(b"\xff\0 half a")
    ended = once(site, file)
    assert ended.exit_code == 0
    assert f"segment-health: {file}: not the metrics of a publisher" in ended.stderr
    assert 'passes_total{result="complete",scope="all"} 1.0' in file.read_text()


def test_a_name_that_no_collector_reads(site: Site, tmp_path: Path) -> None:
    """It is written all the same, and a person is told."""
    file = tmp_path / "ours.txt"
    ended = once(site, file)
    assert ended.exit_code == 0
    assert f"{file}: the name does not end in .prom" in ended.stderr
    assert file.exists()


def test_a_dry_run_counts_nothing(site: Site, file: Path) -> None:
    """It changes nothing, the file included."""
    assert once(site, file, "--dry-run").exit_code == 0
    assert not file.exists()


def test_a_single_pass_whose_file_cannot_be_written(site: Site, tmp_path: Path) -> None:
    """The pass decides, publishes and ends as without a file, and the trouble is on stderr."""
    site.cluster.set_node("n1", "ALLOCATED+DRAIN", "fan")
    ended = once(site, tmp_path / "gone" / "ours.prom", "--format", "json")
    assert ended.exit_code == 0
    assert json.loads(ended.stdout)["error"] is None
    assert "ours.prom: No such file or directory" in ended.stderr
    assert site.artifact("1.1").stat().st_size > 0


def test_a_single_pass_that_is_not_made(site: Site, file: Path) -> None:
    """An answer that is none is counted, and what the last complete pass said is kept."""
    once(site, file)
    (site.directory.parent / "bad.json").write_text("{")
    given = ["--replay", str(site.directory.parent / "bad.json"), "--dir", str(site.directory), "--all"]
    ended = CliRunner().invoke(main, ["publish", "--once", *given, "--metrics-file", str(file)])
    assert ended.exit_code == 3
    found = values(file.read_text())
    assert found["passes_total", frozenset({("scope", "all"), ("result", "slurm")})] == 1
    assert found["passes_total", frozenset({("scope", "all"), ("result", "complete")})] == 1
    assert found["last_pass_success", frozenset({("scope", "all")})] == 0
    assert found["units", frozenset({("scope", "all")})] == 3


def test_a_relative_file_is_a_mistake(site: Site) -> None:
    """The collector's directory is not where somebody happens to stand."""
    ended = once(site, Path("ours.prom"))
    assert ended.exit_code == 2
    assert "--metrics-file: not an absolute path" in ended.output


# --- the page ---------------------------------------------------------------------------------------------


def test_every_metric_is_on_its_page(site: Site) -> None:
    """docs/metrics.md names each with its type and label, the values of the label, and no other."""
    site.watched.asked = dict.fromkeys(COUNTERS["slurm_queries"].values, (1, 1))
    site.publish()
    rows = dict(re.findall(r"^\| `(segment_health_\w+)` \| (\w+ \|[^|]*)\|", PAGE.read_text(), re.MULTILINE))
    expected = {}
    for family in text_string_to_metric_families(site.metrics.exposition().decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"scope", "le"}
        expected[name] = f"{family.type} | {'`' + labels.pop() + '` ' if labels else ''}"
    assert rows == expected
    text = PAGE.read_text()
    for kind in (*COUNTERS.values(), *GAUGES.values()):
        assert all(f"`{value}`" in text for value in kind.values if value), kind

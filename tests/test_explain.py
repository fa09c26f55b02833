"""Why a node or a unit is excluded or not: the command, on recordings and saved answers of Slurm."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.cli import main
from segment_health.contract import Publisher, UnitId
from segment_health.decide import decide
from segment_health.explain import explain_node, explain_unit
from segment_health.level import FaultLevel
from segment_health.lift import override
from segment_health.policy.assess import Assessment, Policy
from segment_health.policy.file import load, parse
from segment_health.publication import Publication
from segment_health.publish import Pass, run_once
from segment_health.scope import EVERYTHING, Scope, of_jobs
from segment_health.situation import Memory, Situation
from segment_health.sources import node_names, recording
from segment_health.testing import FakeClock, FakeCluster

if TYPE_CHECKING:
    from click.testing import Result

SAMPLES = Path(__file__).parent / "data" / "samples"
PLANNED = """
[[rule]]
name = "planned maintenance"
state = ["DRAIN"]
reason = "maintenance"
level = "NotHandleFault"
"""
XID = """
[[rule]]
name = "Xid"
state = ["DRAIN"]
reason = "xid"
level = "SeparateFault"
"""
SETTLED = """
[[rule]]
name = "settled"
state = ["NOT_RESPONDING"]
min_duration = "10m"
level = "PreSeparateFault"
"""


@dataclass
class Site:
    """A cluster, what was published of it, and `segment-health explain` on a recording of it."""

    path: Path
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: FakeClock = field(default_factory=lambda: FakeClock(time.time()))
    text: str = ""

    @property
    def directory(self) -> Path:
        """The decision directory."""
        return self.path / "decisions"

    @property
    def file(self) -> Path:
        """The policy file."""
        return self.path / "policy.toml"

    def policy(self, text: str) -> None:
        """Put a policy in force."""
        self.text = text
        self.file.write_text(text)

    def publish(self, scope: Scope = EVERYTHING, ago: float = 0, **options: Any) -> Pass:
        """Make a pass, so many seconds before now, by the policy in force."""
        policy = load(str(self.file), node_names) if self.text else Policy()
        publication = Publication(str(self.directory), scope, policy, "0.1.0", interval=300.0, loop=True)
        return run_once(publication._replace(**options), self.cluster.source, FakeClock(self.clock.now - ago))

    def run(self, what: str, *options: str, directory: bool = True) -> Result:
        """Explain something, by the policy in force."""
        saved = self.path / "cluster.json"
        source, now = self.cluster.source, datetime.now(timezone.utc)
        saved.write_text(recording(self.cluster.snapshot(), source, now=now, scrubbed=False))
        given = ["--dir", str(self.directory)] if directory else []
        given += ["--policy", str(self.file)] if self.text else []
        return CliRunner().invoke(main, ["explain", what, "--replay", str(saved), *given, *options])

    def json(self, what: str, *options: str, directory: bool = True) -> dict[str, Any]:
        """Explain something as JSON; nothing of the directory is touched."""
        before = {path: path.stat().st_mtime_ns for path in self.path.rglob("*")}
        ended = self.run(what, "--format", "json", *options, directory=directory)
        assert ended.exit_code == 0, ended.output
        assert {path: path.stat().st_mtime_ns for path in self.directory.rglob("*")}.items() <= before.items()
        document: dict[str, Any] = json.loads(ended.stdout)
        return document

    def unit(self, what: str = "123_7", *options: str, directory: bool = True) -> dict[str, Any]:
        """Explain one unit."""
        (unit,) = self.json(what, *options, directory=directory)["units"]
        return dict(unit)

    def words(self, what: str = "123_7", *options: str, directory: bool = True) -> str:
        """Explain something to a person."""
        ended = self.run(what, *options, directory=directory)
        assert ended.exit_code == 0, ended.output
        return ended.stdout


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Nodes n1 to n9, of which array task 123_7 holds n[3-4]."""
    made = Site(tmp_path)
    made.directory.mkdir()
    made.cluster.run("123_7", "n[3-4]")
    return made


def only(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one item of a list."""
    (item,) = items
    return item


# ── what decided ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fit_unit(site: Site) -> None:
    """Nothing is wrong, nothing will happen, nothing needs to be lifted."""
    site.publish()
    told = site.unit()
    assert (told["excluded"], told["nodes"], told["next_pass"], told["lifted_by"]) == (False, [], "nothing", [])
    assert site.words().splitlines()[0] == "unit 123_7: not excluded"
    assert "every node of it is fit" in site.words()


def test_excluded_by_default(site: Site) -> None:
    """The table's word, since when and by whom, and what would lift it."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "bad", since=int(time.time()) - 7200)
    site.publish(ago=60)
    told = site.unit()
    assert (told["excluded"], told["level"], told["unavailable"]) == (True, "PreSeparateFault", "n4")
    assert (told["publisher"]["scope"], told["watched_by"]["alive"]) == ("all", True)
    node = only(told["nodes"])
    assert (node["name"], node["rule"], node["status"]) == ("n4", "state:DRAIN", "PreSeparate")
    assert {word["word"]: word["level"] for word in node["words"]} == {
        "ALLOCATED": "NotHandleFault",
        "DRAIN": "PreSeparateFault",
    }
    assert told["lifted_by"] == [
        "n4 without DRAIN",
        "or a requeue, or the job's end",
        "or `segment-health clear 123_7 --reason TEXT`",
    ]
    text = site.words()
    assert text.startswith("unit 123_7: EXCLUDED at PreSeparateFault\n  excluded    since ")
    assert "bad (root, " in text
    assert "(2 h ago)" in text
    assert "    DRAIN       PreSeparateFault, by default\n" in text


@pytest.mark.parametrize(
    ("reason", "text", "line", "level", "excluded"),
    [
        ("Xid 79", PLANNED + XID, 8, "SeparateFault", True),
        ("maintenance", PLANNED + XID, 2, "NotHandleFault", False),
    ],
    ids=["raised", "lowered"],
)
def test_decided_by_a_rule(site: Site, reason: str, text: str, line: int, level: str, *, excluded: bool) -> None:
    """The rule by its name, and the file and line where it stands."""
    site.policy(text)
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", reason)
    site.publish()
    document = site.json("n4")
    assert only(document["units"])["excluded"] is excluded
    word = only([word for word in document["node"]["words"] if word["word"] == "DRAIN"])
    assert (word["level"], word["default"], word["place"]) == (level, "PreSeparateFault", f"{site.file}:{line}")
    assert f"DRAIN       {level}, by rule {word['rule']!r} ({site.file}:{line})" in site.words("n4")
    cured = "n4 without DRAIN, or without the reason that rule 'Xid' looks for"
    assert (cured in only(document["units"])["lifted_by"]) is excluded


def test_a_rule_that_waits(site: Site) -> None:
    """How long it has been so is what the scope remembers, not what this look sees."""
    site.policy(SETTLED)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    alone = only([w for w in only(site.unit(directory=False)["nodes"])["words"] if w["waiting"]])
    assert (alone["level"], alone["lasted"]) == (None, 0)
    site.publish(ago=100)
    told = site.unit()
    word = only([word for word in only(told["nodes"])["words"] if word["waiting"]])
    assert (word["waiting"], word["min_duration"], word["level"]) == ("settled", 600, None)
    assert 100 <= word["lasted"] < 130
    assert told["next_pass"] == "nothing"
    assert f"no verdict; rule 'settled' ({site.file}:2) waits 600 s, {word['lasted']}"[:-1] in site.words()


def test_a_rule_that_waits_keeps_an_exclusion(site: Site) -> None:
    """It is no fault yet, and no health: the sentence says for which rule it is not."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.policy(SETTLED)
    site.cluster.set_node("n4", "ALLOCATED+NOT_RESPONDING")
    told = site.unit()
    assert told["excluded"]
    assert told["lifted_by"][0] == "n4 without NOT_RESPONDING (rule 'settled' waits)"


def test_no_verdict(site: Site) -> None:
    """A state that nobody understands is said to be that, and so is a node that Slurm does not list."""
    site.cluster.set_node("n4", "UNKNOWN")
    node = only(site.unit()["nodes"])
    assert (node["level"], node["fit"]) == (None, False)
    assert "node n4: no verdict: neither a fault nor health" in site.words()
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.set_node("n4", "UNKNOWN")
    assert site.unit()["lifted_by"][0] == "n4 with a verdict on UNKNOWN"
    site.cluster.forget_node("n4")
    document = site.json("n4")
    assert document["node"]["state"] is None
    assert only(document["units"])["lifted_by"][0] == "n4 listed by Slurm again, and fit"
    assert "not listed by Slurm" in site.words("n4")


def test_what_nodes_report_is_not_forgotten(site: Site) -> None:
    """Asked without NodeD it does not say that all is well, and the next pass would lift nothing."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    (artifact,) = site.directory.glob("segment_health_check.*")
    artifact.write_text(artifact.read_text().replace("state:DRAIN", "noded:0000001D"))
    site.cluster.set_node("n4", "ALLOCATED")
    unit = site.unit()
    assert unit["next_pass"] == "nothing"
    assert unit["lifted_by"][0] == "a pass that is given --noded-dir: NodeD's report names n4"


def test_a_task_with_its_arrays_number_is_named_alone(site: Site) -> None:
    """`clear 7` would take every task of array 7."""
    site.cluster.run("7_7", "n1")
    site.cluster.run("7_8", "n2")
    site.cluster.set_node("n1", "ALLOCATED+DRAIN")
    site.publish()
    assert site.unit("7_7")["lifted_by"][-1] == "or `segment-health clear 7_7 --reason TEXT`"


def test_a_fault_below_the_bar_asks_for_no_cure(site: Site) -> None:
    """With --publish-at SeparateFault a drain excludes nobody, so lifting needs nothing of it."""
    for name in ("n3", "n4"):
        site.cluster.set_node(name, "ALLOCATED+DRAIN" if name == "n3" else "DOWN")
    site.publish(policy=Policy(FaultLevel.SeparateFault))
    told = site.unit("123_7", "--publish-at", "SeparateFault")
    assert [node["name"] for node in told["nodes"]] == ["n3", "n4"]
    assert told["lifted_by"][:2] == ["n4 without DOWN", "or a requeue, or the job's end"]


def test_a_shrunk_unit(site: Site) -> None:
    """The node that it lost is fit again; asked about that node, the unit that is excluded for it is named."""
    site.publish()
    site.cluster.shrink("123_7", "n3")
    site.publish()
    node = only(site.unit()["nodes"])
    assert (node["name"], node["lost"], node["rule"], node["level"]) == (
        "n4", True, "unit:shrunk", "SeparateFault",
    )  # fmt: skip
    assert site.unit()["lifted_by"][0] == "nothing but a new generation: the unit has lost n4"
    document = site.json("n4")
    assert document["node"]["fit"]
    assert only(document["units"])["unit"] == "123_7"
    assert "lost by the unit, which is a SeparateFault until its next generation" in site.words("n4")


# ── whose decision it is ───────────────────────────────────────────────────────────────────────────────────────


def test_a_foreign_artifact(site: Site) -> None:
    """It excludes, and is whoever's who wrote it."""
    (site.directory / "segment_health_check.123.7").write_text("n4")
    told = site.unit()
    assert (told["excluded"], told["foreign"], told["level"], told["next_pass"]) == (True, True, None, "foreign")
    assert told["lifted_by"] == [
        "whoever wrote the artifact: remove it, or let a publisher with --adopt take it over"
    ]
    assert "by an artifact that no publisher of ours wrote" in site.words()


def test_another_scopes_artifact(site: Site) -> None:
    """It is told as the scope sees it that wrote it and lives, with what that remembers."""
    site.policy('clear_after = "3 passes"\n')
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish(of_jobs(("123",)), ago=20)
    site.cluster.set_node("n4", "ALLOCATED")
    site.publish(of_jobs(("123",)), ago=10)
    site.publish()
    told = site.unit()
    assert (told["publisher"]["scope"], told["watched_by"]["scope"]) == ("job:123", "job:123")
    assert told["clearing"]["fit_passes"] == 1


def test_a_dead_scopes_artifact_is_told_as_the_living_see_it(site: Site) -> None:
    """Who is dead makes no next pass; who lives and watches the unit lifts what is fit."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish(of_jobs(("123",)), ago=10_000)
    site.cluster.set_node("n4", "ALLOCATED")
    told = site.unit()
    assert (told["watched_by"]["scope"], told["watched_by"]["alive"]) == ("job:123", False)
    assert "NOT ALIVE: last pass" in site.words()
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.set_node("n4", "ALLOCATED")
    told = site.unit()
    assert (told["watched_by"]["scope"], told["next_pass"]) == ("all", "clear")


def test_another_clusters_artifact(site: Site) -> None:
    """Two clusters may share a directory and have the same ids: its writer is named with its cluster."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.name = "second"
    told = site.unit()
    assert (told["publisher"]["cluster"], told["next_pass"]) == ("fake", "foreign")
    assert told["lifted_by"][0].startswith("the publisher of all of cluster fake on ")


@pytest.mark.parametrize("scope", ["job:../../x", "all\0", "user:" + "x" * 300, ""], ids=ascii)
def test_a_scope_that_is_none_reads_no_other_file(site: Site, scope: str) -> None:
    """Who wrote an artifact is anybody's text: it names no file outside the ledger, and breaks nothing."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    for path in (site.directory / "segment_health_check.123.7", *site.directory.rglob("heartbeat/*")):
        path.write_text(path.read_text().replace('"scope": "all"', f'"scope": {json.dumps(scope)}'))
    assert site.unit()["publisher"]["scope"] == scope


def test_an_older_generation(site: Site) -> None:
    """What was published of the run before is said to be that; the next pass ends it."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.requeue("123_7", "n[5-6]")
    told = site.unit()
    assert (told["excluded"], told["next_pass"], told["nodes"]) == (True, "clear", [])
    assert told["published_generation"] != told["generation"]
    assert told["lifted_by"][0] == "the next pass: the generation that it is about is over"
    assert "in an earlier run: restart 0" in site.words()


def test_an_override(site: Site) -> None:
    """Whose word it is, and why, stands beside the bad nodes."""
    site.cluster.set_node("n4", "DOWN")
    site.publish()
    override(str(site.directory), "0.1.0", lambda _: True, "vendor says\x1b[2J fine", int(site.clock.now) - 300)
    told = site.unit()
    assert (told["excluded"], told["next_pass"], told["lifted_by"]) == (False, "nothing", [])
    assert told["override"]["reason"] == "vendor says\x1b[2J fine"
    assert only(told["nodes"])["level"] == "SeparateFault"
    text = site.words()
    assert "used although nodes of it are bad" in text
    assert r"vendor says\x1b[2J fine" in text
    assert "\x1b" not in text


def test_held(site: Site) -> None:
    """It would be excluded, and is held with others that are too many at once."""
    site.policy("max_new_exclusions = 1\nhold_passes = 5\n")
    site.cluster.run("8", "n5")
    for name in ("n4", "n5"):
        site.cluster.set_node(name, "ALLOCATED+DRAIN")
    site.publish()
    told = site.unit()
    assert (told["excluded"], told["next_pass"]) == (False, "held")
    assert told["held"] == {"max_new_exclusions": "1", "passes": 1, "hold_passes": 5}
    text = site.words()
    assert "max_new_exclusions = 1 (1 of 5 passes held so far)" in text
    assert "`publish --once --force`" in text


@pytest.mark.parametrize("wanted", ["3 passes", "10m"])
def test_health_that_has_not_lasted(site: Site, wanted: str) -> None:
    """A fit unit that is excluded still: how much health is wanted, and how much there was."""
    site.policy(f'clear_after = "{wanted}"\n')
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish(ago=200)
    site.cluster.set_node("n4", "ALLOCATED")
    told = site.unit()
    assert told["clearing"] == {"clear_after": wanted.replace("10m", "600s"), "fit_passes": 0, "fit_since": None}
    site.publish(ago=100)
    told = site.unit()
    assert (told["excluded"], told["next_pass"], told["clearing"]["fit_passes"]) == (True, "nothing", 1)
    since = told["clearing"]["fit_since"]
    assert 100 <= time.time() - datetime.fromisoformat(since).timestamp() < 130
    assert told["lifted_by"][0].endswith(f"(clear_after); 1 pass so far, since {since}")
    assert "changes nothing: it is fit, but clear_after = " in site.words()


def test_a_unit_that_is_gone(site: Site) -> None:
    """Its artifact is there until two passes in a row have missed it."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN")
    site.publish()
    site.cluster.end("123_7")
    told = site.unit()
    assert (told["running"], told["excluded"], told["next_pass"]) == (False, True, "nothing")
    site.publish()
    told = site.unit()
    assert told["next_pass"] == "retire"
    assert told["lifted_by"][0] == "2 complete passes in a row that do not find it (1 so far)"
    assert "not running, as far as Slurm says" in site.words()


def test_another_policy_than_the_publishers(site: Site) -> None:
    """An explanation by other rules than those in force says so."""
    site.cluster.set_node("n4", "ALLOCATED+DRAIN", "maintenance")
    site.publish()
    assert site.json("n4")["remarks"] == []
    site.policy(PLANNED)
    ended = site.run("n4")
    assert f"the publisher of all judges by policy default, this explanation by {site.file}" in ended.stderr
    site.publish(policy_error="policy.toml:4: no")
    assert site.json("n4")["remarks"] == ["the publisher of all cannot use its newest policy: policy.toml:4: no"]


# ── what is asked for ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_id_that_names_several_units(site: Site) -> None:
    """An array's id means all its tasks, in their order, those too that only an artifact knows."""
    for task in (10, 9):
        site.cluster.run(f"123_{task}", f"n{task - 4}")
    site.cluster.set_node("n5", "DOWN")
    site.publish()
    site.cluster.end("123_9")
    assert [unit["unit"] for unit in site.json("123")["units"]] == ["123_7", "123_9", "123_10"]
    assert [unit["unit"] for unit in site.json("123", directory=False)["units"]] == ["123_7", "123_10"]
    assert site.unit("123.7")["unit"] == "123_7"
    assert site.unit("91237")["unit"] == "123_7"  # the job id that the task has of its own


def test_a_node_without_a_unit(site: Site) -> None:
    """A bad node that nobody holds excludes nobody."""
    site.cluster.set_node("n1", "IDLE+DRAIN", "bad")
    document = site.json("n1")
    assert (document["node"]["level"], document["units"]) == ("PreSeparateFault", [])
    assert site.words("n1").splitlines()[-1] == "  no running unit holds it, so nothing is excluded for it"


def test_without_a_directory(site: Site) -> None:
    """What the policy makes of Slurm's answer alone: nothing is published, and a pass would exclude."""
    site.cluster.set_node("n4", "DOWN")
    site.publish()
    told = site.unit("123_7", directory=False)
    assert (told["excluded"], told["next_pass"], told["watched_by"]) == (False, "exclude", None)


@pytest.mark.parametrize("what", ["n99", "124", "123_8", "123_", "", "n[3-4]", "\x1b[2J", "1" * 5000], ids=ascii)
def test_an_unknown_name(site: Site, what: str) -> None:
    """Exit status 2 and one line, which moves no cursor."""
    ended = site.run(what)
    assert ended.exit_code == 2
    (line,) = ended.stderr.splitlines()
    assert "Slurm lists no node of that name and no running unit" in line
    assert line.isprintable()
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--replay", "missing.json"), 3, "Slurm's state is unknown, so nothing can be explained"),
        (("--nodes-from", "missing"), 2, "not together with --nodes-from"),
        (("--dir", "relative"), 2, "not an absolute path"),
        (("--dir", "/nonexistent"), 2, "No such file"),
        (("--policy", "missing.toml"), 2, "missing.toml: the policy cannot be read"),
        (("--noded-dir", "relative"), 2, "absolute"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_cannot_be_explained(arguments: tuple[str, ...], code: int, said: str) -> None:
    """Slurm's silence is 3, a mistake of the caller 2; each is one line."""
    given = arguments if "--replay" in arguments else (*arguments, "--replay", "missing.json")
    ended = CliRunner().invoke(main, ["explain", "n1", *given])
    assert ended.exit_code == code, ended.output
    (line,) = ended.stderr.splitlines()
    assert said in line


def test_an_unreadable_directory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be listed explains nothing; a ledger that cannot be read is remarked."""
    site.cluster.set_node("n4", "DOWN")
    site.publish()
    state = site.directory / ".segment-health/state/all@fake.json"
    state.unlink()
    state.mkdir()
    assert site.json("123_7")["remarks"] == ["the ledger could not be read: Is a directory"]
    listdir = os.listdir

    def refuse(path: Any = ".") -> list[str]:
        if isinstance(path, int):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    ended = site.run("123_7")
    assert ended.exit_code == 2
    assert ended.stderr == f"segment-health: {site.directory}: Permission denied\n"


def test_a_hostile_reason(site: Site) -> None:
    """A reason is anybody's text: escaped on a terminal, whole in JSON."""
    reason = "fine\nunit 123_7: not excluded\x1b[1A\x9b2J \udcff\u202e"
    site.cluster.set_node("n4", "DOWN", reason)
    site.publish()
    assert site.json("n4")["node"]["reason"] == reason
    text = site.words("n4")
    assert r"fine\nunit 123_7: not excluded\x1b[1A\x9b2J \udcff\u202e" in text
    assert text.replace("\n", "").isprintable()
    assert site.run("n4", "--format", "json").stdout.isascii()


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_saved_answers(version: str) -> None:
    """Every node and unit of what real clusters said has an explanation."""
    nodes = SAMPLES / version / "scontrol_show_nodes_oneline.txt"
    jobs = SAMPLES / version / "scontrol_show_jobs.txt"
    given = ["--nodes-from", str(nodes), "--jobs-from", str(jobs), "--cluster", "saved"]
    names = set(re.findall(r"^NodeName=([A-Za-z0-9]+) ", nodes.read_text(errors="replace"), re.MULTILINE))
    explained = 0
    for name in sorted(names):
        ended = CliRunner().invoke(main, ["explain", name, *given, "--format", "json"])
        assert ended.exit_code == 0, ended.output
        document = json.loads(ended.stdout)
        assert document["node"]["name"] == name
        explained += len(document["units"])
        text = CliRunner().invoke(main, ["explain", name, *given]).stdout
        assert text.startswith(f"node {name}: ")
    assert explained


# ── the pure part ──────────────────────────────────────────────────────────────────────────────────────────────


def situation(cluster: FakeCluster, **facts: Any) -> Situation:
    """Put a cluster before somebody who remembers nothing."""
    publisher = Publisher("h", 1, "0.1.0", cluster.name, "all")
    return Situation(
        cluster.snapshot(),
        {},
        Memory(),
        EVERYTHING,
        **{"policy": Policy(), "publisher": publisher, "now": 0, "began": 0, **facts},
    )


@pytest.mark.parametrize("held", [True, False])
def test_what_another_source_says(*, held: bool) -> None:
    """Its word counts where Slurm is content, also for a node that nobody holds; it has no findings to cure."""
    cluster = FakeCluster()
    if held:
        cluster.run("7", "n4")
    told = Assessment(FaultLevel.SeparateFault, "noded:fault")
    given = situation(cluster, reports={"n4": told})
    node = explain_node("n4", given, decide(given))
    assert node.assessment is not None
    assert (node.assessment.level, node.assessment.rule) == (FaultLevel.SeparateFault, "noded:fault")
    if held:
        unit = explain_unit(UnitId("7", "7"), given, decide(given))
        assert (unit.next_pass, unit.lifted_by[0]) == ("exclude", "n4 without noded:fault")


@pytest.mark.parametrize(
    ("state", "of_test", "level", "final"),
    [
        ("MIXED+DRAIN", "NotHandleFault", FaultLevel.PreSeparateFault, True),
        ("MIXED+DRAIN", "SeparateFault", FaultLevel.SeparateFault, True),
        ("MIXED", "no-verdict", None, False),
    ],
    ids=["less-in-one", "more-in-one", "not-known-in-one"],
)
def test_the_worst_of_two_units_is_told(
    state: str, of_test: str, level: FaultLevel | None, *, final: bool
) -> None:
    """A node that two units hold is told by the one that makes more of it; not known comes before fit."""
    cluster = FakeCluster()
    cluster.run("7", "n4", partition="test")
    cluster.run("8", "n4", partition="batch")
    cluster.set_node("n4", state)
    rule = f'[[rule]]\nname = "x"\npartition = "test"\nlevel = "{of_test}"\n'
    given = situation(cluster, policy=parse(rule.encode(), "p", node_names))
    told = explain_node("n4", given, decide(given))
    assert told.assessment is not None
    assert (told.assessment.level, told.assessment.final) == (level, final)
    assert told.units == (UnitId("7", "7"), UnitId("8", "8"))

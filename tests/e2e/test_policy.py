"""What a policy does on a real Slurm: reasons, rules that wait, a file that changes, exclusions that are held."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Running, Site

    RunCluster = Callable[..., AbstractContextManager[Sandbox]]
    Start = Callable[..., Running]

pytestmark = pytest.mark.slurm

MAINTENANCE = """
[[rule]]
name = "planned maintenance"
state = ["DRAIN"]
reason = "maintenance"
level = "NotHandleFault"
"""
XID = """
[[rule]]
name = "Xid of a GPU"
state = ["DRAIN"]
reason = "xid [0-9]+"
level = "SeparateFault"
"""
NOTHING = 'publish_at = "PreSeparateFault"\n'
WRONG = '\n[[rule]]\nname = "planned"\nstate = ["DRIAN"]\nlevel = "NotHandleFault"\n'


def waiting(word: str, seconds: int, level: str = "PreSeparateFault") -> str:
    """Write a rule that waits."""
    return f'[[rule]]\nname = "lasting"\nstate = ["{word}"]\nmin_duration = "{seconds}s"\nlevel = "{level}"\n'


@pytest.fixture(scope="module")
def cluster(run_cluster: RunCluster) -> Iterator[Sandbox]:
    """Six nodes that Slurm may be asked to reboot once they are idle, which none is here."""
    with run_cluster(nodes=6, return_to_service=0, extra_conf=["RebootProgram=/bin/true"]) as sandbox:
        yield sandbox


@pytest.fixture
def policy(site: Site) -> Path:
    """Where the policy file of a test is."""
    return site.work / "policy.toml"


def jobs_on(site: Site, *nodes: str) -> list[str]:
    """Run a job alone on each of these host lists; return their units."""
    return [f"{job}.{job}" for job in site.start(*(("--exclusive", f"--nodelist={name}") for name in nodes))]


def published(site: Site, unit: str) -> tuple[str, str]:
    """Return the level of a unit's artifact, and the rule of its one node."""
    artifact = site.artifact(unit)
    (node,) = artifact["nodes"]
    return artifact["level"], node["rule"]


def heartbeat(site: Site) -> dict[str, Any]:
    """Read the heartbeat of the publisher of everything."""
    beat: dict[str, Any] = json.loads((site.directory / ".segment-health/heartbeat/all@sandbox.json").read_text())
    return beat


# ── what a rule decides ────────────────────────────────────────────────────────────────────────────────────────


def test_the_reason_decides(site: Site, policy: Path) -> None:
    """Maintenance is no fault, an Xid is worse than a drain, and of any other reason the table has the say."""
    planned, broken, other = jobs_on(site, "n1", "n2", "n3")
    for node, reason in (("n1", "Maintenance on Monday"), ("n2", "GPU 3: Xid 79"), ("n3", "who knows")):
        site.cluster.set_node(node, "drain", reason)
    policy.write_text(MAINTENANCE + XID)
    done = site.publish("--policy", str(policy))
    assert done["policy"].startswith(f"{policy} sha256:")
    assert site.excluded() == {broken, other}
    assert published(site, broken) == ("SeparateFault", "rule:Xid of a GPU")
    assert published(site, other) == ("PreSeparateFault", "state:DRAIN")
    assert site.changes() == [f"exclude {planned}", f"update {broken}"]
    assert {published(site, unit) for unit in (planned, broken, other)} == {("PreSeparateFault", "state:DRAIN")}
    assert site.changes("--policy", str(policy), "--publish-at", "SeparateFault") == [
        f"update {broken}",
        f"clear {planned}",
        f"clear {other}",
    ]


def test_a_node_that_goes_down_in_its_maintenance_is_lost(
    site_on: Callable[[Sandbox], Site], run_cluster: RunCluster
) -> None:
    """The rule lets it off for DRAIN alone; DOWN takes the node from its job, which has shrunk."""
    # A cluster of its own: after this slurmctld 22.05 may fail to start a job on that node.
    with run_cluster(nodes=2, return_to_service=0) as cluster:
        site = site_on(cluster)
        policy = site.work / "policy.toml"
        policy.write_text(MAINTENANCE)
        job = site.submit("--exclusive", "--nodelist=n[1-2]", "--no-kill")
        unit = f"{job}.{job}"
        cluster.set_node("n2", "drain", "maintenance")
        assert site.changes("--policy", str(policy)) == []
        cluster.set_node("n2", "down", "maintenance")
        cluster.wait_until(lambda: site.nodes_of()[unit] == {"n1"}, what="job without its DOWN node")
        assert site.changes("--policy", str(policy)) == [f"exclude {unit}"]
        assert published(site, unit) == ("SeparateFault", "unit:shrunk")


def test_slurms_own_time_counts_on_the_first_pass_ever(site: Site, policy: Path) -> None:
    """A drain that is older than the rule waits for is not waited for again by a publisher that starts late."""
    old, young = jobs_on(site, "n1", "n2")
    policy.write_text(waiting("DRAIN", 4))
    site.cluster.set_node("n1", "drain", "old")
    drained = time.time()
    time.sleep(4.1)
    site.cluster.set_node("n2", "drain", "young")
    assert site.changes("--policy", str(policy)) == [f"exclude {old}"]
    assert time.time() - drained < 8, "too slow a machine to tell old from young"
    site.cluster.wait_until(
        lambda: site.changes("--policy", str(policy)) == [f"exclude {young}"], what="a drain that has lasted"
    )
    assert published(site, young) == ("PreSeparateFault", "rule:lasting")


# ── what outlives a process ────────────────────────────────────────────────────────────────────────────────────


def test_a_silent_node_is_waited_for_across_single_passes(
    site_on: Callable[[Sandbox], Site], run_cluster: RunCluster
) -> None:
    """NOT_RESPONDING has no time of Slurm's: it is as old as the first pass that saw it, each a process."""
    # A cluster of its own: it notices within seven seconds that a slurmd is silent, and waits twice as long more.
    with run_cluster(nodes=2, return_to_service=0, extra_conf=["SlurmdTimeout=21"]) as cluster:
        site = site_on(cluster)
        policy = site.work / "policy.toml"
        (unit,) = jobs_on(site, "n2")
        policy.write_text(waiting("NOT_RESPONDING", 3))
        options = ("--policy", str(policy))
        assert site.changes(*options) == []
        cluster.kill_slurmd("n2")
        cluster.wait_until(lambda: "NOT_RESPONDING" in cluster.node_state("n2"), what="a node that is silent")
        first = site.call(*site.arguments(*options))
        seen = time.time()
        assert f"rule 'lasting' ({policy}:1) waits for its min_duration: n2" in first.stderr
        assert site.excluded() == set()
        cluster.wait_until(lambda: site.changes(*options) == [f"exclude {unit}"], what="three seconds")
        assert time.time() - seen > 2  # whole seconds are compared
        assert published(site, unit) == ("PreSeparateFault", "rule:lasting")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_rule_waits_on_across_a_restart(site: Site, policy: Path, start: Start, number: signal.Signals) -> None:
    """However the loop ended, the next one goes on from the first pass that saw the word."""
    (unit,) = jobs_on(site, "n1")
    policy.write_text(waiting("REBOOT_REQUESTED", 5))  # a word that Slurm gives no time
    options = ("--all", "--policy", str(policy))
    publisher = start(*options)
    site.cluster.run("scontrol", "reboot", "n1")  # once it is idle; its job runs on
    try:
        publisher.poked_until(lambda: "waits for its min_duration: n1" in publisher.log.read_text())
        (seen,) = state(site)["seen"]
        publisher.end(number)
        time.sleep(2)
        second = start(*options)
        assert state(site)["seen"] == [seen]
        second.poked_until(lambda: site.excluded() == {unit})
        assert state(site)["seen"] == [seen]
        assert time.time() - seen["since"] >= 5
        assert published(site, unit) == ("PreSeparateFault", "rule:lasting")
    finally:
        site.cluster.run("scontrol", "cancel_reboot", "n1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_health_goes_on_across_a_restart(site: Site, policy: Path, start: Start, number: signal.Signals) -> None:
    """Of four healthy passes two are the first loop's, one is a single pass's, and the last the second loop's."""
    (unit,) = jobs_on(site, "n1")
    policy.write_text('clear_after = "4 passes"\n')
    options = ("--all", "--policy", str(policy))
    site.cluster.set_node("n1", "drain", "bad")
    publisher = start(*options)
    assert site.excluded() == {unit}
    site.resume("n1")
    for fit_passes in (1, 2):
        publisher.poke()
        publisher.until(lambda expected=fit_passes: remembered(site, unit)["fit_passes"] == expected)  # type: ignore[misc]
    publisher.end(number)
    assert site.changes("--policy", str(policy)) == []
    assert remembered(site, unit)["fit_passes"] == 3
    assert site.excluded() == {unit}
    start(*options)
    assert site.excluded() == set()


def remembered(site: Site, unit: str) -> dict[str, Any]:
    """Return what the publisher of everything remembers of a unit."""
    state = json.loads((site.directory / ".segment-health/state/all@sandbox.json").read_text())
    (found,) = (row for row in state["units"] if f"{row['job_id']}.{row['task_id']}" == unit)
    return dict(found)


def test_health_must_last_for_seconds(site: Site, policy: Path) -> None:
    """So long after the first healthy pass; a fault in between begins the time anew."""
    (unit,) = jobs_on(site, "n1")
    policy.write_text('clear_after = "3s"\n')
    options = ("--policy", str(policy))
    site.cluster.set_node("n1", "drain", "bad")
    assert site.changes(*options) == [f"exclude {unit}"]
    site.resume("n1")
    assert site.changes(*options) == []
    site.cluster.set_node("n1", "drain", "bad again")
    assert site.changes(*options) == []
    site.resume("n1")
    assert site.changes(*options) == []
    healthy = time.time()
    site.cluster.wait_until(lambda: site.changes(*options) == [f"clear {unit}"], what="three healthy seconds")
    assert time.time() - healthy > 2  # whole seconds are compared


# ── a file that changes ────────────────────────────────────────────────────────────────────────────────────────


def renamed(path: Path, text: str) -> None:
    """Replace a file whole, as configuration management does."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def in_place(path: Path, text: str) -> None:
    """Write into the same file, as an editor may."""
    with path.open("r+") as file:
        file.truncate()
        file.write(text)


@pytest.mark.parametrize("write", [renamed, in_place])
def test_a_changed_file_judges_at_once_what_is_there(
    site: Site, policy: Path, start: Start, write: Callable[[Path, str], None]
) -> None:
    """No signal and no interval: it is noticed in seconds; the excluded are used again, others excluded anew."""
    planned, broken = jobs_on(site, "n1", "n2")
    site.cluster.set_node("n1", "drain", "maintenance")
    site.cluster.set_node("n2", "drain", "Xid 79")
    policy.write_text(MAINTENANCE)
    publisher = start("--all", "--policy", str(policy), "--interval", "3600")
    assert site.excluded() == {broken}
    before = heartbeat(site)["policy"]
    write(policy, XID)
    publisher.until(lambda: site.excluded() == {planned, broken}, seconds=15)
    publisher.until(lambda: heartbeat(site)["policy"] != before)
    assert published(site, broken) == ("SeparateFault", "rule:Xid of a GPU")
    (line,) = publisher.lines("policy")
    assert (line["level"], heartbeat(site)["policy"] in line["message"]) == ("INFO", True)


def test_a_bad_file_leaves_the_last_good_one_in_force(site: Site, policy: Path, start: Start) -> None:
    """It is said in the log and the heartbeat, with its line, for as long as it is so; a lost file is as bad."""
    planned, other = jobs_on(site, "n1", "n2")
    site.cluster.set_node("n1", "drain", "maintenance")
    policy.write_text(MAINTENANCE)
    publisher = start("--all", "--policy", str(policy), "--interval", "3600")
    good = heartbeat(site)
    assert good["policy_error"] is None
    renamed(policy, WRONG)
    publisher.until(lambda: heartbeat(site)["policy_error"], seconds=15)
    wrong = heartbeat(site)
    assert f"{policy}:4: " in wrong["policy_error"]
    assert "DRAIN" in wrong["policy_error"]
    assert wrong["policy"] == good["policy"]
    (line,) = publisher.lines("policy")
    assert line["level"] == "ERROR"
    assert wrong["policy_error"] in line["message"]
    site.cluster.set_node("n2", "drain", "something else")
    publisher.poked_until(lambda: site.excluded() == {other})  # and n1 is in its maintenance still
    assert publisher.said("policy") == 1
    policy.unlink()
    publisher.until(lambda: "No such file" in (heartbeat(site)["policy_error"] or ""), seconds=15)
    assert site.excluded() == {other}
    policy.write_text(MAINTENANCE)
    publisher.until(lambda: heartbeat(site)["policy_error"] is None, seconds=15)
    assert heartbeat(site)["policy"] == good["policy"]
    assert [line["level"] for line in publisher.lines("policy")] == ["ERROR", "ERROR", "INFO"]
    assert site.excluded() == {other}
    assert not site.path(planned).exists()
    assert publisher.process.poll() is None


def test_sighup_reads_the_policy_again(site: Site, policy: Path, start: Start) -> None:
    """A good one is in force at once; a bad one leaves all settings as they were, and is named."""
    (planned,) = jobs_on(site, "n1")
    site.cluster.set_node("n1", "drain", "maintenance")
    policy.write_text(NOTHING)
    publisher = start("--all", "--policy", str(policy), "--interval", "3600")
    assert site.excluded() == {planned}
    policy.write_text(MAINTENANCE)
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: site.excluded() == set(), seconds=15)
    policy.write_text(WRONG)
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: heartbeat(site)["policy_error"], seconds=15)
    assert f"{policy}:4: " in heartbeat(site)["policy_error"]
    assert any(
        line["level"] == "ERROR" and f"{policy}:4: " in line["message"] for line in publisher.lines("reload")
    )
    assert site.excluded() == set()
    policy.write_text(NOTHING)
    publisher.process.send_signal(signal.SIGHUP)
    publisher.until(lambda: site.excluded() == {planned}, seconds=15)
    publisher.until(lambda: heartbeat(site)["policy_error"] is None)


@pytest.mark.parametrize("once", [True, False], ids=["a-single-pass", "a-loop"])
@pytest.mark.parametrize(
    ("text", "line", "what"),
    [(WRONG, 4, "DRAIN"), ("publish_at = Separate\n", 1, "TOML"), (None, None, "No such file")],
    ids=["an-unknown-state", "no-toml", "no-file"],
)
def test_a_start_with_a_bad_file_is_refused(
    site: Site, policy: Path, *, once: bool, text: str | None, line: int | None, what: str
) -> None:
    """Exit status 2, one line with the file and its line, and nothing is touched."""
    if text is not None:
        policy.write_text(text)
    before = site.files()
    flags = ["--once"] if once else []
    ended = site.call("publish", "--all", "--dir", str(site.directory), "--policy", str(policy), *flags)
    assert ended.returncode == 2
    (said,) = ended.stderr.splitlines()
    assert said.startswith(f"segment-health: {policy}:{line}: " if line else f"segment-health: {policy}: ")
    assert what in said
    assert site.files() == before


# ── too many at once ───────────────────────────────────────────────────────────────────────────────────────────


def test_too_many_new_exclusions_are_held_then_released(site: Site) -> None:
    """Two at once are held for two passes, each with status 1, while a clear happens; then they are published."""
    first, second, fit = jobs_on(site, "n1", "n[2-3]", "n4")
    limits = ("--max-new-exclusions", "1", "--hold-passes", "2")
    site.cluster.set_node("n4", "drain", "bad")
    done = site.publish(*limits)
    assert site.excluded() == {fit}
    assert done["new_exclusions"] == {"units": 1, "nodes": 1, "held": False}
    site.resume("n4")
    site.cluster.set_node("n1", "drain", "bad")
    site.cluster.set_node("n3", "fail", "bad")
    ended = site.call(*site.arguments(*limits))
    assert ended.returncode == 1
    assert "held: 2 new exclusions would take 3 nodes" in ended.stderr
    assert "held pass 1 of 2" in ended.stderr
    held = json.loads(ended.stdout)
    assert held["new_exclusions"] == {"units": 2, "nodes": 3, "held": True}
    assert [change["action"] for change in held["changes"]] == ["clear"]
    assert held["units"] == {"total": 3, "excluded": 0}
    assert site.excluded() == set()
    again = site.publish(*limits, code=1)
    assert (again["changes"], again["new_exclusions"]) == ([], held["new_exclusions"])
    assert site.artifacts() == {fit}  # empty, and no other one is there
    released = site.publish(*limits)
    assert released["new_exclusions"] == {"units": 2, "nodes": 3, "held": False}
    assert site.excluded() == {first, second}
    assert site.changes(*limits) == []


def test_a_person_releases_what_a_running_publisher_holds(site: Site, start: Start) -> None:
    """`publish --once --force` beside the loop publishes now; the loop agrees, and holds the next ones anew."""
    units = jobs_on(site, "n1", "n2", "n3", "n4")
    limits = ("--max-new-exclusions", "1", "--hold-passes", "1000")
    publisher = start("--all", *limits, "--interval", "3600")
    site.cluster.set_node("n[1-2]", "drain", "bad")  # at once: a pass may come at any time
    publisher.poked_until(lambda: "held: 2 new exclusions" in publisher.log.read_text())
    assert site.excluded() == set()
    forced = site.publish("--force", "--wait", *limits)
    assert forced["new_exclusions"] == {"units": 2, "nodes": 2, "held": False}
    assert site.excluded() == set(units[:2])
    site.cluster.set_node("n[3-4]", "drain", "bad")  # at once: a pass may come at any time
    publisher.poked_until(lambda: state(site)["held"] >= 1)
    assert site.excluded() == set(units[:2])
    site.end(units[3].partition(".")[0])
    publisher.poked_until(lambda: site.excluded() == set(units[:3]))


def state(site: Site) -> dict[str, Any]:
    """Read what the publisher of everything remembers."""
    found: dict[str, Any] = json.loads((site.directory / ".segment-health/state/all@sandbox.json").read_text())
    return found


# ── why ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_explain_says_what_the_publisher_did(site: Site, policy: Path, start: Start) -> None:
    """Of a living Slurm, beside a running loop: rule and line, who wrote it, and what the next pass would do."""
    (unit,) = jobs_on(site, "n[1-2]")
    job = unit.partition(".")[0]
    site.cluster.set_node("n2", "drain", "GPU 3: Xid 79")
    policy.write_text(XID + 'min_duration = "1h"\n')
    publisher = start("--all", "--policy", str(policy))
    before = site.files()
    arguments = ("--dir", str(site.directory), "--policy", str(policy))
    ended = site.call("explain", "n2", *arguments, "--format", "json")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    (told,) = document["units"]
    assert (told["unit"], told["level"], told["nodelist"]) == (job, "PreSeparateFault", "n[1-2]")
    assert (told["publisher"]["pid"], told["watched_by"]["alive"]) == (publisher.process.pid, True)
    assert told["next_pass"] == "nothing"
    (word,) = (word for word in document["node"]["words"] if word["word"] == "DRAIN")
    assert (word["level"], word["waiting"], word["waiting_place"]) == (
        "PreSeparateFault", "Xid of a GPU", f"{policy}:2",
    )  # fmt: skip
    assert word["lasted"] < 30
    site.resume("n2")
    ended = site.call("explain", job, *arguments)
    assert ended.returncode == 0
    assert ended.stdout.startswith(f"unit {job}: EXCLUDED at PreSeparateFault\n")
    assert "next pass   lifts the exclusion" in ended.stdout
    assert site.files() == before
    site.cluster.pause_controller()
    ended = site.call("explain", job, *arguments, "--timeout", "1")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "Slurm's state is unknown" in ended.stderr

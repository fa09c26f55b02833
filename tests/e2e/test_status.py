"""Status and history of a real cluster: a drain, a dead publisher, a word of root's."""

from __future__ import annotations

import getpass
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm


def status(site: Site, code: int) -> dict[str, Any]:
    """Ask for JSON, with this exit status."""
    done = site.call("status", "--dir", str(site.directory), "--format", "json")
    assert (done.returncode, done.stderr) == (code, ""), done
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def first_line(site: Site, code: int) -> str:
    """Ask as a monitor does, and get this exit status."""
    done = site.call("status", "--dir", str(site.directory))
    assert (done.returncode, done.stderr) == (code, ""), done
    return done.stdout.splitlines()[0]


def history(site: Site, *options: str) -> list[dict[str, Any]]:
    """Ask for JSON."""
    done = site.call("history", "--dir", str(site.directory), "--format", "json", *options)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_drain_is_seen_and_who_watches(site: Site, cluster: Sandbox, start: Callable[..., Running]) -> None:
    """Healthy, excluded by a drain's reason, and unknown once the publisher was killed, as nobody confirms it."""
    job = site.submit("--exclusive", "--nodelist=n2")
    publisher = start("--all", "--interval", "5")
    assert first_line(site, 0) == "OK: 1 publisher, 1 unit, 0 excluded"
    cluster.set_node("n2", "drain", "Xid 79")
    publisher.poked_until(lambda: site.excluded() == {f"{job}.{job}"})
    publisher.until(lambda: status(site, 0)["publishers"][0]["excluded"] == 1)  # the heartbeat comes last
    document = status(site, 0)
    assert [(beat["scope"], beat["alive"], beat["loop"]) for beat in document["publishers"]] == [
        ("all", True, True)
    ]
    (unit,) = document["units"]
    assert (unit["job_id"], unit["excluded"], unit["state"]) == (job, True, "fresh")
    assert (unit["level"], unit["nodes"], unit["reasons"]) == ("PreSeparateFault", "n2", ["Xid 79"])
    publisher.end(signal.SIGKILL)
    publisher.until(lambda: site.call("status", "--dir", str(site.directory)).returncode == 3)
    assert first_line(site, 3).startswith("UNKNOWN: no living publisher, the last pass was ")
    (unit,) = status(site, 3)["units"]
    assert (unit["excluded"], unit["state"]) == (True, "stale")


def test_somebody_elses_artifact_needs_a_person(site: Site) -> None:
    """A running unit that a person has excluded by hand is a warning while it lasts."""
    job = site.submit("--exclusive", "--nodelist=n2")
    site.path(f"{job}.{job}").write_text("by hand\n")
    site.publish()
    assert first_line(site, 1) == "WARNING: 1 foreign; 1 publisher, 1 unit, 1 excluded"
    site.path(f"{job}.{job}").unlink()
    assert first_line(site, 0).startswith("OK: ")


def test_the_history_of_a_drain_and_of_a_persons_word(site: Site, cluster: Sandbox) -> None:
    """Excluded for root's reason; cleared by a person, lifted by health, gone: of this unit, or of its node."""
    job = site.submit("--exclusive", "--nodelist=n2")
    other = site.submit("--exclusive", "--nodelist=n3")
    cluster.set_node("n2", "drain", "Xid 79")
    cluster.set_node("n3", "drain", "fan")
    site.publish()
    arguments = ("clear", f"{other}", "--dir", str(site.directory), "--reason", "fan is fine")
    assert site.call(*arguments).returncode == 0
    site.resume("n2")
    site.publish()
    site.end(job)
    site.publish()
    site.publish()
    told = history(site, job)
    assert [entry["action"] for entry in told] == ["exclude", "clear", "retire"]
    exclude, clear, _ = told
    assert (exclude["why"], exclude["who"], exclude["nodes"]) == ("Xid 79", "all@sandbox", "n2")
    assert [fault["rule"] for fault in exclude["faults"]] == ["state:DRAIN"]
    assert exclude["faults"][0]["reason_user"] == getpass.getuser()
    assert (clear["why"], clear["generation"]) == ("every node is fit", exclude["generation"])
    assert history(site, "n2") == told[:2]
    manual = history(site, other)[1]
    assert (manual["action"], manual["why"]) == ("manual", "fan is fine")
    assert manual["who"].startswith(f"{getpass.getuser()}@")
    assert len(history(site, "--since", "1h")) == 5
    assert [entry["action"] for entry in history(site, "--limit", "1")] == ["retire"]
    (unit,) = [unit for unit in status(site, 0)["units"] if unit["state"] == "override"]
    assert (unit["job_id"], unit["override"]["reason"]) == (other, "fan is fine")

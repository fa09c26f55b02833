"""Blame of a node on a real Slurm: what an analysis leaves excludes, in a running publisher, and its end lifts."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from segment_health.attribution.analysers.finding import Action, Finding, Line
from segment_health.attribution.service.blame import BlameDirectory, Failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm


def failed(node: str) -> Finding:
    """A GPU of a node is gone, as the rules find it."""
    line = Line(7, f"{node}: NVRM: Xid (PCI:0000:8d:00): 79, GPU has fallen off the bus.")
    return Finding("xid-hardware", Action.RESTART, "a GPU failed", "rules", evidence=(line,), nodes=(node,))


@pytest.fixture
def blames(site: Site) -> Path:
    """A directory as a service prepares it."""
    path = site.work / "blame"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    BlameDirectory(str(path)).prepare(int(time.time()))
    return path


def test_a_blame_excludes_a_unit_and_its_end_lifts_that(
    site: Site, start: Callable[..., Running], blames: Path
) -> None:
    """For the job whose log it was, and no other; `explain` says whose word it is, and time alone ends it."""
    first, _ = site.start(("--exclusive", "--nodelist=n[1-2]"), ("--exclusive", "--nodelist=n3"))
    asked = ("--attribution-blame", str(blames), "--blame-max-age", "60")
    publisher = start("--all", *asked)
    assert site.excluded() == set()
    directory, now = BlameDirectory(str(blames)), int(time.time())
    directory.record(failed("n2"), Failed("/logs/a_cycle3.log", first, 3, os.geteuid()), now - 45)
    directory.record(failed("n3"), Failed("/logs/a_cycle3.log", first, 3, os.geteuid()), now - 45)
    publisher.poked_until(lambda: site.excluded() == {f"{first}.{first}"})
    (node,) = site.artifact(f"{first}.{first}")["nodes"]
    assert (node["name"], node["level"], node["rule"]) == ("n2", "PreSeparateFault", "attribution:xid-hardware")
    told = site.call("explain", "n2", "--dir", str(site.directory), *asked).stdout
    assert "attribution:xid-hardware" in told, told
    shown = site.call("status", "--dir", str(site.directory)).stdout
    assert "attribution:xid-hardware" in shown, shown
    publisher.poked_until(lambda: site.excluded() == set())
    assert time.time() - now >= 15
    assert publisher.end() == 0
    assert "Traceback" not in publisher.log.read_text()


def test_two_jobs_decide_for_a_third(site: Site, blames: Path) -> None:
    """Of jobs that are gone one alone says nothing against whoever has the node now."""
    job = site.submit("--exclusive", "--nodelist=n4")
    directory, now = BlameDirectory(str(blames)), int(time.time())
    asked = ("--attribution-blame", str(blames))
    directory.record(failed("n4"), Failed("/logs/a_cycle0.log", "900001", 0), now)
    assert site.changes(*asked) == []
    directory.record(failed("n4"), Failed("/logs/b_cycle0.log", "900002", 0), now)
    assert site.changes(*asked) == [f"exclude {job}.{job}"]
    for file in blames.glob("*.blame"):
        file.unlink()
    assert site.changes(*asked) == [f"clear {job}.{job}"]


LOG = """[rank2] step: 1190 loss: 2.31
n2: NVRM: Xid (PCI:0000:8d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[rank2] CUDA error: unspecified launch failure
srun: error: n2: task 1: Exited with exit code 1
"""


def test_from_a_log_to_an_exclusion(site: Site, blames: Path, short_path: Path) -> None:
    """As a site runs the commands: a log is submitted, the service judges it, a pass excludes the unit."""
    job = site.submit("--exclusive", "--nodelist=n[1-2]")
    logs = site.work / "logs"
    logs.mkdir()
    log, socket = logs / "train_cycle1.log", short_path / "s"
    log.write_text(LOG)
    command = [site.command, "attribution", "serve", "--listen", f"unix:{socket}", "--allowed-root", str(logs)]
    command += ["--state", str(site.work / "state.db"), "--blame-dir", str(blames)]
    command += ["--drain-min", "0", "--drain-quiet", "0"]
    said = site.work / "service.log"
    with said.open("wb") as stderr, subprocess.Popen(command, env=site.cluster.env, stderr=stderr) as service:
        try:
            with httpx.Client(
                transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://localhost"
            ) as client:
                site.cluster.wait_until(socket.exists, what="a service that listens")
                body = {"log_path": str(log), "analysis_intent": "terminal", "job_id": job, "cycle_id": 1}
                assert client.post("/logs", json=body, timeout=30).is_success
                found = client.get("/logs", params={"log_path": str(log), "wait": "true"}, timeout=60).json()
                assert (found["recommendation"]["action"], found["result"]["nodes"]) == ("RESTART", ["n2"])
                site.cluster.wait_until(lambda: list(blames.glob("n2@*.blame")), what="a blame")
        finally:
            service.terminate()
        assert service.wait(30) == 0
    assert f"blamed for xid-hardware by job {job}: n2" in said.read_text()
    assert site.changes("--attribution-blame", str(blames)) == [f"exclude {job}.{job}"]

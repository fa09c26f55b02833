"""Metrics of a real publisher on a real Slurm: figures that follow what happens, judged by promtool."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm


class Collected:
    """What a collector reads in the file of a publisher, which it may do at any moment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, name: str, **labels: str) -> float:
        """Return one value; -1 while there is none."""
        if not self.path.exists():
            return -1
        wanted = {"scope": "all", **labels}
        found = [
            sample.value
            for family in text_string_to_metric_families(self.path.read_text())
            for sample in family.samples
            if sample.name == f"segment_health_{name}" and sample.labels == wanted
        ]
        return found[0] if found else -1

    def checked(self) -> None:
        """Let promtool judge all of it."""
        told = subprocess.run(
            ["promtool", "check", "metrics"], input=self.path.read_bytes(), capture_output=True, check=False
        )
        assert (told.returncode, told.stdout, told.stderr) == (0, b"", b"")


@pytest.fixture
def collected(site: Site) -> Collected:
    """Where the publisher of a test writes."""
    folder = site.work / "textfile"
    folder.mkdir()
    return Collected(folder / "segment-health.prom")


def test_figures_follow_what_happens(site: Site, start: Callable[..., Running], collected: Collected) -> None:
    """A drain, its end, a slurmctld that is silent and one that is back: each shows; counters only grow."""
    publisher = start("--all", "--metrics-file", str(collected.path), "--timeout", "2")
    publisher.until(lambda: collected("passes_total", result="complete") >= 1)
    collected.checked()
    assert collected("nodes", level="NotHandleFault") == 8
    assert collected("slurm_queries_total", door="text") >= 3
    assert collected("slurm_bytes_total", door="text") > 1000

    job = site.submit("--nodes=2", "--exclusive")
    name = min(site.nodes_of()[f"{job}.{job}"])
    site.cluster.set_node(name, "drain", "bad")
    publisher.poked_until(lambda: collected("excluded_units", level="PreSeparateFault") == 1)
    collected.checked()
    assert collected("units") == 1
    assert collected("nodes", level="PreSeparateFault") == 1
    assert collected("changes_total", action="exclude") == 1
    assert collected("reason_to_artifact_seconds_count") == 1
    assert collected("reason_to_artifact_seconds_bucket", le="60.0") == 1

    complete = collected("last_complete_pass_timestamp_seconds")
    site.cluster.pause_controller()
    publisher.poked_until(lambda: collected("passes_total", result="slurm") >= 1)
    collected.checked()
    assert collected("last_pass_success") == 0
    assert collected("last_complete_pass_timestamp_seconds") >= complete
    assert collected("excluded_units", level="PreSeparateFault") == 1

    site.cluster.continue_controller()
    site.resume(name)
    publisher.poked_until(lambda: collected("changes_total", action="clear") == 1)
    collected.checked()
    assert collected("last_pass_success") == 1
    assert collected("excluded_units", level="PreSeparateFault") == 0
    assert collected("passes_total", result="slurm") >= 1

    assert publisher.end() == 0
    assert not collected.path.exists()


def test_a_publisher_that_was_killed_goes_on_counting(
    site: Site, start: Callable[..., Running], collected: Collected
) -> None:
    """What it leaves is whole, and its successor goes on from there; so does a single pass."""
    publisher = start("--all", "--metrics-file", str(collected.path))
    publisher.until(lambda: collected("passes_total", result="complete") >= 1)
    assert publisher.end(signal.SIGKILL) == -signal.SIGKILL
    before = collected("passes_total", result="complete")
    queries = collected("slurm_queries_total", door="text")
    collected.checked()
    site.publish("--metrics-file", str(collected.path))
    assert collected("passes_total", result="complete") == before + 1
    assert collected("slurm_queries_total", door="text") > queries
    again = start("--all", "--metrics-file", str(collected.path))
    again.until(lambda: collected("passes_total", result="complete") == before + 2)


def test_a_directory_that_is_gone_ends_no_publisher(
    site: Site, start: Callable[..., Running], collected: Collected
) -> None:
    """It is said once, passes go on, and metrics are back when the directory is."""
    publisher = start("--all", "--metrics-file", str(collected.path))
    publisher.until(collected.path.exists)
    collected.path.unlink()
    collected.path.parent.rmdir()
    publisher.poke()
    publisher.until(lambda: publisher.said("metrics"))
    job = site.submit("--nodes=1")
    site.cluster.set_node(min(site.nodes_of()[f"{job}.{job}"]), "drain", "bad")
    publisher.poked_until(lambda: site.excluded() == {f"{job}.{job}"})
    assert publisher.said("metrics") == 1
    collected.path.parent.mkdir()
    publisher.poked_until(lambda: collected("excluded_units", level="PreSeparateFault") == 1)


def test_metrics_over_http(start: Callable[..., Running], collected: Collected) -> None:
    """A loop that serves a page hands out the same text there, as the type that Prometheus asks for."""
    port = free_ports(1)
    publisher = start("--all", "--listen", str(port), "--metrics-file", str(collected.path))

    def served() -> bool:
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
        except httpx.TransportError:
            return False
        if answer.status_code != httpx.codes.OK:
            return False
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return answer.content == collected.path.read_bytes()

    publisher.until(served)
    collected.checked()


def test_a_standby_says_so(start: Callable[..., Running], collected: Collected) -> None:
    """It waits, and its figures do not speak of passes; when the other ends it is at work."""
    first = start("--all")
    second = start("--all", "--standby", "--metrics-file", str(collected.path), wait="standby")
    second.until(lambda: collected("standby") == 1)
    assert collected("last_pass_success") == -1
    collected.checked()
    assert first.end() == 0
    second.until(lambda: collected("standby") == 0)
    assert collected("passes_total", result="complete") >= 1

from __future__ import annotations

import pytest

from segment_health.contract import Publisher
from segment_health.doctor.publisher import (
    asking_elsewhere,
    check_alive,
    check_overlap,
    check_policy,
    living,
    serves_many,
)
from segment_health.memory import Heartbeat

NOW = 1_800_000_000


def beat(
    scope: str, age: int = 100, *, cluster: str = "alpha", error: str | None = None, loop: bool = True
) -> Heartbeat:
    """The heartbeat of a publisher that makes a pass every 300 s."""
    publisher = Publisher("login1", 1, "0.1.0", cluster, scope)
    return Heartbeat(publisher, "contract", NOW - age, 300, loop=loop, policy_error=error)


def single(scope: str, age: int = 100) -> Heartbeat:
    """The heartbeat that no loop makes."""
    return beat(scope, age, loop=False)


@pytest.mark.parametrize(
    ("beats", "severity", "told"),
    [
        pytest.param([], "warning", "no publisher has made", id="never"),
        pytest.param([beat("all")], "ok", "all of alpha on login1: alive", id="alive"),
        pytest.param([beat("all", 700)], "error", "dead, last complete pass 12 min ago", id="dead"),
        pytest.param([beat("all", -700)], "error", "12 min in the future", id="a clock set back"),
        pytest.param([beat("user:eng", 700), beat("job:9")], "error", "user:eng", id="another one lives"),
        pytest.param([beat("user:eng", 700), beat("all")], "ok", "all of alpha", id="one of everything lives"),
        pytest.param([beat("all", 700), beat("all", cluster="beta")], "error", "alpha", id="another cluster's"),
        pytest.param([beat("job:9", 9000)], "warning", "job:9", id="a sidecar's job has ended"),
        pytest.param([beat("job:7,9", 9000)], "error", "job:7,9", id="our own sidecar"),
        pytest.param([beat("job:9", 9000), beat("job:8")], "ok", "job:8", id="an ended job beside a running one"),
        pytest.param(
            [single("all", 180)], "warning", "last complete pass 3 min ago by a single pass", id="single"
        ),
        pytest.param([single("all"), beat("job:7")], "warning", "nobody makes the next one", id="beside our own"),
        pytest.param([single("job:7"), beat("all")], "ok", "all of alpha", id="a single pass, covered"),
        pytest.param([single("job:7"), beat("all", cluster="beta")], "warning", "job:7", id="covered elsewhere"),
        pytest.param([single("job:7"), single("all")], "warning", "all of alpha", id="covered by a single pass"),
        pytest.param([single("job:9")], "warning", "by a publisher that has ended", id="a job has just ended"),
        pytest.param([single("job:9"), beat("job:8")], "ok", "job:8", id="a job has just ended beside another"),
        pytest.param([single("all", 700)], "error", "dead", id="cron has stopped"),
    ],
)
def test_alive(beats: list[Heartbeat], severity: str, told: str) -> None:
    """A publisher that died is an error; before the first one, and after a sidecar's job, it is a warning."""
    check = check_alive(beats, NOW, "7")
    assert (check.severity, told in check.detail) == (severity, True), check


@pytest.mark.parametrize(
    ("beats", "severity"),
    [
        ([beat("all")], "ok"),
        ([beat("all"), beat("job:1", error="policy.toml:3: no such key")], "error"),
        ([], "skipped"),
    ],
)
def test_policy(beats: list[Heartbeat], severity: str) -> None:
    """A publisher that cannot use its newest policy needs a person: it would not start again."""
    assert check_policy(living(beats, NOW)).severity == severity


@pytest.mark.parametrize(
    ("beats", "host", "told"),
    [
        ([beat("all")], "login2", "all on login1"),
        ([beat("all")], "login1", None),  # the host whose Slurm is silent
        ([single("all")], "login2", None),
        ([single("all"), beat("job:1")], "login2", "job:1 on login1"),
        ([beat("all", 700)], "login2", None),
        ([], "login2", None),
    ],
)
def test_who_asks_elsewhere(beats: list[Heartbeat], host: str, told: str | None) -> None:
    """Only a loop on another host goes on asking Slurm in our place."""
    assert asking_elsewhere(living(beats, NOW), host) == told


@pytest.mark.parametrize(
    ("scopes", "many"),
    [
        ([], False),
        (["user:eng", "job:1"], False),
        (["job:1", "partition:main"], True),
        (["all"], True),
    ],
)
def test_who_serves_many(scopes: list[str], *, many: bool) -> None:
    """A publisher of everything or of a partition speaks for other people's jobs, even when it is dead."""
    assert serves_many([beat(scope, 9000) for scope in scopes]) == many


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("all", "job:1", True),
        ("user:eng", "partition:main", True),
        ("job:1,2", "job:2,3", True),
        ("job:1", "job:2", False),
        ("user:eng", "user:ops", False),
        ("user:eng", "job:1", False),  # its owner does not stand in it
    ],
)
def test_overlap(one: str, other: str, overlap: bool) -> None:
    """Two scopes with units in common are told, and are no fault."""
    check = check_overlap([beat(one), beat(other)])
    assert check.severity == "ok"
    assert ("overlap" in check.detail) == overlap


def test_scopes_of_two_clusters_do_not_overlap() -> None:
    """The same job id on two clusters is two jobs."""
    assert "twice" in check_overlap([beat("all"), beat("all", cluster="beta")]).detail

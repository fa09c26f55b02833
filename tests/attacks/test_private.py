"""What Slurm does not show us is not gone: PrivateData and hidden partitions, on a service that is not root.

Not tried here: a service that gains and loses the administrative level of an operator, which slurmdbd alone can
give. It is taken for an ordinary user, which delays a retirement and makes none that is false.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm.sandbox.cluster import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]

SLEEP = "#!/bin/sh\nexec sleep 3600\n"


@pytest.fixture(scope="module")
def private(people: dict[str, Person]) -> Iterator[Sandbox]:
    """A cluster of the module's own, with a partition that is hidden and for root's group alone."""
    assert "victim" in people
    hidden = "PartitionName=hidden Nodes=n3 Hidden=YES AllowGroups=root MaxTime=INFINITE State=UP"
    with Sandbox(nodes=3, return_to_service=0, extra_conf=[hidden]) as sandbox:
        yield sandbox


@pytest.fixture
def tell(private: Sandbox) -> Iterator[Callable[[str], None]]:
    """Set PrivateData of the running cluster; nothing is private in the end."""
    before = private.conf.read_text()

    def told(private_data: str) -> None:
        private.conf.write_text(f"{before}PrivateData={private_data}\n")
        private.run("scontrol", "reconfigure")
        private.wait_until(
            lambda: f"PrivateData             = {private_data}" in _config(private), what=private_data
        )

    yield told
    told("none")
    private.conf.write_text(before)


def _config(cluster: Sandbox) -> str:
    return cluster.run("scontrol", "show", "config").stdout


@pytest.fixture
def unit(private: Sandbox, victim: Person) -> Iterator[str]:
    """A unit of the victim's on a node that is drained."""
    job = private.submit(
        SLEEP, f"--uid={victim.uid}", f"--gid={victim.gid}", "--chdir=/", "--output=/dev/null", "--nodelist=n1"
    )
    private.wait_running(job)
    private.set_node("n1", "drain", "bad fan")
    yield f"{job}.{job}"
    private.run("scancel", job)
    private.wait_until(lambda: "RUNNING" not in private.job_states(job), what=f"end of {job}")
    _resume(private)


def _resume(private: Sandbox) -> None:
    if "DRAIN" in private.node_state("n1"):
        private.set_node("n1", "resume")
    private.wait_until(lambda: "DRAIN" not in private.node_state("n1"), what="n1 in service")


@pytest.fixture
def seeing(private: Sandbox, place: Path, account: Person, service_in: Callable[..., Service]) -> Service:
    """A service of its own user on that cluster."""
    directory = place / "decisions"
    directory.mkdir(mode=0o755)
    service = service_in(directory, account)
    service.cluster = private
    directory.chmod(0o755)
    os.chown(directory, service.uid, service.gid)
    return service


def test_single_passes_that_see_less(
    seeing: Service, private: Sandbox, unit: str, tell: Callable[[str], None]
) -> None:
    """Whoever saw a unit, and then may not, neither retires it nor lifts it; who sees it again goes on."""
    assert seeing.publish().changes() == [f"exclude {unit}"]
    tell("jobs")
    for _ in range(4):
        done = seeing.publish()
        assert done.changes() == []
        assert "PrivateData" in done.err
    _resume(private)
    for _ in range(3):
        assert seeing.publish().changes() == []
    assert seeing.is_excluded(unit)
    tell("none")
    assert seeing.publish().changes() == [f"clear {unit}"]


def test_a_loop_that_sees_less(seeing: Service, private: Sandbox, unit: str, tell: Callable[[str], None]) -> None:
    """A loop that asked long ago notices; a unit that ended out of sight is retired when others are in sight."""
    job = unit.partition(".")[0]
    private.wait_running(private.submit(SLEEP, "--chdir=/", "--output=/dev/null", "--nodelist=n2"))
    loop = seeing.loop()
    loop.until(lambda: seeing.is_excluded(unit))
    beat = seeing.ledger / "heartbeat" / "all@sandbox.json"

    def passes(count: int) -> None:
        for _ in range(count):
            before = beat.stat().st_ino
            loop.poke()
            loop.until(lambda before=before: beat.stat().st_ino != before)  # type: ignore[misc]

    tell("jobs")
    passes(4)
    private.run("scancel", job)
    private.wait_until(lambda: "RUNNING" not in private.job_states(job), what="its end")
    passes(3)
    assert seeing.is_excluded(unit)
    tell("none")
    passes(3)
    assert not seeing.path(unit).exists()
    assert loop.end() == 0


def test_nodes_that_are_private(seeing: Service, unit: str, tell: Callable[[str], None]) -> None:
    """Without any node the state is unknown: nothing is lifted, and that is the status."""
    seeing.publish()
    tell("nodes")
    for _ in range(3):
        seeing.publish(code=3)
    assert seeing.is_excluded(unit)


def test_a_partition_that_is_hidden(seeing: Service, private: Sandbox) -> None:
    """Jobs in a hidden partition, and its nodes, are asked for and seen, by who may not use it as well."""
    job = private.submit(SLEEP, "--partition=hidden", "--chdir=/", "--output=/dev/null")
    private.wait_running(job)
    private.set_node("n3", "drain", "bad fan")
    try:
        for _ in range(3):
            seeing.publish()
            assert seeing.is_excluded(f"{job}.{job}")
    finally:
        private.run("scancel", job)
        private.wait_until(lambda: "RUNNING" not in private.job_states(job), what=f"end of {job}")
        private.set_node("n3", "resume")

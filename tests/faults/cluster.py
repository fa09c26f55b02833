"""Faults of a cluster: it loses its state, its nodes come, go and fall silent, it hides its jobs."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm.sandbox.processes import free_ports

from .fault import EVERYONE, fault
from .promise import Health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_NOBODY_ID = 65534


@contextmanager
def configured(lab: Laboratory, *lines: str, restart: bool = True) -> Iterator[None]:
    """Give the cluster a slurm.conf with more lines inside; `K=v` replaces what it says of K."""
    before = lab.cluster.conf.read_text()
    _configure(lab, _changed(before, *lines), restart=restart)
    try:
        yield
    finally:
        _configure(lab, before, restart=restart)


def _changed(text: str, *lines: str) -> str:
    keys = [line.partition("=")[0] for line in lines if " " not in line]
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in keys]
    return "\n".join([*kept, *lines, ""])


def _configure(lab: Laboratory, text: str, *, restart: bool) -> None:
    lab.cluster.conf.write_text(text)
    if restart:
        lab.cluster.stop_controller()
        lab.cluster.start_controller()
    lab.cluster.run("scontrol", "reconfigure")
    until_known(lab)


def until_known(lab: Laboratory) -> None:
    """Wait until every slurmd has registered with a slurmctld that has just started."""
    for name in lab.cluster.nodes:
        lab.until(lambda name=name: not _is_unknown(lab, name), f"{name} registered")  # type: ignore[misc]


def _is_unknown(lab: Laboratory, name: str) -> bool:
    return any(word in lab.cluster.node_state(name) for word in ("UNKNOWN", "NOT_RESPONDING"))


def saved(lab: Laboratory) -> None:
    """Wait until slurmctld has written its state: what it wrote later than this is lost when it is killed."""
    state = lab.cluster.directory / "state"
    spare = lab.cluster.nodes[-1]
    for name in ("node_state", "job_state"):
        before = time.time_ns()
        lab.cluster.run("scontrol", "update", f"nodename={spare}", f"comment={before}")
        lab.cluster.run("scontrol", "update", f"jobid={lab.job('steady')}", f"comment={before}")
        lab.until(lambda name=name, at=before: (state / name).stat().st_mtime_ns > at, f"{name} saved")  # type: ignore[misc]


# ── it is another one ──────────────────────────────────────────────────────────────────────────────────────────


@fault(
    "slurmctld starts cold",
    attacks="units that are gone are retired, whatever is said of them",
    how="SIGKILL, and slurmctld -c: jobs and drains are lost; other jobs get other ids",
    slurm_answers=False,
)
@contextmanager
def cold(lab: Laboratory) -> Iterator[None]:
    """Start it without its state, and submit the same jobs anew: no old unit is there."""
    with contextlib.ExitStack() as stack:
        for role in ("steady", "recovering", "requeued", "worsening"):
            stack.enter_context(lab.truth.changing(role, Health.FIT))
        _forget(lab, "-c")
        lab.submit_again(same_ids=False)
    yield


@fault(
    "slurmctld has lost its state",
    attacks="a run that gets an old id inherits nothing; units that are gone are retired",
    how="SIGKILL, and a StateSaveLocation that is empty: jobs and drains are lost, other jobs get the old ids",
)
@contextmanager
def lost_state(lab: Laboratory) -> Iterator[None]:
    """Start it without its state, and submit other jobs: none of them has a bad node."""
    with contextlib.ExitStack() as stack:
        for role in ("steady", "recovering", "requeued"):
            stack.enter_context(lab.truth.changing(role, Health.FIT))
        first = int(lab.job("steady"))
        _forget(lab)
        for _ in range(1, first):  # an earlier fault may have made ids begin later
            lab.cluster.run("scancel", lab.cluster.submit("#!/bin/sh\n", "--hold"))
        lab.submit_again(same_ids=True)
    yield


def _forget(lab: Laboratory, *options: str) -> None:
    """Kill slurmctld and start one that knows no job and no drain, and slurmds without a process of those jobs."""
    lab.cluster.run("scancel", "--me")
    lab.until(lambda: not lab.cluster.run("squeue", "-h").stdout, "an empty queue")
    lab.cluster.stop_controller(kill=True)
    if not options:
        for path in (lab.cluster.directory / "state").iterdir():
            if path.is_file():
                path.unlink()
    lab.cluster.start_controller(*options)
    states = lab.cluster.node_state
    lab.until(lambda: all(states(name) == "IDLE" for name in lab.cluster.nodes), "idle nodes without drains")


@fault(
    "nodes are added and removed",
    attacks="a node that comes or goes is no unit's, and no unit's nodes are mistaken for others",
    how="slurm.conf with a node more, slurmctld restarted, `scontrol reconfigure`; and back",
    holds=EVERYONE,
    slurm_answers=True,
)
@contextmanager
def reconfigured(lab: Laboratory) -> Iterator[None]:
    """Add a node whose slurmd does not run, and take it away."""
    host = socket.gethostname().partition(".")[0]
    line = f"NodeName=m1 NodeAddr=127.0.0.1 NodeHostname={host} Port={free_ports(1)} CPUs=2 RealMemory=2000"
    with configured(lab, line):
        assert "m1" in lab.cluster.run("sinfo", "-h", "-N", "-o", "%N").stdout.split()
        yield
    assert "m1" not in lab.cluster.run("sinfo", "-h", "-N", "-o", "%N").stdout.split()


# ── what it says is another matter ─────────────────────────────────────────────────────────────────────────────


@fault(
    "a slurmd is killed",
    attacks="a node that does not respond is a fault, until it does",
    how="SIGKILL to a node's slurmd until Slurm shows NOT_RESPONDING; then it is started again",
)
@contextmanager
def silent_node(lab: Laboratory) -> Iterator[None]:
    """Let a node of a unit that is fit fall silent."""
    (name, *_) = lab.nodes("fit")
    before = lab.cluster.conf.read_text()
    _configure(lab, _changed(before, "SlurmdTimeout=45"), restart=False)
    with lab.truth.changing("fit", Health.BAD):
        lab.cluster.kill_slurmd(name)
        lab.until(lambda: "NOT_RESPONDING" in lab.cluster.node_state(name), f"{name} silent", seconds=100)
    try:
        yield
    finally:
        with lab.truth.changing("fit", Health.FIT):
            # Before its slurmd is there: one that has just been started does not always outlive this.
            lab.cluster.conf.write_text(before)
            lab.cluster.run("scontrol", "reconfigure")
            lab.cluster.start_slurmd(name)
            until_known(lab)


def _as_nobody(lab: Laboratory) -> None:
    """Let the publisher be somebody from whom PrivateData hides jobs: neither root nor SlurmUser."""
    lab.root.chmod(0o755)
    shutil.chown(lab.storage, _NOBODY_ID, _NOBODY_ID)
    uid = str(_NOBODY_ID)
    lab.prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


@fault(
    "PrivateData is switched on",
    attacks="what we may not see is not gone",
    how="PrivateData=jobs and `scontrol reconfigure`; the publisher is neither root nor SlurmUser",
    holds=EVERYONE,
    before=_as_nobody,
    seconds=2.0,
    says="PrivateData",
)
@contextmanager
def private(lab: Laboratory) -> Iterator[None]:
    """Hide every job from the publisher."""
    with configured(lab, "PrivateData=jobs", restart=False):
        yield

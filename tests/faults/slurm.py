"""Faults of slurmctld: it does not answer, answers late, has just started, or is another one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .cluster import configured, saved, until_known
from .fault import EVERYONE, fault
from .promise import Health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_SILENCE = "while Slurm cannot be asked every decision stays"
_SLOW = "an answer that is late, and comes in time, is an answer"
_NONE = "Slurm's state is unknown"


def _short_timeout(lab: Laboratory) -> None:
    lab.options += ["--timeout", "1"]


@contextmanager
def stuttering(lab: Laboratory, stopped: float, running: float) -> Iterator[None]:
    """Stop slurmctld and let it go on, in turn, each for so many seconds."""
    ended = threading.Event()

    def stutter() -> None:
        while not ended.is_set():
            lab.cluster.pause_controller()
            ended.wait(stopped)
            lab.cluster.continue_controller()
            ended.wait(running)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# ── it does not answer ─────────────────────────────────────────────────────────────────────────────────────────


@fault(
    "slurmctld hangs",
    attacks=_SILENCE,
    how="SIGSTOP to slurmctld: connections are accepted and not answered",
    holds=EVERYONE,
    before=_short_timeout,
    seconds=2.0,
    says=_NONE,
    slurm_answers=False,
)
@contextmanager
def hangs(lab: Laboratory) -> Iterator[None]:
    """Stop slurmctld in its tracks."""
    lab.cluster.pause_controller()
    try:
        yield
    finally:
        lab.cluster.continue_controller()


@fault(
    "slurmctld is killed",
    attacks=_SILENCE,
    how="SIGKILL to slurmctld, and a new one: no connection, then every node UNKNOWN until it registers",
    holds=EVERYONE,
    before=_short_timeout,
    seconds=2.0,
    says=_NONE,
    slurm_answers=False,
)
@contextmanager
def killed(lab: Laboratory) -> Iterator[None]:
    """Kill slurmctld, and start one that reads what the dead one saved."""
    saved(lab)
    lab.cluster.stop_controller(kill=True)
    try:
        yield
    finally:
        lab.cluster.start_controller()
        until_known(lab)


@fault(
    "slurmctld restarts",
    attacks="UNKNOWN, which every node is for seconds after a restart, is neither fit nor bad",
    how="slurmctld ended and started with its state; slurmds held back, so that nodes stay UNKNOWN",
    holds=EVERYONE,
    seconds=3.0,
    slurm_answers=False,
)
@contextmanager
def restarted(lab: Laboratory) -> Iterator[None]:
    """Restart slurmctld while no slurmd can register."""
    for name in lab.cluster.nodes:
        lab.cluster.kill_slurmd(name)
    try:
        lab.cluster.stop_controller()
        lab.cluster.start_controller()
        states = {lab.cluster.node_state(name).partition("+")[0] for name in lab.cluster.nodes}
        assert states == {"UNKNOWN"}, states
        yield
    finally:
        for name in lab.cluster.nodes:
            lab.cluster.start_slurmd(name)
        until_known(lab)


@fault(
    "slurmctld flaps",
    attacks=_SLOW,
    how="SIGSTOP and SIGCONT to slurmctld, a second each",
    seconds=4.0,
)
@contextmanager
def flapping(lab: Laboratory) -> Iterator[None]:
    """Stop and go."""
    with stuttering(lab, 1.0, 1.0):
        yield


@fault(
    "slurmctld flaps, and patience is short",
    attacks=_SILENCE,
    how="SIGSTOP and SIGCONT to slurmctld, a second each; --timeout 1: some passes are complete, some are not",
    holds=EVERYONE,
    before=_short_timeout,
    seconds=4.0,
    says=_NONE,
)
@contextmanager
def flapping_past_the_timeout(lab: Laboratory) -> Iterator[None]:
    """Stop and go, as long as a pass waits."""
    with stuttering(lab, 1.3, 0.7):
        yield


@fault(
    "slurmctld is slow",
    attacks=_SLOW,
    how="slurmctld runs 0.2 s of every 2.2: answers take seconds",
    seconds=5.0,
)
@contextmanager
def slow(lab: Laboratory) -> Iterator[None]:
    """Let it run a tenth of the time."""
    with stuttering(lab, 2.0, 0.2):
        yield


@fault(
    "slurmctld fails over",
    attacks="which controller answers is Slurm's matter: what it says is what counts",
    how="a second slurmctld with a host name and an address of its own (UTS namespace); SIGKILL to the first",
    holds=EVERYONE,
    slurm_answers=False,  # the steps of running jobs know of no backup, so none could be requeued
)
@contextmanager
def fails_over(lab: Laboratory) -> Iterator[None]:
    """Let a backup take over, drain a node there, see it published, and give the cluster back to the first."""
    host = socket.gethostname().partition(".")[0]
    address = socket.gethostbyname(host)
    # With the blank a line is added to those of its key.
    controllers = (f"SlurmctldHost={host}({address})", "SlurmctldHost=backup(127.0.0.2) ")
    with (
        configured(lab, *controllers, "CommunicationParameters=NoCtldInAddrAny", "SlurmctldTimeout=10"),
        _backup(lab, f"127.0.0.1 localhost\n{address} {host}\n127.0.0.2 backup\n"),
    ):
        saved(lab)
        lab.cluster.stop_controller(kill=True)
        try:
            lab.until(lambda: _answers(lab), "the backup in charge", seconds=60)
            until_known(lab)
            with lab.truth.changing("fit", Health.BAD):
                lab.cluster.set_node(lab.nodes("fit")[0], "drain", "told to the backup")
            yield
            path = lab.artifact("fit")
            lab.until(lambda: path.exists() and path.stat().st_size, "what the backup was told, published")
            lab.resume("fit")
        finally:
            saved(lab)
    until_known(lab)


@contextmanager
def _backup(lab: Laboratory, hosts: str) -> Iterator[None]:
    """Run a second slurmctld, on a host of another name; at the end the first one is started again."""
    conf = lab.work / "backup.conf"  # of its own only for the pid file: it would kill whoever stands in that
    conf.write_text(lab.cluster.conf.read_text().replace("slurmctld.pid", "backup.pid"))
    for extra in lab.cluster.directory.glob("cgroup.conf"):
        shutil.copy(extra, lab.work)
    (lab.work / "hosts").write_text(hosts)
    script = f"mount --bind {lab.work}/hosts /etc/hosts && hostname backup && exec slurmctld -D -f {conf}"
    with (lab.work / "backup.log").open("wb") as log:
        backup = subprocess.Popen(
            ["unshare", "--uts", "--mount", "sh", "-c", script], env=lab.cluster.env, stdout=log, stderr=log
        )
    try:
        lab.until(lambda: _ping(lab).count(" is UP") == 2, "two controllers that live")
        yield
    finally:
        backup.terminate()
        backup.wait(30)
        lab.cluster.start_controller()


def _ping(lab: Laboratory) -> str:
    return lab.cluster.run("scontrol", "ping", check=False).stdout


def _answers(lab: Laboratory) -> bool:
    return "NodeName" in lab.cluster.run("scontrol", "show", "nodes", check=False).stdout


def _own_conf(lab: Laboratory) -> None:
    """Give the publisher a slurm.conf of its own."""
    for conf in lab.cluster.directory.glob("*.conf"):
        shutil.copy(conf, lab.work)
    lab.environ["SLURM_CONF"] = str(lab.work / "slurm.conf")


@fault(
    "another key of munge",
    attacks=_SILENCE,
    how="the publisher's slurm.conf says AuthType=auth/munge, the cluster's does not: its credentials are refused",
    holds=EVERYONE,
    before=_own_conf,
    seconds=2.0,
    says=_NONE,
)
@contextmanager
def refused(lab: Laboratory) -> Iterator[None]:
    """Let the publisher's commands have credentials that slurmctld does not take."""
    path = lab.work / "slurm.conf"
    text = path.read_text()
    path.write_text(text.replace("AuthType=auth/none", "AuthType=auth/munge"))
    try:
        lab.until(lambda: lab.said(_NONE), "a refused publisher")
        yield
    finally:
        path.write_text(text)

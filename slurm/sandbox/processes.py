"""Finds what a sandbox started, and ports that nobody listens on."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from slurm.errors import SlurmUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection

_DAEMONS = frozenset({b"slurmctld", b"slurmscriptd", b"slurmd", b"slurmstepd"})
_PORTS = range(20_000, 32_000)  # below Linux's ephemeral ports, which any client may hold for a moment


def processes(conf: Path, sessions: Collection[int]) -> set[int]:
    """Return the living daemons and job processes of this cluster, with all that descends from them.

    SLURM_CONF alone proves nothing, as shells and test runners export it: it must be with a daemon, with
    SLURM_JOB_ID, or in a daemon's session (a trigger's program). A slurmstepd of 24.11 wipes its environment
    and is known by its log. Descendants count, as a job may clear its environment; they are not enough, as
    slurmstepd, and what outlives its parent, belong to init.
    """
    our_conf = b"SLURM_CONF=" + os.fsencode(conf)
    children: dict[int, list[int]] = {}
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (folder / "stat").read_bytes().rpartition(b") ")
            environ = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            continue
        state, parent, _, session = tail.split()[:4]
        if state == b"Z":  # pid 1 of a container may never reap it
            continue
        pid, name = int(folder.name), head.partition(b"(")[2]
        children.setdefault(int(parent), []).append(pid)
        daemon = name in _DAEMONS or int(session) in sessions
        of_slurm = daemon or any(item.startswith(b"SLURM_JOB_ID=") for item in environ)
        if (our_conf in environ and of_slurm) or (name == b"slurmstepd" and _opened(folder, conf.parent)):
            found.append(pid)
    ours: set[int] = set()
    while found:
        pid = found.pop()
        if pid not in ours:
            ours.add(pid)
            found += children.get(pid, ())
    return ours - {os.getpid()}


def _opened(process: Path, directory: Path) -> bool:
    for link in process.glob("fd/*"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if directory in link.readlink().parents:
                return True
    return False


def is_listening(port: int) -> bool:
    """Tell whether a TCP port of this host is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Slurm does: TIME_WAIT is no obstacle
        try:
            probe.bind(("", port))
        except OSError:
            return True
        return False


def free_ports(count: int) -> int:
    """Return the first of `count` TCP ports in a row that are free now; raises SlurmUnavailable."""
    for _ in range(200):
        first = _PORTS.start + secrets.randbelow(len(_PORTS) - count)
        if not any(is_listening(port) for port in range(first, first + count)):
            return first
    raise SlurmUnavailable(f"no {count} free ports in a row from {_PORTS.start} to {_PORTS.stop}")

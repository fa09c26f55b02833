"""How processes end: this one as another did, and one with all that descends from it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import NoReturn


def end_as(status: int) -> NoReturn:
    """End this process as the launcher ended: with its status, or by the signal that it died of."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the launcher's core is the one that is wanted
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to set
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    raise SystemExit(status if status >= 0 else 128 - status)


def kill_tree(pid: int) -> None:
    """Kill a process, and what descends from it now: a launcher's workers are sessions of their own."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            parents.setdefault(int(file.read().rpartition(b") ")[2].split()[1]), []).append(int(name))
    doomed = [pid]
    for one in doomed:
        doomed.extend(parents.get(one, ()))
    for one in doomed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)

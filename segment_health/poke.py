"""Asks living publishers of a directory for a pass now, and hears such asking.

On this host a publisher listens on a local socket, in the directory of its locks; on others it watches one file,
`<dir>/.segment-health/poke`, which whoever may write to the directory's ledger may renew. Neither carries more
than "now": what a pass does, and how often it can be asked for, is the publisher's own affair (see Signals). No
process id that stands on shared storage is ever signalled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from .atomic import host_name, open_directory, replace_file
from .bounded import become_child
from .ledger import FOLDER
from .lock import LockError, lock_directory
from .record import one_line, utc
from .store import open_decisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .memory import Heartbeat

LOOK_SECONDS = 1.0
"""How often the file is looked at: what is asked for elsewhere is to be seen within two seconds."""
RESTART_SECONDS = 60.0
"""How soon a watching process that has died is followed by another one."""
_FILE = "poke"
_SUFFIX = ".poke"

_Seen = tuple[int, int, int]


class Asked(NamedTuple):
    """Who was asked: publishers with a socket on this host, and heartbeats of loops that live, by the file."""

    sockets: int
    by_file: tuple[Heartbeat, ...]


# ── asking ─────────────────────────────────────────────────────────────────────────────────────────────────────


def ring_sockets(directory: str, environ: Mapping[str, str]) -> int:
    """Ask every publisher of this directory (its real path) that listens on this host as our user; count them.

    Sockets of publishers that have died are removed.
    """
    try:
        with open_directory(lock_directory(environ), links=False) as home:
            names = [name for name in os.listdir(home) if name.startswith(_digest(directory))]
            return sum(_ring(home, name) for name in names if name.endswith(_SUFFIX))
    except (LockError, OSError):
        return 0


def _ring(home: int, name: str) -> bool:
    """Ask by one socket; whether somebody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        try:
            sender.sendto(b"!", _reached(home, name))
        except BlockingIOError:  # asked so often already that its queue is full
            return True
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=home)
            return False
        except OSError:
            return False
        return True


def _reached(home: int, name: str) -> str:
    """Return a path of an open directory that is short enough for a socket (108 bytes), however deep that is."""
    return f"/proc/self/fd/{home}/{name}"


def ask(path: str, sockets: int, now: float) -> Asked:
    """Renew the file, where a loop lives that none of so many `sockets` of this host belongs to.

    Raises OSError, PermissionError where the ledger is not ours to write to.
    """
    with open_decisions(path) as directory:
        loops = [beat for beat in directory.ledger("", "").heartbeats() if beat.loop and beat.is_alive(now)]
        here = [beat for beat in loops if beat.publisher.host == host_name()]
        elsewhere = tuple(beat for beat in loops if beat not in here)
        by_file = elsewhere if len(here) <= sockets else tuple(loops)
        if by_file:
            with open_directory(path) as top, open_directory(FOLDER, inside=top) as folder:
                told = one_line({"time": utc(int(now)), "host": host_name(), "pid": os.getpid()})
                replace_file(folder, _FILE, told, mode=0o644, durable=False)
    return Asked(sockets, by_file)


# ── hearing ────────────────────────────────────────────────────────────────────────────────────────────────────


class LocalSocket:
    """Hears what is asked on this host. Raises LockError or OSError where there is no place for a socket."""

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        home, name = lock_directory(environ), f"{_digest(directory)}.{os.getpid()}{_SUFFIX}"
        self._path = f"{home}/{name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)  # of an earlier process with our number
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            with open_directory(home, links=False) as opened:
                self._socket.bind(_reached(opened, name))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def heard(self) -> bool:
        """Tell whether a pass is asked for, and forget it."""
        return _drain(self._socket)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class PokeFile:
    """Hears what is asked on other hosts: a child watches the file, since shared storage may hang."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._child = 0
        self._told: socket.socket | None = None
        self._next_start = 0.0
        self._is_first = True

    def fileno(self) -> int:
        """Return the descriptor to wait on, -1 while nobody watches; begins to watch if need be."""
        if self._told is None and time.monotonic() >= self._next_start:
            self._start()
        return -1 if self._told is None else self._told.fileno()

    def heard(self) -> bool:
        """Tell whether a pass is asked for, and forget it."""
        if self._told is None:
            return False
        asked = _drain(self._told)
        with contextlib.suppress(BlockingIOError):
            if not self._told.recv(1, socket.MSG_PEEK):  # the child has died
                self.close()
        return asked

    def close(self) -> None:
        """Stop watching; a child that waits for storage ends as soon as that answers."""
        if self._told is None:
            return
        self._told.close()  # which is what the child ends by
        self._told = None
        deadline = time.monotonic() + LOOK_SECONDS
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._child, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.005)

    def _start(self) -> None:
        self._next_start = time.monotonic() + RESTART_SECONDS
        ours, theirs = socket.socketpair()
        try:
            child = os.fork()
        except OSError:  # no process to be had: later, perhaps
            ours.close()
            theirs.close()
            return
        if child == 0:
            path = f"{self._directory}/{FOLDER}/{_FILE}"
            become_child(theirs.fileno(), lambda: _watch(path, theirs, is_first=self._is_first))
        theirs.close()
        ours.setblocking(False)
        self._child, self._told, self._is_first = child, ours, False


def _watch(path: str, told: socket.socket, *, is_first: bool) -> None:
    """Tell of each change of a file, until nobody listens any more.

    What lies there is old for the first who watches; for a later one it may have come while nobody did.
    """
    last = _look(path) if is_first else None
    while not select.select([told], [], [], LOOK_SECONDS)[0]:  # it is readable when the other end is gone
        now = _look(path)
        if now is not None and now != last:
            last = now
            told.send(b"!")


def _look(path: str) -> _Seen | None:
    """Identify the file that lies there; None when there is none, or nobody can tell."""
    # Opened, and not only looked at: an NFS client then asks its server.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _drain(heard: socket.socket) -> bool:
    asked = False
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while heard.recv(4096):
            asked = True
    return asked


def _digest(directory: str) -> str:
    """Name a directory, by its real path, in a fixed number of characters; no text from outside becomes a path."""
    return hashlib.sha256(directory.encode("utf-8", "surrogateescape")).hexdigest()[:32]

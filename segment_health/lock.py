"""One publisher per host, directory, cluster and scope: one loop for its life, and one pass at a time.

The lock is on local disk: flock(2) on shared storage may not exclude, hang, or quietly be another lock.
Publishers on two hosts are therefore not kept apart; they converge, since every write is whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PASS, LOOP, WRITE = "pass", "loop", "write"
"""A loop holds LOOP for its life and PASS for each pass, so that a single pass can come in between.

WRITE is held by the process that touches the decision directory: should that hang in the kernel, longer than
whoever started it lives, nobody else begins to write before it is gone.
"""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
"""Seconds between two tries for a lock that somebody else holds."""
_REOPENED = 10
"""How often a lock's file that is no longer the one at its path is opened anew."""


class AlreadyRunning(Exception):  # noqa: N818 - not an error: overlapping cron runs are normal
    """Another publisher on this host holds the same lock; the message names it as far as it is known."""


class LockError(Exception):
    """There is no directory on this host in which a lock would be safe."""


@contextlib.contextmanager
def hold(  # noqa: PLR0913 - what is locked has three parts
    what: str, directory: str, cluster: str, scope: str, environ: Mapping[str, str], *, wait: float = 0.0
) -> Iterator[None]:
    """Hold a lock of a publisher, PASS or LOOP; released however this process ends.

    `directory` is the real path: one directory has one lock, however it is written. `cluster` is whatever tells
    this process's cluster from another one of the same host: its name, or the path of its slurm.conf, which is
    known before the first answer. Raises AlreadyRunning after `wait` seconds, or LockError at once.
    """
    path = path_of(what, directory, cluster, scope, environ)
    try:
        descriptor = _taken(path, wait)
    except OSError as error:
        raise LockError(f"{path}: {error.strerror or error}") from error
    if descriptor is None:
        raise AlreadyRunning(_holder(path))
    try:
        _name_holder(path)
        yield
    finally:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was just forked may share the descriptor
        finally:
            os.close(descriptor)


def _taken(path: str, wait: float) -> int | None:
    """Return the descriptor that holds a lock; None if somebody else still has it after `wait` seconds."""
    deadline, pause = time.monotonic() + wait, _FIRST_PAUSE
    while (descriptor := _try(path)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)
    return descriptor


def _try(path: str) -> int | None:
    """Take a lock if nobody has it. Its file stays for ever: who removes one lets two publishers hold two of them.

    Raises OSError, where there is no flock(2) too: nothing else takes its place.
    """
    for _ in range(_REOPENED):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        held = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = _is_at(path, descriptor)
        except BlockingIOError:
            return None
        finally:
            if not held:
                os.close(descriptor)
        if held:
            return descriptor
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def _is_at(path: str, descriptor: int) -> bool:
    """Whether an open file is the one at its path: of another one, the next publisher would not know."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def path_of(what: str, directory: str, cluster: str, scope: str, environ: Mapping[str, str]) -> str:
    """Return where a lock is on this host; beside it lies who holds it, in `.pid`. Raises LockError."""
    import hashlib  # noqa: PLC0415 - 5 ms, which a dry run does not pay

    # A digest: no text from outside becomes a path.
    identity = f"{directory}\0{cluster}\0{scope}"
    name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{lock_directory(environ)}/{name}.{what}"


def lock_directory(environ: Mapping[str, str]) -> str:
    """Return the private directory for locks on this host, made if need be.

    `/run` as root, $XDG_RUNTIME_DIR where there is one, else `/tmp`; in it a directory of this user and nobody
    else. Raises LockError.
    """
    uid = os.geteuid()
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if uid == 0 and os.access("/run", os.W_OK):
        parent = "/run"  # not /run/lock: everybody may write there, and be first
    elif os.path.isabs(runtime) and _is_private(runtime, uid):
        parent = runtime
    else:
        parent = "/tmp"  # noqa: S108 - checked below: what others made there is refused
    path = f"{parent}/segment-health-{uid}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}") from error
    if not _is_private(path, uid):
        raise LockError(
            f"{path}: is not a directory of this user with mode 0700; somebody else made it: remove it, and set "
            "XDG_RUNTIME_DIR to a directory of this user alone (mode 0700), where nobody else can be first"
        )
    return path


def _name_holder(path: str) -> None:
    """Leave our number beside the lock, for those who meet it."""
    with contextlib.suppress(OSError), open(f"{path}.pid", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))


def _holder(path: str) -> str:
    try:
        with open(f"{path}.pid", encoding="ascii") as file:
            return f"process {int(file.read(20))}"
    except (OSError, ValueError):
        return "a process that has just started"


def _is_private(path: str, uid: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not stat.S_IMODE(found.st_mode) & 0o077

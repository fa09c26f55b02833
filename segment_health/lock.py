"""One publisher per host, directory, cluster and scope: one loop for its life, and one pass at a time.

The lock is on local disk: flock(2) on shared storage may not exclude, hang, or quietly be another lock.
Publishers on two hosts are therefore not kept apart; they converge, since every write is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PASS, LOOP, WRITE = "pass", "loop", "write"
"""A loop holds LOOP for its life and PASS for each pass, so that a single pass can come in between.

WRITE is held by the process that touches the decision directory: should that hang in the kernel, longer than
whoever started it lives, nobody else begins to write before it is gone.
"""


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
    from filelock import FileLock, Timeout  # noqa: PLC0415 - 47 ms, and only a publisher needs it

    path = path_of(what, directory, cluster, scope, environ)
    # fallback_to_soft: where flock is missing it must fail, not turn into another kind of lock.
    lock = FileLock(path, timeout=wait, mode=0o600, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise AlreadyRunning(_holder(path)) from None
    except OSError as error:
        raise LockError(f"{path}: {error.strerror or error}") from error
    try:
        _name_holder(path)
        yield
    finally:
        lock.release()


def path_of(what: str, directory: str, cluster: str, scope: str, environ: Mapping[str, str]) -> str:
    """Return where a lock is on this host; beside it lies who holds it, in `.pid`. Raises LockError."""
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

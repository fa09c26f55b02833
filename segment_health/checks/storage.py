"""Whether the storage that a job needs answers on this node: distributed mounts, and paths (seed 001).

Both fail closed, as NVRx's checks of these names do: what cannot be told is a problem. docs/storage.md says what
they look at, and where they differ.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, ClassVar

from segment_health.mount import in_sight, read_mounts
from segment_health.record import brief, printable

from .health_check import Finding, HealthCheck
from .probing import ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

    from .outcome import Outcome

SECONDS = 15.0
"""What a path has to answer; NVRx gives each mount that twice, and 5 s for each of the paths to all of them."""
_LONGEST = 86400.0
_HEALTHY = b"healthy"
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_QUOTED = 200


class DistributedStorageHealthCheck(HealthCheck):
    """Lustre says of itself that it is healthy, and every Lustre and NFS mount can be used.

    `types` are file-system types as mountinfo has them (proc(5)), each as a whole: `fuse.sshfs`. A mount that is
    hidden by another one is passed over, and every other mount point is used as a path of StoragePathHealthCheck
    is: a bind mount of a single file is one, too. No Lustre and no such mount is healthy; a list of mounts that
    cannot be read is a problem.

    Each mount has so many `seconds`, and so has each of both files, which are read before. The whole takes at most
    `seconds * (1 + ceil(mounts / 32)) + 4`, and some milliseconds for each mount.

    Raises ValueError for a file that is no absolute path, and for seconds that are none; TypeError where `types`
    is a string.
    """

    title: ClassVar[str] = "Distributed storage health check"
    fails_open: ClassVar[bool] = False

    def __init__(  # noqa: PLR0913 - NVRx's two, and what tests and sites set by name
        self,
        interval: float = 60,
        on_failure: Callable[[], Awaitable[object]] | None = None,
        *,
        types: Collection[str] = ("lustre", "nfs", "nfs4"),
        mountinfo: str = "/proc/self/mountinfo",
        health_file: str = "/sys/fs/lustre/health_check",
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(interval, on_failure)
        if isinstance(types, str):
            raise TypeError(f"types are several, as in ({types!r},)")
        self.types = frozenset(types)
        self.mountinfo = _absolute(mountinfo)
        self.health_file = _absolute(health_file)
        self.seconds = _seconds(seconds)

    def examine(self) -> Finding:
        """Look at Lustre's word first, then at all mounts at once; a problem of one does not hide another's."""
        read = ask("read", (self.health_file, self.mountinfo), self.seconds)
        problems = list(_of_lustre(read[self.health_file]))
        table = read[self.mountinfo]
        mounts = [] if table.problem else read_mounts(os.fsdecode(table.content))
        if not mounts:  # there is always one: this file is on it
            reason = table.problem or f"{printable(self.mountinfo)} lists none"
            problems.append(f"what is mounted cannot be told: {reason}")
        points = (mount.point for mount in in_sight(mounts) if mount.kind in self.types)
        return Finding((*problems, *_problems(ask("use", points, self.seconds))))


class StoragePathHealthCheck(HealthCheck):
    """Paths that a job needs are there and can be read: 4 KiB of a file, a listing of a directory, else a look.

    Symbolic links are followed; fifos and devices are looked at and not opened. Empty paths are passed over, the
    others are taken as os.path.normpath has them. The rights are those of whoever asks. No path at all is healthy.

    Each path has so many `seconds`. The whole takes at most `seconds * ceil(paths / 32) + 2`, and some
    milliseconds for each path.

    Raises ValueError for a path that is not absolute, and for seconds that are none; TypeError where `paths` is a
    string.
    """

    title: ClassVar[str] = "Storage path health check"
    fails_open: ClassVar[bool] = False

    def __init__(
        self,
        paths: Iterable[str],
        on_failure: Callable[[], Awaitable[object]] | None = None,
        *,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(on_failure=on_failure)
        if isinstance(paths, str):
            raise TypeError(f"paths are several, as in [{paths!r}]")
        self.paths = [os.path.normpath(_absolute(path)) for path in paths if path]
        self.seconds = _seconds(seconds)

    def examine(self) -> Finding:
        """Look at all paths at once."""
        return Finding(tuple(_problems(ask("use", self.paths, self.seconds))))


def _problems(came: dict[str, Outcome]) -> Iterator[str]:
    return (outcome.problem for outcome in came.values() if outcome.problem is not None)


def _of_lustre(read: Outcome) -> Iterator[str]:
    """Judge Lustre's own word; a node without Lustre has none."""
    if read.number in _ABSENT:
        return
    if read.problem is not None:
        yield f"Lustre's health cannot be told: {read.problem}"
    elif read.content.strip() != _HEALTHY:
        said = brief(read.content.decode("utf-8", "backslashreplace").strip(), _QUOTED)
        yield f"Lustre is not healthy: {printable(read.path)} says {said!r}"


def _absolute(path: str) -> str:
    if not isinstance(path, str):
        raise TypeError(f"not a path: {path!r:.80}")
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return path


def _seconds(seconds: float) -> float:
    if not 0 < seconds <= _LONGEST:  # false of NaN too
        raise ValueError(f"not a number of seconds from 0 to {_LONGEST:g}: {seconds!r}")
    return seconds

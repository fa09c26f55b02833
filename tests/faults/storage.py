"""Faults of storage: it is full, refuses, fails, goes away, or hangs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import EVERYONE, fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_STAYS = "a decision that cannot be written leaves the last one in place, and is written when it can be"
_GONE = "a directory that is not there is fail open for its readers, and ends nothing"
_BOUNDED = "every touch of shared storage ends in time: the publisher lives on, and says what hangs"
NOBODY_ELSE = ("--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


def without_privilege(lab: Laboratory) -> None:
    """Let the publisher be bound by file modes, as an ordinary user is, though it is root."""
    lab.prefix += ["setpriv", *NOBODY_ELSE]


def impatient(lab: Laboratory) -> None:
    """Let the publisher wait for storage for a second only."""
    lab.options += ["--storage-timeout", "1"]


@contextmanager
def failing(lab: Laboratory, *rules: str) -> Iterator[None]:
    """Let the mount fail as passthrough.py takes it."""
    lab.storage_fails(*rules)
    try:
        yield
    finally:
        lab.storage_fails()


@fault(
    "no space", attacks=_STAYS, how="a tmpfs whose last byte is taken (ENOSPC)", holds=EVERYONE, says="No space"
)
@contextmanager
def no_space(lab: Laboratory) -> Iterator[None]:
    """Take every byte of the disk."""
    hog = lab.disk / "hog"
    try:
        with hog.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield
    finally:
        hog.unlink()


@fault(
    "no inodes", attacks=_STAYS, how="a tmpfs whose last inode is taken (ENOSPC)", holds=EVERYONE, says="No space"
)
@contextmanager
def no_inodes(lab: Laboratory) -> Iterator[None]:
    """Take every inode of the disk."""
    count = 0
    try:
        with contextlib.suppress(OSError):
            while True:
                (lab.disk / f"hog.{count}").touch()
                count += 1
        yield
    finally:
        for number in range(count):
            (lab.disk / f"hog.{number}").unlink()


@fault(
    "read-only", attacks=_STAYS, how="remounted read-only (EROFS)", holds=EVERYONE, says="Read-only file system"
)
@contextmanager
def read_only(lab: Laboratory) -> Iterator[None]:
    """Remount the disk."""
    _remount(lab, "ro")
    try:
        assert os.statvfs(lab.disk).f_flag & os.ST_RDONLY
        yield
    finally:
        _remount(lab, "rw")


def _remount(lab: Laboratory, how: str) -> None:
    command = ["mount", "-o", f"remount,{how}", str(lab.disk)]
    # Busy while somebody writes, which lasts an instant.
    lab.until(
        lambda: subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0,
        f"the disk remounted {how}",
    )


@fault(
    "over quota",
    attacks=_STAYS,
    how="FUSE: whatever makes or fills a file answers EDQUOT",
    holds=EVERYONE,
    ground="fuse",
    says="Disk quota exceeded",
)
@contextmanager
def over_quota(lab: Laboratory) -> Iterator[None]:
    """Refuse new files and bytes."""
    with failing(lab, "create EDQUOT", "write EDQUOT", "mkdir EDQUOT"):
        yield


@fault(
    "no permission",
    attacks=_STAYS,
    how="mode 0555, for a publisher without privilege (EACCES)",
    holds=EVERYONE,
    before=without_privilege,
    says="Permission denied",
)
@contextmanager
def no_permission(lab: Laboratory) -> Iterator[None]:
    """Let nobody without privilege write to the directory."""
    lab.storage.chmod(0o555)
    try:
        yield
    finally:
        lab.storage.chmod(0o755)


@fault(
    "given to another user",
    attacks="a site's directory that is no longer its own is not published to",
    how="chown of the directory to nobody",
    holds=EVERYONE,
    says="belongs to uid 65534",
)
@contextmanager
def given_away(lab: Laboratory) -> Iterator[None]:
    """Take the directory away from the publisher."""
    os.chown(lab.storage, 65534, 65534)
    try:
        yield
    finally:
        os.chown(lab.storage, 0, 0)


@fault(
    "open to everybody",
    attacks="a site's directory that is no longer its own is not published to",
    how="mode 0777",
    holds=EVERYONE,
    says="everybody may write",
)
@contextmanager
def open_to_all(lab: Laboratory) -> Iterator[None]:
    """Let everybody write to the directory."""
    lab.storage.chmod(0o777)
    try:
        yield
    finally:
        lab.storage.chmod(0o755)


@fault(
    "not even to be read",
    attacks="what cannot be read changes nothing",
    how="the directory without any mode bit, for a publisher without privilege (EACCES)",
    holds=EVERYONE,
    before=without_privilege,
    says="Permission denied",
)
@contextmanager
def not_readable(lab: Laboratory) -> Iterator[None]:
    """Take every mode bit; the harness's reader has the privilege to look."""
    lab.storage.chmod(0)
    try:
        yield
    finally:
        lab.storage.chmod(0o755)


@fault(
    "I/O errors",
    attacks="what cannot be read changes nothing",
    how="FUSE: every operation answers EIO",
    holds=EVERYONE,
    ground="fuse",
    says="Input/output error",
)
@contextmanager
def io_errors(lab: Laboratory) -> Iterator[None]:
    """Fail everything."""
    with failing(lab, "* EIO"):
        yield


@fault(
    "I/O errors of reads",
    attacks="an artifact that is there and cannot be read is left as it is",
    how="FUSE: read and open answer EIO, and the rest works",
    holds=EVERYONE,
    ground="fuse",
    says="Input/output error",
)
@contextmanager
def read_errors(lab: Laboratory) -> Iterator[None]:
    """Fail reads of contents."""
    with failing(lab, "read EIO", "open EIO"):
        yield


@fault(
    "stale handles",
    attacks="what cannot be read changes nothing",
    how="FUSE: every operation answers ESTALE",
    holds=EVERYONE,
    ground="fuse",
    says="Stale file handle",
)
@contextmanager
def stale_handles(lab: Laboratory) -> Iterator[None]:
    """Fail everything as NFS does when the export has changed."""
    with failing(lab, "* ESTALE"):
        yield


@fault(
    "no temporary file",
    attacks=_STAYS,
    how="FUSE: no file can be made (EACCES), those that are there can be read and removed",
    holds=EVERYONE,
    ground="fuse",
    says="Permission denied",
)
@contextmanager
def no_temporary(lab: Laboratory) -> Iterator[None]:
    """Refuse new files."""
    with failing(lab, "create EACCES"):
        yield


@fault(
    "fsync fails",
    attacks="what may not be on disk is not shown",
    how="FUSE: fsync of a file answers EIO",
    holds=EVERYONE,
    ground="fuse",
    says="Input/output error",
)
@contextmanager
def fsync_fails(lab: Laboratory) -> Iterator[None]:
    """Fail fsync of files."""
    with failing(lab, "fsync EIO"):
        yield


@fault(
    "fsync of the directory fails",
    attacks="what is whole on disk is shown, though its name may not be durable yet; that is said",
    how="FUSE: fsync of a directory answers EIO",
    ground="fuse",
    says="Input/output error",
)
@contextmanager
def fsyncdir_fails(lab: Laboratory) -> Iterator[None]:
    """Fail fsync of directories."""
    with failing(lab, "fsyncdir EIO"):
        yield


@fault(
    "fsync is slow",
    attacks="slow storage delays, and nothing else",
    how="FUSE: fsync of a file takes 0.3 s",
    ground="fuse",
)
@contextmanager
def fsync_is_slow(lab: Laboratory) -> Iterator[None]:
    """Let fsync take its time."""
    with failing(lab, "fsync 0.3"):
        yield


@fault(
    "rename fails",
    attacks=_STAYS,
    how="FUSE: rename answers EIO",
    holds=EVERYONE,
    ground="fuse",
    says="Input/output error",
)
@contextmanager
def rename_fails(lab: Laboratory) -> Iterator[None]:
    """Fail the last step of every write."""
    with failing(lab, "rename EIO"):
        yield


@fault(
    "directory vanishes",
    attacks=_GONE,
    how="renamed away, and back",
    holds=EVERYONE,
    blinds=EVERYONE,
    says="No such file or directory",
)
@contextmanager
def vanishes(lab: Laboratory) -> Iterator[None]:
    """Take the directory away for a while."""
    elsewhere = lab.disk / "elsewhere"
    lab.storage.rename(elsewhere)
    try:
        yield
        assert not lab.storage.exists(), "the publisher made a directory"
    finally:
        elsewhere.rename(lab.storage)


@fault(
    "directory replaced",
    attacks="an empty directory in its place is filled with what is true",
    how="renamed away, an empty one made, never given back",
    blinds=EVERYONE,
)
@contextmanager
def replaced(lab: Laboratory) -> Iterator[None]:
    """Exchange the directory for an empty one."""
    elsewhere = lab.disk / "elsewhere"
    lab.storage.rename(elsewhere)
    lab.storage.mkdir(mode=0o755)
    try:
        yield
    finally:
        shutil.rmtree(elsewhere)


@fault(
    "mount hangs",
    attacks=_BOUNDED,
    how="SIGSTOP to the FUSE daemon: who asks waits, and can be killed",
    holds=EVERYONE,
    ground="fuse",
    before=impatient,
    seconds=8.0,
    says="no answer within",
)
@contextmanager
def hangs(lab: Laboratory) -> Iterator[None]:
    """Stop the daemon."""
    lab.daemon.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        lab.daemon.signal(signal.SIGCONT)


@fault(
    "mount hangs in the kernel",
    attacks=_BOUNDED,
    how="FUSE: every operation is taken and not answered: who asks is in state D, beyond SIGKILL",
    holds=EVERYONE,
    ground="fuse",
    before=impatient,
    seconds=8.0,
    says="no answer within",
)
@contextmanager
def hangs_in_kernel(lab: Laboratory) -> Iterator[None]:
    """Hold every request."""
    with failing(lab, "* hang"):
        yield
        assert lab.publisher.is_running()


@fault(
    "rename hangs in the kernel",
    attacks="a write that comes to its end late is not the last word",
    how="FUSE: rename is taken and not answered, all else works; answered at last, an old decision appears",
    holds=EVERYONE,
    ground="fuse",
    before=impatient,
    seconds=8.0,
    says="no answer within",
)
@contextmanager
def rename_hangs(lab: Laboratory) -> Iterator[None]:
    """Hold the last step of every write."""
    with failing(lab, "rename hang"):
        yield
        assert lab.publisher.is_running()

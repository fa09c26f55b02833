"""Replaces files whole: a reader finds the old content or the new one, never a part, never nothing.

Names are relative to an open directory, so that nothing on the way there can be swapped under us, and symbolic
links at the last step are replaced, never followed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

_TEMPORARY = re.compile(r"\.segment-health\.tmp\.(?P<host>[A-Za-z0-9._-]*)\.(?P<pid>\d{1,10})\.\d+")
_ABANDONED_SECONDS = 3600
"""Age at which a temporary is garbage even if its process id lives: after a reboot it is another's."""

_SWEPT = 1000
"""Temporaries that are looked at in one pass."""

_CHUNK = 4096
"""Bytes that are asked for at least where a file has grown since its size was taken."""

_serial = itertools.count()


class StrangeError(PermissionError):
    """What is there may be read, and belongs to somebody whose word does not count."""


def host_name() -> str:
    """Name this host, in characters that may stand in a file name."""
    return _file_words(os.uname().nodename)


@functools.lru_cache(maxsize=1)  # each temporary asks for it
def _file_words(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:64]


def temporary_name() -> str:
    """Make a name that nobody else has, and that sweep() knows once this process has died."""
    return f".segment-health.tmp.{host_name()}.{os.getpid()}.{next(_serial)}"


def replace_file(directory: int, name: str, content: bytes, *, mode: int, durable: bool = True) -> None:
    """Give `name` in the open `directory` this content and mode, in one step.

    `durable` waits until the content is on disk (fsync) before it becomes visible; the directory itself is the
    caller's to sync, once for many files. Raises OSError, and then `name` is as it was and no temporary is left.
    """
    temporary, descriptor = _open_temporary(directory)
    try:
        try:
            _write_all(descriptor, content)
            os.fchmod(descriptor, mode)  # before it is visible, and whatever the umask
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)  # before the rename: some NFS servers refuse to rename an open file
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # an interrupt too: nothing may be left behind
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def create_empty(directory: int, name: str, *, mode: int) -> None:
    """Give `name` in the open `directory` a file of no bytes; whatever has that name already stays.

    Raises OSError: FileExistsError too, so that nobody's decision is taken for an empty one.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=directory)
    try:
        os.fchmod(descriptor, mode)  # whatever the umask
    finally:
        os.close(descriptor)


def sync_directory(directory: int) -> None:
    """Ask that renames reach the disk; file systems that cannot (EINVAL on some NFS) are forgiven."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EBADF}:
            raise


def read_file(directory: int, name: str, limit: int, *, owners: Container[int] | None = None) -> bytes:
    """Read a regular file of at most `limit` bytes; OSError for everything else, a symbolic link included.

    StrangeError if it does not belong to one of these `owners` (uids).
    """
    # O_NONBLOCK: opening a fifo under that name must not hang.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        if owners is not None and found.st_uid not in owners:
            raise StrangeError(errno.EPERM, f"belongs to uid {found.st_uid}", name)
        if found.st_size > limit:  # before that much memory is asked for
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
        return _read_all(descriptor, name, found.st_size, limit)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_directory(path: str, *, inside: int | None = None, links: bool = True) -> Iterator[int]:
    """Open a directory; a symbolic link is refused below another one (`inside`), and where `links` says so."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if inside is not None or not links else 0)
    descriptor = os.open(path, flags, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sweep(directory: int, names: Iterable[str]) -> None:
    """Remove temporaries that dead processes of this host left in an open directory with these entries.

    Not more than _SWEPT at once: somebody may have made a hundred thousand, and decisions wait for this.
    """
    host = host_name()
    found = (match for match in map(_TEMPORARY.fullmatch, names) if match is not None and match["host"] == host)
    for match in itertools.islice(found, _SWEPT):
        with contextlib.suppress(OSError):  # a stranger's, or swept by somebody else just now
            if not _is_running(int(match["pid"])) or _age(directory, match[0]) > _ABANDONED_SECONDS:
                os.unlink(match[0], dir_fd=directory)


def _open_temporary(directory: int) -> tuple[str, int]:
    """Make a file under a name of ours that nobody has, and return both. Raises OSError."""
    # O_EXCL: whatever a stranger put under that name is neither followed nor overwritten.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    temporary = temporary_name()
    try:
        return temporary, os.open(temporary, flags, 0o600, dir_fd=directory)
    except FileExistsError:  # somebody counted along, to be in our way; nobody foresees the next name
        temporary += str(int.from_bytes(os.urandom(8), "big"))
        return temporary, os.open(temporary, flags, 0o600, dir_fd=directory)


def _read_all(descriptor: int, name: str, expected: int, limit: int) -> bytes:
    """Read to the end, of about so many bytes: memory is asked for what is there, not for what may be."""
    content = data = os.read(descriptor, expected + 1)
    while data and len(content) <= limit:
        data = os.read(descriptor, max(len(content), _CHUNK))  # twice as much each time, or it would be quadratic
        content += data
    if len(content) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return content


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_running(pid: int) -> bool:
    if pid == os.getpid():  # what an earlier process with our number left; we leave none between two writes
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and is only waited for: without end, where pid 1 of a container never reaps."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # a line: `pid (command) state ...`
            return file.read(4096).rpartition(b") ")[2][:1] in {b"Z", b"X"}
    except OSError:
        return False


def _age(directory: int, name: str) -> float:
    return time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime

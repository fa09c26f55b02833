"""Reaches logs below one directory, and nothing else, whatever becomes of names and links meanwhile.

A path is resolved first, as clients may come by links, and what it leads to has to be below the root. That alone
would be a promise about a moment. So from the root's descriptor on every name is opened below the one before it,
and no link is followed (openat(2), O_NOFOLLOW): where somebody puts a link in between, there is an error. What was
found is looked at by its descriptor, and read by it; no name is used a second time.

A file that has a second name (a hard link) is refused: the other one may lie outside, and not be ours to read.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from .refusal import INTERNAL, INVALID_PATH, NOT_FOUND, NOT_READABLE, NOT_REGULAR, OUTSIDE_ROOT, Refusal

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT,)
_NO_PATH = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)


class FileState(NamedTuple):
    """Which file it is, and its state: the same until something is written, or put in its place."""

    device: int
    inode: int
    size: int
    modified: int
    """In nanoseconds."""
    owner: int | None = None
    """A uid; None where nobody looked."""


class Found(NamedTuple):
    """Where a path really leads to, below the root; the file's state, None where there is no file (yet)."""

    path: str
    state: FileState | None


def look(root: str, path: str) -> Found:
    """Tell what is at a path, which may not exist but whose directory must. Raises Refusal.

    `root` is a real path of a directory, `path` absolute.
    """
    real = _resolved(root, path)
    try:
        descriptor = _opened(root, real)
    except FileNotFoundError:
        _require_directory(root, os.path.dirname(real))
        return Found(real, None)
    except OSError as error:
        raise _refusal(error) from None
    try:
        return Found(real, state_of(descriptor))
    finally:
        os.close(descriptor)


def open_log(root: str, path: str) -> int:
    """Open a regular file below the root to read; return its descriptor. Raises Refusal."""
    try:
        return _opened(root, _resolved(root, path))
    except OSError as error:
        raise _refusal(error) from None


def state_of(descriptor: int) -> FileState:
    """Return the state of an open file."""
    found = os.fstat(descriptor)
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_uid)


def _resolved(root: str, path: str) -> str:
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        raise Refusal(INVALID_PATH, "log_path cannot be resolved") from None
    if not real.startswith(root.rstrip("/") + "/"):
        raise Refusal(OUTSIDE_ROOT, "log_path leads outside the allowed root")
    return real


def _opened(root: str, real: str) -> int:
    """Open a regular file. Raises OSError and Refusal."""
    found = _reached(root, real, 0)
    try:
        status = os.fstat(found)
        if stat.S_ISLNK(status.st_mode):
            raise Refusal(OUTSIDE_ROOT, "log_path became a link while it was looked at")
        if not stat.S_ISREG(status.st_mode):
            raise Refusal(NOT_REGULAR, "log_path is not a regular file")
        if status.st_nlink > 1:
            raise Refusal(OUTSIDE_ROOT, "log_path has further names (hard links), which may be outside the root")
        # The same file once more, to be read now. A fifo or a device would do something when it is opened.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _require_directory(root: str, real: str) -> None:
    if len(real) <= len(root):
        return
    try:
        os.close(_reached(root, real, os.O_DIRECTORY))
    except FileNotFoundError:
        raise Refusal(NOT_FOUND, "the directory of log_path does not exist") from None
    except OSError as error:
        raise _refusal(error) from None


def _reached(root: str, real: str, flags: int) -> int:
    """Open what is at a resolved path, a step at a time, only to look at it. Raises OSError."""
    names = real[len(root.rstrip("/")) + 1 :].split("/")
    current = os.open(root, _STEP | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            inner = os.open(name, _STEP | os.O_DIRECTORY, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(names[-1], _STEP | flags, dir_fd=current)
    finally:
        os.close(current)


def _refusal(error: OSError) -> Refusal:
    if error.errno in _GONE:
        return Refusal(NOT_FOUND, "log_path does not exist")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return Refusal(NOT_READABLE, "log_path cannot be read by the service's user")
    if error.errno == errno.ELOOP:
        return Refusal(OUTSIDE_ROOT, "log_path has a link where it must not have one")
    if error.errno in _NO_PATH:
        return Refusal(INVALID_PATH, f"log_path: {os.strerror(error.errno or 0)}")
    return Refusal(INTERNAL, f"log_path: {error.strerror or error}")

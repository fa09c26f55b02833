"""A FUSE file system that passes a directory through, and keeps names and attributes as long as it is told.

    python loopback.py DIRECTORY MOUNTPOINT [OPTION=VALUE...]

Options are libfuse's entry_timeout, negative_timeout and attr_timeout, and `late`: what was renamed is there under
its new name only so much later, as with a daemon that copies objects. All in seconds. Runs until it is unmounted.
"""
# ruff: noqa: ARG002 - libfuse's arguments, wanted or not

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import mfusepy

_FIELDS = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
_TIMES = ("st_atime", "st_mtime", "st_ctime")


class Loopback(mfusepy.Operations):  # type: ignore[misc]  # mfusepy ships no types
    """A directory as it is, below another name."""

    use_ns = True  # times in nanoseconds

    def __init__(self, root: str, late: float) -> None:
        self._root = root
        self._late = late

    def _at(self, path: str) -> str:
        return self._root + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """Look at a file by its path, even if it is open: it may be another one by now."""
        found = os.lstat(self._at(path))
        times = {name: getattr(found, f"{name}_ns") for name in _TIMES}
        return {name: getattr(found, name) for name in _FIELDS} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        """List a directory."""
        return [".", "..", *os.listdir(self._at(path))]

    def mkdir(self, path: str, mode: int) -> int:
        """Make a directory."""
        os.mkdir(self._at(path), mode)
        return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        """Make and open a file."""
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open(self, path: str, flags: int) -> int:
        """Open a file."""
        return os.open(self._at(path), flags & ~(os.O_CREAT | os.O_EXCL))

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Read from an open file."""
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """Write to an open file."""
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Cut a file."""
        os.truncate(self._at(path), length)
        return 0

    def release(self, path: str, fh: int) -> int:
        """Close a file."""
        os.close(fh)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """Wait for the disk."""
        os.fsync(fh)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Set a mode."""
        os.chmod(self._at(path), mode)
        return 0

    def unlink(self, path: str) -> int:
        """Remove a file."""
        os.unlink(self._at(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        """Rename a file, at once or late."""
        if not self._late:
            os.replace(self._at(old), self._at(new))
            return 0
        if os.path.exists(self._at(new)):
            os.unlink(self._at(new))
        hidden = f"{self._at(old)}.hidden"
        os.replace(self._at(old), hidden)
        threading.Timer(self._late, os.replace, (hidden, self._at(new))).start()
        return 0


def main() -> None:
    """Serve until unmounted."""
    root, mountpoint, *options = sys.argv[1:]
    told = {name: float(value) for name, _, value in (option.partition("=") for option in options)}
    late = told.pop("late", 0.0)
    mfusepy.FUSE(Loopback(root, late), mountpoint, foreground=True, allow_other=True, **told)


if __name__ == "__main__":
    main()

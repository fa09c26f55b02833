"""A FUSE file system over a directory, whose operations fail, hang or are slow as a file says.

    python passthrough.py BACKING MOUNT MODE [TYPE]

TYPE makes its type `fuse.TYPE` in /proc/self/mountinfo, which is `fuse` otherwise.

Each line of the file MODE is `<operation> <what>`: an operation of FUSE or `*` for all, and the name of an error
(`EIO`), `hang`, or seconds to wait before it is done (`0.5`). Without the file, or with an empty one, all is well.
The file is read at every operation, so a fault comes and goes at once. What hangs is answered when the file says
otherwise: until then whoever asked is in the kernel, beyond SIGKILL (state D).
"""

# ruff: noqa: D102 - the operations are FUSE's, and mean what they mean there

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from typing import Any

import mfusepy

_POLL_SECONDS = 0.02
_UNGUARDED = frozenset({"release", "_at"})


def what_happens(mode: str, operation: str) -> str | None:
    """Return what the file MODE says of an operation."""
    with contextlib.suppress(FileNotFoundError), open(mode, encoding="ascii") as file:
        for line in file:
            named, _, what = line.strip().partition(" ")
            if named in {operation, "*"}:
                return what
    return None


class Passthrough(mfusepy.Operations):  # type: ignore[misc]  # mfusepy has no types here
    """Does what is asked in the backing directory, if the mode allows it."""

    use_ns = True

    def __init__(self, backing: str, mode: str) -> None:
        self._backing = backing
        self._mode = mode

    def __getattribute__(self, name: str) -> Any:
        """Return an operation that looks at the mode first."""
        found = super().__getattribute__(name)
        if name in _UNGUARDED or name not in Passthrough.__dict__ or not callable(found):
            return found
        mode = super().__getattribute__("_mode")

        def guarded(*arguments: Any) -> Any:
            while (what := what_happens(mode, name)) == "hang":
                time.sleep(_POLL_SECONDS)
            if what is not None and what.startswith("E"):
                raise mfusepy.FuseOSError(getattr(errno, what))
            if what is not None:
                time.sleep(float(what))
            return found(*arguments)

        return guarded

    def _at(self, path: str) -> str:
        return self._backing + path

    def access(self, path: str, amode: int) -> int:
        if not os.access(self._at(path), amode):
            raise mfusepy.FuseOSError(errno.EACCES)
        return 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        found = os.lstat(self._at(path)) if fh is None else os.fstat(fh)
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino", "st_blocks")
        times = {name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        return {name: getattr(found, name) for name in names} | times

    def readdir(self, path: str, _fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    def create(self, path: str, mode: int, _fi: object = None) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags & ~os.O_NOFOLLOW)

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)  # appends, whatever the offset, where the file was opened for that

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._at(path) if fh is None else fh, length)
        return 0

    def fsync(self, _path: str, _datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def fsyncdir(self, _path: str, _datasync: int, _fh: int) -> int:
        return 0

    def flush(self, _path: str, _fh: int) -> int:
        return 0

    def release(self, _path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._at(old), self._at(new))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._at(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._at(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._at(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._at(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._at(path), uid, gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._at(path), ns=times or (time.time_ns(), time.time_ns()))
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        names = (
            "f_bavail",
            "f_bfree",
            "f_blocks",
            "f_bsize",
            "f_favail",
            "f_ffree",
            "f_files",
            "f_frsize",
            "f_namemax",
        )
        return {name: getattr(found, name) for name in names}


if __name__ == "__main__":
    mfusepy.FUSE(
        Passthrough(sys.argv[1], sys.argv[3]),
        sys.argv[2],
        foreground=True,
        allow_other=True,
        default_permissions=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
        **({"subtype": sys.argv[4]} if sys.argv[4:] else {}),
    )

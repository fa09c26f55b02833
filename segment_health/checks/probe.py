"""A program that touches one path and tells what came of it, in a process that may never come back.

    python -I -S probe.py SECONDS use|read PATH

`use` is what a job will do: read up to 4 KiB of a regular file, list a directory, look at anything else. `read`
hands over what stands in a file. Symbolic links are followed. On standard output are lines `doing listed`, each
before what may hang, and at the end `answer ERRNO SIZE` with so many bytes behind it: ERRNO is 0 where all went
well. After SECONDS it ends by itself, as far as it can, should nobody be left who would end it.

It starts again for every path: the standard library only, and as little of that as goes.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import stat
import sys

BLOCK = 4096
"""Bytes that are read of a regular file (seed 001)."""
LIMIT = 1 << 24
"""Bytes that are handed over at most; what stands in no file that is read here."""
_QUIETLY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def use(path: bytes) -> bytes:
    """Do with a path what a job will do with it. Raises OSError.

    Of a directory the first entries are asked for: that is one question to its server, however many there are.
    """
    _doing("looked at")
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opens nothing yet: a fifo would block, a tape would rewind
    kind = os.fstat(found).st_mode
    if stat.S_ISDIR(kind):
        _doing("listed")
        with os.scandir(path) as entries:
            next(entries, None)
    elif stat.S_ISREG(kind):
        _doing("read")
        # By what was found, not by its name: that may be a device by now.
        file = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | _QUIETLY)
        os.read(file, BLOCK)
        os.close(file)  # may ask the server, and may hang
    os.close(found)
    return b""


def read(path: bytes) -> bytes:
    """Return what stands in a file. Raises OSError, EFBIG where that is more than LIMIT."""
    _doing("read")
    file = os.open(path, os.O_RDONLY | _QUIETLY)
    content = bytearray()
    while data := os.read(file, 1 << 18):
        content += data
        if len(content) > LIMIT:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    os.close(file)
    return bytes(content)


TASKS = {"use": use, "read": read}


def answer(task: str, path: bytes) -> tuple[int, bytes]:
    """Do a task; return its error's number, 0 if there is none, and what there is to hand over.

    That is, where a path is missing because it is a symbolic link that leads nowhere, where it leads.
    """
    try:
        return 0, TASKS[task](path)
    except OSError as error:
        number = error.errno or errno.EIO
    if number == errno.ENOENT:
        try:
            target = os.readlink(path)
        except OSError:
            return number, b""  # it is no link
        return number, target
    return number, b""


def _doing(what: str) -> None:
    _tell(b"doing %s\n" % what.encode("ascii"))


def _tell(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main(seconds: str, task: str, path: str) -> None:
    """Do a task, and tell."""
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    number, content = answer(task, os.fsencode(path))
    _tell(b"answer %d %d\n%s" % (number, len(content), content))


if __name__ == "__main__":
    main(*sys.argv[1:])

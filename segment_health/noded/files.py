"""Reads what stands in a directory of NodeD's, as files or as Kubernetes mounts ConfigMaps, and never leaves it.

A mounted ConfigMap is a folder with a file a key, and each of those is a link to `..data/KEY`, where `..data` is a
link to the folder of the moment. Those two links are followed, and no others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from segment_health.atomic import open_directory, read_file

from .report import KEY, UPDATE_TIME
from .wire import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_DATA = "..data"
_MAX_TIME = 64
"""Bytes of an `updateTime`."""


@dataclass(frozen=True, slots=True)
class Text:
    """What was read: `written` is when, by the file system, in seconds since the epoch; `told` an `updateTime`."""

    content: bytes
    written: int
    told: str | None = None


def read_report(directory: int, name: str) -> Text | None:
    """Read a report, a file or a folder; None for a ConfigMap that is mounted and is not there. Raises OSError."""
    with _home(directory, name) as home:
        if not _is_folder(home, name):
            return _read(home, name)
        with open_directory(name, inside=home) as folder, _moment(folder) as keys:
            there = os.listdir(keys)
            if keys != folder and KEY not in there and UPDATE_TIME not in there:
                return None  # an optional volume, whose ConfigMap NodeD took away
            told = _read(keys, KEY)
            if UPDATE_TIME not in there:
                return told
            return replace(told, told=read_file(keys, UPDATE_TIME, _MAX_TIME).decode("ascii", "replace"))


def read_configuration(directory: int, name: str, key: str) -> bytes:
    """Read a configuration, a file of that name or a folder with a file `key`. Raises OSError."""
    with _home(directory, name) as home:
        if not _is_folder(home, name):
            return _read(home, name).content
        with open_directory(name, inside=home) as folder, _moment(folder) as keys:
            return _read(keys, key).content


@contextlib.contextmanager
def _home(directory: int, name: str) -> Iterator[int]:
    """Open the folder in which `name` itself stands: `directory`, or that of the moment where it is a link there.

    Raises OSError, for a link that leads elsewhere too.
    """
    if not stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        yield directory
        return
    if os.readlink(name, dir_fd=directory) != f"{_DATA}/{name}":
        raise _leads_elsewhere(name)
    with _moment(directory) as home:
        yield home


@contextlib.contextmanager
def _moment(folder: int) -> Iterator[int]:
    """Open the folder behind `..data`, or yield `folder` itself where Kubernetes has mounted nothing."""
    if _DATA not in os.listdir(folder):
        yield folder
        return
    name = os.readlink(_DATA, dir_fd=folder)
    if "/" in name or name in {".", "..", ""}:
        raise _leads_elsewhere(_DATA)
    with open_directory(name, inside=folder) as moment:
        yield moment


def _leads_elsewhere(name: str) -> OSError:
    return OSError(errno.ELOOP, "a link that leads elsewhere", name)


def _is_folder(directory: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def _read(directory: int, name: str) -> Text:
    """Read a regular file. Raises OSError."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):  # reading a fifo that nobody writes to gives nothing, and is no error
        raise OSError(errno.EINVAL, "not a regular file", name)
    return Text(read_file(directory, name, MAX_BYTES), int(found.st_mtime))

"""Whether a directory is ours alone: whom else the system lets decide what stands in it.

A service that speaks for everybody's jobs must not publish where somebody else may put, move or remove a file: who
can write to the directory, or put another one in its place, excludes and un-excludes whom they like. As ssh's
StrictModes and sudo do, the ancestors are looked at too; a sticky one (/tmp) protects what is in it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

_OURS = ("segment_health_check.", ".segment-health")
"""How the names begin that a publisher reads."""
_LEDGER = ".segment-health"
_MAX_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""


def stranger(path: str) -> str | None:
    """Say who else may decide what stands in a directory, and why; None if root and this user alone may.

    `path` is absolute. Raises OSError when it cannot be looked at.
    """
    if stat.S_ISLNK(os.lstat(path).st_mode):
        return f"{path} is a symbolic link: name the directory itself"
    told = stranger_in(os.stat(path), path)
    for step in _way_to(path):  # to its very end: `link/` leads on, and is no link to lstat
        told = told or _stranger_above(step)
    return told or _left_behind(path)


def stranger_in(found: os.stat_result, path: str) -> str | None:
    """Say who else may write to the directory that was `found` at `path`; None if nobody."""
    return _foreign_owner(found, path) or _others(found, path)


def _stranger_above(path: str) -> str | None:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):  # its mode says nothing, and whose it is all: the owner may lead it elsewhere
        return _foreign_owner(found, path)
    return _foreign_owner(found, path) or (None if found.st_mode & stat.S_ISVTX else _others(found, path))


def _foreign_owner(found: os.stat_result, path: str) -> str | None:
    if found.st_uid in {0, os.geteuid()}:
        return None
    what = "the symbolic link " if stat.S_ISLNK(found.st_mode) else ""
    return f"{what}{path} belongs to uid {found.st_uid}, neither root nor this user ({os.geteuid()})"


def _others(found: os.stat_result, path: str) -> str | None:
    # An access control list shows in the bits of the group: its mask stands there.
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        return f"everybody may write to {path} (mode {mode:04o})"
    if mode & stat.S_IWGRP:
        return f"the group {found.st_gid} may write to {path} (mode {mode:04o})"
    return None


def _left_behind(path: str) -> str | None:
    """Say what of ours in a directory is somebody else's to change, from a time when others could write there."""
    for place in (path, *(os.path.join(path, _LEDGER, name) for name in ("", "heartbeat", "state", "override"))):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as entries:
            for entry in entries:
                if place == path and not entry.name.startswith(_OURS):
                    continue
                found = entry.stat(follow_symlinks=False)
                told = _foreign_owner(found, entry.path)
                if told is None and not stat.S_ISLNK(found.st_mode):
                    told = _others(found, entry.path)
                if told is not None:
                    return f"{told}: it was made when others could write here, so look at it and remove it"
    return None


def _way_to(path: str) -> list[str]:
    """Name what the kernel goes through on the way to `path`, links and where they lead too, from `/` on."""
    steps, here = ["/"], "/"
    ahead = path.split("/")[::-1]
    links = 0
    while ahead:
        name = ahead.pop()
        if name in {"", "."}:
            continue
        here = os.path.dirname(here) if name == ".." else os.path.join(here, name)
        steps.append(here)
        if stat.S_ISLNK(os.lstat(here).st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(here)
            here = "/" if target.startswith("/") else os.path.dirname(here)
            ahead += target.split("/")[::-1]
    return steps

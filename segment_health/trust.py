"""Whether a directory is ours alone: whom else the system lets decide what stands in it.

A service that speaks for everybody's jobs must not publish where somebody else may put, move or remove a file: who
can write to the directory, or put another one in its place, excludes and un-excludes whom they like. As ssh's
StrictModes and sudo do, the ancestors are looked at too; a sticky one (/tmp) protects what is in it.
"""

from __future__ import annotations

import os
import stat


def stranger(path: str) -> str | None:
    """Say who else may decide what stands in a directory, and why; None if root and this user alone may.

    `path` is absolute. Raises OSError when it cannot be looked at.
    """
    if stat.S_ISLNK(os.lstat(path).st_mode):
        return f"{path} is a symbolic link: name the directory itself"
    told = stranger_in(os.stat(path), path)
    for ancestor in _ancestors(path):
        told = told or _stranger_above(os.stat(ancestor), ancestor)
    return told


def stranger_in(found: os.stat_result, path: str) -> str | None:
    """Say who else may write to the directory that was `found` at `path`; None if nobody."""
    return _foreign_owner(found, path) or _others(found, path)


def _stranger_above(found: os.stat_result, path: str) -> str | None:
    told = _foreign_owner(found, path)
    return told if told or found.st_mode & stat.S_ISVTX else _others(found, path)


def _foreign_owner(found: os.stat_result, path: str) -> str | None:
    if found.st_uid in {0, os.geteuid()}:
        return None
    return f"{path} belongs to uid {found.st_uid}, neither root nor this user ({os.geteuid()})"


def _others(found: os.stat_result, path: str) -> str | None:
    # An access control list shows in the bits of the group: its mask stands there.
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        return f"everybody may write to {path} (mode {mode:04o})"
    if mode & stat.S_IWGRP:
        return f"the group {found.st_gid} may write to {path} (mode {mode:04o})"
    return None


def _ancestors(path: str) -> list[str]:
    """Name the directories above `path`, as it really is and as it is written, where links lead elsewhere."""
    above: list[str] = []
    for way in (os.path.realpath(path), os.path.normpath(path)):
        parent = os.path.dirname(way)
        while parent not in above:
            above.append(parent)
            parent = os.path.dirname(parent)
    return above

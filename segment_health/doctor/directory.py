"""The decision directory: what was found there (facts.py), and what it means. Pure."""

from __future__ import annotations

import errno
import posixpath
import stat
from typing import TYPE_CHECKING, NamedTuple

from .check import error, ok, seconds, skipped, warning
from .visibility import window_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from segment_health.memory import Heartbeat
    from segment_health.mount import Mount

    from .check import Check

CHECKS = (
    "directory.path", "directory.shared", "directory.visibility", "directory.replace", "directory.readers",
    "directory.writers", "directory.space", "directory.inodes",
)  # fmt: skip
SLOW_SECONDS = 10.0
"""A decision that stays unseen for longer than this is worth a word: a restart takes a launcher about so long."""
_NO_SPACE = 1 << 16
"""Bytes that are none: an artifact has some hundred, the state of a large scope some thousand."""
_LOW_SPACE = 64 << 20
"""Bytes that are few: two full halves of the history, and as much again."""
_LOW_INODES = 1000
_PUBLIC_MODE = 0o644
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_HELPS_TO_LOOK = {
    errno.ENOENT: "create it on storage that every launcher sees; it is never created by us",
    **dict.fromkeys(
        _FORBIDDEN,
        "run this as the publisher's user, or give this one permission to read it and to search every directory "
        "above: `namei -l DIR` shows whose they are, and their modes",
    ),
    errno.ENOTDIR: "give a directory: what has this name, or one further up, is something else (`namei -l DIR`)",
    errno.ELOOP: "give the directory itself: these symbolic links lead to each other (`namei -l DIR`)",
}
_HELPS_TO_LOOK_ELSE = "see to the storage that it is on (`findmnt -T DIR`, and the kernel's log), or give another"
_HELPS_TO_WRITE = {
    errno.ENOSPC: "free some space, or inodes: directory.space and directory.inodes tell which is short",
    errno.EDQUOT: "free some of the publisher's user's quota there, or raise it",
    errno.EROFS: "mount it writable where the publisher runs; `findmnt -T DIR` shows how it is mounted",
}
_HELPS_TO_WRITE_ELSE = (
    "run this as the publisher's user, where it runs; that user has to be able to create and rename files there"
)


class Step(NamedTuple):
    """A directory on the way to the decision directory, or that one itself."""

    path: str
    mode: int
    uid: int
    gid: int
    has_acl: bool


class Trial(NamedTuple):
    """What came of replacing a probe file again and again while it was looked at.

    `failure` is the OSError that ended it, and `errno` its number; `wrong` counts looks by what was wrong with
    them.
    """

    replaced: int
    looks: int
    wrong: dict[str, int]
    mode: int | None
    failure: str | None
    errno: int | None = None


class Room(NamedTuple):
    """What is left for us: bytes, None where the file system does not say; inodes, None where it has no limit."""

    free: int | None
    size: int
    inodes: int | None


class Place(NamedTuple):
    """Everything that was found in a decision directory."""

    path: str
    real: str
    steps: Sequence[Step]
    mount: Mount | None
    stranger: str | None
    """Who else may decide what stands there, as trust.stranger() says."""
    room: Room
    trial: Trial
    heartbeats: Sequence[Heartbeat]


class Unseen(NamedTuple):
    """Why a directory could not be looked at: a sentence, and the number of its OSError."""

    why: str
    errno: int | None


class JobUser(NamedTuple):
    """Whose launchers have to see decisions; `uid` None means everybody's."""

    name: str
    uid: int | None
    groups: Collection[int] = ()


def missing_place(path: str, unseen: Unseen) -> list[Check]:
    """Return the checks of a directory that could not be looked at."""
    helps = _HELPS_TO_LOOK_ELSE if unseen.errno is None else _HELPS_TO_LOOK.get(unseen.errno, _HELPS_TO_LOOK_ELSE)
    found = error("directory.path", f"{path}: {unseen.why}", helps)
    return [found, *(skipped(name, "the directory could not be looked at") for name in CHECKS[1:])]


def normal(path: str) -> str:
    """Write an absolute path without what says nothing: `//`, `.`, `name/..`, a slash at its end."""
    return "/" + posixpath.normpath(path).lstrip("/")  # normpath() leaves two slashes at the beginning


def check_path(place: Place) -> Check:
    """Judge its name: launchers are given the same one, and it has to mean the same directory always."""
    if place.real != normal(place.path):
        return warning(
            "directory.path",
            f"{place.path} is {place.real}: a symbolic link is on the way",
            f"give {place.real} itself: a link can be turned to another place under a running publisher",
        )
    return ok("directory.path", place.path)


def check_shared(place: Place) -> Check:
    """Judge whether other hosts see it."""
    name, mount = "directory.shared", place.mount
    if mount is None:
        return skipped(name, "/proc/self/mountinfo does not say what it is on")
    told = f"{mount.kind} {mount.source} on {mount.point} ({','.join(dict.fromkeys(mount.options))})"
    row = window_of(mount).row
    if row.shared is False:
        return warning(
            name,
            f"{told}: not shared, so only launchers of this host see it",
            "give a directory on storage that every launcher sees; in a container, mount that storage into it",
        )
    if row.shared is None:
        return warning(
            name,
            f"{told}: whether other hosts see it cannot be told from here",
            "look from a second host: `segment-health doctor` there has to find the same heartbeats",
        )
    return ok(name, told)


def check_visibility(place: Place) -> Check:
    """Judge how long a published decision may stay unseen."""
    name = "directory.visibility"
    if place.mount is None:
        return skipped(name, "/proc/self/mountinfo does not say what it is on")
    row, missing, existing = window_of(place.mount)
    if row.shared is False:
        return ok(name, f"{row.name}: seen at once on this host; {row.why}")
    if missing is None or existing is None:
        return warning(name, f"{row.name}: nobody can tell from here; {row.why}", row.helps)
    if max(missing, existing) == 0:
        return ok(name, f"{row.name}: at once; {row.why} ({row.evidence})")
    told = (
        f"{row.name}: a host that has just looked goes on finding no artifact for up to {seconds(missing)}, and "
        f"an empty one (as --precreate makes) for up to {seconds(existing)}; {row.why} ({row.evidence})"
    )
    if max(missing, existing) <= SLOW_SECONDS:
        return ok(name, told)
    return warning(name, told, row.helps)


def check_replace(place: Place, *, is_published: bool) -> Check:
    """Judge whether files are replaced whole, which was tried; `is_published`: somebody else does so already."""
    name, trial = "directory.replace", place.trial
    if trial.failure is not None and trial.errno in {*_FORBIDDEN, errno.EROFS} and is_published:
        return skipped(name, f"{trial.failure}: not ours to write to, and a publisher lives")
    if trial.failure is not None:
        told = f"{trial.failure}, after {trial.replaced} replacements"
        return error(name, told, _HELPS_TO_WRITE.get(trial.errno or 0, _HELPS_TO_WRITE_ELSE))
    if trial.wrong:
        told = ", ".join(f"{count} found {what}" for what, count in sorted(trial.wrong.items()))
        return error(
            name,
            f"replacing a file is not atomic here: of {trial.looks} looks {told}",
            "put decisions on another file system: here a launcher can find a decision missing that stands",
        )
    return ok(
        name,
        f"{trial.replaced} replacements, {trial.looks} looks from this host: always the old file whole or the new",
    )


def check_readers(place: Place, who: JobUser) -> Check:
    """Judge whether the jobs' user may see an artifact, which takes permission to search all above it."""
    name = "directory.readers"
    closed = [step for step in place.steps if not may_search(step, who)]
    if closed:
        first = closed[0]
        told = f"{first.path} (mode {first.mode:04o}, uid {first.uid}, gid {first.gid}) may not be searched by "
        acl = "; it has an access control list, which was not looked into" if first.has_acl else ""
        return error(
            name,
            f"{told}{who.name}{acl}: launchers there warn, and ignore every decision",
            f"chmod {'o' if who.uid is None else 'a'}+x {first.path}"
            f"{', and so on further down' if len(closed) > 1 else ''}; --job-user NAME asks for one user alone",
        )
    mode = place.trial.mode
    if mode is not None and mode != _PUBLIC_MODE:
        return warning(
            name,
            f"a file that is given mode {_PUBLIC_MODE:04o} has {mode:04o} here: not everybody may read why",
            "look at the mount's options for modes, and at a default access control list",
        )
    return ok(name, f"{who.name} may look at artifacts")


def may_search(step: Step, who: JobUser) -> bool:
    """Whether a user may reach what is in a directory, by the bits of its mode."""
    if who.uid == 0:
        return True
    if who.uid is not None and step.uid == who.uid:
        return bool(step.mode & stat.S_IXUSR)
    if step.gid in who.groups:
        return bool(step.mode & stat.S_IXGRP)
    return bool(step.mode & stat.S_IXOTH)


def check_writers(place: Place, *, for_many: bool) -> Check:
    """Judge who else may decide what stands there; `for_many`: a site-wide publisher is wanted, or has been there.

    Such a one refuses what trust.stranger() names.
    """
    name = "directory.writers"
    if place.stranger is None:
        return ok(name, "root and this user alone may change what stands there")
    return (error if for_many else warning)(
        name,
        f"{place.stranger}: whoever may write can exclude and un-exclude every job that looks here; "
        "`publish --all` and `--partition` refuse it unless --allow-shared-dir is given",
        "for a service of many users' jobs give a directory that the service owns, with mode 0755, below "
        "directories that only root or the service may write to",
    )


def check_space(place: Place) -> Check:
    """Judge whether there is room for what is written."""
    name, room = "directory.space", place.room
    if room.free is None:
        return skipped(name, "the file system does not say")
    told = f"{_size(room.free)} free of {_size(room.size)}"
    if room.free < _NO_SPACE:
        return error(name, told, "free some: new decisions cannot be written, old ones stay as they are")
    if room.free < _LOW_SPACE:
        return warning(name, told, "free some before it is full: then new decisions could not be written")
    return ok(name, f"{told} (quotas are not in this)")


def check_inodes(place: Place) -> Check:
    """Judge whether there is room for a file more."""
    name, inodes = "directory.inodes", place.room.inodes
    if inodes is None:
        return ok(name, "no limit is told")
    told = f"{inodes} free"
    if inodes < 1:
        return error(name, told, "remove files: a decision is a new file before it takes its place")
    if inodes < _LOW_INODES:
        return warning(name, told, "remove files before none is left: a decision is a new file")
    return ok(name, told)


def _size(count: int) -> str:
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.1f} {unit}"
    return f"{count} bytes"

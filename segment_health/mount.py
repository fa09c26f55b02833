"""What is mounted, and where a path is, by /proc/self/mountinfo (proc(5)). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_ESCAPE = re.compile(r"\\([0-7]{3})")
_BEFORE_OPTIONAL = 6
"""Fields before the optional ones, which `-` ends: id, parent, device, root, point, options."""


class Mount(NamedTuple):
    """A mount: its id, where it is, its file system's type and source, and every option of it and of its mount.

    `parent` is the id of the mount that it stands on.
    """

    id: int
    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    parent: int = 0

    def option(self, name: str) -> str | None:
        """Return an option's value, "" for one that has none, None where it is not given; the last one counts."""
        found = None
        for option in self.options:
            key, _, value = option.partition("=")
            if key == name:
                found = value
        return found

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written here: the mount or its file system is."""
        return self.option("ro") is not None


def read_mounts(mountinfo: str) -> list[Mount]:
    """Read /proc/self/mountinfo; a line that is none of its is passed over, since kernels add fields."""
    mounts = []
    for line in mountinfo.split("\n"):
        fields = line.split(" ")
        try:
            end = fields.index("-", _BEFORE_OPTIONAL)
            number, parent, point, options = int(fields[0]), int(fields[1]), fields[4], fields[5]
            kind, source, further = fields[end + 1 : end + 4]
        except ValueError:
            continue
        told = tuple(f"{options},{further}".split(","))
        plain = tuple(map(_plain, told))
        mounts.append(Mount(number, _plain(point), _plain(kind), _plain(source), plain, parent))
    return mounts


def in_sight(mounts: list[Mount]) -> list[Mount]:
    """Return the mounts to which their own mount points lead: those that no other mount hides.

    From the root the kernel goes down a path, and wherever something is mounted on what it has reached, it goes on
    there: mounts on one another are passed through to the uppermost, and a mount above hides all that is below.
    """
    known = {mount.id for mount in mounts}
    on = {}
    for mount in mounts:
        # The root stands on itself, or on what is out of the reach of this process.
        parent = mount.parent if mount.parent in known and mount.parent != mount.id else None
        on[parent, mount.point] = mount.id
    return [mount for mount in mounts if _reached(on, mount.point) == mount.id]


def _reached(on: Mapping[tuple[int | None, str], int], point: str) -> int | None:
    """Go down a path, and return the mount at which it ends."""
    reached = None
    parts = point.rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        while (above := on.get((reached, "/".join(parts[:count]) or "/"))) is not None:
            reached = above
    return reached


def mount_of(mounts: list[Mount], path: str, mount_id: int | None) -> Mount | None:
    """Return the mount that holds a real path (no symbolic link in it).

    By its id, which the kernel tells of an open directory: that is right for bind mounts and overmounts too.
    Without it, the last one whose point is the longest part of the path.
    """
    for mount in mounts:
        if mount.id == mount_id:
            return mount
    best = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _plain(text: str) -> str:
    r"""Undo the kernel's escapes: blank, tab, newline, backslash and # are written as `\040`."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)

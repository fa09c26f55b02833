"""What is mounted, and where a path is, by /proc/self/mountinfo (proc(5)). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = re.compile(r"\\([0-7]{3})")
_BEFORE_OPTIONAL = 6
"""Fields before the optional ones, which `-` ends: id, parent, device, root, point, options."""


class Mount(NamedTuple):
    """A mount: its id, where it is, its file system's type and source, and every option of it and of its mount."""

    id: int
    point: str
    kind: str
    source: str
    options: tuple[str, ...]

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
            number, point, options = int(fields[0]), fields[4], fields[5]
            kind, source, further = fields[end + 1 : end + 4]
        except ValueError:
            continue
        told = tuple(f"{options},{further}".split(","))
        mounts.append(Mount(number, _plain(point), _plain(kind), _plain(source), tuple(map(_plain, told))))
    return mounts


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

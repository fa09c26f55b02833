from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segment_health.mount import in_sight, mount_of, read_mounts

if TYPE_CHECKING:
    from segment_health.mount import Mount

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:40 / /shared rw,relatime shared:5 master:2 - nfs4 server:/export rw,vers=4.2,acdirmax=5,local_lock=none
31 30 0:40 /sub /shared/my\040dir rw,nosuid - nfs4 server:/export/a\134b rw,lookupcache=pos
32 27 0:41 / /over rw - tmpfs none rw
33 32 0:42 / /over ro,relatime - fuse.sshfs me@host:/x\011y rw,user_id=0
34 27 0:43 / /srv/bind rw,relatime unbindable - xfs /dev/sdb rw,attr2
a line of another kernel
35 27 0:44 /
36 27 x /bad rw - ext4 /dev/x
"""


def test_what_is_no_mount_is_passed_over() -> None:
    """Kernels add fields, and other lines are not ours to judge."""
    assert [mount.id for mount in read_mounts(MOUNTINFO)] == [22, 27, 30, 31, 32, 33, 34]


def test_escapes_are_undone() -> None:
    """A blank, a tab and a backslash stand as octal numbers in the file."""
    mounts = {mount.id: mount for mount in read_mounts(MOUNTINFO)}
    assert mounts[31].point == "/shared/my dir"
    assert mounts[31].source == "server:/export/a\\b"
    assert mounts[33].source == "me@host:/x\ty"


def test_options_are_those_of_mount_and_file_system() -> None:
    """`ro` is the mount's own, `acdirmax` the file system's; the last word counts."""
    mounts = {mount.id: mount for mount in read_mounts(MOUNTINFO)}
    assert mounts[30].option("acdirmax") == "5"
    assert mounts[30].option("relatime") == ""
    assert mounts[30].option("acdirmin") is None
    assert mounts[31].option("rw") == ""


@pytest.mark.parametrize(
    ("path", "mount_id", "expected"),
    [
        pytest.param("/shared/x", 30, 30, id="the kernel's id"),
        pytest.param("/srv/bind/x", 27, 27, id="the kernel's id against the path: seen before the bind mount"),
        pytest.param("/shared/x", None, 30, id="longest point"),
        pytest.param("/shared/my dir/x", 999, 31, id="an id that is not listed"),
        pytest.param("/shared/my dir", None, 31, id="the point itself"),
        pytest.param("/sharedness", None, 27, id="a point is not part of a name"),
        pytest.param("/over/x", None, 33, id="overmount: the last of two"),
        pytest.param("/", None, 27, id="root"),
    ],
)
def test_the_mount_of_a_path(path: str, mount_id: int | None, expected: int) -> None:
    """The kernel's word first, else the longest point, else the root."""
    found = mount_of(read_mounts(MOUNTINFO), path, mount_id)
    assert found is not None
    assert found.id == expected


def test_no_mount_at_all() -> None:
    """An empty answer names nothing."""
    assert mount_of(read_mounts(""), "/x", None) is None
    assert in_sight([]) == []


def table(*rows: str) -> list[Mount]:
    """Make mounts of rows `id parent point`; the type is tmpfs."""
    lines = (row.split(" ", 2) for row in rows)
    return read_mounts(
        "\n".join(f"{mount} {on} 0:{mount} / {point} rw - tmpfs none rw" for mount, on, point in lines)
    )


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        pytest.param(["1 0 /", "2 1 /a", "3 2 /a/b", "4 1 /ab"], [1, 2, 3, 4], id="nested"),
        pytest.param(["1 0 /", "2 1 /a", "3 2 /a"], [1, 3], id="on one another: the uppermost"),
        pytest.param(["1 0 /", "2 1 /a", "3 2 /a", "4 3 /a"], [1, 4], id="three on one another"),
        pytest.param(["1 0 /", "2 1 /a/b", "3 1 /a"], [1, 3], id="below a later one"),
        pytest.param(
            ["1 0 /", "2 1 /a/b", "3 1 /a", "4 3 /a/b"], [1, 3, 4], id="below a later one, and again on it"
        ),
        pytest.param(["1 0 /", "2 1 /a", "3 2 /a/b", "4 1 /a/b/c"], [1, 2, 3], id="hidden by a mount above"),
        pytest.param(["1 0 /", "2 1 /a", "3 2 /a/b", "4 2 /a"], [1, 4], id="a child of one that is hidden"),
        pytest.param(["1 0 /", "2 1 /", "3 2 /a", "4 1 /a"], [2, 3], id="a root on the root"),
        pytest.param(["1 1 /", "2 1 /a"], [1, 2], id="a root that stands on itself"),
        pytest.param(["7 5 /a", "8 6 /b", "9 7 /a/c"], [7, 8, 9], id="a chroot: the root is no mount"),
        pytest.param(["2 1 /a", "1 0 /"], [2, 1], id="in any order"),
        pytest.param(["1 0 /", "2 3 /a", "3 2 /a"], [1], id="nonsense: each stands on the other"),
        pytest.param(["1 0 /", r"2 1 /a\040b", r"3 2 /a\040b/c\012d"], [1, 2, 3], id="names with escapes"),
    ],
)
def test_what_is_in_sight(rows: list[str], seen: list[int]) -> None:
    """A mount is seen if its own point leads to it, as the kernel goes down a path."""
    assert [mount.id for mount in in_sight(table(*rows))] == seen

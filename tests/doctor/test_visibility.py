from __future__ import annotations

from pathlib import Path

import pytest

from segment_health.doctor.visibility import NFS_DEFAULTS, ROWS, Bound, Row, window_of
from segment_health.mount import Mount

PAGE = Path(__file__).parents[2] / "docs/visibility.md"


@pytest.mark.parametrize(
    ("kind", "options", "missing", "existing"),
    [
        ("nfs4", "rw,vers=4.2", 60, 60),
        ("nfs", "rw,vers=3", 60, 60),
        ("nfs4", "rw,acdirmin=5,acdirmax=5", 5, 5),
        ("nfs4", "rw,acregmin=1,acregmax=2", 60, 2),
        ("nfs4", "rw,acregmin=5,acregmax=5,acdirmin=5,acdirmax=5", 5, 5),
        ("nfs4", "rw,actimeo=7", 7, 7),
        ("nfs4", "rw,actimeo=0", 0, 0),
        ("nfs4", "rw,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0", 0, 0),
        ("nfs4", "rw,noac", 0, 0),
        ("nfs4", "rw,lookupcache=none", 0, 0),
        ("nfs4", "rw,lookupcache=pos", 0, 60),
        ("nfs4", "rw,lookupcache=positive,acregmax=9", 0, 9),
        ("nfs4", "rw,lookupcache=pos,noac", 0, 0),
        ("nfs4", "rw,lookupcache=all,acdirmax=20", 20, 20),
        ("nfs4", "rw,acdirmax=x", 60, 60),
        ("lustre", "rw,flock", 0, 0),
        ("gpfs", "rw", 0, 0),
        ("ceph", "rw", 0, 0),
        ("beegfs", "rw", 0, 0),
        ("fuse", "rw", None, None),
        ("fuse.sshfs", "rw,user_id=0", None, None),
        ("fuseblk", "rw", None, None),
        ("overlay", "rw", 0, 0),
        ("ext4", "rw", 0, 0),
        ("tmpfs", "rw", 0, 0),
        ("9p", "rw", None, None),
        ("nfsd", "rw", None, None),
    ],
)
def test_the_window(kind: str, options: str, missing: float | None, existing: float | None) -> None:
    """The options of the mount bound both times; what nobody can tell is None and never 0."""
    window = window_of(Mount(1, "/shared", kind, "x", tuple(options.split(","))))
    assert (window.missing, window.existing) == (missing, existing)


def test_every_row_can_be_found() -> None:
    """Each row but the last is reached by its own first type and option, so none is hidden by one above."""
    for row in ROWS[:-1]:
        mount = Mount(1, "/", row.kinds[0], "x", row.options[:1])
        assert window_of(mount).row is row


def shown(bound: Bound) -> str:
    """Write a bound as the page does."""
    if bound is None:
        return "unknown"
    times = [f"`{name}` ({NFS_DEFAULTS[name]:.0f} s)" for name in bound]
    return ", or if sooner ".join(times) if times else "not at all"


def line(row: Row) -> str:
    """Write a row as the page does."""
    shared = {True: shown(row.missing), False: "this host only", None: shown(row.missing)}[row.shared]
    cells = (row.name, shared, shown(row.existing), row.why, row.helps, row.evidence)
    return f"| {' | '.join(cells)} |"


def test_the_page_has_the_same_table() -> None:
    """What the page says of a file system is what `doctor` says."""
    _, _, behind = PAGE.read_text().partition("| file system |")
    rows = behind.partition("\n\n")[0].splitlines()[2:]
    assert rows == [line(row) for row in ROWS]

"""How long a launcher may go on without seeing a decision that is published, by its file system. Pure.

A launcher looks by one stat(2). Its host may answer that from a cache: that a name is missing, or what the size of
a file was. ROWS is the only place where this project says for how long; docs/visibility.md repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from segment_health.mount import Mount

NFS_DEFAULTS = {"acregmin": 3.0, "acregmax": 60.0, "acdirmin": 30.0, "acdirmax": 60.0}
"""Seconds, nfs(5)."""

Bound = tuple[str, ...] | None
"""Mount options of which the smallest bounds a time; () where nothing is kept, None where nobody can tell."""


class Row(NamedTuple):
    """File systems that behave alike.

    `missing` bounds how long a name that was looked for in vain stays missing, `existing` how long an empty file
    that was seen stays empty. `shared` says whether other hosts see the directory at all, None: not known.
    """

    name: str
    kinds: tuple[str, ...]
    options: tuple[str, ...]
    """One of these has to be set; () means any."""
    shared: bool | None
    missing: Bound
    existing: Bound
    why: str
    helps: str
    evidence: str


_NFS = ("nfs", "nfs4")
_NFS_HELPS = (
    "mount with `lookupcache=pos`, or a small `acdirmax`; `--precreate` gives every unit an empty artifact, so "
    "that the second time counts in place of the first"
)
ROWS = (
    Row(
        "NFS with `noac`, or `actimeo=0`", _NFS, ("noac", "actimeo=0"), True, (), (),
        "the client asks the server at every look", "nothing is needed; servers may cache too", "nfs(5)",
    ),
    Row(
        "NFS with `lookupcache=none`", _NFS, ("lookupcache=none",), True, (), (),
        "every name is asked for anew, and a decision is a new file under its name", "nothing is needed", "nfs(5)",
    ),
    Row(
        "NFS with `lookupcache=pos`", _NFS, ("lookupcache=pos",), True, (), ("acregmax", "acdirmax"),
        "what is missing is asked for anew; a file that was found is kept until its attributes or those of its "
        "directory expire", "leave `--precreate` off: nothing is gained by it", "nfs(5)",
    ),
    Row(
        "NFS otherwise", _NFS, (), True, ("acdirmax",), ("acregmax", "acdirmax"),
        "what is missing stays so until the cached attributes of its directory expire", _NFS_HELPS,
        "nfs(5); public reports of 29 and of 50 s",
    ),
    Row(
        "Lustre", ("lustre",), (), True, (), (),
        "locks keep the metadata of all clients alike (DLM)", "nothing is needed", "its design; not measured",
    ),
    Row(
        "GPFS", ("gpfs",), (), True, (), (),
        "tokens keep the metadata of all clients alike", "nothing is needed", "its design; not measured",
    ),
    Row(
        "CephFS (kernel)", ("ceph",), (), True, (), (),
        "capabilities keep the metadata of all clients alike", "nothing is needed", "its design; not measured",
    ),
    Row(
        "BeeGFS", ("beegfs",), (), True, (), (),
        "clients keep neither missing names nor files, unless beegfs-client.conf says so",
        "leave `tuneENOENTCacheValidityMS` and `tuneFileSubentryCacheValidityMS` at 0",
        "its client's defaults; not measured",
    ),
    Row(
        "FUSE", ("fuse", "fuse.*", "fuseblk"), (), None, None, None,
        "its daemon says how long names, missing names and attributes are kept, and no mount option shows it",
        "set `negative_timeout`, `entry_timeout` and `attr_timeout` (or what the daemon calls them) to 0 or a "
        "second; those of object stores keep names for a minute or longer",
        "measured: a missing name for `negative_timeout`, an empty file for the smaller of the other two",
    ),
    Row(
        "overlay", ("overlay", "aufs"), (), False, (), (),
        "it is this host's, or this container's alone", "mount shared storage into the container", "overlayfs",
    ),
    Row(
        "local disks and memory",
        ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "tmpfs", "ramfs", "vfat", "exfat", "ntfs3"),
        (), False, (), (),
        "it is this host's alone", "use storage that every launcher sees", "one kernel, one cache",
    ),
    Row(
        "anything else", (), (), None, None, None,
        "not known here", "ask its manual for caching of names and attributes", "nobody",
    ),
)  # fmt: skip


class Window(NamedTuple):
    """How long, in seconds, a decision may stay unseen on this mount; None where that cannot be told."""

    row: Row
    missing: float | None
    existing: float | None


def window_of(mount: Mount) -> Window:
    """Judge one mount by its type and options."""
    limits = _limits(mount)
    row = next(row for row in ROWS if _is_one(mount, row, limits))
    return Window(row, _bound(row.missing, limits), _bound(row.existing, limits))


def _is_one(mount: Mount, row: Row, limits: dict[str, float]) -> bool:
    if row.kinds and mount.kind not in row.kinds:
        family, dot, _ = mount.kind.partition(".")
        if not dot or f"{family}.*" not in row.kinds:
            return False
    if not row.options:
        return True
    if "noac" in row.options:
        return mount.option("noac") is not None or not any(limits.values())
    # mount(8) takes `positive` as well, the kernel shows `pos`
    told = (mount.option("lookupcache") or "").replace("positive", "pos")
    return f"lookupcache={told}" in row.options


def _limits(mount: Mount) -> dict[str, float]:
    """Return NFS's four times, as the options set them."""
    if mount.option("noac") is not None:
        return dict.fromkeys(NFS_DEFAULTS, 0.0)
    limits = dict(NFS_DEFAULTS)
    for option in mount.options:
        name, _, value = option.partition("=")
        if value.isascii() and value.isdigit():
            if name == "actimeo":
                limits = dict.fromkeys(limits, float(value))
            elif name in limits:
                limits[name] = float(value)
    return limits


def _bound(names: Bound, limits: dict[str, float]) -> float | None:
    return None if names is None else min((limits[name] for name in names), default=0.0)

"""Faults of storage: it is full, refuses, fails, goes away, hangs, or holds what should not be there."""

from __future__ import annotations

import contextlib
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import EVERYONE, fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_STAYS = "a decision that cannot be written leaves the last one in place"


@fault(
    "no space",
    attacks=_STAYS,
    how="a tmpfs whose last byte is taken (ENOSPC)",
    holds=EVERYONE,
    says="No space left on device",
)
@contextmanager
def no_space(lab: Laboratory) -> Iterator[None]:
    """Take every byte of the disk."""
    hog = lab.disk / "hog"
    try:
        with hog.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield
    finally:
        hog.unlink()


@fault(
    "no inodes",
    attacks=_STAYS,
    how="a tmpfs whose last inode is taken (ENOSPC)",
    holds=EVERYONE,
    says="No space left on device",
)
@contextmanager
def no_inodes(lab: Laboratory) -> Iterator[None]:
    """Take every inode of the disk."""
    count = 0
    try:
        with contextlib.suppress(OSError):
            while True:
                (lab.disk / f"hog.{count}").touch()
                count += 1
        yield
    finally:
        for number in range(count):
            (lab.disk / f"hog.{number}").unlink()


@fault(
    "read-only",
    attacks=_STAYS,
    how="the file system remounted read-only (EROFS)",
    holds=EVERYONE,
    says="Read-only file system",
)
@contextmanager
def read_only(lab: Laboratory) -> Iterator[None]:
    """Remount the disk."""
    _remount(lab, "ro")
    try:
        assert os.statvfs(lab.disk).f_flag & os.ST_RDONLY
        yield
    finally:
        _remount(lab, "rw")


def _remount(lab: Laboratory, how: str) -> None:
    # Busy while somebody writes, which lasts an instant.
    lab.until(
        lambda: (
            subprocess.run(
                ["mount", "-o", f"remount,{how}", str(lab.disk)], check=False, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        ),
        f"the disk remounted {how}",
    )

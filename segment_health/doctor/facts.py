"""Looks at a decision directory: everything that touches it, in one call that can be bounded in time.

Changes nothing but a probe file of its own, which has the name of a publisher's temporary file: should this
process be killed, the next publisher of this host removes it.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter
from contextlib import suppress

from segment_health import trust
from segment_health.atomic import open_directory, read_file, replace_file, temporary_name
from segment_health.contract import ARTIFACT_MODE
from segment_health.mount import Mount, mount_of, read_mounts
from segment_health.store import DecisionDirectory

from .directory import Place, Room, Step, Trial, normal

_REPLACEMENTS = 200
_TRIAL_SECONDS = 2.0
_CONTENTS = (b"a" * 100, b"b" * 5000)
"""Of two sizes, neither of which is a part of the other."""


def examine(path: str) -> Place:
    """Look at everything that a directory can tell. Raises OSError when it cannot be opened."""
    with open_directory(path) as directory:
        real = os.path.realpath(path)
        place = Place(
            path=path,
            real=real,
            steps=[_step(one) for one in _way_to(path, real)],
            mount=_mount(directory, real),
            stranger=trust.stranger(path),
            room=_room(directory),
            trial=_try_to_replace(directory),
            heartbeats=[],
        )
        heartbeats = DecisionDirectory(path, directory).ledger("", "").heartbeats()
    return place._replace(heartbeats=heartbeats)


def _way_to(path: str, real: str) -> list[str]:
    """Name the directories that have to be searched, the outermost first, however `path` is written."""
    way: dict[str, None] = {}
    for end in (normal(path), real):
        parts = end.split("/")
        for count in range(1, len(parts) + 1):
            way.setdefault("/".join(parts[:count]) or "/")
    return list(way)


def _step(path: str) -> Step:
    found = os.stat(path)
    acl = None
    with suppress(OSError):
        acl = os.getxattr(path, "system.posix_acl_access")
    return Step(path, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, acl is not None)


def _mount(directory: int, real: str) -> Mount | None:
    with suppress(OSError, ValueError):
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            mounts = read_mounts(lines.read())
        number = None
        with open(f"/proc/self/fdinfo/{directory}", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("mnt_id:"):
                    number = int(line.partition(":")[2])
        return mount_of(mounts, real, number)
    return None


def _room(directory: int) -> Room:
    found = os.fstatvfs(directory)
    is_root = os.geteuid() == 0  # to whom the reserve is open
    free = (found.f_bfree if is_root else found.f_bavail) * found.f_frsize
    inodes = found.f_ffree if is_root else found.f_favail
    size = found.f_blocks * found.f_frsize
    return Room(free if size else None, size, inodes if found.f_files else None)


def _try_to_replace(directory: int) -> Trial:
    """Replace a probe again and again while a thread looks at it, as launchers and people do."""
    name = temporary_name()
    watcher = _Watcher(directory, name)
    replaced, mode, failure = 0, None, None
    deadline = time.monotonic() + _TRIAL_SECONDS
    try:
        replace_file(directory, name, _CONTENTS[0], mode=ARTIFACT_MODE)
        watcher.look(_CONTENTS[0])
        if not watcher.wrong:
            mode = stat.S_IMODE(os.stat(name, dir_fd=directory).st_mode)
            with watcher:
                while replaced < _REPLACEMENTS and time.monotonic() < deadline:
                    replaced += 1
                    replace_file(directory, name, _CONTENTS[replaced % 2], mode=ARTIFACT_MODE, durable=False)
            watcher.look(_CONTENTS[replaced % 2])
    except OSError as error:
        failure = error
    finally:
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
    told = None if failure is None else failure.strerror or str(failure)
    number = None if failure is None else failure.errno
    return Trial(replaced, watcher.looks, dict(watcher.wrong), mode, told, number)


class _Watcher:
    """Looks at the probe without pause, inside `with`; and keeps the first one open, which must not change."""

    def __init__(self, directory: int, name: str) -> None:
        self.looks = 0
        self.wrong: Counter[str] = Counter()
        self._directory = directory
        self._name = name
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Watcher:  # noqa: PYI034 - Self is not in Python 3.10
        self._first = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if os.pread(self._first, 1 << 16, 0) != _CONTENTS[0]:
            self.wrong["the replaced file changed"] += 1
        os.close(self._first)

    def _watch(self) -> None:
        while not self._done.is_set():
            self.look()

    def look(self, expected: bytes | None = None) -> None:
        """Look once, as a launcher does (one stat), then as a person does (the whole content)."""
        self.looks += 1
        try:
            size = os.stat(self._name, dir_fd=self._directory).st_size
            content = read_file(self._directory, self._name, 1 << 16)
        except FileNotFoundError:
            self.wrong["no file"] += 1
        except OSError as error:
            self.wrong[error.strerror or str(error)] += 1
        else:
            if size == 0 or not content:
                self.wrong["an empty file"] += 1
            elif size not in map(len, _CONTENTS) or content not in _CONTENTS:
                self.wrong["a partial file"] += 1
            elif expected is not None and content != expected:
                self.wrong["the old file after the new one was in place"] += 1

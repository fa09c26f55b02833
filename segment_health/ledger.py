"""What a scope keeps beside the artifacts, in `<dir>/.segment-health/`.

    heartbeat/<scope>@<cluster>.json    when its last complete pass was: by this alone a publisher is alive
    state/<scope>@<cluster>.json        what it remembers of its units from pass to pass, across restarts
    history.jsonl                       every change, one line each; history.jsonl.1 is the older half

The folders take the mode of `<dir>`, so that whoever may publish there may keep a ledger there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from .atomic import open_directory, read_file, replace_file, sweep
from .contract import Generation, UnitId
from .record import Fields, one_line, utc
from .situation import Remembered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from .contract import Publisher

FOLDER = ".segment-health"
MAX_HISTORY = 8 << 20
"""Bytes after which the history is rotated; two halves of this size are all that is kept."""
_MAX_HEARTBEAT = 1 << 16
_MAX_STATE = 1 << 28
_SCHEMA = 1


class Heartbeat(NamedTuple):
    """A scope's last complete pass: `last_complete_pass` in seconds since the epoch, `interval` in seconds."""

    publisher: Publisher
    policy: str
    last_complete_pass: int
    interval: float


class Ledger:
    """The ledger of one (cluster, scope) in an open decision directory. Methods raise OSError."""

    def __init__(self, directory: int, cluster: str, scope: str) -> None:
        self._directory = directory
        self._file = f"{scope}@{cluster}.json"
        self._saved: dict[UnitId, Remembered] | None = None
        self._garbled = False

    def recall(self) -> tuple[dict[UnitId, Remembered], str | None]:
        """Return what the scope remembers, and a remark if that is garbled (remember() then sets it aside)."""
        try:
            with self._folder("state") as folder:
                content = read_file(folder, self._file, _MAX_STATE)
        except FileNotFoundError:
            return {}, None
        try:
            self._saved = _decode_state(content)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._garbled = True
            return {}, f"{FOLDER}/state/{self._file} is garbled: beginning anew; kept as {self._file}.unreadable"
        return dict(self._saved), None

    def remember(self, memory: Mapping[UnitId, Remembered]) -> None:
        """Keep what the scope is to remember; touches nothing when it is what was recalled."""
        if memory == self._saved:
            return
        with self._folder("state", create=True) as folder:
            sweep(folder, os.listdir(folder))
            if self._garbled:
                os.replace(self._file, f"{self._file}.unreadable", src_dir_fd=folder, dst_dir_fd=folder)
            replace_file(folder, self._file, _encode_state(memory), mode=0o644)
        self._saved = dict(memory)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Say that a complete pass has just been made."""
        document = {
            "schema": _SCHEMA,
            **heartbeat.publisher._asdict(),
            "policy": heartbeat.policy,
            "last_complete_pass": utc(heartbeat.last_complete_pass),
            "interval": heartbeat.interval,
        }
        with self._folder("heartbeat", create=True) as folder:
            # Not durable: after a crash of the host an old heartbeat is the truth.
            replace_file(folder, self._file, one_line(document), mode=0o644, durable=False)

    def living(self, now: float) -> frozenset[tuple[str, str]]:
        """Name the (cluster, scope) of every publisher of this directory that is alive, this one too.

        Alive is younger than twice its interval, whatever its process id; a heartbeat that cannot be read is
        nobody's.
        """
        living = set()
        with contextlib.suppress(FileNotFoundError), self._folder("heartbeat") as folder:
            names = os.listdir(folder)
            sweep(folder, names)
            for name in names:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                    beat = Fields(json.loads(read_file(folder, name, _MAX_HEARTBEAT)))
                    if now - beat.time("last_complete_pass") < 2 * beat.seconds("interval"):
                        living.add((beat.text("cluster"), beat.text("scope")))
        return frozenset(living)

    def record(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries to the history, one line each, in one write."""
        if not entries:
            return
        with self._folder(None, create=True) as folder:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open("history.jsonl", flags, 0o600, dir_fd=folder)
            try:
                found = os.fstat(descriptor)
                if found.st_size == 0 and found.st_uid == os.geteuid():
                    # Who may publish here may append here.
                    os.fchmod(descriptor, 0o644 | (stat.S_IMODE(os.fstat(folder).st_mode) & 0o022))
                lines = b"".join(map(one_line, entries))
                if os.write(descriptor, lines) < len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
            if found.st_size > MAX_HISTORY:
                os.replace("history.jsonl", "history.jsonl.1", src_dir_fd=folder, dst_dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self, name: str | None, *, create: bool = False) -> Iterator[int]:
        if create:
            _make_folder(FOLDER, self._directory)
        with open_directory(FOLDER, inside=self._directory) as top:
            if name is None:
                yield top
                return
            if create:
                _make_folder(name, top)
            with open_directory(name, inside=top) as folder:
                yield folder


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return
    mode = stat.S_IMODE(os.fstat(parent).st_mode)
    with open_directory(name, inside=parent) as made:
        os.fchmod(made, mode | 0o700)


def _encode_state(memory: Mapping[UnitId, Remembered]) -> bytes:
    return one_line(
        {
            "schema": _SCHEMA,
            "units": [
                {
                    "job_id": unit.job_id,
                    "task_id": unit.task_id,
                    "restart_count": known.generation.restart_count,
                    "start_time": known.generation.start_time,
                    "nodelist": known.nodelist,
                    "user_id": known.user_id,
                    "misses": known.misses,
                    "published": known.published,
                }
                for unit, known in memory.items()
            ],
        }
    )


def _decode_state(content: bytes) -> dict[UnitId, Remembered]:
    return {
        UnitId(unit.text("job_id"), unit.text("task_id")): Remembered(
            Generation(unit.number("restart_count"), unit.number("start_time")),
            unit.text("nodelist"),
            unit.text("user_id"),
            unit.number("misses"),
            unit.truth("published"),
        )
        for unit in Fields(json.loads(content)).each("units")
    }

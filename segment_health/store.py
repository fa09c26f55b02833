"""The decision directory: reads artifacts back, and is the only writer of them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .atomic import create_empty, open_directory, read_file, replace_file, sweep, sync_directory
from .contract import ARTIFACT_MODE, Artifact, Content, UnitId, classify, encode, unit_of_artifact
from .ledger import BURY_SECONDS, Ledger
from .situation import Action, Decision
from .trust import stranger, stranger_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_ARTIFACT = 4 << 20
"""Bytes of an artifact that can be ours: 64 long reasons, every character escaped, and two long node lists."""

_SHOWN = 5
"""Units that a remark names."""

_Seen = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A decision and what came of it: `error` is None when it was carried out."""

    decision: Decision
    path: str
    error: str | None = None


class DecisionDirectory:
    """An open decision directory.

    `read` must come first in a pass: what is written afterwards is checked against what was read, so that a
    decision never lifts or overwrites something that it did not know.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._directory = descriptor
        self._seen: dict[UnitId, _Seen] = {}
        self.unreadable: dict[UnitId, str] = {}
        """Artifacts that are there and could not be read, with the cause; they count as foreign, so stay."""
        self.empty: dict[UnitId, bool] = {}
        """Units whose artifact has no bytes, and whether this user made it: nothing in it says who did."""
        self.remarks: list[str] = []
        """What was found that is worth a person's look."""

    @property
    def device(self) -> int:
        """The file system that it is in (st_dev of stat(2))."""
        return os.fstat(self._directory).st_dev

    def ledger(self, cluster: str, scope: str) -> Ledger:
        """Return what a scope keeps in this directory."""
        return Ledger(self._directory, cluster, scope)

    def path_of(self, unit: UnitId) -> str:
        """Return the full path of a unit's artifact."""
        return os.path.join(self.path, unit.artifact_name)

    def read(self) -> dict[UnitId, Artifact | Content]:
        """Return every non-empty artifact of the directory. Raises OSError when it cannot be listed."""
        published: dict[UnitId, Artifact | Content] = {}
        self._seen.clear()
        self.unreadable.clear()
        self.empty.clear()
        for name in os.listdir(self._directory):
            unit = unit_of_artifact(name)
            if unit is not None:
                content = self._read(name, unit)
                if content is not None:
                    published[unit] = content
        self.remarks = _of_the_reference_producer(published)
        return published

    def written_at(self, unit: UnitId) -> int | None:
        """Return when an artifact was last written, as it was read; None if there was none."""
        seen = self._seen.get(unit)
        return None if seen is None else seen[3] // 1_000_000_000

    def forgotten(self, now: float) -> list[Decision]:
        """Name the empty artifacts, as they were read, that nobody has touched for BURY_SECONDS: to be removed.

        Each job whose publisher died with it leaves one; without any a reader is told the same.
        """
        old = (unit for unit in self.empty if now - self._seen[unit][3] / 1e9 > BURY_SECONDS)
        return [Decision(Action.RETIRE, unit) for unit in sorted(old)]

    def tidy(self) -> None:
        """Remove the temporaries of dead publishers of this host."""
        sweep(self._directory, os.listdir(self._directory))

    def carry_out(self, decision: Decision) -> None:
        """Do what a decision says; visible at once, durable after sync().

        Raises OSError, and then the artifact is as it was.
        """
        unit = decision.unit
        if self._look(unit) != self._seen.get(unit):
            raise OSError(errno.EBUSY, "changed by somebody else during this pass; left for the next one")
        if decision.action is Action.RETIRE:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unit.artifact_name, dir_fd=self._directory)
        elif decision.action is Action.PRECREATE:
            create_empty(self._directory, unit.artifact_name, mode=ARTIFACT_MODE)
        elif decision.action is Action.CLEAR:
            replace_file(self._directory, unit.artifact_name, b"", mode=ARTIFACT_MODE)
        elif decision.artifact is not None:
            content = encode(decision.artifact)
            replace_file(self._directory, unit.artifact_name, content, mode=ARTIFACT_MODE)

    def attempt(self, decision: Decision) -> Change:
        """Do what a decision says, and say what came of it: one failed unit never blocks another."""
        path = self.path_of(decision.unit)
        if decision.action is Action.FOREIGN:
            return Change(decision, path, self.unreadable.get(decision.unit))
        try:
            self.carry_out(decision)
        except OSError as error:
            return Change(decision, path, error.strerror or str(error))
        return Change(decision, path)

    def sync(self) -> None:
        """Make what was carried out durable."""
        sync_directory(self._directory)

    def _read(self, name: str, unit: UnitId) -> Artifact | Content | None:
        """Return what a unit's artifact, of this name, says; None when the consumer would take it for healthy."""
        found = self._stat(name)
        if found is None:
            return None
        self._seen[unit] = _identity(found)
        told: Artifact | Content | None = None
        try:
            if stat.S_ISREG(found.st_mode):
                if found.st_size > 0:
                    told = classify(read_file(self._directory, name, _MAX_ARTIFACT), unit)
                else:
                    self.empty[unit] = found.st_uid == os.geteuid()
            elif stat.S_ISLNK(found.st_mode):
                target = os.stat(name, dir_fd=self._directory)  # follows, as the consumer does
                if stat.S_ISREG(target.st_mode) and target.st_size > 0:
                    told = Content.FOREIGN  # we never make one
        except FileNotFoundError:
            pass
        except PermissionError:
            told = Content.FOREIGN  # 0644 is what we write
        except OSError as error:
            self.unreadable[unit] = error.strerror or str(error)
            told = Content.FOREIGN
        return told

    def _look(self, unit: UnitId) -> _Seen | None:
        """Identify what lies under a unit's name, cheaply; None when nothing does."""
        found = self._stat(unit.artifact_name)
        return None if found is None else _identity(found)

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return None


def _identity(found: os.stat_result) -> _Seen:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _of_the_reference_producer(published: Mapping[UnitId, Artifact | Content]) -> list[str]:
    """Say that NVRx's own producer publishes here too: two that know nothing of each other do not agree."""
    units = sorted(str(unit) for unit, found in published.items() if found is Content.REFERENCE)
    if not units:
        return []
    shown = ", ".join(units[:_SHOWN]) + (f" and {len(units) - _SHOWN} more" if len(units) > _SHOWN else "")
    whose = f"artifacts as NVRx's scheduler_segment_health.sh writes them, which is another producer: {shown}"
    return [f"{whose}; let one of the two publish here (--adopt takes over what it left)"]


@contextlib.contextmanager
def open_decisions(path: str, *, guarded: bool = False) -> Iterator[DecisionDirectory]:
    """Open a decision directory for one pass. Raises OSError; the directory is never created.

    A `guarded` one is refused where a symbolic link leads to it, or somebody else may write to it (see trust).
    """
    with open_directory(path, links=not guarded) as descriptor:
        told = (stranger_in(os.fstat(descriptor), path) or stranger(path)) if guarded else None
        if told is not None:
            raise PermissionError(errno.EPERM, f"{told}; nothing is published for others there")
        yield DecisionDirectory(path, descriptor)

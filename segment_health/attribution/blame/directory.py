"""The directory of blames, as a source of node faults for a publisher.

What may not be believed is no health either: a directory that cannot be read, or in which others may write, tells
nothing of any node, and a file that is damaged or somebody else's tells nothing of its node.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segment_health.atomic import open_directory, read_file
from segment_health.sources import SourceUnknown
from segment_health.trust import stranger

from . import grade, record

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from segment_health.policy.assess import Assessment
    from segment_health.publication import Holder

    from .grade import Bar
    from .record import Blame

MAX_ENTRIES = 16384
"""Files of a directory that is read; the service leaves half as many at most."""
MAX_REMARKS = 20
"""How many remarks a pass makes; what follows is counted."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """What blames say: `assessments` by the names of nodes; `remarks` are for a person."""

    assessments: Mapping[str, Assessment]
    remarks: list[str] = field(default_factory=list)


class Blames:
    """Reads the directory `path` at every pass; `bar` says which blames count."""

    mark = grade.MARK
    is_essential = False

    def __init__(self, path: str, bar: Bar) -> None:
        self.path = path
        self._bar = bar

    def check(self) -> None:
        """Look at the directory, as a start needs it.

        Raises PermissionError, with a sentence, where others may write to it; every other trouble may pass.
        """
        try:
            told = stranger(self.path)
        except (OSError, ValueError):
            return
        if told is not None:
            raise PermissionError(errno.EPERM, f"{told}. Whoever can write there blames whichever node they like")

    def read(self, nodes: Mapping[str, Collection[Holder]], now: int) -> Blamed:
        """Return what counts against these nodes; `now` is in seconds since the epoch. Raises SourceUnknown."""
        try:
            self.check()
            found, remarks = self._read(nodes, now)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            cause = (error.strerror if isinstance(error, OSError) else None) or error
            raise SourceUnknown(f"the blames in {self.path!a} cannot be read: {cause}") from error
        if len(remarks) > MAX_REMARKS:
            remarks[MAX_REMARKS:] = [f"blames: {len(remarks) - MAX_REMARKS} more remarks"]
        return Blamed(found, remarks)

    def _read(self, nodes: Mapping[str, Collection[Holder]], now: int) -> tuple[dict[str, Assessment], list[str]]:
        """Return what counts, and remarks. Raises OSError and ValueError."""
        blames: dict[str, list[Blame]] = defaultdict(list)
        troubles: dict[str, str] = {}
        with open_directory(self.path, links=False) as directory:
            for name in _names(directory):
                node = record.node_of(name)
                if node is None or node not in nodes:
                    continue
                try:
                    blames[node].append(_blame(directory, name, now))
                except FileNotFoundError:
                    continue  # the service has just removed it, since it was old
                except (OSError, ValueError) as error:
                    cause = (error.strerror if isinstance(error, OSError) else None) or error
                    troubles[node] = f"blames: {name}: {cause}: no verdict on {node}"
        found = {
            node: told
            for node, each in blames.items()
            if (told := grade.grade(each, nodes[node], self._bar, now)) is not None
        }
        for node in troubles:
            found[node] = grade.together(found.get(node), grade.no_verdict("damaged"))
        return found, [troubles[node] for node in sorted(troubles)]


def _names(directory: int) -> list[str]:
    """List a directory that is surely the one. Raises OSError."""
    names = os.listdir(directory)
    if record.MARKER not in names:
        raise OSError(
            errno.ENOENT, f"it has no {record.MARKER}, as one that is not mounted, or that no service writes to"
        )
    if len(names) > MAX_ENTRIES:
        raise OSError(errno.EFBIG, f"it has {len(names)} entries, and {MAX_ENTRIES} are read")
    return sorted(names)


def _blame(directory: int, name: str, now: int) -> Blame:
    """Read one file. Raises OSError and ValueError."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})")
    content = read_file(directory, name, record.MAX_BYTES, owners={0, os.geteuid()})
    blame = record.decode(content, name)
    if blame.time - now > grade.FUTURE_SECONDS:
        raise ValueError(f"it is from the future ({blame.time - now} s ahead; compare the clocks)")
    return blame

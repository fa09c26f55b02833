"""What a scope keeps beside the artifacts, in `<dir>/.segment-health/`.

    heartbeat/<scope>@<cluster>.json    when its last complete pass was: by this alone a publisher is alive
    state/<scope>@<cluster>.json        what it remembers of its units from pass to pass, across restarts
    override/<job_id>.<task_id>.json    a person's word that a unit is to be used, for every scope
    history.jsonl                       every change, one line each; history.jsonl.1 is the older half

The folders take the mode of `<dir>`, so that whoever may publish there may keep a ledger there.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING

from . import history
from .atomic import StrangeError, open_directory, read_file, replace_file, sweep
from .consumer import ARTIFACT_PREFIX
from .contract import unit_of_artifact
from .memory import (
    decode_heartbeat,
    decode_override,
    decode_state,
    encode_heartbeat,
    encode_override,
    encode_state,
)
from .situation import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from .contract import UnitId
    from .memory import Heartbeat
    from .situation import Override

FOLDER = ".segment-health"
BURY_SECONDS = 7 * 86_400
"""Age at which what a scope kept is removed by whichever publisher comes by."""
_EVERYBODYS = ("all@", "partition:")
"""How the names of files begin whose scopes are not one user's."""
_FILE = re.compile(r"(?P<scope>.+)@(?P<cluster>[A-Za-z0-9_.-]+)\.json")
"""The name of a scope's file: a user's name may hold an @, a cluster's cannot."""
_MAX_SMALL = 1 << 20
_MAX_STATE = 1 << 24
"""Bytes of a state; what 100,000 nodes show, and 10,000 units, has some 8 MB. Read, it needs 20 times as much."""


class Ledger:
    """The ledger of one (cluster, scope) in an open decision directory. Methods raise OSError."""

    def __init__(self, directory: int, cluster: str, scope: str) -> None:
        self._directory = directory
        self._file = _file_name(cluster, scope)
        self._saved: Memory | None = None
        self._garbled = False
        self._unreadable: OSError | None = None

    def recall(self) -> tuple[Memory, str | None]:
        """Return what the scope remembers, and a remark if that is garbled (remember() then sets it aside)."""
        try:
            with self._folder("state") as folder:
                content = read_file(folder, self._file, _MAX_STATE, owners=self._trusted())
        except FileNotFoundError:
            return Memory(), None
        except StrangeError as error:
            return self._forget(str(error.strerror))
        except OSError as error:
            self._unreadable = error
            raise
        try:
            self._saved = decode_state(content)
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._forget("is garbled")
        return self._saved, None

    def _forget(self, why: str) -> tuple[Memory, str]:
        self._garbled = True
        told = f"{FOLDER}/state/{self._file} {why}: beginning anew; kept as {self._file}.unreadable"
        return Memory(), told

    def _trusted(self) -> set[int]:
        """Return whose word counts where many may write: root's, the directory's owner's, and our own user's."""
        return {0, os.geteuid(), os.fstat(self._directory).st_uid}

    def remember(self, memory: Memory) -> None:
        """Keep what the scope is to remember; touches nothing when it is what was recalled."""
        if self._unreadable is not None:  # what could not be read may still be good: never write over it
            raise self._unreadable
        if memory == self._saved:
            return
        with self._folder("state", create=True) as folder:
            sweep(folder, os.listdir(folder))
            if self._garbled:
                os.replace(self._file, f"{self._file}.unreadable", src_dir_fd=folder, dst_dir_fd=folder)
            replace_file(folder, self._file, encode_state(memory), mode=0o644)
        self._saved = memory

    def beat(self, heartbeat: Heartbeat) -> None:
        """Say that a complete pass has just been made."""
        with self._folder("heartbeat", create=True) as folder:
            # Not durable: after a crash of the host an old heartbeat is the truth.
            replace_file(folder, self._file, encode_heartbeat(heartbeat), mode=0o644, durable=False)

    def heartbeats(self, remarks: list[str] | None = None) -> list[Heartbeat]:
        """Return the heartbeats of every publisher of this directory, this one too.

        One that cannot be read is nobody's; nor is one under another's name, or for everybody's units by just
        anybody: it would stop the publisher whose it is said to be. For who looks on, `remarks` names them.
        """
        heartbeats = []
        remarks = [] if remarks is None else remarks
        with contextlib.suppress(FileNotFoundError), self._folder("heartbeat") as folder:
            for name in sorted(os.listdir(folder)):
                try:
                    owners = self._trusted() if name.startswith(_EVERYBODYS) else None
                    beat = decode_heartbeat(read_file(folder, name, _MAX_SMALL, owners=owners))
                    cause = "" if name == _file_name(beat.publisher.cluster, beat.publisher.scope) else "another's"
                except FileNotFoundError:  # just buried
                    continue
                except OSError as error:
                    cause = error.strerror or str(error)
                except (ValueError, KeyError, TypeError, RecursionError):
                    cause = "it is garbled"
                if cause and _FILE.fullmatch(name):  # else a temporary
                    remarks.append(f"{FOLDER}/heartbeat/{name} is left out: {cause}")
                elif not cause:
                    heartbeats.append(beat)
        return heartbeats

    def states(self) -> tuple[dict[tuple[str, str], Memory], list[str]]:
        """Return what every (cluster, scope) of this directory remembers, and a remark for each that is garbled.

        For who looks on, and decides nothing by it. Everybody's units are told by those whose word counts alone.
        """
        states: dict[tuple[str, str], Memory] = {}
        remarks: list[str] = []
        with contextlib.suppress(FileNotFoundError), self._folder("state") as folder:
            for name in sorted(os.listdir(folder)):
                match = _FILE.fullmatch(name)
                if match is None:  # a temporary, or what was set aside
                    continue
                try:
                    owners = self._trusted() if name.startswith(_EVERYBODYS) else None
                    states[match["cluster"], match["scope"]] = decode_state(
                        read_file(folder, name, _MAX_STATE, owners=owners)
                    )
                except FileNotFoundError:  # just buried
                    continue
                except OSError as error:
                    remarks.append(f"{FOLDER}/state/{name} is left out: {error.strerror or error}")
                except (ValueError, KeyError, TypeError, RecursionError):
                    remarks.append(f"{FOLDER}/state/{name} is left out: it is garbled")
        return states, remarks

    def bury(self, now: float) -> None:
        """Remove heartbeats untouched for BURY_SECONDS, and states without one: each job's sidecar leaves both.

        A state alone may be that old and be needed: it is written only when there is something new to remember.
        """
        beating = {self._file}
        for part in ("heartbeat", "state"):
            with self._folder(part, create=True) as folder:
                names = os.listdir(folder)
                sweep(folder, names)
                for name in names:
                    with contextlib.suppress(OSError):  # another user's, or gone
                        touched = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                        if now - touched <= BURY_SECONDS:
                            beating.add(name)
                        elif name not in beating:
                            os.unlink(name, dir_fd=folder)
        with contextlib.suppress(FileNotFoundError), self._folder("override") as folder:
            sweep(folder, os.listdir(folder))  # of a person's command that was killed

    def overrides(self) -> dict[UnitId, Override]:
        """Return what people overrode. A file that cannot be read overrides nothing.

        Only root's word counts, that of the directory's owner, and our own user's: in a directory that many may
        write to nobody lifts another user's exclusions.
        """
        trusted = self._trusted()
        overrides = {}
        with contextlib.suppress(FileNotFoundError), self._folder("override") as folder:
            for name in os.listdir(folder):
                unit = unit_of_artifact(ARTIFACT_PREFIX + name.removesuffix(".json"))
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                    owner = os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
                    if unit is not None and owner in trusted:
                        overrides[unit] = decode_override(read_file(folder, name, _MAX_SMALL))
        return overrides

    def override(self, unit: UnitId, override: Override) -> None:
        """Keep a person's word for every scope of this directory."""
        with self._folder("override", create=True) as folder:
            replace_file(folder, override_name(unit), encode_override(override), mode=0o644)

    def drop_override(self, unit: UnitId) -> None:
        """Forget an override that no longer holds; another scope may have done so already."""
        with contextlib.suppress(FileNotFoundError), self._folder("override") as folder:
            os.unlink(override_name(unit), dir_fd=folder)

    def record(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries to the history, one line each, in one write."""
        if not entries:
            return
        with self._folder(None, create=True) as folder:
            history.append(folder, entries)

    def recorded(self, wanted: Callable[[history.Entry], bool], limit: int | None = None) -> history.Reading:
        """Return what the history says, every scope's: of what is wanted the last `limit` entries."""
        with contextlib.suppress(FileNotFoundError), self._folder(None) as folder:
            return history.read(folder, wanted, limit)
        return history.Reading((), 0, ())

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


def _file_name(cluster: str, scope: str) -> str:
    return f"{scope}@{cluster}.json"


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return
    mode = stat.S_IMODE(os.fstat(parent).st_mode)
    with open_directory(name, inside=parent) as made:
        os.fchmod(made, mode | 0o700)


def override_name(unit: UnitId) -> str:
    """Name the file of a unit's override."""
    return f"{unit.job_id}.{unit.task_id}.json"

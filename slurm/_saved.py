"""Saved answers, of whatever door: told apart by what stands in them, never by the file's name."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from . import _command, _text
from ._records import parse_saved_jobs
from .errors import SlurmProtocolError, SlurmUnavailable
from .snapshot import Snapshot, existing

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 20


class SavedReader:
    """Reads saved nodes and saved jobs; `-` is standard input.

    The times of saved text are in the zone of this process (set TZ to say otherwise). `cluster` is what the
    answers themselves do not tell.
    """

    def __init__(self, nodes: str, jobs: str, *, cluster: str | None) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._cluster = cluster
        self.remarks: list[str] = []

    def read(self) -> Snapshot:
        """Read both files."""
        allocations = parse_saved_jobs(b"".join(contents(self._jobs)))
        return Snapshot(
            cluster=self._cluster or "saved",
            slurm_version=None,
            nodes=existing(_text.parse_nodes(b"".join(contents(self._nodes)), zone=None), allocations),
            allocations=allocations,
        )

    def close(self) -> None:
        """Keep nothing open."""


def contents(path: str) -> Iterator[bytes]:
    """Read a regular file, a pipe (`<(ssh head scontrol show nodes -o)`) or `-`, bit by bit, within bounds.

    Raises SlurmUnavailable or SlurmProtocolError.
    """
    if path == "-":
        path = "/dev/stdin"
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise SlurmUnavailable(f"{path}: neither a file nor a pipe")
            os.set_blocking(file.fileno(), True)
            size = 0
            while chunk := file.read(_CHUNK):  # not all at once: read(n) would ask for n bytes of memory first
                size += len(chunk)
                if size > _command.MAX_OUTPUT:
                    raise SlurmProtocolError(f"{path}: more than {_command.MAX_OUTPUT} bytes")
                yield chunk
    except OSError as error:
        raise SlurmUnavailable(f"{path}: {error.strerror}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting: a fifo that nobody writes to would hold us for ever."""
    return os.open(path, flags | os.O_NONBLOCK)

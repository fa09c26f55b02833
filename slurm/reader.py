"""Readers: where a Snapshot comes from."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

from . import _command, _text
from ._saved import parse_saved_jobs
from .errors import SlurmProtocolError, SlurmUnavailable
from .snapshot import Snapshot, existing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Run = Callable[..., list[_command.Completed]]

_CHUNK = 1 << 20


class Reader(Protocol):
    """Gives a whole Snapshot, or raises SlurmError: there is no half answer."""

    remarks: list[str]
    """What came with the last answer that is worth a log line, and is no failure."""

    def read(self) -> Snapshot:
        """Ask once. Raises SlurmUnavailable or SlurmProtocolError."""


class CommandReader:
    """Asks a living slurmctld through `scontrol` and `squeue`.

    One node query and one job query a pass, side by side, however many jobs there are; the first pass also asks
    who the cluster is. `timeout` is in seconds, for all of a pass's queries together.
    """

    def __init__(self, *, timeout: float, environ: Mapping[str, str], run: Run = _command.run) -> None:
        self._timeout = timeout
        self._environ = _command.clean_environment(environ)
        self._run = run
        self._config: dict[str, str] | None = None
        self.remarks: list[str] = []

    def read(self) -> Snapshot:
        """Ask slurmctld once."""
        commands: list[Sequence[str]] = [_text.SHOW_NODES, _text.SHOW_JOBS]
        if self._config is None:
            commands.append(_text.SHOW_CONFIG)
        answers = self._run(commands, timeout=self._timeout, environ=self._environ)
        self.remarks = [f"{' '.join(a.argv[:1])}: {a.stderr}" for a in answers if a.stderr]
        if self._config is None:
            self._config = _text.parse_config(answers[2].stdout)
        allocations = _text.parse_jobs(answers[1].stdout)
        return Snapshot(
            cluster=self._config["ClusterName"],
            slurm_version=self._config.get("SLURM_VERSION"),
            nodes=existing(_text.parse_nodes(answers[0].stdout), allocations),
            allocations=allocations,
            visible_user=_visible_user(self._config, os.geteuid()),
        )


class SavedReader:
    """Reads saved `scontrol show nodes -o` and `scontrol show jobs`.

    Their times are in the zone of this process (set TZ to say otherwise). `cluster` is what the answers
    themselves do not tell.
    """

    def __init__(self, nodes: str, jobs: str, *, cluster: str) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._cluster = cluster
        self.remarks: list[str] = []

    def read(self) -> Snapshot:
        """Read both files."""
        allocations = parse_saved_jobs(_contents(self._jobs))
        return Snapshot(
            cluster=self._cluster,
            slurm_version=None,
            nodes=existing(_text.parse_nodes(_contents(self._nodes), zone=None), allocations),
            allocations=allocations,
        )


def _contents(path: str) -> bytes:
    """Read a regular file, or a pipe (`<(ssh head scontrol show nodes -o)`), within bounds."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise SlurmUnavailable(f"{path}: neither a file nor a pipe")
            os.set_blocking(file.fileno(), True)
            data = bytearray()
            while chunk := file.read(_CHUNK):  # not all at once: read(n) would ask for n bytes of memory first
                data += chunk
                if len(data) > _command.MAX_OUTPUT:
                    raise SlurmProtocolError(f"{path}: more than {_command.MAX_OUTPUT} bytes")
    except OSError as error:
        raise SlurmUnavailable(f"{path}: {error.strerror}") from error
    return bytes(data)


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting: a fifo that nobody writes to would hold us for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _visible_user(config: Mapping[str, str], uid: int) -> str | None:
    """Whose jobs alone this process sees: with PrivateData=jobs its own, unless it is root or SlurmUser.

    An operator sees more than this assumes, which costs a delayed retirement and never a false one.
    """
    private = {word.strip().lower() for word in config.get("PrivateData", "").split(",")}
    slurm_user = config.get("SlurmUser", "")
    if not private & {"jobs", "all"} or uid == 0 or slurm_user.endswith(f"({uid})"):
        return None
    return str(uid)

"""Readers: where a Snapshot comes from, and which door is taken."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .commands.run import Commands
from .commands.text import TextReader
from .errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .commands.config import Config
    from .pyslurm.reader import PyslurmReader
    from .snapshot import Snapshot
    from .traffic import Traffic


class Reader(Protocol):
    """Gives a whole Snapshot, or raises SlurmError: there is no half answer."""

    remarks: list[str]
    """What came with the last answer that is worth a log line, and is no failure."""

    traffic: dict[str, Traffic]
    """How much was asked so far, by the door's name."""

    @property
    def config(self) -> Config | None:
        """What the cluster said of itself; None where its door does not tell, and before the first answer."""

    def read(self) -> Snapshot:
        """Ask once. Raises SlurmUnavailable or SlurmProtocolError."""

    def close(self) -> None:
        """Let go of what it keeps between two answers: a child process, a connection."""


class Access(NamedTuple):
    """How this site's Slurm is reached.

    `timeout` is in seconds, for what a pass asks side by side. `cluster` is the one that is wanted, None for
    whoever answers; `commands_directory` is where Slurm's commands are, None for PATH. `rest_url` and
    `rest_token_file` are slurmrestd's: `http://host:6820` or `unix:/path`, and a file with a JSON web token
    (else SLURM_JWT). `meanwhile` may be called once, while Slurm's commands are at work: for what is not needed
    before they have answered.
    """

    timeout: float
    environ: Mapping[str, str]
    cluster: str | None = None
    slurm_conf: str | None = None
    commands_directory: str | None = None
    rest_url: str | None = None
    rest_token_file: str | None = None
    meanwhile: Callable[[], object] | None = None

    def environment(self) -> dict[str, str]:
        """Return the environment for whatever uses libslurm."""
        return {**self.environ, **({"SLURM_CONF": self.slurm_conf} if self.slurm_conf else {})}

    def commands(self) -> Commands:
        """Return Slurm's commands."""
        return Commands(
            timeout=self.timeout,
            environ=self.environment(),
            directory=self.commands_directory,
            cluster=self.cluster,
            meanwhile=self.meanwhile,
        )


class Door(NamedTuple):
    """A reader, the name of its door, and why it was taken."""

    reader: Reader
    name: str
    why: str


def open_reader(prefer: str, access: Access) -> Door:
    """Open a door: "text", "json", "rest", "pyslurm", or "auto", which is pyslurm where it fits, else text.

    Each loads what it needs only when it is taken. Never fails: what is missing shows in the first answer.
    """
    if prefer == "json":
        from .commands.json import JsonReader  # noqa: PLC0415 - pydantic: 70 ms that the text door does not pay

        return Door(JsonReader(access.commands()), "json", "asked for")
    if prefer == "rest":
        from .rest.reader import RestReader  # noqa: PLC0415 - httpx: 130 ms

        assert access.rest_url is not None
        rest = RestReader(
            access.rest_url,
            timeout=access.timeout,
            cluster=access.cluster,
            token_file=access.rest_token_file,
            environ=access.environ,
        )
        return Door(rest, "rest", "asked for")
    if prefer == "pyslurm":
        from .pyslurm.reader import PyslurmReader  # noqa: PLC0415 - pydantic

        return Door(PyslurmReader(access.commands()), "pyslurm", "asked for")
    if prefer == "auto":
        return _open_what_fits(access)
    return Door(TextReader(access.commands()), "text", "asked for")


def _open_what_fits(access: Access) -> Door:
    """Open "auto": with pyslurm its child is started, and goes on to answer the first pass."""
    if importlib.util.find_spec("pyslurm") is None:  # looks for it, and imports nothing
        return Door(TextReader(access.commands()), "text", "pyslurm is not installed")
    from .pyslurm.reader import PyslurmReader  # noqa: PLC0415 - pydantic

    pyslurm, text = PyslurmReader(access.commands()), TextReader(access.commands())
    try:
        why = pyslurm.start()
    except SlurmError as error:
        return Door(text, "text", str(error))
    return Door(_WhileItFits(pyslurm, text), "pyslurm", why)


class _WhileItFits:
    """Asks by pyslurm, and by text in a pass for which its child cannot start: after an upgrade of Slurm, say.

    A child that did start and then fails is no reason: the pass is unknown, as with any other door.
    """

    def __init__(self, pyslurm: PyslurmReader, text: TextReader) -> None:
        self._pyslurm = pyslurm
        self._text = text
        self._asked: Reader = pyslurm
        self.traffic = {**pyslurm.traffic, **text.traffic}
        self.remarks: list[str] = []

    @property
    def config(self) -> Config | None:
        """What the cluster said of itself to whoever asked last."""
        return self._asked.config

    def read(self) -> Snapshot:
        """Ask once."""
        try:
            self._pyslurm.ensure_started()
        except SlurmError as error:
            self._asked = self._text
            snapshot = self._text.read()
            self.remarks = [f"asked by text this time: {error}", *self._text.remarks]
        else:
            self._asked = self._pyslurm
            snapshot = self._pyslurm.read()
            self.remarks = self._pyslurm.remarks
        return snapshot

    def close(self) -> None:
        """End the child."""
        self._pyslurm.close()


def open_saved(nodes: str, jobs: str, cluster: str | None) -> Reader:
    """Open two files of saved answers, of whatever door."""
    from .saved import SavedReader  # noqa: PLC0415 - who asks a living Slurm needs none of it

    return SavedReader(nodes, jobs, cluster=cluster)


def open_recording(path: str, cluster: str | None) -> Reader:
    """Open what slurm.recording.dump() wrote, of this cluster if one is named."""
    from .recording import RecordingReader  # noqa: PLC0415 - pydantic again

    return RecordingReader(path, cluster)

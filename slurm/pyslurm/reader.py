"""Asks a living slurmctld through pyslurm, in a child process (child.py, beside this) that can be killed.

In this process nothing of it would do: no RPC of libslurm can be given a deadline, libslurm's fatal() ends whoever
called it, a crash takes the publisher along, and importing pyslurm changes how every later library is loaded.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from slurm.commands.config import SHOW_CONFIG, Known, config_of
from slurm.errors import SlurmUnavailable
from slurm.fields import shown
from slurm.nodes import existing
from slurm.snapshot import Snapshot

from .rows import JobRow, NodeRow, parse_jobs, parse_nodes
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm.commands.config import Config
    from slurm.commands.run import Commands

_CHILD = os.path.join(os.path.dirname(__file__), "child.py")
# Run as a file, and without the working directory that -c adds: the child's path is what the environment says, and
# neither a `pyslurm` that happens to lie here nor a module of ours (errors, node, job ...) stands in its way.
_RUN = "import sys; sys.path[:] = filter(None, sys.path); import runpy; runpy.run_path({!r}, run_name='__main__')"
_ELSE = "use --source text"
_BUILD = "SLURM_INCLUDE_DIR and SLURM_LIB_DIR say where its slurm/slurm.h and libslurm.so are"


class PyslurmReader:
    """Asks through a child that lives on between two answers, and is replaced after anything went wrong.

    Slurm's commands are needed beside it: who the cluster is, and whose jobs are private, stands in `scontrol show
    config` alone.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._cluster = Known(commands)
        self._child: Worker | None = None
        self.traffic = {"pyslurm": commands.traffic}
        self.remarks: list[str] = []

    @property
    def config(self) -> Config | None:
        """What the cluster said of itself; None before the first answer."""
        return self._cluster.config

    def start(self) -> str:
        """Start the child anew, and return which pyslurm fits which Slurm. Raises SlurmUnavailable."""
        self.close()
        self._commands.begin()
        config = config_of(self._commands.ask(SHOW_CONFIG)[0].stdout)
        if self._commands.cluster not in {None, config.cluster}:
            raise SlurmUnavailable(
                f"pyslurm speaks to the cluster of slurm.conf, which is {config.cluster} and not "
                f"{self._commands.cluster}: name that one's by --slurm-conf, or {_ELSE}"
            )
        argv = [sys.executable, "-c", _RUN.format(_CHILD), str(os.getpid())]
        self._child = Worker(
            "pyslurm",
            argv,
            self._commands.environ,
            remedy=f"if that goes on, {_ELSE}",
            traffic=self._commands.traffic,
        )
        try:
            self._child.begin(self._commands.timeout)
            version = _greeted(self._child, config.slurm_version)
        except BaseException:  # an interrupt too: a child that never said hello must not live on
            self.close()
            raise
        self._cluster.config = config
        return f"pyslurm {version} fits Slurm {config.slurm_version}"

    def ensure_started(self) -> None:
        """Start the child if none is there, or it has ended. Raises SlurmUnavailable or SlurmProtocolError."""
        if self._child is None or not self._child.is_alive:
            self.start()

    def read(self) -> Snapshot:
        """Ask slurmctld once."""
        self.ensure_started()
        child, config = self._child, self._cluster.config
        assert child is not None
        assert config is not None
        try:
            self._commands.begin()
            child.begin(self._commands.timeout)
            child.ask(["Nodes", list(NodeRow.model_fields)])
            child.ask(["Jobs", list(JobRow.model_fields)])  # it loads these while we read those
            nodes = parse_nodes(_loaded(child, "Nodes"), config.cluster)
            allocations = parse_jobs(_loaded(child, "Jobs"), config.cluster)
            config = self._cluster.beside(allocations)
            self.remarks = [f"pyslurm: {child.said}"] if child.said else []
        except BaseException:
            # Also when slurmctld alone is to blame: libslurm read slurm.conf once, and this may be an old one.
            self.close()
            raise
        return Snapshot(
            cluster=config.cluster,
            slurm_version=config.slurm_version,
            nodes=existing(nodes, allocations),
            allocations=allocations,
            visible_user=config.visible_user,
        )

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def _greeted(child: Worker, running: str | None) -> str:
    """Await the child's first word; return the version of pyslurm, which must be made for this Slurm."""
    doing = "while it is imported"
    word, said = child.hear(doing)
    release = _release(running or "")
    of_release = f"=={release}.*" if release else ""
    if word == "missing":
        raise SlurmUnavailable(
            f"pyslurm is not installed in {sys.executable}: pip install 'segment-health[pyslurm]' "
            f"'pyslurm{of_release}' ({_BUILD}), or {_ELSE}"
        )
    if word == "broken":
        raise SlurmUnavailable(
            f"pyslurm is installed in {sys.executable} and cannot be imported: {str(said)[:500]!a}: build it for "
            f"the Slurm that runs here, by pip install --force-reinstall --no-cache-dir 'pyslurm{of_release}' "
            f"({_BUILD}), or {_ELSE}"
        )
    if word != "hello" or not isinstance(said, str):
        raise child.misunderstood(doing, f"{word} {said}")
    if release is None or _release(said) is None:
        raise SlurmUnavailable(f"pyslurm {shown(said)} and Slurm {running}: no telling whether they fit; {_ELSE}")
    if _release(said) != release:
        raise SlurmUnavailable(
            f"pyslurm {said} is for Slurm {_release(said)}, and {running} runs here: install pyslurm {release}.*, "
            f"or {_ELSE}"
        )
    return said


def _release(version: str) -> str | None:
    """Return the first two numbers, without the zero that Slurm writes and pyslurm does not: 22.05.8, 22.5.3."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", version, re.ASCII)
    return f"{int(found[1])}.{int(found[2])}" if found else None


def _loaded(child: Worker, what: str) -> Iterator[object]:
    """Give the rows of one answer while they arrive."""
    doing = f"while it loads {what.lower()}"
    count = 0
    while True:
        word, value = child.hear(doing)
        if word == "rows" and isinstance(value, list):
            count += len(value)
            yield from value
        elif word == "end" and value == [what, count]:
            return
        elif word == "error":
            raise SlurmUnavailable(f"pyslurm: {shown(str(value))}, {doing}")
        else:
            raise child.misunderstood(doing, f"{word} {value}")

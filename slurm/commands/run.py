"""Runs Slurm's commands: side by side, in a clean environment, with a deadline for all of them.

What it does not do: retry (one owner does, above), or use a shell.
"""

from __future__ import annotations

import os
import selectors
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from slurm.traffic import Traffic

from .process import no_interruption, overdue, start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .process import Running, Sink

_CHUNK = 1 << 18
_SCRUBBED = (
    ("SQUEUE_", "SINFO_", "SCONTROL_", "LC_"),
    frozenset(
        {
            "LANG",
            "LANGUAGE",
            "SLURM_BITSTR_LEN",
            "SLURM_CLUSTERS",
            "SLURM_DEBUG_FLAGS",
            "SLURM_JSON",
            "SLURM_TIME_FORMAT",
            "SLURM_YAML",
            "TZ",
        }
    ),
)
"""Prefixes and names of variables that change what Slurm's commands print, or whom they ask."""


class Completed(NamedTuple):
    """A command that ended with status 0: its output, and what it wrote to stderr (decoded, stripped).

    `stdout` is empty where a sink took it.
    """

    argv: tuple[str, ...]
    stdout: bytes
    stderr: str

    @property
    def remark(self) -> str | None:
        """What it said on stderr, in a line of its own for the log; None if nothing."""
        return f"{os.path.basename(self.argv[0])}: {self.stderr}" if self.stderr else None


class Commands:
    """Slurm's commands as this site has them.

    `timeout` is in seconds and holds for all that is asked since begin(). `directory` is where they are, else PATH
    says; `cluster` is the one that is wanted, where that may be another than slurm.conf's own. `meanwhile` is
    called once, while Slurm works on what it is first asked.
    """

    is_remote = False
    """Whether the cluster wanted is another one, to be reached through slurmdbd (`--clusters` of squeue(1))."""

    def __init__(
        self,
        *,
        timeout: float,
        environ: Mapping[str, str],
        directory: str | None = None,
        cluster: str | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self.timeout = timeout
        self.environ = clean_environment(environ)
        self.cluster = cluster
        self.traffic = Traffic()
        self._directory = directory
        self._deadline: float | None = None
        self._meanwhile = meanwhile

    def begin(self) -> None:
        """Let all that is asked from here on be answered within `timeout`."""
        self._deadline = time.monotonic() + self.timeout

    def ask(self, *queries: Sequence[str], sinks: Sequence[Sink] = ()) -> list[Completed]:
        """Run queries side by side; answers in order. With sinks, one each, output goes there as it comes.

        Raises as run() does.
        """
        meanwhile, self._meanwhile = self._meanwhile, None
        return run(
            [self._argv(query) for query in queries],
            timeout=self.timeout,
            environ=self.environ,
            sinks=sinks,
            deadline=self._deadline,
            traffic=self.traffic,
            meanwhile=meanwhile,
        )

    def _argv(self, query: Sequence[str]) -> list[str]:
        argv = [f"--clusters={self.cluster}" if self.is_remote and word == "--local" else word for word in query]
        if self._directory is not None:
            argv[0] = os.path.join(self._directory, argv[0])
        return argv


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy `environ` without what a user may have set to please their own eyes, in UTC and plain C."""
    prefixes, names = _SCRUBBED
    kept = {key: value for key, value in environ.items() if key not in names and not key.startswith(prefixes)}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def run(  # noqa: PLR0913 - what a command has, and who counts
    commands: Sequence[Sequence[str]],
    *,
    timeout: float,
    environ: Mapping[str, str],
    sinks: Sequence[Sink] = (),
    deadline: float | None = None,
    traffic: Traffic | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> list[Completed]:
    """Run commands at the same time and return their answers in order.

    With `sinks`, one a command, standard output is not kept but handed on while it arrives. `traffic` counts.
    `meanwhile` is called when all of them run, and before anything is read.

    `timeout` is in seconds and holds for all together; at the deadline, at the first failure and when this
    process is interrupted, every command is killed with its whole process group.

    Raises SlurmUnavailable when a command is missing, is killed, ends non-zero or does not end in time, and
    SlurmProtocolError when an answer is larger than MAX_OUTPUT, or its sink refuses it. Output on stderr with
    status 0 is no failure.
    """
    deadline = time.monotonic() + timeout if deadline is None else deadline
    running: list[Running] = []
    try:
        with no_interruption():
            for argv, sink in zip_longest(commands, sinks):
                running.append(start(tuple(argv), environ, sink))
        if meanwhile is not None:
            meanwhile()
        _collect(running, deadline, timeout)
        return [Completed(command.argv, bytes(command.stdout), command.said) for command in running]
    finally:
        for command in running:
            command.kill()
            if traffic is not None:
                traffic.count(queries=1, received=command.received)


def _collect(running: list[Running], deadline: float, timeout: float) -> None:
    """Read every pipe to its end, and every command to its status: the first that fails ends it all."""
    with selectors.DefaultSelector() as selector:
        for command in running:
            for stream in (command.process.stdout, command.process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream.fileno(), selectors.EVENT_READ, command)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                late = {key.data.name: key.data.said for key in selector.get_map().values()}
                said = "; ".join(filter(None, late.values()))
                raise overdue(", ".join(sorted(late)), timeout, said)
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if data:
                    key.data.take(key.fd, data)
                    continue
                selector.unregister(key.fd)
                if all(other.data is not key.data for other in selector.get_map().values()):
                    key.data.check_end(deadline, timeout)
    for command in running:
        if command.refusal is not None:
            raise command.refusal

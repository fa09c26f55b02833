"""A real slurmctld with a simulated fleet (fleet.sh), for as long as a measurement takes. Wants root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.timing import side_by_side
from slurm.commands.text import SHOW_JOBS, SHOW_NODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.timing import Timed

HERE = Path(__file__).parent
SEGMENT_HEALTH = str(Path(sys.executable).with_name("segment-health"))


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster of `nodes` nodes, c00001 and on, and an array of `tasks` tasks of `nodes_per_task` nodes each.

    `environ` is for whatever asks it. `directory` is an empty decision directory.
    """

    nodes: int
    tasks: int
    nodes_per_task: int
    environ: dict[str, str]
    directory: Path

    def scontrol(self, *words: str) -> None:
        """Tell slurmctld something."""
        subprocess.run(["scontrol", *words], env=self.environ, check=True)

    def drain(self, names: str) -> None:
        """Drain nodes, a hostlist."""
        self.scontrol("update", f"nodename={names}", "state=drain", "reason=benchmark")

    def resume(self, names: str) -> None:
        """Take a drain back."""
        self.scontrol("update", f"nodename={names}", "state=undrain")

    def publish(self, *further: str) -> list[str]:
        """Return the command of a single pass over the whole cluster."""
        return [SEGMENT_HEALTH, "publish", "--once", "--all", "--dir", str(self.directory), *further]


def bare_queries(
    environ: Mapping[str, str], nodes: Sequence[str] = SHOW_NODES, jobs: Sequence[str] = SHOW_JOBS
) -> Timed:
    """Return what asks what a pass asks: the same two queries side by side, and nobody reads the answers.

    Written to nowhere, which is cheaper than a pipe that is read.
    """
    return side_by_side((nodes, jobs), environ)


@contextlib.contextmanager
def fleet(nodes: int, tasks: int, nodes_per_task: int, *, drained: int = 150) -> Iterator[Fleet]:
    """Start a fleet, with its first nodes drained, and end it."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as temporary:
        place, directory = Path(temporary) / "fleet", Path(temporary) / "decisions"
        directory.mkdir()
        shape = [str(nodes), str(tasks), str(nodes_per_task)]
        _run(["bash", str(HERE / "fleet.sh"), "start", str(place), *shape])
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SLURM_"))}
        found = Fleet(nodes, tasks, nodes_per_task, kept | {"SLURM_CONF": str(place / "slurm.conf")}, directory)
        try:
            if drained:
                found.drain(f"c[00001-{drained:05}]")
            yield found
        finally:
            _run(["bash", str(HERE / "fleet.sh"), "stop", str(place)])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)

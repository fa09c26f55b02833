"""Asks Slurm's commands for text: the cheapest door that every site has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm.nodes import existing
from slurm.snapshot import Snapshot

from .config import SHOW_CONFIG, Known, config_of
from .job_rows import FIELDS, JobRows
from .node_rows import NodeRows

if TYPE_CHECKING:
    from .config import Config
    from .run import Commands

SHOW_NODES = ("scontrol", "--all", "--future", "--local", "show", "nodes", "--oneliner")
# `Field:|` (a suffix and no width) does not truncate and costs one RPC; only -O has RestartCnt and HetJobID.
# No state filter: it compares whole states, so `-t R` misses a configuring, resizing or signalled job (22.05).
# No -r: the tasks that hold nodes have rows of their own anyway, and pending arrays stay one row.
SHOW_JOBS = ("squeue", "--all", "--local", "--noheader", "--Format=" + ",".join(f"{name}:|" for name in FIELDS))


class TextReader:
    """Asks a living slurmctld through `scontrol` and `squeue`.

    One node query and one job query a pass, side by side and read while they arrive, however many jobs there are;
    the first pass also asks who the cluster is.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._cluster = Known(commands)
        self.traffic = {"text": commands.traffic}
        self.remarks: list[str] = []

    @property
    def config(self) -> Config | None:
        """What the cluster said of itself; None before the first answer."""
        return self._cluster.config

    def read(self) -> Snapshot:
        """Ask slurmctld once."""
        self._commands.begin()
        cluster = self._cluster
        if cluster.config is None and self._commands.cluster is not None:  # first of all find out where it is
            cluster.ask()
        nodes, jobs, config = NodeRows(), JobRows(), bytearray()
        queries = (SHOW_NODES, SHOW_JOBS) if cluster.config else (SHOW_NODES, SHOW_JOBS, SHOW_CONFIG)
        answers = self._commands.ask(*queries, sinks=(nodes.feed, jobs.feed, config.extend)[: len(queries)])
        self.remarks = [answer.remark for answer in answers if answer.remark]
        table, allocations = nodes.close(), jobs.close()
        if cluster.config is None:
            cluster.config = config_of(bytes(config))
        told = cluster.beside(allocations)
        return Snapshot(
            cluster=told.cluster,
            slurm_version=told.slurm_version,
            nodes=existing(table, allocations),
            allocations=allocations,
            visible_user=told.visible_user,
        )

    def close(self) -> None:
        """Keep nothing open."""

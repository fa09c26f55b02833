"""The slurm.conf of a sandbox."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# slurmstepd logs to SlurmdLogFile alone; slurmctld and slurmd, in the foreground, to standard error too.
# SchedulerParameters: else batch jobs wait 3 s to be scheduled together, heterogeneous ones up to 30 s.
_CONF = """\
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/state/slurmctld.pid
SlurmdPidFile={directory}/spool/%n/slurmd.pid
SlurmdLogFile={directory}/log/slurmd.%n.log
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
KillWait=5
SchedulerParameters=batch_sched_delay=0,bf_interval=1
NodeName=n[1-{nodes}] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{first_port}-{last_port}] {hardware}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def slurm_conf(  # noqa: PLR0913 - one parameter a trait of the cluster
    *, host: str, user: str, directory: Path, port: int, nodes: int, hardware: str, extra: Iterable[str]
) -> str:
    """Write slurm.conf(5) for `nodes` slurmds of one host, on the ports that follow slurmctld's.

    A line of `extra` without a space replaces the line of the same keyword, others (nodes, partitions) are added.
    """
    text = _CONF.format(
        host=host,
        user=user,
        directory=directory,
        port=port,
        nodes=nodes,
        first_port=port + 1,
        last_port=port + nodes,
        hardware=hardware,
    )
    lines = (*text.splitlines(), *extra)
    unique = {line if " " in line else line.partition("=")[0]: line for line in lines}
    return "\n".join(unique.values()) + "\n"


def wants_cgroup_conf(version: str) -> bool:
    """Tell, from what `slurmctld -V` prints, whether a cgroup.conf must say CgroupPlugin=disabled.

    Without it newer slurmds want a cgroup of their own; up to 23.11 they refuse the very value.
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= (24, 5)

"""Who a cluster is, by `scontrol show config`: its name, its version, its settings, and whose jobs we may see.

Asked once by every door that has Slurm's commands beside it; two of the three stand in no other answer.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm.job import Allocation

    from .run import Commands

SHOW_CONFIG = ("scontrol", "--local", "show", "config")
UID_MAP = "/proc/self/uid_map"
_AS_OF = re.compile(rb"Configuration data as of ([0-9-]{10}T[0-9:]{8})\n")
CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What may be the name of a cluster: it becomes part of a file name of ours."""


class Config(NamedTuple):
    """What Snapshot says of the cluster itself; and every setting, by its name in slurm.conf(5), as printed.

    `as_of` is slurmctld's own clock as it answered, in whole seconds since the epoch; None where it did not say.
    """

    cluster: str
    slurm_version: str | None
    visible_user: str | None
    settings: Mapping[str, str]
    as_of: int | None


def identify(commands: Commands) -> Config:
    """Ask which cluster this is; if it is not the one that was asked for, ask that one from here on.

    Raises SlurmUnavailable or SlurmProtocolError.
    """
    config = config_of(commands.ask(SHOW_CONFIG)[0].stdout)
    wanted = commands.cluster
    if wanted is None or config.cluster == wanted:
        return config
    if not commands.is_remote:
        commands.is_remote = True
        try:
            return identify(commands)
        except SlurmError:
            commands.is_remote = False  # else one wrong answer of our own slurmctld would send us away for good
            raise
    raise SlurmUnavailable(f"asked for cluster {wanted}, and {config.cluster} answered")


class Known:
    """The Config of the cluster that is asked, and asked for again whenever a job is no longer listed.

    PrivateData may be set while a loop runs: then jobs go out of sight, which must not be taken for their end. It
    may be lifted too: then jobs are listed that ought not to be.
    """

    def __init__(self, commands: Commands) -> None:
        self.config: Config | None = None
        self._commands = commands
        self._jobs: frozenset[str] = frozenset()

    def ask(self) -> Config:
        """Ask now. Raises as identify()."""
        self.config = identify(self._commands)
        return self.config

    def beside(self, allocations: Iterable[Allocation]) -> Config:
        """Return what holds for these allocations, which were listed just now. Raises as identify()."""
        allocations = tuple(allocations)
        listed = frozenset(allocation.job_id for allocation in allocations)
        config = self.config
        if config is None or self._jobs - listed or _shows_more(config, allocations):
            config = self.ask()
        self._jobs = listed  # not before: where asking fails, the next answer must ask again
        return config


def _shows_more(config: Config, allocations: Iterable[Allocation]) -> bool:
    """Whether there are jobs that we were not to see."""
    visible = config.visible_user
    return visible is not None and any(allocation.user_id != visible for allocation in allocations)


def config_of(output: bytes) -> Config:
    """Make a Config of what SHOW_CONFIG printed. Raises SlurmProtocolError."""
    values = parse_config(output)
    visible = _visible_user(values, _uid_to_slurm())
    return Config(values["ClusterName"], values.get("SLURM_VERSION"), visible, values, _as_of(output))


def _as_of(output: bytes) -> int | None:
    """Read the heading, which slurmctld's clock made as it answered; our commands print it in UTC."""
    found = _AS_OF.match(output)
    with contextlib.suppress(ValueError):
        if found is not None:
            told = datetime.fromisoformat(found[1].decode("ascii"))
            return int(told.replace(tzinfo=timezone.utc).timestamp())
    return None


def parse_config(output: bytes) -> dict[str, str]:
    """Read `scontrol show config`: values by key, both as printed.

    Raises SlurmProtocolError for an empty answer, one that is cut short (keys are sorted, and without PrivateData
    we would believe that we see every job), or one that names no cluster.
    """
    if not output.endswith(b"\n"):
        raise SlurmProtocolError(f"scontrol show config: {'answer cut short' if output else 'empty answer'}")
    config: dict[str, str] = {}
    for row in output.decode("utf-8", "backslashreplace").split("\n"):
        key, found, value = row.partition("=")
        if found:
            config.setdefault(key.strip(), value.strip())
    if CLUSTER_NAME.fullmatch(config.get("ClusterName", "")) is None:
        raise SlurmProtocolError("scontrol show config: no usable ClusterName in the answer")
    for key in ("PrivateData", "SlurmUser"):
        if key not in config:
            raise SlurmProtocolError(f"scontrol show config: answer cut short (no {key})")
    return config


def _uid_to_slurm() -> int:
    """Return whom Slurm takes this process for: a container's remapped root is an ordinary user outside."""
    uid = os.geteuid()
    with contextlib.suppress(OSError, ValueError), open(UID_MAP, encoding="ascii") as lines:
        for line in lines:
            inside, outside, count = map(int, line.split())
            if inside <= uid < inside + count:
                return outside + uid - inside
    return uid


def _visible_user(config: Mapping[str, str], uid: int) -> str | None:
    """Whose jobs alone this process sees: with PrivateData=jobs its own, unless it is root or SlurmUser.

    An operator sees more than this assumes, which costs a delayed retirement and never a false one.
    """
    private = {word.strip().lower() for word in config.get("PrivateData", "").split(",")}
    slurm_user = config.get("SlurmUser", "")
    if not private & {"jobs", "all"} or uid == 0 or slurm_user.endswith(f"({uid})"):
        return None
    return str(uid)

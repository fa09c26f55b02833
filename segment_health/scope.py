"""Scopes: which units one publisher speaks for. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .consumer import is_id

if TYPE_CHECKING:
    from slurm.job import Allocation

    from .contract import UnitId

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}"
"""Names of users and partitions that may become part of a file name."""
_MAX_JOBS = 16
"""Jobs of one sidecar: its scope is part of a file name."""
_MAX_NAME = 160
"""Characters of a scope, for the same reason."""


class Scope(NamedTuple):
    """These jobs, this user, this partition, or everything. `str(scope)` is its public name: `job:123,140`.

    `kind` is "job", "user", "partition" or "all". Made by the functions below, which raise ValueError for what
    cannot be one.
    """

    kind: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(self.values)}" if self.values else self.kind

    def covers(self, allocation: Allocation) -> bool:
        """Whether an allocation that is there belongs to this scope."""
        named: dict[str, set[str | None]] = {
            "job": {allocation.job_id, allocation.array_job_id, allocation.het_job_id},
            "user": {allocation.user, allocation.user_id},
            "partition": {allocation.partition},
        }
        return self.kind == "all" or not named[self.kind].isdisjoint(self.values)

    def covers_absent(self, unit: UnitId) -> bool:
        """Whether a unit that is gone belonged to this scope, as far as its ids alone can tell."""
        return self.kind == "all" or (self.kind == "job" and unit.job_id in self.values)


EVERYTHING = Scope("all")


def of_jobs(job_ids: tuple[str, ...]) -> Scope:
    """Make the scope of some jobs; an array's id means all its tasks."""
    for job_id in job_ids:
        if not is_id(job_id):
            raise ValueError(f"not a job id (decimal digits): {job_id[:40]!a}")
    unique = tuple(sorted({str(int(job_id)) for job_id in job_ids}, key=int))
    if len(unique) > _MAX_JOBS:
        raise ValueError(f"{len(unique)} jobs are more than {_MAX_JOBS}; use --user, --partition or --all")
    scope = Scope("job", unique)
    if len(str(scope)) > _MAX_NAME:
        raise ValueError("these job ids are too long for one publisher; use --user, --partition or --all")
    return scope


def of_user(name: str) -> Scope:
    """Make the scope of one user, by name or by uid."""
    return Scope("user", (_checked(name, "user"),))


def of_partition(name: str) -> Scope:
    """Make the scope of one partition."""
    return Scope("partition", (_checked(name, "partition"),))


def named(text: str) -> Scope:
    """Read a scope's public name back, `job:123,140`; what is none is everything."""
    kind, _, values = text.partition(":")
    if kind in {"job", "user", "partition"} and values:
        return Scope(kind, tuple(values.split(",")))
    return EVERYTHING


def _checked(name: str, what: str) -> str:
    if re.fullmatch(_NAME, name) is None:
        raise ValueError(f"not the name of a {what}: {name[:40]!a}")
    return name

"""What `publish` is told to do: settings, scope, directory and source, put together."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from segment_health import __version__

from . import in_force, source
from .failure import ATTENTION, USAGE, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segment_health.reload import PolicyFile
    from segment_health.scope import Scope
    from segment_health.service import Plan
    from segment_health.settings import Settings


def plan(
    given: Mapping[str, Any], config: str | None, *, loop: bool = False, dry_run: bool = False, force: bool = False
) -> tuple[Plan, Settings]:
    """Return what to do, and by which settings. Raises Failure."""
    from segment_health import settings  # noqa: PLC0415
    from segment_health.policy.content import PolicyError  # noqa: PLC0415
    from segment_health.publication import Publication  # noqa: PLC0415
    from segment_health.service import Plan, prepare  # noqa: PLC0415

    try:
        told = settings.load(given, os.environ, config)
        scope = told.scope(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID"))
        directory, real = _located(told, guarded=told.guards(scope), loop=loop)
        policy_file = _followed(told, told.policy) if told.policy else None
        publication = Publication(
            directory=directory,
            scope=scope,
            policy=policy_file.read() if policy_file else in_force.policy(told),
            version=__version__,
            interval=told.interval,
            own_job=None if told.replay or told.nodes_from else _own_job(scope, told.cluster, os.environ),
            loop=loop,
            replay=told.replay is not None,
            adopt=told.adopt,
            dry_run=dry_run,
            force=force,
            reports=in_force.reports(told),
            guarded=told.guards(scope),
            storage_timeout=told.storage_timeout,
            precreate=told.precreate,
            portray=loop and told.listen is not None,
        )
        observed, lock_name = source.opened(told, os.environ, once=not loop, meanwhile=prepare)
    except (settings.SettingsError, PolicyError) as error:
        raise Failure(str(error), USAGE) from error
    return Plan(
        publication,
        observed,
        stale_after=None if told.stale_after == "never" else float(told.stale_after),
        standby=told.standby,
        on_separate=told.on_separate,
        lock_name=lock_name,
        policy_file=policy_file,
        lock_directory=real,
    ), told


def _followed(told: Settings, path: str) -> PolicyFile:
    """Return the policy file that settings name, as one that may change."""
    from segment_health.reload import PolicyFile  # noqa: PLC0415 - only who has such a file follows one

    return PolicyFile(path, functools.partial(in_force.policy, told))


def _located(told: Settings, *, guarded: bool, loop: bool) -> tuple[str, str]:
    """Return the decision directory and its real path; a loop begins although storage hangs, and tries again."""
    try:
        return told.located(guarded=guarded)
    except TimeoutError as error:
        if not loop:
            raise Failure(f"the decision directory: {error.strerror}; nothing was done", ATTENTION) from error
        return told.named_directory(), os.path.normpath(told.named_directory())


def _own_job(scope: Scope, asked: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the job in which this process runs, if the scope covers it, and it is of the cluster asked for."""
    names = {
        "job": ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"),
        "user": ("SLURM_JOB_USER", "SLURM_JOB_UID"),
        "partition": ("SLURM_JOB_PARTITION",),
        "all": (),
    }[scope.kind]
    if asked not in {None, environ.get("SLURM_CLUSTER_NAME")}:
        return None  # ids of another cluster
    covered = scope.kind == "all" or any(environ.get(name) in scope.values for name in names)
    return environ.get("SLURM_JOB_ID") or None if covered else None

"""Makes built-in checks by name, one after the other within the time that all of them have together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from segment_health.checks import chain

from .answer import Unknown, Verdict
from .settings import ConfigError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from segment_health.checks.health_check import Finding

    from .settings import Builtin

    Check = Callable[[float], Finding]

_ORDER = ("segment", "paths", "storage", "nhc", "slurm")
"""Every check, in the order in which they are made: slurmctld, which others ask too, is asked last."""
_LEAST_SECONDS = 1.0
_PROBE_SECONDS = 15.0
_STORAGE_REST = 4.0
"""What the check of storage takes beyond twice the seconds of a probe."""


def prepared(names: Sequence[str], told: Builtin, environ: Mapping[str, str], path: str) -> dict[str, Check]:
    """Return the checks that are named, each of which may take the seconds that it is called with.

    Touches nothing but the policy file. Raises ConfigError for a check that lacks what it needs; `path` is the
    configuration.
    """
    require(names, told, path)
    makers = {"segment": _segment, "paths": _paths, "storage": _storage, "nhc": _nhc, "slurm": _slurm}
    return {name: makers[name](told, environ, path) for name in _ORDER if name in names}


def run(checks: Mapping[str, Check], seconds: float, clock: Callable[[], float] = time.monotonic) -> list[Verdict]:
    """Make all checks, whatever one of them says. A check that fails itself knows nothing."""
    deadline = clock() + seconds
    verdicts = []
    for name, check in checks.items():
        try:
            verdicts.append(Verdict(name, check(max(_LEAST_SECONDS, round(deadline - clock(), 1)))))
        except Unknown as unknown:
            verdicts.append(Verdict(name, None, str(unknown)))
        except Exception as error:  # noqa: BLE001 - a mistake of ours excludes nobody
            verdicts.append(Verdict(name, None, f"the check itself failed: {type(error).__name__}: {error}"))
    return verdicts


def _segment(told: Builtin, environ: Mapping[str, str], _path: str) -> Check:
    def check(seconds: float) -> Finding:
        if not (
            environ.get("SLURM_PROCID") and (environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID"))
        ):
            raise Unknown(
                "not in a job: neither its id nor SLURM_PROCID is set. This check is one of a daemon that the job "
                "starts itself, from its batch script or by srun --ntasks-per-node=1"
            )
        seconds = min(seconds, chain.SEGMENT_SECONDS)
        return chain.segment_finding(told.segment_health_check_dir, environ, seconds)

    return check


def _paths(told: Builtin, _environ: Mapping[str, str], _path: str) -> Check:
    def check(seconds: float) -> Finding:
        from segment_health.checks.storage import StoragePathHealthCheck  # noqa: PLC0415 - as all below: what is needed

        return StoragePathHealthCheck(told.paths, seconds=min(_PROBE_SECONDS, seconds)).look()

    return check


def _storage(told: Builtin, _environ: Mapping[str, str], _path: str) -> Check:
    def check(seconds: float) -> Finding:
        from segment_health.checks.storage import DistributedStorageHealthCheck  # noqa: PLC0415

        each = max(_LEAST_SECONDS, min(_PROBE_SECONDS, (seconds - _STORAGE_REST) / 2))
        return DistributedStorageHealthCheck(types=told.storage_types, seconds=each).look()

    return check


def _nhc(told: Builtin, environ: Mapping[str, str], _path: str) -> Check:
    def check(seconds: float) -> Finding:
        from . import nhc  # noqa: PLC0415

        return nhc.look(told.nhc, environ, seconds)

    return check


def _slurm(told: Builtin, environ: Mapping[str, str], path: str) -> Check:
    from segment_health.policy.content import PolicyError  # noqa: PLC0415

    from . import own_state  # noqa: PLC0415

    try:
        policy = own_state.policy_of(told)
    except PolicyError as error:
        raise ConfigError(f"{path}: builtin.policy: {error}") from error

    def check(seconds: float) -> Finding:
        return own_state.look(told, policy, environ, seconds, int(time.time()))

    return check

"""The checks before a rendezvous, in NVRx's order: the first that fails ends them.

Of NVRx 0.7.0's chain (fault_tolerance/ft_rendezvous_barrier.py, ensure_node_is_healthy) those of the GPU and of
network links stand between the first and the second of ours; they are NVRx's own, and no part of this.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from segment_health.bounded import bounded
from segment_health.consumer import SegmentHealthCheck, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .health_check import Finding
    from .wanted import Wanted

SEGMENT_SECONDS = 30.0
"""How long the storage of the decision directory may take to answer one stat; then the decision is ignored."""


class Step(NamedTuple):
    """One check of the chain: what it is called, the flag that enables it, what it looks at and how.

    `about` is None where it is not enabled.
    """

    title: str
    flag: str
    about: str | None
    look: Callable[[], Finding]


class Result(NamedTuple):
    """What came of a step; `finding` is None where it was not enabled, or not reached."""

    step: Step
    finding: Finding | None
    seconds: float = 0.0


def steps(wanted: Wanted, environ: Mapping[str, str]) -> tuple[Step, ...]:
    """Return the chain, which imports and touches nothing before a step is looked at."""

    def segment() -> Finding:
        return segment_finding(wanted.segment_dir, environ)

    def storage() -> Finding:
        from .storage import DistributedStorageHealthCheck  # noqa: PLC0415 - each step loads what it needs

        return DistributedStorageHealthCheck().look()

    def paths() -> Finding:
        from .storage import StoragePathHealthCheck  # noqa: PLC0415

        return StoragePathHealthCheck(list(wanted.storage_paths)).look()

    def node() -> Finding:
        from .node import NodeHealthCheck  # noqa: PLC0415 - a child, 0.3 s

        return NodeHealthCheck(wanted.endpoint).look()

    mounts = "Lustre's health, and every Lustre and NFS mount" if wanted.storage else None
    listed = ", ".join(wanted.storage_paths) or None
    return (
        Step("Segment health check", "--ft-segment-health-check-dir DIR", wanted.segment_dir or None, segment),
        Step("Distributed storage health check", "--ft-enable-dist-storage-healthcheck true", mounts, storage),
        Step("Storage path health check", "--ft-storage-health-check-path PATH,...", listed, paths),
        Step("Node health check", "--ft-node-health-check-endpoint SOCKET", wanted.endpoint or None, node),
    )


def walk(chain: tuple[Step, ...], clock: Callable[[], float] = time.monotonic) -> Iterator[Result]:
    """Make the checks that are enabled, one by one; after the first that fails no further one is made."""
    failed = False
    for step in chain:
        if step.about is None or failed:
            yield Result(step, None)
            continue
        began = clock()
        finding = step.look()
        failed = not finding.is_healthy
        yield Result(step, finding, clock() - began)


def segment_finding(
    directory: str | None, environ: Mapping[str, str], seconds: float = SEGMENT_SECONDS
) -> Finding:
    """Say what the consumer does of this process's unit: a problem, or nothing, or why a decision is ignored.

    It fails open, also where the storage does not answer. ValueError for a relative directory.
    """
    from .health_check import Finding  # noqa: PLC0415 - logging

    check, warning = select(directory, environ)
    if check is None:
        return Finding(remarks=(warning,) if warning else ())
    try:
        healthy, warning = bounded(check.examine, seconds, check.path)
    except OSError as error:  # late, or no child to be had
        healthy, warning = True, f"Ignoring segment health decision: {error.strerror or error}"
    if healthy:
        return Finding(remarks=(warning,) if warning else ())
    return Finding((excluded(check),))


def excluded(check: SegmentHealthCheck) -> str:
    """Say which unit is excluded, and by what."""
    return (
        f"Slurm allocation unit job_id={check.job_id} task_id={check.task_id} is excluded: {check.path} is not "
        "empty (its content says why)"
    )

"""All that a pass knows before it decides: what Slurm and other sources say, and what the directory holds."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .atomic import host_name
from .contract import Publisher
from .situation import Memory, Situation
from .sources import SourceUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm.snapshot import Snapshot

    from .contract import UnitId
    from .ledger import Ledger
    from .policy.assess import Assessment
    from .publication import Publication
    from .scope import Scope
    from .situation import Override
    from .sources import Source
    from .store import DecisionDirectory


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen at `now` (seconds since the epoch, UTC); `remarks` are worth a person's look."""

    snapshot: Snapshot
    reports: Mapping[str, Assessment] | None
    now: int
    remarks: list[str]


def observe(publication: Publication, source: Source, clock: Callable[[], float]) -> Observation:
    """Ask Slurm, and what else is asked. Raises SourceUnknown when the truth could not be learned."""
    snapshot = source.observe()
    _must_show_own_job(publication, snapshot)
    now = int(clock())
    remarks = [*source.remarks, *_partial_view(publication.scope, snapshot)]
    if publication.policy_error is not None:
        remarks.append(f"the policy in force is an older one: {publication.policy_error}")
    if publication.reports is None:
        return Observation(snapshot, None, now, remarks)
    told = publication.reports.read(snapshot.nodes.keys(), now)
    return Observation(snapshot, told.assessments, now, [*remarks, *told.remarks])


def situate(
    observation: Observation, publication: Publication, directory: DecisionDirectory, ledger: Ledger
) -> tuple[Situation, list[str], list[str]]:
    """Put what was seen beside what the directory and the scope's ledger hold; return remarks and failures too.

    Raises OSError when the artifacts could not be read.
    """
    cluster, scope = observation.snapshot.cluster, str(publication.scope)
    published = directory.read()
    before = _look_back(ledger, (cluster, scope), observation.now)
    situation = Situation(
        snapshot=observation.snapshot,
        published=published,
        memory=before.memory,
        scope=publication.scope,
        policy=publication.policy,
        publisher=Publisher(host_name(), os.getpid(), publication.version, cluster, scope),
        now=observation.now,
        living=before.living,
        previous_pass=before.previous_pass,
        overrides=before.overrides,
        reports=observation.reports,
        adopt=publication.adopt,
        force=publication.force,
    )
    return situation, before.remarks, before.failures


@dataclass(slots=True)
class _Before:
    """What the ledger told. Where it could not be read, nothing is remembered and nobody counts as dead."""

    memory: Memory = field(default_factory=Memory)
    previous_pass: int | None = None
    living: frozenset[tuple[str, str]] | None = None
    overrides: dict[UnitId, Override] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def _look_back(ledger: Ledger, us: tuple[str, str], now: int) -> _Before:
    """Read the ledger; an exclusion must not wait for it, so what cannot be read is a failure of the pass only."""
    before = _Before()
    try:
        before.memory, remark = ledger.recall()
        before.remarks.extend(filter(None, [remark]))
        beats = {(beat.publisher.cluster, beat.publisher.scope): beat for beat in ledger.heartbeats()}
        before.living = frozenset(who for who, beat in beats.items() if beat.is_alive(now))
        before.previous_pass = beats[us].last_complete_pass if us in beats else None
        before.overrides = ledger.overrides()
    except OSError as error:
        before.failures.append(f"the ledger could not be read: {error.strerror or error}")
    return before


def _partial_view(scope: Scope, snapshot: Snapshot) -> list[str]:
    """Say that a scope of many users' jobs is seen by one user's eyes."""
    user = snapshot.visible_user
    if user is None or scope.kind not in {"all", "partition"}:
        return []
    return [f"Slurm may show us jobs of uid {user} alone (PrivateData): nothing is decided for anybody else's"]


def _must_show_own_job(publication: Publication, snapshot: Snapshot) -> None:
    """Refuse an answer in which the job that we run in does not run."""
    own = publication.own_job
    if own is not None and not any(own == allocation.job_id for allocation in snapshot.allocations):
        raise SourceUnknown(f"job {own}, in which this runs, is not among the running jobs that Slurm lists")

"""All that a pass knows before it decides: what Slurm and other sources say, and what the directory holds."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .atomic import host_name
from .contract import Publisher
from .policy.assess import Assessment, Finding, worse
from .publication import Holder
from .situation import Memory, Situation
from .sources import SourceUnknown
from .unit import unit_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from slurm.snapshot import Snapshot

    from .contract import UnitId
    from .ledger import Ledger
    from .publication import Publication, Reporting, Reports
    from .scope import Scope
    from .situation import Override
    from .sources import Source
    from .store import DecisionDirectory


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen at `now` (seconds since the epoch, UTC); `remarks` are worth a person's look.

    `began` is when Slurm was first asked: what somebody else learned after that is newer than this. `publisher` is
    who asked, and `asked` names the sources beside Slurm, by how their rules begin: `reports` is what they say.
    `failures` say which of these were silent.
    """

    snapshot: Snapshot
    reports: Mapping[str, Assessment]
    asked: frozenset[str]
    now: int
    remarks: list[str]
    began: int
    publisher: Publisher
    failures: list[str] = field(default_factory=list)


def observe(publication: Publication, source: Source, clock: Callable[[], float]) -> Observation:
    """Ask Slurm, and what else is asked. Raises SourceUnknown when the truth could not be learned."""
    began = int(clock())
    snapshot = source.observe()
    seen = saw(snapshot, publication, source, began, int(clock()))
    return consult(seen, publication.reports, lambda one, nodes, now: one.read(nodes, now))


def saw(snapshot: Snapshot, publication: Publication, source: Source, began: int, now: int) -> Observation:
    """Put what Slurm said beside who asked, and when: it was asked at `began` and had answered at `now`.

    Raises SourceUnknown when that cannot be the truth.
    """
    _must_show_own_job(publication, snapshot)
    remarks = [*source.remarks, *_partial_view(publication.scope, snapshot)]
    if publication.policy_error is not None:
        remarks.append(f"the policy in force is an older one: {publication.policy_error}")
    us = Publisher(
        publication.host or host_name(), os.getpid(), publication.version, snapshot.cluster, str(publication.scope)
    )
    return Observation(snapshot, {}, frozenset(), now, remarks, began, us)


def consult(
    observation: Observation,
    sources: Sequence[Reporting],
    read: Callable[[Reporting, Mapping[str, Collection[Holder]], int], Reports],
) -> Observation:
    """Add what other sources say of the same nodes; `read` asks one of them.

    Raises SourceUnknown for an essential one that is silent.
    """
    nodes = _held(observation.snapshot) if sources else {}
    for one in sources:
        remarks, failures = list[str](), list[str]()
        try:
            told = read(one, nodes, observation.now)
            said, remarks = told.assessments, told.remarks
        except SourceUnknown as unknown:
            if one.is_essential:
                raise
            said = dict.fromkeys(nodes, _silent(one.mark))
            failures = [f"{unknown}; until it can, nothing is lifted, and what Slurm says excludes as ever"]
        observation = replace(
            observation,
            reports={name: _worst(name, observation.reports, said) for name in (*observation.reports, *said)},
            asked=observation.asked | {one.mark},
            remarks=[*observation.remarks, *remarks],
            failures=[*observation.failures, *failures],
        )
    return observation


def _worst(name: str, *said: Mapping[str, Assessment]) -> Assessment:
    first, second = (one.get(name) for one in said)
    told = worse(first, second)
    assert told is not None  # one of them names it
    return told


def _silent(mark: str) -> Assessment:
    """Return what a node is worth of which a source would tell, and cannot."""
    word = f"{mark}unread"
    return Assessment(None, word, final=False, findings=(Finding(word, None, None),))


def _held(snapshot: Snapshot) -> dict[str, set[Holder]]:
    """Return who holds each node that Slurm lists."""
    held: dict[str, set[Holder]] = {name: set() for name in snapshot.nodes}
    for allocation in snapshot.allocations:
        holder = Holder(unit_id_of(allocation).job_id, allocation.user_id)
        for name in allocation.nodes:
            if name in held:
                held[name].add(holder)
    return held


def situate(
    observation: Observation, publication: Publication, directory: DecisionDirectory, ledger: Ledger
) -> tuple[Situation, list[str], list[str]]:
    """Put what was seen beside what the directory and the scope's ledger hold; return remarks and failures too.

    Raises OSError when the artifacts could not be read.
    """
    us = observation.publisher
    published = directory.read()
    before = _look_back(ledger, (us.cluster, us.scope), observation.now)
    situation = Situation(
        snapshot=observation.snapshot,
        published=published,
        memory=before.memory,
        scope=publication.scope,
        policy=publication.policy,
        publisher=observation.publisher,
        now=observation.now,
        began=observation.began,
        living=before.living,
        previous_pass=before.previous_pass,
        previous_asked=before.previous_asked,
        previous_host=before.previous_host,
        overrides=before.overrides,
        reports=observation.reports,
        asked=observation.asked,
        adopt=publication.adopt,
        force=publication.force,
        precreate=publication.precreate,
        empty=dict(directory.empty),
    )
    return situation, before.remarks, before.failures


@dataclass(slots=True)
class _Before:
    """What the ledger told. Where it could not be read, nothing is remembered and nobody counts as dead."""

    memory: Memory = field(default_factory=Memory)
    previous_pass: int | None = None
    previous_asked: int | None = None
    previous_host: str | None = None
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
        if us in beats:
            before.previous_pass, before.previous_asked = beats[us].last_complete_pass, beats[us].asked
            before.previous_host = beats[us].publisher.host
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

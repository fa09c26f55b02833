"""One pass: observe, decide, publish. Everything that a pass touches is handed in."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .atomic import host_name
from .contract import Publisher
from .decide import decide
from .memory import Heartbeat, history_entry
from .situation import Action, Situation
from .sources import SourceUnknown
from .store import Change, open_decisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.snapshot import Snapshot

    from .contract import UnitId
    from .ledger import Ledger
    from .policy.assess import Policy
    from .scope import Scope
    from .situation import Outcome, Override, Remembered
    from .sources import Source
    from .store import DecisionDirectory

_EXCLUSIONS_FIRST = {Action.EXCLUDE: 0, Action.UPDATE: 1, Action.CLEAR: 2, Action.RETIRE: 3, Action.FOREIGN: 4}


@dataclass(slots=True)
class Pass:
    """A complete pass.

    `remembered` says that the state is on disk. `remarks` are worth a person's look; `failures` are what could not
    be written beside artifacts (heartbeat, state, history).
    """

    snapshot: Snapshot
    outcome: Outcome
    changes: list[Change]
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    remembered: bool = False

    @property
    def wrote_everything(self) -> bool:
        """Whether all that had to be written was."""
        return not self.failures and all(change.error is None for change in self.changes)


@dataclass(frozen=True, slots=True)
class Publication:
    """What stays the same from pass to pass: where to publish, for whom, by which policy.

    `interval` is in seconds: how soon the next pass is promised, by which others judge whether we live; `loop`
    says that this very process will make it. A `replay` is of some other time: it leaves no heartbeat, since that
    would vouch for now.
    `own_job` is the job in which this process runs, None outside one: if its scope covers that job, an answer
    without it is not the truth.
    """

    directory: str
    scope: Scope
    policy: Policy
    version: str
    interval: float
    own_job: str | None = None
    loop: bool = False
    replay: bool = False
    adopt: bool = False
    dry_run: bool = False


def run_once(publication: Publication, source: Source, clock: Callable[[], float]) -> Pass:
    """Make one pass.

    Raises SourceUnknown when Slurm's state could not be learned, and OSError when the directory could not be
    read: in both cases nothing was written, cleared or retired.
    """
    snapshot = source.observe()
    _must_show_own_job(publication, snapshot)
    publisher = Publisher(host_name(), os.getpid(), publication.version, snapshot.cluster, str(publication.scope))
    now = int(clock())
    with open_decisions(publication.directory) as directory:
        published = directory.read()
        ledger = directory.ledger(publisher.cluster, publisher.scope)
        before = _look_back(ledger, now)
        outcome = decide(
            Situation(
                snapshot=snapshot,
                published=published,
                memory=before.memory,
                scope=publication.scope,
                policy=publication.policy,
                publisher=publisher,
                now=now,
                living=before.living,
                overrides=before.overrides,
                adopt=publication.adopt,
            )
        )
        outcome.decisions.sort(key=lambda decision: _EXCLUSIONS_FIRST[decision.action])
        remarks = [*source.remarks, *before.remarks, *_partial_view(publication.scope, snapshot)]
        done = Pass(snapshot, outcome, [], remarks, before.failures)
        if publication.dry_run:
            done.changes = [Change(decision, directory.path_of(decision.unit)) for decision in outcome.decisions]
            return done
        directory.tidy()
        done.changes = [directory.attempt(decision) for decision in outcome.decisions]
        for change in done.changes:  # what could not be retired is not forgotten
            if change.error is not None and change.decision.unit in before.memory:
                outcome.memory.setdefault(change.decision.unit, before.memory[change.decision.unit])
        heartbeat = Heartbeat(publisher, publication.policy.name, now, publication.interval, publication.loop)
        _keep(done, directory, ledger, heartbeat, vouches=not publication.replay)
    return done


@dataclass(slots=True)
class _Before:
    """What the ledger told. Where it could not be read, nothing is remembered and nobody counts as dead."""

    memory: dict[UnitId, Remembered] = field(default_factory=dict)
    living: frozenset[tuple[str, str]] | None = None
    overrides: dict[UnitId, Override] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def _look_back(ledger: Ledger, now: int) -> _Before:
    """Read the ledger; an exclusion must not wait for it, so what cannot be read is a failure of the pass only."""
    before = _Before()
    try:
        before.memory, remark = ledger.recall()
        before.remarks.extend(filter(None, [remark]))
        before.living = frozenset(
            (beat.publisher.cluster, beat.publisher.scope) for beat in ledger.heartbeats() if beat.is_alive(now)
        )
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


def _keep(
    done: Pass, directory: DecisionDirectory, ledger: Ledger, heartbeat: Heartbeat, *, vouches: bool
) -> None:
    """Make the pass durable and remember it; the heartbeat comes last, for it vouches for all the rest."""
    entries = [
        history_entry(
            change.decision.action.value, change.decision, heartbeat.publisher, heartbeat.last_complete_pass
        )
        for change in done.changes
        if change.error is None and change.decision.action is not Action.FOREIGN
    ]

    def remember() -> None:
        ledger.remember(done.outcome.memory)
        done.remembered = True

    steps: list[tuple[str, Callable[[], None]]] = [
        ("the state", remember),
        ("the history", lambda: ledger.record(entries)),
        ("the overrides", lambda: _drop(done.outcome.void_overrides, ledger)),
        ("the heartbeat", lambda: ledger.beat(heartbeat) if vouches else None),
        ("what is left of dead publishers", lambda: ledger.bury(heartbeat.last_complete_pass)),
    ]
    if entries:
        steps.insert(0, ("the directory (fsync)", directory.sync))
    failed: dict[str, list[str]] = {}
    for what, step in steps:
        try:
            step()
        except OSError as error:
            failed.setdefault(error.strerror or str(error), []).append(what)
    done.failures += [f"{', '.join(what)} could not be written: {cause}" for cause, what in failed.items()]


def _drop(units: list[UnitId], ledger: Ledger) -> None:
    for unit in units:
        ledger.drop_override(unit)

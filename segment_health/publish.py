"""One pass: observe, decide, publish. Everything that a pass touches is handed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .decide import decide
from .memory import Heartbeat, history_entry
from .observe import observe, situate
from .situation import Action
from .store import Change, open_decisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.snapshot import Snapshot

    from .contract import UnitId
    from .ledger import Ledger
    from .policy.assess import Policy
    from .publication import Publication
    from .situation import Outcome
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
    policy: Policy
    outcome: Outcome
    changes: list[Change]
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    remembered: bool = False

    @property
    def wrote_everything(self) -> bool:
        """Whether all that had to be written was, and nothing was held."""
        complete = not self.failures and all(change.error is None for change in self.changes)
        return complete and not self.outcome.held


def run_once(publication: Publication, source: Source, clock: Callable[[], float]) -> Pass:
    """Make one pass.

    Raises SourceUnknown when Slurm's state could not be learned, and OSError when the directory could not be
    read: in both cases nothing was written, cleared or retired.
    """
    observation = observe(publication, source, clock)
    with open_decisions(publication.directory) as directory:
        ledger = directory.ledger(observation.snapshot.cluster, str(publication.scope))
        situation, remarks, failures = situate(observation, publication, directory, ledger)
        outcome = decide(situation)
        outcome.decisions.sort(key=lambda decision: _EXCLUSIONS_FIRST[decision.action])
        remarks = [*observation.remarks, *remarks]
        done = Pass(observation.snapshot, publication.policy, outcome, [], remarks, failures)
        if publication.dry_run:
            done.changes = [Change(decision, directory.path_of(decision.unit)) for decision in outcome.decisions]
            return done
        directory.tidy()
        done.changes = [directory.attempt(decision) for decision in outcome.decisions]
        for change in done.changes:  # what could not be retired is not forgotten
            if change.error is not None and change.decision.unit in situation.memory.units:
                outcome.memory.setdefault(change.decision.unit, situation.memory.units[change.decision.unit])
        heartbeat = Heartbeat(
            situation.publisher,
            str(publication.policy),
            situation.now,
            publication.interval,
            publication.loop,
            publication.policy_error,
        )
        _keep(done, directory, ledger, heartbeat, vouches=not publication.replay)
    return done


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
        ledger.remember(done.outcome.remembered())
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

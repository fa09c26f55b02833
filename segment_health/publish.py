"""One pass: observe, decide, publish. Everything that a pass touches is handed in."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import history
from .contract import Artifact, Content
from .decide import decide
from .memory import Heartbeat
from .observe import observe, situate
from .situation import Action, writer
from .store import Change, open_decisions

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .contract import UnitId
    from .ledger import Ledger
    from .observe import Observation
    from .page.picture import Picture
    from .publication import Publication
    from .situation import Decision, Outcome, Situation
    from .sources import Source
    from .store import DecisionDirectory

_ORDER = {
    Action.EXCLUDE: 0,
    Action.UPDATE: 1,
    Action.CLEAR: 2,
    Action.RETIRE: 3,
    Action.PRECREATE: 4,
    Action.FOREIGN: 5,
}
"""Exclusions come first."""
_ELSEWHERE = (
    "it is in another file system than in the last pass, and nothing of this publisher is there: is its own not "
    "mounted? Nothing was changed; if this is meant, start the publisher anew"
)


@dataclass(slots=True)
class Pass:
    """A complete pass, in which `nodes` nodes of a cluster were judged.

    `policy`, `limit` (new exclusions at once) and `hold_passes` are those in force, for people. `remembered` says
    that the state is on disk. `remarks` are worth a person's look; `failures` are what could not be written beside
    artifacts (heartbeat, state, history), and what could not be read. `device` is the file system in which the
    directory is. `excluded` counts the scope's units that are excluded now, by level, those by somebody else's
    hand as "foreign". `picture` is for the status page, None where nobody asked for one.
    """

    cluster: str
    slurm_version: str | None
    nodes: int
    policy: str
    limit: str
    hold_passes: int
    outcome: Outcome
    changes: list[Change] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    remembered: bool = False
    device: int | None = None
    excluded: dict[str, int] = field(default_factory=dict)
    picture: Picture | None = None

    @property
    def wrote_everything(self) -> bool:
        """Whether all that had to be written was, and nothing was held."""
        complete = not self.failures and all(change.error is None for change in self.changes)
        return complete and not self.outcome.held


def run_once(publication: Publication, source: Source, clock: Callable[[], float]) -> Pass:
    """Make one pass, storage and all, in this process.

    Raises SourceUnknown when Slurm's state could not be learned, and OSError when the directory could not be
    read: in both cases nothing was written, cleared or retired.
    """
    return publish(observe(publication, source, clock), publication, clock)


def publish(observation: Observation, publication: Publication, clock: Callable[[], float]) -> Pass:
    """Decide on what was observed and write it down: all of a pass that touches the decision directory.

    Raises OSError when the directory could not be read, or its file system is not mounted any more, and nothing
    was changed; or when the observation is too
    old to go on by, TimeoutError, and what was not changed until then stays.
    """
    snapshot, policy = observation.snapshot, publication.policy
    with open_decisions(publication.directory, guarded=publication.guarded) as directory:
        ledger = directory.ledger(snapshot.cluster, str(publication.scope))
        situation, remarks, failures = situate(observation, publication, directory, ledger)
        if publication.device not in {None, directory.device} and situation.previous_pass is None:
            raise OSError(errno.ENODEV, _ELSEWHERE)
        outcome = decide(situation)
        outcome.decisions.sort(key=lambda decision: _ORDER[decision.action])
        done = Pass(
            snapshot.cluster,
            snapshot.slurm_version,
            len(snapshot.nodes),
            str(policy),
            str(policy.max_new_exclusions),
            policy.hold_passes,
            outcome,
            remarks=[*observation.remarks, *remarks, *directory.remarks],
            failures=[*observation.failures, *failures],
            device=directory.device,
        )
        if publication.dry_run:
            done.changes = [Change(decision, directory.path_of(decision.unit)) for decision in outcome.decisions]
            return done
        done.excluded = _excluded(done, situation)
        if outcome.superseded_by is not None:  # the newer pass vouches, and remembers
            return done
        directory.tidy()
        for decision in outcome.decisions:
            _must_be_fresh(observation, publication, clock)
            done.changes.append(directory.attempt(decision))
        _must_be_fresh(observation, publication, clock)
        for change in done.changes:
            if change.error is not None:
                _take_back(change.decision, situation, outcome)
        done.excluded = _excluded(done, situation)
        _keep(done, directory, ledger, situation, publication)
    return done


def _excluded(done: Pass, situation: Situation) -> dict[str, int]:
    """Count the scope's units that are excluded after these changes, by level."""
    stands = {unit: situation.published.get(unit) for unit in done.outcome.nodes_of}
    for change in done.changes:
        decision = change.decision
        if decision.unit in stands and change.error is None and decision.action is not Action.FOREIGN:
            stands[decision.unit] = decision.artifact
    told = (found for found in stands.values() if found is not None)
    return dict(Counter(one.level.name if isinstance(one, Artifact) else Content.FOREIGN.value for one in told))


def _take_back(decision: Decision, situation: Situation, outcome: Outcome) -> None:
    """Let an outcome say what is, where a decision could not be carried out."""
    if decision.action is not Action.RETIRE:
        expected = decision.action in {Action.EXCLUDE, Action.UPDATE, Action.FOREIGN}
        outcome.excluded += (decision.unit in situation.published) - expected
    if decision.unit in situation.memory.units:  # what could not be retired is not forgotten
        outcome.memory.setdefault(decision.unit, situation.memory.units[decision.unit])


def _must_be_fresh(observation: Observation, publication: Publication, clock: Callable[[], float]) -> None:
    """Refuse to act on an observation that time has overtaken: this process may have been stopped for an hour."""
    age = clock() - observation.now
    if age > publication.storage_timeout:
        raise TimeoutError(
            errno.ETIMEDOUT,
            f"what Slurm said is {age:.0f} s old, too old to act on; what was not yet written stays as it was",
        )


def _heartbeat(done: Pass, situation: Situation, publication: Publication) -> Heartbeat:
    unwritten = [f"{change.path}: {change.error}" for change in done.changes if change.error is not None]
    return Heartbeat(
        situation.publisher,
        str(publication.policy),
        situation.now,
        publication.interval,
        publication.loop,
        publication.policy_error,
        situation.began,
        done.outcome.units,
        done.outcome.excluded,
        (*unwritten, *done.failures),
        len(done.outcome.held),
    )


def _entries(done: Pass, situation: Situation) -> list[dict[str, Any]]:
    """Return what the history is told: each change, and each exclusion that is held from this pass on."""
    outcome, before = done.outcome, situation.memory.units

    def told(action: str, decision: Decision, why: str) -> dict[str, Any]:
        further = {"why": why} if why else {}
        return history.entry(action, decision, situation.publisher, situation.now, **further)

    def is_news(decision: Decision) -> bool:
        known = before.get(decision.unit)
        same = known is not None and known.generation == outcome.memory[decision.unit].generation
        return known is None or not (same and known.held)

    changed = [
        told(change.decision.action.value, change.decision, _why(change.decision, situation, outcome))
        for change in done.changes
        if change.error is None and change.decision.action not in {Action.FOREIGN, Action.PRECREATE}
    ]
    limit = f"more new exclusions at once than max_new_exclusions = {done.limit} allows"
    return changed + [told(history.HOLD, decision, limit) for decision in outcome.held if is_news(decision)]


def _why(decision: Decision, situation: Situation, outcome: Outcome) -> str:
    """Return why a unit is lifted, or handed back; nothing where the reasons of its nodes say why."""
    unit, artifact, lifted = decision.unit, decision.artifact, decision.lifted
    if decision.action is Action.RETIRE:
        return "the unit is gone"
    if artifact is not None and writer(artifact.publisher) != writer(situation.publisher):
        return f"handed back to {writer(artifact.publisher)}"
    if decision.action is not Action.CLEAR:
        return ""
    if unit in outcome.overridden:
        return "a person's word"
    # One out of this scope is lifted for its earlier run alone.
    if unit not in outcome.nodes_of or (
        lifted is not None and lifted.generation != outcome.memory[unit].generation
    ):
        return "the unit runs anew"
    return "every node is fit"


def _keep(
    done: Pass, directory: DecisionDirectory, ledger: Ledger, situation: Situation, publication: Publication
) -> None:
    """Make the pass durable and remember it; the heartbeat comes last, for it vouches for all the rest."""
    failed: dict[str, list[str]] = {}

    def remember() -> None:
        ledger.remember(done.outcome.remembered())
        done.remembered = True

    def beat() -> None:
        if not publication.replay:
            heartbeat = _heartbeat(done, situation, publication)
            ledger.beat(heartbeat._replace(failures=(*heartbeat.failures, *_unwritten(failed))))

    steps: list[tuple[str, Callable[[], None]]] = [
        ("the state", remember),
        ("the history", lambda: ledger.record(_entries(done, situation))),
        ("the overrides", lambda: _drop(done.outcome.void_overrides, ledger)),
        ("the heartbeat", beat),
        ("what is left of dead publishers", lambda: ledger.bury(situation.now)),
    ]
    if any(change.error is None and change.decision.action is not Action.FOREIGN for change in done.changes):
        steps.insert(0, ("the directory (fsync)", directory.sync))
    for what, step in steps:
        try:
            step()
        except OSError as error:
            failed.setdefault(error.strerror or str(error), []).append(what)
    done.failures += _unwritten(failed)


def _unwritten(failed: dict[str, list[str]]) -> list[str]:
    return [f"{', '.join(what)} could not be written: {cause}" for cause, what in failed.items()]


def _drop(units: list[UnitId], ledger: Ledger) -> None:
    for unit in units:
        ledger.drop_override(unit)

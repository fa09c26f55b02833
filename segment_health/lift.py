"""Clears exclusions outside a pass: stale ones, and by a person's hand. What Slurm says plays no part here."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from . import history
from .atomic import host_name
from .contract import Artifact, Publisher
from .history import MANUAL, STALE
from .situation import Action, Decision, Override, writer
from .store import Change, open_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .contract import Content, UnitId
    from .store import DecisionDirectory

_UNCONFIRMED = "no complete pass has confirmed it for too long"


def lift_stale(path: str, publisher: Publisher, now: int, *, guarded: bool = False) -> list[Change]:
    """Clear what a scope published, since nothing has confirmed it for too long.

    Where that stood in the place of another living scope's exclusion, that one is put back: it is not ours to
    lift. Raises OSError, also for a `guarded` directory in which somebody else may write: then nothing is lifted
    there.
    """
    with open_decisions(path, guarded=guarded) as directory:
        ours = {
            unit: artifact
            for unit, artifact in _exclusions(directory.read()).items()
            if (artifact.publisher.cluster, artifact.publisher.scope) == (publisher.cluster, publisher.scope)
        }
        decisions = [
            Decision(Action.UPDATE, unit, over, over.level, over.unavailable)
            for unit, over in sorted(_under(directory, ours, publisher, now).items())
        ]
        put_back = {decision.unit for decision in decisions}
        decisions += _cleared({unit: artifact for unit, artifact in ours.items() if unit not in put_back})
        return _carry_out(directory, decisions, publisher, now, STALE, why=_UNCONFIRMED)


def _under(
    directory: DecisionDirectory, ours: Mapping[UnitId, Artifact], publisher: Publisher, now: int
) -> dict[UnitId, Artifact]:
    """Return the exclusions of other living scopes that ours have replaced, as far as that is remembered."""
    ledger = directory.ledger(publisher.cluster, publisher.scope)
    known = ledger.recall()[0].units
    living = {(b.publisher.cluster, b.publisher.scope) for b in ledger.heartbeats() if b.is_alive(now)}
    before = {unit: known[unit].over for unit in ours.keys() & known.keys()}
    return {
        unit: over
        for unit, over in before.items()
        if over is not None
        and over.generation == ours[unit].generation
        and (over.publisher.cluster, over.publisher.scope) in living
    }


def prune(path: str, version: str, max_age: float, now: int) -> list[Change]:
    """Clear every exclusion whose publisher is dead and that no complete pass has confirmed for `max_age` seconds.

    A complete pass of the scope that wrote an artifact confirms it. Units that another living publisher watches
    are that one's to judge. What was cleared long ago, and nobody watches, is removed. Raises OSError.
    """
    with open_decisions(path) as directory:
        exclusions = _exclusions(directory.read())
        confirmed: dict[tuple[str, str], int] = {}
        living = set()
        covered: set[UnitId] = set()
        for beat in directory.ledger("", "").heartbeats():
            writer = (beat.publisher.cluster, beat.publisher.scope)
            confirmed[writer] = beat.last_complete_pass
            if beat.is_alive(now):
                living.add(writer)
                covered |= directory.ledger(*writer).recall()[0].units.keys()
        old = {}
        for unit, artifact in exclusions.items():
            writer = (artifact.publisher.cluster, artifact.publisher.scope)
            last = max(artifact.updated, confirmed.get(writer, 0))
            if writer not in living and unit not in covered and now - last > max_age:
                old[unit] = artifact
        hand = _by_hand(version)
        who = f"{_user()}@{hand.host}"
        changes = _carry_out(directory, _cleared(old), hand, now, STALE, why=_UNCONFIRMED, who=who)
        forgotten = [decision for decision in directory.forgotten(now) if decision.unit not in covered]
        for decision in forgotten:
            directory.ledger("", "").drop_override(decision.unit)
        return changes + [directory.attempt(decision) for decision in forgotten]


def override(
    path: str, version: str, wanted: Callable[[UnitId], bool], reason: str, now: int
) -> tuple[list[Change], list[UnitId]]:
    """Clear exclusions by a person's word, which holds until the generation or the set of bad nodes changes.

    Returns the changes, and the wanted units that are foreign: a stranger's decision is the stranger's to lift.
    Raises OSError.
    """
    with open_decisions(path) as directory:
        published = {unit: found for unit, found in directory.read().items() if wanted(unit)}
        exclusions = _exclusions(published)
        hand = _by_hand(version)
        ledger = directory.ledger("", "")
        who = f"{_user()}@{hand.host}"
        for unit, artifact in exclusions.items():  # first: else a pass in between would exclude it again
            word = Override(
                artifact.generation, artifact.unavailable, reason, who, now, writer(artifact.publisher)
            )
            ledger.override(unit, word)
        changes = _carry_out(directory, _cleared(exclusions), hand, now, MANUAL, why=reason, who=who)
        for change in changes:
            if change.error is not None:  # what could not be cleared is not overridden either
                ledger.drop_override(change.decision.unit)
        return changes, sorted(published.keys() - exclusions.keys())


def _exclusions(published: Mapping[UnitId, Artifact | Content]) -> dict[UnitId, Artifact]:
    return {unit: found for unit, found in published.items() if isinstance(found, Artifact)}


def _cleared(exclusions: Mapping[UnitId, Artifact]) -> list[Decision]:
    return [
        Decision(Action.CLEAR, unit, level=artifact.level, nodes=artifact.unavailable, lifted=artifact)
        for unit, artifact in sorted(exclusions.items())
    ]


def _carry_out(
    directory: DecisionDirectory,
    decisions: list[Decision],
    publisher: Publisher,
    now: int,
    action: str,
    **further: str,
) -> list[Change]:
    """Do what is decided, keep it in the history under a word of its own, and return what came of each."""
    changes = [directory.attempt(decision) for decision in decisions]
    entries = [
        history.entry(action, change.decision, publisher, now, **further)
        for change in changes
        if change.error is None
    ]
    if entries:
        directory.sync()
        directory.ledger("", "").record(entries)
    return changes


def _by_hand(version: str) -> Publisher:
    return Publisher(host_name(), os.getpid(), version, "", MANUAL)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return str(os.geteuid())

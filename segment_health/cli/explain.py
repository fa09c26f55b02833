"""`segment-health explain`: why a node or a unit is excluded or not."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from segment_health import __version__
from segment_health.record import printable, utc

from . import in_force, source, standing
from .command import Command, examples
from .failure import ATTENTION, UNKNOWN, USAGE, Failure, say
from .progress import waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from segment_health.contract import Artifact, Content, UnitId
    from segment_health.memory import Heartbeat
    from segment_health.observe import Observation
    from segment_health.publication import Publication
    from segment_health.situation import Outcome, Situation
    from segment_health.store import DecisionDirectory

_UNIT = re.compile(r"([0-9]+)(?:[_.]([0-9]+))?", re.ASCII)
_SCOPE = re.compile(r"[A-Za-z0-9_.@+:,-]{1,200}")
"""A scope that may become part of a file name: artifacts and heartbeats may be anybody's."""


@click.command(
    cls=Command,
    short_help="Say why a node or a unit is excluded or not.",
    epilog=examples("segment-health explain n1 --dir /shared/segment-health/decisions"),
)
@click.argument("what", metavar="NODE|UNIT")
@click.option("--dir", metavar="DIR", help="Decision directory: what is published there, and remembered.")
@in_force.policy_options
@in_force.report_options
@in_force.storage_option
@source.options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(*, what: str, config: str | None, format_: str, **flags: Any) -> None:
    """Say why NODE or UNIT is excluded or not, which rule decided, and what would lift the exclusion.

    123_7 is an array task, 123 a job or every task of an array. Without --dir it is told what the policy makes of
    Slurm's answer; give the policy that the publisher has. Changes nothing.

    Exit status 0: explained. 2: a usage or configuration error, or Slurm lists nothing of that name. 3: Slurm's
    state is unknown.
    """
    from segment_health import settings, sources  # noqa: PLC0415 - each command loads what it needs
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.observe import observe  # noqa: PLC0415
    from segment_health.policy.content import PolicyError  # noqa: PLC0415

    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        publication = _publication(told)
        observed, _ = source.opened(told, os.environ, once=True)
    except (settings.SettingsError, PolicyError) as error:
        raise Failure(str(error), USAGE) from error
    except TimeoutError as error:
        raise Failure(f"the decision directory: {error.strerror}", ATTENTION) from error
    with waiting("asking Slurm"), closing(observed):
        try:
            observation = observe(publication, observed, time.time)
        except sources.SourceUnknown as unknown:
            raise Failure(
                f"Slurm's state is unknown, so nothing can be explained: {unknown}", UNKNOWN
            ) from unknown
    observation.remarks.extend(observation.failures)
    try:
        document, observation.remarks[:] = bounded(
            lambda: (_explained(what, publication, observation), observation.remarks),
            told.storage_timeout,
            publication.directory or "no directory",
        )
    except OSError as error:
        raise Failure(f"{publication.directory}: {error.strerror or error}", USAGE) from error
    if format_ == "json":
        say(json.dumps(document))
    else:
        for line in standing.lines(document, observation.now):
            say(printable(line))
    for remark in observation.remarks:
        say(f"segment-health: {printable(remark)}", err=True)


def _publication(told: Any) -> Publication:
    from segment_health.publication import Publication  # noqa: PLC0415
    from segment_health.scope import EVERYTHING  # noqa: PLC0415

    return Publication(
        told.directory() if told.dir else "",
        EVERYTHING,
        in_force.policy(told),
        __version__,
        told.interval,
        dry_run=True,
        reports=in_force.reports(told),
    )


def _explained(what: str, publication: Publication, observation: Observation) -> dict[str, Any]:
    """Return the public JSON. Raises Failure when there is nothing of that name, OSError of the directory."""
    from segment_health.explain import explain_node, explain_unit  # noqa: PLC0415
    from segment_health.store import open_decisions  # noqa: PLC0415

    with ExitStack() as opened:
        directory = None
        if publication.directory:
            directory = opened.enter_context(open_decisions(publication.directory))
        views = _Views(publication, observation, directory)
        units, is_node = _named(what, observation, views.published)
        documents = []
        for unit in units:
            view = views.of(unit)
            told = explain_unit(unit, view.situation, view.outcome)
            documents.append(standing.unit_document(told, view.situation, view.beat))
        node = None
        if is_node:
            view = views.of(units[0] if units else None)
            node = standing.node_document(explain_node(what, view.situation, view.outcome), view.situation.now)
        return {"time": utc(observation.now), "node": node, "units": documents, "remarks": observation.remarks}


def _named(
    what: str, observation: Observation, published: Mapping[UnitId, Artifact | Content]
) -> tuple[list[UnitId], bool]:
    """Return the units that are meant, or those that are concerned by the node that is meant; and which it is."""
    from segment_health.contract import Artifact  # noqa: PLC0415
    from segment_health.unit import unit_id_of, units_of  # noqa: PLC0415

    snapshot = observation.snapshot
    units = units_of(snapshot.allocations)
    holders = {unit.id for unit in units.values() if what in unit.nodes}
    if holders or what in snapshot.nodes:
        holders |= {
            unit
            for unit, prior in published.items()
            if isinstance(prior, Artifact) and what in snapshot.recall(prior.unavailable)
        }
        return sorted(holders, key=_by_number), True
    match = _UNIT.fullmatch(what)
    if match is not None:
        named = {u for u in units.keys() | published if u.job_id == match[1] and match[2] in (None, u.task_id)}
        if not named and match[2] is None:  # the id that one task of an array, or a component, has of its own
            named = {unit_id_of(one) for one in snapshot.allocations if one.job_id == match[1]}
        if named:
            return sorted(named, key=_by_number), False
    raise Failure(f"{what!a}: Slurm lists no node of that name and no running unit: give n2, 123_7 or 123", USAGE)


def _by_number(unit: UnitId) -> tuple[int, int]:
    return int(unit.job_id), int(unit.task_id)


class _View(NamedTuple):
    """What one scope knows, what a pass of it would decide now, and its heartbeat."""

    situation: Situation
    outcome: Outcome
    beat: Heartbeat | None


class _Views:
    """The views of the scopes that publish in a directory: each is made once, however many units are looked at."""

    def __init__(
        self, publication: Publication, observation: Observation, directory: DecisionDirectory | None
    ) -> None:
        self._publication = publication
        self._observation = observation
        self._directory = directory
        self._made: dict[str, _View] = {}
        self._watched: list[tuple[Heartbeat, Collection[UnitId]]] | None = None
        self.published = {} if directory is None else directory.read()
        """Every artifact that excludes."""

    def of(self, unit: UnitId | None) -> _View:
        """Return the view of whoever is to decide on a unit (None: on any)."""
        name, beat = self._scope_of(unit)
        if name not in self._made:
            self._made[name] = self._make(name, beat)
        return self._made[name]

    def _make(self, name: str, beat: Heartbeat | None) -> _View:
        from segment_health import scope  # noqa: PLC0415
        from segment_health.contract import Publisher  # noqa: PLC0415
        from segment_health.decide import decide  # noqa: PLC0415
        from segment_health.observe import situate  # noqa: PLC0415
        from segment_health.situation import Memory, Situation  # noqa: PLC0415

        observation, snapshot = self._observation, self._observation.snapshot
        publication = self._publication._replace(scope=scope.named(name))
        if self._directory is None:
            us = Publisher("", 0, __version__, snapshot.cluster, name)
            situation = Situation(
                snapshot, {}, Memory(), publication.scope, publication.policy, us, observation.now,
                observation.began, reports=observation.reports, asked=observation.asked,
            )  # fmt: skip
        else:
            ledger = self._directory.ledger(snapshot.cluster, str(publication.scope))
            situation, remarks, failures = situate(observation, publication, self._directory, ledger)
            observation.remarks.extend([*remarks, *failures, *self._of_policy(beat)])
        return _View(situation, decide(situation), beat)

    def _of_policy(self, beat: Heartbeat | None) -> list[str]:
        """Say that the publisher judges by another policy than this explanation."""
        if beat is None:
            return []
        remarks = []
        ours, scope = str(self._publication.policy), beat.publisher.scope
        if beat.policy.rpartition(" sha256:")[2] != ours.rpartition(" sha256:")[2]:
            remarks.append(f"the publisher of {scope} judges by policy {beat.policy}, this explanation by {ours}")
        if beat.policy_error is not None:
            remarks.append(f"the publisher of {scope} cannot use its newest policy: {beat.policy_error}")
        return remarks

    def _scope_of(self, unit: UnitId | None) -> tuple[str, Heartbeat | None]:
        """Return whose word counts: a living writer's, a living watcher's, then that of the dead."""
        from segment_health.contract import Artifact  # noqa: PLC0415

        cluster, now = self._observation.snapshot.cluster, self._observation.now
        beats = {beat.publisher.scope: beat for beat, _ in self._watching()}
        prior = None if unit is None else self.published.get(unit)
        writer = None
        if isinstance(prior, Artifact) and prior.publisher.cluster == cluster:
            writer = prior.publisher.scope if _SCOPE.fullmatch(prior.publisher.scope) else None
        if writer in beats and beats[writer].is_alive(now):
            return writer, beats[writer]
        watchers = [beat for beat, units in self._watching() if unit is None or unit in units]
        for beat in watchers:
            if beat.is_alive(now) or writer is None:
                return beat.publisher.scope, beat
        return (writer or "all"), beats.get(writer or "all")

    def _watching(self) -> list[tuple[Heartbeat, Collection[UnitId]]]:
        """Return the publishers of this cluster, the last to make a pass first, and the units of each."""
        if self._watched is None:
            self._watched = []
            cluster = self._observation.snapshot.cluster
            for beat in self._directory.ledger("", "").heartbeats() if self._directory is not None else []:
                who = beat.publisher
                if self._directory is None or who.cluster != cluster or not _SCOPE.fullmatch(who.scope):
                    continue
                units: Collection[UnitId] = ()
                with suppress(OSError):
                    units = self._directory.ledger(cluster, who.scope).recall()[0].units.keys()
                self._watched.append((beat, units))
            self._watched.sort(key=lambda one: one[0].last_complete_pass, reverse=True)
        return self._watched

"""`segment-health explain`: why a node or a unit is excluded or not."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from segment_health import __version__
from segment_health.record import printable, utc

from . import in_force, source
from .failure import UNKNOWN, USAGE, Failure, say

if TYPE_CHECKING:
    from segment_health.contract import UnitId
    from segment_health.explain import NodeStanding, UnitStanding
    from segment_health.observe import Observation
    from segment_health.policy.assess import Finding
    from segment_health.publication import Publication
    from segment_health.situation import Outcome, Situation
    from segment_health.store import DecisionDirectory

_UNIT = re.compile(r"([0-9]+)(?:[_.]([0-9]+))?", re.ASCII)


@click.command()
@click.argument("what", metavar="NODE|UNIT")
@click.option("--dir", metavar="DIR", help="Decision directory: what is published there, and remembered.")
@in_force.options
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
    from segment_health.observe import observe  # noqa: PLC0415
    from segment_health.policy.file import PolicyError  # noqa: PLC0415

    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        publication = _publication(told)
        observed, _ = source.opened(told, os.environ, once=True)
    except (settings.SettingsError, PolicyError) as error:
        raise Failure(str(error), USAGE) from error
    with closing(observed):
        try:
            observation = observe(publication, observed, time.time)
        except sources.SourceUnknown as unknown:
            raise Failure(
                f"Slurm's state is unknown, so nothing can be explained: {unknown}", UNKNOWN
            ) from unknown
    document = _explained(what, publication, observation)
    if format_ == "json":
        say(json.dumps(document))
        return
    for line in _lines(document):
        say(printable(line))
    for remark in observation.remarks:
        say(f"segment-health: {printable(remark)}", err=True)


def _publication(told: Any) -> Publication:
    from segment_health.publication import Publication  # noqa: PLC0415
    from segment_health.scope import EVERYTHING  # noqa: PLC0415

    directory = told.directory() if told.dir else ""
    return Publication(directory, EVERYTHING, in_force.policy(told), __version__, told.interval, dry_run=True)


def _explained(what: str, publication: Publication, observation: Observation) -> dict[str, Any]:
    """Return the public JSON. Raises Failure when there is nothing of that name."""
    from segment_health.decide import decide  # noqa: PLC0415
    from segment_health.explain import explain_node, explain_unit  # noqa: PLC0415
    from segment_health.store import open_decisions  # noqa: PLC0415

    with ExitStack() as opened:
        directory = None
        try:
            if publication.directory:
                directory = opened.enter_context(open_decisions(publication.directory))
            units, is_node = _named(what, observation, directory)
            documents = []
            for unit in units:
                situation = _situation(unit, publication, observation, directory)
                outcome = decide(situation)
                documents.append(_unit_document(explain_unit(unit, situation, outcome), situation, outcome))
            if not is_node:
                return {"units": documents, "node": None}
            situation = _situation(units[0] if units else None, publication, observation, directory)
            outcome = decide(situation)
            node = explain_node(what, situation, outcome)
            return {"units": documents, "node": _node_document(node, situation)}
        except OSError as error:
            raise Failure(f"{publication.directory}: {error.strerror or error}", USAGE) from error


def _named(what: str, observation: Observation, directory: DecisionDirectory | None) -> tuple[list[UnitId], bool]:
    """Return the units that are meant, or those that hold the node that is meant, and whether it is a node."""
    from segment_health.unit import units_of  # noqa: PLC0415

    units = units_of(observation.snapshot.allocations)
    if what in observation.snapshot.nodes:
        return sorted(unit.id for unit in units.values() if what in unit.nodes), True
    match = _UNIT.fullmatch(what)
    if match is not None:
        published = set() if directory is None else directory.read().keys()
        named = [u for u in units.keys() | published if u.job_id == match[1] and match[2] in (None, u.task_id)]
        if named:
            return sorted(named, key=lambda unit: int(unit.task_id)), False
    raise Failure(f"{what!a}: Slurm lists no node of that name and no running unit: give n2, 123_7 or 123", USAGE)


def _situation(
    unit: UnitId | None, publication: Publication, observation: Observation, directory: DecisionDirectory | None
) -> Situation:
    """Return what the scope knows that wrote the unit's artifact, or else one that watches the unit."""
    from dataclasses import replace  # noqa: PLC0415

    from segment_health import scope  # noqa: PLC0415
    from segment_health.contract import Publisher  # noqa: PLC0415
    from segment_health.observe import situate  # noqa: PLC0415
    from segment_health.situation import Memory, Situation  # noqa: PLC0415

    snapshot = observation.snapshot
    if directory is None:
        us = Publisher("", 0, __version__, snapshot.cluster, str(publication.scope))
        return Situation(
            snapshot, {}, Memory(), publication.scope, publication.policy, us, observation.now,
            reports=observation.reports,
        )  # fmt: skip
    chosen = replace(publication, scope=scope.named(_scope_of(unit, observation, directory)))
    ledger = directory.ledger(snapshot.cluster, str(chosen.scope))
    situation, remarks, failures = situate(observation, chosen, directory, ledger)
    observation.remarks.extend(line for line in (*remarks, *failures) if line not in observation.remarks)
    return situation


def _scope_of(unit: UnitId | None, observation: Observation, directory: DecisionDirectory) -> str:
    from segment_health.contract import Artifact  # noqa: PLC0415

    cluster = observation.snapshot.cluster
    published = None if unit is None else directory.read().get(unit)
    if isinstance(published, Artifact) and published.publisher.cluster == cluster:
        return published.publisher.scope
    beats = [beat for beat in directory.ledger("", "").heartbeats() if beat.publisher.cluster == cluster]
    for beat in sorted(beats, key=lambda beat: beat.last_complete_pass, reverse=True):
        if unit is None or unit in directory.ledger(cluster, beat.publisher.scope).recall()[0].units:
            return beat.publisher.scope
    return "all"


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _unit_document(told: UnitStanding, situation: Situation, outcome: Outcome) -> dict[str, Any]:
    from segment_health.contract import Artifact  # noqa: PLC0415

    published, unit = told.published, told.unit
    ours = published if isinstance(published, Artifact) else None
    return {
        "unit": str(told.id),
        "excluded": published is not None,
        "level": None if ours is None else ours.level.name,
        "foreign": published is not None and ours is None,
        "running": unit is not None,
        "generation": None if unit is None else unit.generation._asdict(),
        "nodelist": None if unit is None else situation.snapshot.fold(sorted(unit.nodes)),
        "since": None if ours is None else utc(ours.first_published),
        "published_generation": None if ours is None else ours.generation._asdict(),
        "publisher": None if ours is None else ours.publisher._asdict(),
        "override": told.id in outcome.overridden,
        "next_pass": told.next_pass,
        "nodes": [_node_document(node, situation) for node in told.nodes],
        "lifted_by": list(told.lifted_by),
    }


def _node_document(told: NodeStanding, situation: Situation) -> dict[str, Any]:
    from segment_health.level import NodeStatus  # noqa: PLC0415

    node, assessment = told.node, told.assessment
    level = None if assessment is None else assessment.level
    return {
        "name": told.name,
        "state": None if node is None else list(node.state),
        "reason": None if node is None else node.reason,
        "reason_user": None if node is None else node.reason_user,
        "reason_since": None if node is None or node.reason_since is None else utc(node.reason_since),
        "level": None if level is None else level.name,
        "status": None if level is None else NodeStatus(level).name,
        "rule": None if assessment is None else assessment.rule,
        "fit": told.is_fit,
        "lost": told.is_lost,
        "units": [str(unit) for unit in told.units],
        "words": [] if assessment is None else [_word_document(f, situation.now) for f in assessment.findings],
    }


def _word_document(finding: Finding, now: int) -> dict[str, Any]:
    waiting = finding.waiting
    return {
        "word": finding.word,
        "level": None if finding.level is None else finding.level.name,
        "default": None if finding.default is None else finding.default.name,
        "rule": None if finding.rule is None else finding.rule.name,
        "place": None if finding.rule is None else finding.rule.place,
        "waiting": None if waiting is None else waiting.name,
        "waiting_place": None if waiting is None else waiting.place,
        "min_duration": None if waiting is None else waiting.min_duration,
        "lasted": None if waiting is None or finding.began is None else max(0, now - finding.began),
    }


# ── text ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [] if document["node"] is None else _node_lines(document["node"], "")
    for unit in document["units"]:
        lines += _unit_lines(unit)
    if document["node"] is not None and not document["units"]:
        lines.append("no running unit holds it, so nothing is excluded for it")
    return lines


def _unit_lines(unit: dict[str, Any]) -> list[str]:
    at = f" at {unit['level']}" if unit["level"] else ""
    lines = [f"unit {unit['unit']}: {'excluded' + at if unit['excluded'] else 'not excluded'}"]
    if unit["running"]:
        started = utc(unit["generation"]["start_time"])
        lines.append(f"  nodes       {unit['nodelist']}")
        lines.append(f"  generation  restart {unit['generation']['restart_count']}, started {started}")
    else:
        lines.append("  not running, as far as Slurm says")
    if unit["publisher"] is not None:
        by = unit["publisher"]
        lines.append(
            f"  excluded    since {unit['since']}, by {by['scope']} on {by['host']} (process {by['pid']})"
        )
        if unit["running"] and unit["published_generation"] != unit["generation"]:
            lines.append("  excluded    as it was in an earlier generation")
    if unit["foreign"]:
        lines.append("  excluded    by somebody else's artifact")
    if unit["override"]:
        lines.append("  override    a person's word: it is used although nodes of it are bad")
    lines.append(f"  next pass   {unit['next_pass']}")
    for node in unit["nodes"]:
        lines += _node_lines(node, "  ")
    lines += [f"  lifted by   {sentence}" for sentence in unit["lifted_by"]]
    return lines


def _node_lines(node: dict[str, Any], indent: str) -> list[str]:
    status = "no verdict" if node["level"] is None else f"{node['level']} ({node['status']})"
    lines = [f"{indent}node {node['name']}: {'lost by the unit, SeparateFault' if node['lost'] else status}"]
    if node["state"] is None:
        return [*lines, f"{indent}  not listed by Slurm"]
    lines.append(f"{indent}  state     {'+'.join(node['state'])}")
    if node["reason"]:
        lines.append(f"{indent}  reason    {node['reason']} [{node['reason_user']}, since {node['reason_since']}]")
    lines += [f"{indent}  {_word_line(word)}" for word in node["words"]]
    if not any(word["level"] == node["level"] for word in node["words"]) and node["rule"]:
        lines.append(f"{indent}  {node['rule']} decides")
    return lines


def _word_line(word: dict[str, Any]) -> str:
    level = word["level"] or "no verdict"
    by = "by default" if word["rule"] is None else f"by rule {word['rule']!r} ({word['place']})"
    if word["waiting"] is None:
        return f"{word['word'] or 'empty':15} {level}, {by}"
    lasted = f"{word['lasted']} s so far" if word["lasted"] is not None else "first seen now"
    waits = f"rule {word['waiting']!r} ({word['waiting_place']}) waits {word['min_duration']} s, {lasted}"
    return f"{word['word']:15} {level}{', ' + by if word['level'] else ''}: {waits}"

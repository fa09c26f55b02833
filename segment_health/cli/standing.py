"""How a node or a unit stands: as JSON, and as lines for a person who is woken by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segment_health.record import utc

from .times import ago

if TYPE_CHECKING:
    from segment_health.explain import NodeStanding, UnitStanding
    from segment_health.memory import Heartbeat
    from segment_health.policy.assess import Finding
    from segment_health.situation import Situation

_MEANING = {
    "nothing": "changes nothing",
    "exclude": "excludes it",
    "update": "writes it anew: level, nodes or generation have changed",
    "clear": "lifts the exclusion",
    "retire": "removes the artifact",
    "foreign": "leaves alone what somebody else wrote",
}


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────


def unit_document(told: UnitStanding, situation: Situation, beat: Heartbeat | None) -> dict[str, Any]:
    """Return the public JSON of a unit; `beat` is the heartbeat of the publisher that watches it."""
    from segment_health.contract import Artifact  # noqa: PLC0415 - each command loads what it needs

    published, unit, known = told.published, told.unit, told.remembered
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
        "unavailable": None if ours is None else ours.unavailable,
        "published_generation": None if ours is None else ours.generation._asdict(),
        "publisher": None if ours is None else ours.publisher._asdict(),
        "watched_by": None if beat is None else _beat_document(beat, situation.now),
        "override": None
        if told.override is None
        else {"who": told.override.who, "reason": told.override.reason, "since": utc(told.override.since)},
        "next_pass": told.next_pass,
        "held": _held_document(situation) if told.is_held else None,
        "clearing": None
        if not told.is_clearing
        else {
            "clear_after": str(situation.policy.clear_after),
            "fit_passes": known.fit_passes if known else 0,
            "fit_since": utc(known.fit_since) if known and known.fit_passes else None,
        },
        "nodes": [node_document(node, situation.now) for node in told.nodes],
        "lifted_by": list(told.lifted_by),
    }


def _held_document(situation: Situation) -> dict[str, Any]:
    policy = situation.policy
    limit = str(policy.max_new_exclusions)
    return {"max_new_exclusions": limit, "passes": situation.memory.held, "hold_passes": policy.hold_passes}


def _beat_document(beat: Heartbeat, now: int) -> dict[str, Any]:
    return {
        "scope": beat.publisher.scope,
        "host": beat.publisher.host,
        "last_complete_pass": utc(beat.last_complete_pass),
        "alive": beat.is_alive(now),
        "policy": beat.policy,
        "policy_error": beat.policy_error,
    }


def node_document(told: NodeStanding, now: int) -> dict[str, Any]:
    """Return the public JSON of a node."""
    from segment_health.level import FaultLevel, NodeStatus  # noqa: PLC0415

    node, assessment = told.node, told.assessment
    level = FaultLevel.SeparateFault if told.is_lost else None if assessment is None else assessment.level
    rule = "unit:shrunk" if told.is_lost else None if assessment is None else assessment.rule
    return {
        "name": told.name,
        "state": None if node is None else list(node.state),
        "reason": None if node is None else node.reason,
        "reason_user": None if node is None else node.reason_user,
        "reason_since": None if node is None or node.reason_since is None else utc(node.reason_since),
        "level": None if level is None else level.name,
        "status": None if level is None else NodeStatus(level).name,
        "rule": rule,
        "fit": told.is_fit,
        "lost": told.is_lost,
        "units": [str(unit) for unit in told.units],
        "words": [] if assessment is None else [_word_document(finding, now) for finding in assessment.findings],
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


def lines(document: dict[str, Any], now: int) -> list[str]:
    """Return what a person reads: the verdict first, then why, then what comes and what would help."""
    node = document["node"]
    told = [] if node is None else _node_lines(node, "", now)
    for unit in document["units"]:
        told += _unit_lines(unit, node, now)
    if node is not None and not document["units"]:
        told.append("  no running unit holds it, so nothing is excluded for it")
    return told


def _unit_lines(unit: dict[str, Any], shown: dict[str, Any] | None, now: int) -> list[str]:
    """Return the lines of a unit; what was `shown` of a node above is not said again."""
    level = f" at {unit['level']}" if unit["level"] else ""
    told = [f"unit {unit['unit']}: {'EXCLUDED' + level if unit['excluded'] else 'not excluded'}"]
    if unit["foreign"]:
        told.append("  excluded    by an artifact that no publisher of ours wrote")
    if unit["publisher"] is not None:
        by = unit["publisher"]
        told.append(f"  excluded    since {_when(unit['since'], now)}, for {unit['unavailable']}")
        told.append(f"  written by  {by['scope']} of {by['cluster']} on {by['host']} (process {by['pid']})")
        if unit["running"] and unit["published_generation"] != unit["generation"]:
            told.append(f"  excluded    in an earlier run: {_run(unit['published_generation'])}")
    if unit["running"]:
        told.append(f"  runs on     {unit['nodelist']}; {_run(unit['generation'])}")
    else:
        told.append("  not running, as far as Slurm says")
    if unit["watched_by"] is not None:
        told.append(f"  watched by  {_watcher(unit['watched_by'], now)}")
    if unit["override"] is not None:
        word = unit["override"]
        told.append(
            f"  override    by {word['who']}, {_when(word['since'], now)}: used although nodes of it are bad"
        )
        told.append(f"              because {word['reason']!r}")
    for node in unit["nodes"]:
        if shown is None or {**shown, "units": None} != {**node, "units": None}:
            told += _node_lines(node, "  ", now)
    if unit["running"] and not unit["nodes"]:
        told.append("  every node of it is fit")
    told.append(f"  next pass   {_coming(unit)}")
    heads = ["  lifted by   ", *["              "] * len(unit["lifted_by"])]
    return told + [head + sentence for head, sentence in zip(heads, unit["lifted_by"], strict=False)]


def _coming(unit: dict[str, Any]) -> str:
    if unit["held"] is not None:
        held = unit["held"]
        so_far = f"{held['passes']} of {held['hold_passes']} passes held so far"
        return (
            f"holds its exclusion: with others it is more than max_new_exclusions = {held['max_new_exclusions']} "
            f"({so_far}); `publish --once --force` publishes it now"
        )
    if unit["clearing"] is not None:
        clearing = unit["clearing"]
        since = f", since {clearing['fit_since']}" if clearing["fit_since"] else ""
        return (
            f"changes nothing: it is fit, but clear_after = {clearing['clear_after']} "
            f"(fit passes so far: {clearing['fit_passes']}{since})"
        )
    return _MEANING[unit["next_pass"]]


def _watcher(beat: dict[str, Any], now: int) -> str:
    alive = "last pass" if beat["alive"] else "NOT ALIVE: last pass"
    return f"{beat['scope']} on {beat['host']}; {alive} {_when(beat['last_complete_pass'], now)}"


def _node_lines(node: dict[str, Any], indent: str, now: int) -> list[str]:
    told = [f"{indent}node {node['name']}: {_verdict(node)}"]
    if node["state"] is None:
        told.append(f"{indent}  not listed by Slurm")
    else:
        told.append(f"{indent}  state       {'+'.join(node['state'])}")
    if node["reason"]:
        since = f", {_when(node['reason_since'], now)}" if node["reason_since"] else ""
        told.append(f"{indent}  reason      {node['reason']} ({node['reason_user']}{since})")
    words = [word for word in node["words"] if not _is_plain(word)]
    told += [f"{indent}  {word['word'] or 'empty':<11} {_word(word)}" for word in words]
    if not node["lost"] and node["rule"] and not any(word["level"] == node["level"] for word in node["words"]):
        told.append(f"{indent}  decided by  {node['rule']}")
    return told


def _verdict(node: dict[str, Any]) -> str:
    if node["lost"]:
        return f"lost by the unit, which is a {node['level']} until its next generation"
    if node["fit"]:
        return "fit"
    if node["level"] is None:
        return "no verdict: neither a fault nor health, so its part of the last decision stays"
    return f"{node['level']} ({node['status']})"


def _is_plain(word: dict[str, Any]) -> bool:
    """Tell whether a word of a state is as harmless as ever, and not worth a line."""
    return word["level"] == word["default"] == "NotHandleFault" and not word["rule"] and not word["waiting"]


def _word(word: dict[str, Any]) -> str:
    level = word["level"] or "no verdict"
    by = "by default" if word["rule"] is None else f"by rule {word['rule']!r} ({word['place']})"
    if word["waiting"] is None:
        return f"{level}, {by}"
    lasted = f"{word['lasted']} s so far" if word["lasted"] is not None else "first seen now"
    waits = f"rule {word['waiting']!r} ({word['waiting_place']}) waits {word['min_duration']} s, {lasted}"
    return f"{level}{', ' + by if word['level'] else ''}; {waits}"


def _run(generation: dict[str, Any]) -> str:
    return f"restart {generation['restart_count']}, started {utc(generation['start_time'])}"


def _when(time: str, now: int) -> str:
    """Return a time, and how long ago that is."""
    from datetime import datetime  # noqa: PLC0415

    return f"{time} ({ago(now - int(datetime.fromisoformat(time).timestamp()))})"

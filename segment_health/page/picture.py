"""The picture of a cluster at an instant: two JSON documents, which the page draws and the API hands out. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from segment_health.judge import SHRUNK
from segment_health.memory import heartbeat_document
from segment_health.record import utc
from segment_health.survey import unit_document
from segment_health.unit import unit_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from segment_health.contract import NodeFault
    from segment_health.history import Entry
    from segment_health.policy.assess import Assessment
    from segment_health.scope import Scope
    from segment_health.survey import Survey, UnitView
    from slurm.snapshot import Snapshot

MAX_REASON = 300
"""Characters of a reason in a picture; the artifact has more of it."""
HISTORY = 500
"""Entries of the history in a picture."""
TOLD = frozenset({"exclude", "update", "clear", "retire", "stale", "manual", "hold"})
"""What of the history is about exclusions."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known of nodes, and what was decided; both are JSON objects."""

    nodes: Document
    decisions: Document


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a cluster: its nodes, each judged, and the allocations that `scope` covers."""

    snapshot: Snapshot
    judged: Mapping[str, Assessment | None]
    scope: Scope


def portray(
    survey: Survey,
    history: Iterable[Entry],
    expand: Callable[[str], Iterable[str]],
    sight: Sight | None,
    cluster: str = "",
) -> Picture:
    """Return the picture of a decision directory, and of the nodes that were seen beside it.

    Where none were seen nodes are known by the units that hold them: those that are bad as the artifacts say, and
    the others by name. `expand` names the nodes of a hostlist; none where it is garbled.
    """
    time = utc(survey.now)
    rows = _told(survey, expand) if sight is None else _seen(sight, survey)
    if sight is not None:
        cluster = sight.snapshot.cluster
    elif survey.publishers and not cluster:
        cluster = survey.publishers[0].publisher.cluster
    decisions = {
        "time": time,
        "cluster": cluster,
        "publishers": [
            {**heartbeat_document(beat), "alive": beat.is_alive(survey.now)} for beat in survey.publishers
        ],
        "units": [_unit(view) for view in survey.units],
        "history": [_entry(entry) for entry in history],
        "remarks": [
            *(f"{told}: it cannot be read, and excludes all the same" for told in survey.unreadable),
            *survey.remarks,
        ],
    }
    return Picture({"time": time, "cluster": cluster, "nodes": rows}, decisions)


def _seen(sight: Sight, survey: Survey) -> list[Document]:
    """Describe every node that Slurm told of, and those that a unit lost."""
    held: dict[str, dict[str, None]] = defaultdict(dict)
    for allocation in sight.snapshot.allocations:
        if sight.scope.covers(allocation):
            for name in allocation.nodes:
                held[name][str(unit_id_of(allocation))] = None
    lost = {}
    for view in survey.units:
        for fault in view.faults:
            if fault.rule == SHRUNK:  # Slurm does not say any more whose it was
                held[fault.name][str(view.unit)] = None
                lost[fault.name] = fault
    rows = []
    for name in dict.fromkeys([*sight.judged, *lost]):
        node, told = sight.snapshot.nodes.get(name), sight.judged.get(name)
        if node is None and name in lost:
            rows.append(_faulty(lost[name], held[name]))
            continue
        rows.append(
            {
                "name": name,
                "level": None if told is None or told.level is None else told.level.name,
                "state": [] if node is None else list(node.state),
                "reason": None if node is None else _cut(node.reason),
                "reason_user": None if node is None else _cut(node.reason_user),
                "reason_since": None if node is None or node.reason_since is None else utc(node.reason_since),
                "rule": "" if told is None else told.rule,
                **_holders(held.get(name, {})),
            }
        )
    return rows


def _told(survey: Survey, expand: Callable[[str], Iterable[str]]) -> list[Document]:
    """Describe the nodes that the directory tells of."""
    held: dict[str, dict[str, None]] = defaultdict(dict)
    faults: dict[str, NodeFault] = {}
    bad: dict[str, str | None] = {}
    for view in survey.units:
        excluded = list(expand(view.nodes)) if view.nodes else []
        for name in [*(expand(view.nodelist) if view.nodelist else ()), *excluded]:
            held[name][str(view.unit)] = None
        faults |= {fault.name: fault for fault in view.faults}
        bad |= dict.fromkeys(excluded, view.level)
    return [
        _faulty(faults[name], held[name])
        if name in faults
        else {
            "name": name,
            "level": bad.get(name),
            "state": [],
            "reason": None,
            "reason_user": None,
            "reason_since": None,
            "rule": "",
            **_holders(held[name]),
        }
        for name in held
    ]


def _faulty(fault: NodeFault, units: Mapping[str, None]) -> Document:
    return {
        "name": fault.name,
        "level": fault.level.name,
        "state": list(fault.state),
        "reason": _cut(fault.reason),
        "reason_user": _cut(fault.reason_user),
        "reason_since": None if fault.reason_since is None else utc(fault.reason_since),
        "rule": fault.rule,
        **_holders(units),
    }


def _holders(units: Mapping[str, None]) -> Document:
    """Name the unit that holds a node; the further ones too, where jobs share it."""
    first, *further = units or [None]
    return {"unit": first, "further_units": further} if further else {"unit": first}


def _unit(view: UnitView) -> Document:
    said = view.override
    return {
        **unit_document(view),
        "reasons": [_cut(reason) for reason in view.reasons],
        "nodelist": view.nodelist,
        "override": None if said is None else {"reason": _cut(said.reason), "who": _cut(said.who)},
    }


def _entry(entry: Entry) -> Document:
    return {
        "time": utc(entry.time),
        "action": entry.action,
        "unit": str(entry.unit),
        "level": entry.level,
        "nodes": entry.nodes,
        "who": _cut(entry.who),
        "why": _cut(entry.why),
    }


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."

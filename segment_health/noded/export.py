"""Writes NodeD's reports for nodes that were graded here: a file a node, named like the ConfigMap.

What it did not write itself it never touches: in the same directory there may be reports of NodeD's own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segment_health.atomic import open_directory, read_file, replace_file, sweep, sync_directory
from segment_health.policy.assess import worse
from segment_health.record import one_line, utc

from . import codes, report
from .wire import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segment_health.policy.assess import Assessment

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME = 230


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did, by Slurm's names of nodes, sorted.

    `written` and `removed` are reports; `kept` are nodes without a verdict, or that Slurm no longer lists, which
    keep the report that they have. `foreign` are nodes whose report somebody else wrote, `misnamed` those that
    Kubernetes could not have; of `failed` the report is as it was, and why.
    """

    written: dict[str, report.Report] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    misnamed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def export(path: str, assessments: Mapping[str, Assessment], now: int) -> Exported:
    """Write a report for each node above NotHandleFault, and remove ours of nodes that are fit.

    `assessments` is by Slurm's names; nodes that differ in case only share a report, of the worse. Every report is
    written anew, because its time of modification is its age; `now` is in seconds since the epoch. Raises OSError
    where the directory, which is never created, cannot be opened or listed.
    """
    done = Exported()
    with open_directory(path) as directory:
        names = os.listdir(directory)
        sweep(directory, names)
        present = {name for name in names if name.startswith(report.PREFIX)}
        for node, assessment in sorted(_by_lower_case(assessments).items()):
            name = report.PREFIX + node.lower()
            try:
                _put(directory, name if name in present else None, node, assessment, done)
            except (OSError, ValueError) as error:
                done.failed[node] = (error.strerror if isinstance(error, OSError) else None) or str(error)
        known = {report.PREFIX + node.lower() for node in assessments}
        done.kept.extend(
            name.removeprefix(report.PREFIX)
            for name in sorted(present - known)
            if _ours(directory, name) is not None
        )
        try:
            replace_file(directory, codes.MARKER, one_line({"exported": utc(now)}), mode=0o644)
            sync_directory(directory)
        except OSError as error:
            done.failed[codes.MARKER] = error.strerror or str(error)
    return done


def _put(directory: int, there: str | None, node: str, assessment: Assessment, done: Exported) -> None:
    """Bring one node's report to what its assessment says; `there` is the name of the one that lies there."""
    wanted = codes.report_of(assessment)
    ours = None if there is None else _ours(directory, there)
    if wanted is None and assessment.level is None:
        done.kept.append(node)
    elif wanted is None:
        if there is not None and ours is not None:
            os.unlink(there, dir_fd=directory)
            done.removed.append(node)
    elif len(node) > _MAX_NAME or _NAME.fullmatch(node.lower()) is None:
        done.misnamed.append(node)
    elif there is not None and ours is None:
        done.foreign.append(node)
    elif ours is not None and not assessment.final and codes.level_of(ours) >= codes.level_of(wanted):
        done.kept.append(node)  # at least as bad as what is known now, and nothing says that it no longer holds
    else:
        replace_file(directory, report.PREFIX + node.lower(), report.encode(wanted), mode=0o644)
        done.written[node] = wanted


def _ours(directory: int, name: str) -> report.Report | None:
    """Return the report under a name if an export of ours wrote it."""
    try:
        found = report.decode(read_file(directory, name, MAX_BYTES))
    except (OSError, ValueError):
        return None
    return found if codes.wrote(found) else None


def _by_lower_case(assessments: Mapping[str, Assessment]) -> dict[str, Assessment]:
    """Join the nodes that Kubernetes could not tell apart, under the first one's name."""
    first: dict[str, str] = {}
    joined: dict[str, Assessment] = {}
    for node, assessment in assessments.items():
        name = first.setdefault(node.lower(), node)
        joined[name] = worse(joined.get(name), assessment) or assessment
    return joined

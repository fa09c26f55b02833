"""`segment-health noded`: MindCluster's node reports, written from Slurm's state and shown."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from segment_health.record import printable

from . import in_force, source
from .command import Group, examples
from .failure import ATTENTION, DONE, UNKNOWN, USAGE, Failure, say

if TYPE_CHECKING:
    from segment_health.noded.directory import Entry
    from segment_health.noded.export import Exported
    from segment_health.policy.assess import Assessment, Policy
    from slurm.snapshot import Snapshot

_NAMED = 20
"""How many nodes without a verdict are named."""

_dir = click.option("--dir", "directory", metavar="DIR", required=True, help="Directory of the reports, absolute.")


@click.group(
    cls=Group,
    short_help="Read and write node reports in NodeD's formats.",
    epilog=examples("segment-health noded export --dir /shared/segment-health/noded"),
)
def noded() -> None:
    """Speak the formats of MindCluster's NodeD: a report a node, `mindx-dl-nodeinfo-<node>`."""


@noded.command(
    short_help="Write a report for every node that has a fault.",
    epilog=examples("segment-health noded export --dir /shared/segment-health/noded"),
)
@_dir
@click.option("--policy", metavar="FILE", help="Rules of the site above the table of levels, TOML.")
@source.options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.pass_context
def export(context: click.Context, /, directory: str, config: str | None, **flags: Any) -> None:
    """Write a report into DIR for every node above NotHandleFault, and remove those of nodes that are fit.

    A file holds what stands under key NodeInfo of NodeD's ConfigMap of that name, CheckCode and all. A node
    without a verdict keeps the report that it has; a report that somebody else wrote is never touched. Run it as
    often as a publisher: the time of a file is the age of what it says.

    Exit status 0: done. 1: a report could not be written, or somebody else's is in its place. 2: a usage or
    configuration error. 3: Slurm's state is unknown, and DIR is as it was.
    """
    from segment_health import settings, sources  # noqa: PLC0415 - each command loads what it needs
    from segment_health.noded.export import export as write  # noqa: PLC0415
    from segment_health.policy.content import PolicyError  # noqa: PLC0415

    path = _absolute(directory)
    if not os.path.isdir(path):
        raise Failure(f"{path}: not a directory; it is never created, make it first", USAGE)
    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        policy = in_force.policy(told)
        observed, _ = source.opened(told, os.environ, once=True)
    except (settings.SettingsError, PolicyError) as error:
        raise Failure(str(error), USAGE) from error
    with closing(observed):
        try:
            snapshot = observed.observe()
        except sources.SourceUnknown as unknown:
            raise Failure(f"Slurm's state is unknown, so nothing was exported: {unknown}", UNKNOWN) from unknown
    now = int(time.time())
    try:
        done = write(path, _graded(snapshot, policy, now), now)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", ATTENTION) from error
    context.exit(_tell(done))


@noded.command(
    short_help="Show the reports in a directory, and what is wrong.",
    epilog=examples("segment-health noded show --dir /shared/segment-health/noded"),
)
@_dir
@click.option("--max-age", metavar="TIME|never", default="1h", show_default=True, help="90s, 45m, 1h, 2d.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def show(context: click.Context, /, directory: str, max_age: str, format_: str) -> None:
    """Show the reports in DIR, as a publisher reads them: node, status, level, codes, age, and what is wrong.

    NodeD repeats an unchanged report every 30 minutes, if nothing hinders it; --max-age must be well above that.

    Exit status 0: every report is understood, whatever it says. 1: some report or the configuration needs a
    person. 2: a usage error, or a configuration that is refused. 3: DIR cannot be read, or has no entry.
    """
    from segment_health import sources  # noqa: PLC0415
    from segment_health.noded.config import ConfigurationError  # noqa: PLC0415
    from segment_health.noded.directory import NodeReports  # noqa: PLC0415

    reports = NodeReports(_absolute(directory), _seconds(max_age))
    try:
        entries, remarks = reports.survey(int(time.time()))
    except ConfigurationError as error:
        raise Failure(str(error), USAGE) from error
    except sources.SourceUnknown as unknown:
        raise Failure(str(unknown), UNKNOWN) from unknown
    if format_ == "json":
        say(json.dumps({"reports": [_document(entry) for entry in entries], "remarks": remarks}))
    else:
        for entry in entries:
            say(printable(_line(entry)))
        for remark in remarks:
            say(f"segment-health: {printable(remark)}", err=True)
    context.exit(ATTENTION if remarks or any(entry.remarks for entry in entries) else DONE)


def _absolute(path: str) -> str:
    if not os.path.isabs(path):
        raise Failure(f"--dir: not an absolute path: {path!a}", USAGE)
    return path


def _seconds(text: str) -> int | None:
    from segment_health.policy.limits import seconds  # noqa: PLC0415

    try:
        return None if text == "never" else seconds(text)
    except ValueError as error:
        raise Failure(f"--max-age: {error}, nor `never`: {text!a}", USAGE) from error


def _graded(snapshot: Snapshot, policy: Policy, now: int) -> dict[str, Assessment]:
    """Grade every node of a snapshot; a rule with a `min_duration` knows no earlier pass here."""
    from segment_health.unit import partitions_by_node  # noqa: PLC0415

    partitions = partitions_by_node(snapshot.allocations)
    return {
        node.name: policy.assess(
            node,
            allocated=node.name in partitions,
            partitions=frozenset(partitions.get(node.name, ())),
            seen=policy.first_seen(node, {}, previous_pass=None, now=now),
            now=now,
        )
        for node in snapshot.nodes.values()
    }


def _tell(done: Exported) -> int:
    for node, report in done.written.items():
        codes = ",".join(code for device in report.devices or () for code in device.codes or ())
        say(printable(f"report {node} {report.status} {codes}"))
    for node in done.removed:
        say(printable(f"remove {node}"))
    kept = ", ".join(done.kept[:_NAMED]) + (f" and {len(done.kept) - _NAMED} more" if done.kept[_NAMED:] else "")
    lines = [f"no verdict on {kept}; what is reported of them stays"] if done.kept else []
    troubles = [f"{node}: somebody else wrote its report; left as it is" for node in done.foreign]
    troubles += [f"{node}: a node of Kubernetes cannot have this name; nothing written" for node in done.misnamed]
    troubles += [f"{node}: {cause}; left as it was" for node, cause in done.failed.items()]
    for line in lines + troubles:
        say(f"segment-health: {printable(line)}", err=True)
    return ATTENTION if troubles else DONE


def _document(entry: Entry) -> dict[str, Any]:
    """Return the public JSON of one report."""
    level = entry.assessment.level
    return {
        "node": entry.node,
        "status": None if entry.report is None else entry.report.status,
        "level": None if level is None else level.name,
        "final": entry.assessment.final,
        "rule": entry.assessment.rule,
        "codes": _codes(entry),
        "age_seconds": entry.age,
        "wrong": list(entry.remarks),
    }


def _line(entry: Entry) -> str:
    told = _document(entry)
    age = "-" if entry.age is None else f"{entry.age}s"
    parts = [
        told["node"],
        told["status"] or "-",
        told["level"] or "no-verdict",
        ",".join(told["codes"]) or "-",
        age,
    ]
    return " ".join(parts) + (f"  # {'; '.join(entry.remarks)}" if entry.remarks else "")


def _codes(entry: Entry) -> list[str]:
    devices = () if entry.report is None else entry.report.devices or ()
    return list(dict.fromkeys(code for device in devices for code in device.codes or ()))

"""`segment-health clear` and `segment-health prune`: lifting exclusions without asking Slurm."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import click

from segment_health import __version__
from segment_health.record import printable

from . import in_force, report, times
from .command import Command, examples
from .failure import ATTENTION, DONE, USAGE, Failure, say

if TYPE_CHECKING:
    from segment_health.contract import UnitId
    from segment_health.store import Change

_dir = click.option("--dir", "directory", metavar="DIR", help="Decision directory, absolute.")


@click.command(
    cls=Command,
    short_help="Use a unit although it is excluded.",
    epilog=examples(
        'segment-health clear 123_7 --dir /shared/segment-health/decisions --reason "replaced the switch"'
    ),
)
@_dir
@in_force.storage_option
@click.argument("units", metavar="UNIT...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", required=True, help="Why; kept in the history and shown.")
@click.pass_context
def clear(
    context: click.Context,
    /,
    directory: str | None,
    storage_timeout: str | None,
    units: tuple[str, ...],
    reason: str,
) -> None:
    """Use a unit although it is excluded: 123_7 is an array task, 123 a job, or every task of an array.

    The word holds, for every publisher of the directory, until the unit is requeued or its set of bad nodes
    changes. Exit status 1: a unit could not be cleared, or is excluded by somebody else's artifact.
    """
    from segment_health.bounded import bounded  # noqa: PLC0415 - each command loads what it needs
    from segment_health.lift import override  # noqa: PLC0415

    path, seconds = _directory(directory, storage_timeout)
    wanted = [_parse(text) for text in units]

    def is_wanted(unit: UnitId) -> bool:
        return any(unit.job_id == job and task in (None, unit.task_id) for job, task in wanted)

    try:
        changes, foreign = bounded(
            lambda: override(path, __version__, is_wanted, reason, int(time.time())), seconds, path
        )
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", ATTENTION) from error
    code = _tell(changes)
    for unit in foreign:
        say(f"segment-health: {unit}: somebody else wrote {path}/{unit.artifact_name}; lift it yourself", err=True)
        code = ATTENTION
    if not changes and not foreign:
        say(f"nothing to clear: {', '.join(units)} not excluded")
    context.exit(code)


@click.command(
    cls=Command,
    short_help="Clear exclusions that nobody has confirmed for long.",
    epilog=examples("segment-health prune --dir /shared/segment-health/decisions --max-age 1h"),
)
@_dir
@in_force.storage_option
@click.option("--max-age", metavar="TIME", required=True, help="1h, 90m, 2d or seconds.")
@click.pass_context
def prune(context: click.Context, /, directory: str | None, storage_timeout: str | None, max_age: str) -> None:
    """Clear exclusions that no complete pass has confirmed for so long and whose publisher is dead. For cron."""
    from segment_health import lift  # noqa: PLC0415
    from segment_health.bounded import bounded  # noqa: PLC0415

    path, seconds = _directory(directory, storage_timeout)
    age = times.seconds(max_age)
    if age is None:
        raise Failure(f"--max-age: not a time such as 1h, 90m, 2d or 3600: {max_age!a}", USAGE)
    try:
        changes = bounded(lambda: lift.prune(path, __version__, age, int(time.time())), seconds, path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", ATTENTION) from error
    context.exit(_tell(changes))


def _directory(directory: str | None, storage_timeout: str | None) -> tuple[str, float]:
    """Return the decision directory, and how many seconds its storage may take."""
    from segment_health import settings  # noqa: PLC0415

    try:
        flags = {"dir": directory, "storage_timeout": storage_timeout}
        told = settings.load({key: value for key, value in flags.items() if value}, os.environ, None)
        return told.directory(), told.storage_timeout
    except settings.SettingsError as error:
        raise Failure(str(error), USAGE) from error
    except TimeoutError as error:
        raise Failure(f"the decision directory: {error.strerror}; nothing was done", ATTENTION) from error


def _parse(text: str) -> tuple[str, str | None]:
    match = re.fullmatch(r"([0-9]{1,20})(?:_([0-9]{1,20}))?", text, re.ASCII)
    if match is None:
        raise Failure(f"not a unit such as 123_7 or 123: {text[:40]!a}", USAGE)
    return match[1], match[2]


def _tell(changes: list[Change]) -> int:
    for change in changes:
        say(printable(report.change_line(change)))
        if change.error is not None:
            say(f"segment-health: {printable(change.path)}: {change.error}; left as it was", err=True)
    return DONE if all(change.error is None for change in changes) else ATTENTION

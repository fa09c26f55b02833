"""`segment-health check` and `segment-health path`: what the consumer would say here."""

from __future__ import annotations

import os
import sys

import click

from segment_health.consumer import artifact_name, identify, select
from segment_health.record import printable

from .command import Command, examples
from .failure import ATTENTION, USAGE, Failure, say

_dir = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    envvar=["SEGMENT_HEALTH_DIR", "NVRX_SEGMENT_HEALTH_CHECK_DIR"],
    help="Decision directory, absolute.  [env: SEGMENT_HEALTH_DIR, NVRX_SEGMENT_HEALTH_CHECK_DIR]",
)
_format = click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@click.command(cls=Command, epilog=examples("segment-health check --dir /shared/segment-health/decisions"))
@_dir
@_format
@click.pass_context
def check(context: click.Context, directory: str | None, format_: str) -> None:
    """Tell whether this process may join the next rendezvous.

    Exit status 0: healthy, or nothing to check here (no directory, no job, not process 0), or the decision
    could not be read and is ignored, with a warning. 1: the unit is excluded. 2: a relative directory.
    """
    try:
        installed, warning = select(directory, os.environ)
    except ValueError as error:
        raise Failure(str(error), USAGE) from error
    healthy = True
    if installed is not None:
        healthy, warning = installed.examine()
    path = None if installed is None else installed.path
    if format_ == "json":
        import json  # noqa: PLC0415 - for who asks for it

        say(json.dumps({"installed": installed is not None, "healthy": healthy, "path": path, "warning": warning}))
    else:
        if warning is not None:
            say(f"segment-health: {printable(warning)}", err=True)
        say(printable(_sentence(path, directory, healthy=healthy)))
    context.exit(0 if healthy else ATTENTION)


@click.command(
    cls=Command,
    short_help="Print where this job's artifact is.",
    epilog=examples("SLURM_JOB_ID=123 segment-health path --dir /shared/segment-health/decisions"),
)
@_dir
def path(directory: str | None) -> None:
    """Print the path of the artifact that this environment's unit is excluded by.

    Of any process of a job, not of process 0 alone. Exit status 2 outside a job.
    """
    if not directory or not os.path.isabs(directory):
        raise Failure(f"decision directory is not an absolute path: {directory or ''!a}", USAGE)
    try:
        unit = identify(os.environ)
    except ValueError as error:
        raise Failure(str(error), USAGE) from error
    if unit is None:
        raise Failure("not in a Slurm job: neither SLURM_ARRAY_JOB_ID nor SLURM_JOB_ID is set", USAGE)
    sys.stdout.buffer.write(os.fsencode(os.path.join(directory, artifact_name(*unit))) + b"\n")


def _sentence(path: str | None, directory: str | None, *, healthy: bool) -> str:
    if not healthy:
        return f"excluded: {path} is not empty"
    if path is not None:
        return f"healthy: no decision in {path}"
    if not directory:
        return "not applicable: no decision directory is set"
    return "not applicable: not process 0 of a Slurm job (SLURM_PROCID is not 0, or there is no job id)"

"""`segment-health record`: what Slurm says now, in a file."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

import click

from . import source
from .command import Command, examples
from .failure import ATTENTION, UNKNOWN, USAGE, Failure, say
from .progress import waiting


@click.command(
    cls=Command,
    short_help="Save what Slurm says, to attach to a bug report.",
    epilog=examples("segment-health record --scrub slurm.json"),
)
@click.argument("file", metavar="FILE")
@click.option("--scrub", is_flag=True, help="Put words in place of users and reasons; node names stay.")
@source.options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
def record(*, file: str, scrub: bool, config: str | None, **flags: Any) -> None:
    """Save nodes and allocations to FILE (- is standard output), to attach to a bug report.

    `segment-health publish --once --dry-run --replay FILE` plays it, anywhere. Names of jobs are not in it.

    Exit status 0: done. 1: FILE could not be written. 2: a usage or configuration error. 3: Slurm's state is
    unknown, and FILE is as it was.
    """
    from segment_health import settings, sources  # noqa: PLC0415 - each command loads what it needs

    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        observed, _ = source.opened(told, os.environ, once=True)
    except settings.SettingsError as error:
        raise Failure(str(error), USAGE) from error
    with waiting("asking Slurm"), closing(observed):
        try:
            snapshot = observed.observe()
        except sources.SourceUnknown as unknown:
            raise Failure(f"Slurm's state is unknown, so nothing was recorded: {unknown}", UNKNOWN) from unknown
    text = sources.recording(snapshot, observed, now=datetime.now(timezone.utc), scrubbed=scrub)
    write(file, text.encode(), otherwise="nothing was recorded")
    if file != "-":
        counts = f"{len(snapshot.nodes)} nodes, {len(snapshot.allocations)} allocations"
        say(f"recorded: {counts} of {snapshot.cluster}")


def write(file: str, content: bytes, *, otherwise: str) -> None:
    """Write a file whole or not at all; a pipe or device that is there is written to, never replaced."""
    from segment_health import atomic  # noqa: PLC0415

    try:
        if file == "-":
            with os.fdopen(os.dup(1), "wb") as output:
                output.write(content)
        elif os.path.exists(file) and not stat.S_ISREG(os.stat(file).st_mode):
            with open(file, "wb") as output:  # IsADirectoryError says what it is
                output.write(content)
        else:
            folder, name = os.path.split(os.path.realpath(file))
            with atomic.open_directory(folder) as directory:
                # Not for everybody: it holds what administrators wrote, and who works here.
                atomic.replace_file(directory, name, content, mode=0o600)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}; {otherwise}", ATTENTION) from error

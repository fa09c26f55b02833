"""`segment-health builtin`: nvhcd's own checks, as the program that nvhcd runs, and for people."""

from __future__ import annotations

import json
import os
import sys

import click

from segment_health.checks.builtin import NAMES

from .command import Command, examples
from .failure import ATTENTION, DONE, UNKNOWN, USAGE, Failure, deliver, ended_by_signals, say


@click.command(
    cls=Command,
    short_help="Make nvhcd's built-in checks of this node.",
    epilog=examples("segment-health builtin slurm paths --config /etc/nvhcd/config.yaml"),
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice(NAMES))
@click.option("--config", metavar="FILE", required=True, help="nvhcd's configuration; its key builtin is read.")
def builtin(*, names: tuple[str, ...], config: str) -> None:
    """Make checks of this node and print what failed, as one JSON object that NVRx understands.

    \b
    slurm     what Slurm says of this node, by the policy: one question about one node
    storage   Lustre's health, and every Lustre and NFS mount
    paths     files and directories that are there and can be read
    nhc       LBNL Node Health Check, kept from draining the node
    segment   whether this job's unit is excluded: of a daemon that the job starts itself

    All of them are made, within nine tenths of the configuration's timeout (at most 5 s less).

    Exit status 0: healthy. 1: failed_checks says what failed. 2: a usage or configuration error. 3: nothing
    failed, and something is not known: nothing is printed, stderr says why, and nvhcd gives no answer.
    """  # noqa: D301 - it is click that reads it
    from segment_health.checks.builtin import answer, run, settings  # noqa: PLC0415 - what this command needs

    try:
        told, seconds = settings.load(config)
        checks = run.prepared(names, told, os.environ, config)
    except settings.ConfigError as error:
        raise Failure(str(error), USAGE) from error
    with ended_by_signals():
        verdicts = run.run(checks, seconds)
    for sentence in (*answer.unknowns(verdicts), *answer.remarks(verdicts)):
        say(f"segment-health: {sentence}", err=True)
    document = answer.document(verdicts)
    if document is None:
        sys.exit(UNKNOWN)
    deliver(json.dumps(document) + "\n")
    sys.exit(ATTENTION if document["failed_checks"] else DONE)

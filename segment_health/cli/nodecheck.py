"""`segment-health nodecheck`: ask nvhcd what a launcher would ask it."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING

import click

from segment_health.record import printable

from .command import Command, examples
from .failure import ATTENTION, DONE, USAGE, Failure, say

if TYPE_CHECKING:
    from segment_health.checks.health_check import Finding


@click.command(
    cls=Command,
    short_help="Ask a node's health check service.",
    epilog=examples(
        "segment-health nodecheck /run/nvhcd/nvhcd.sock",
        "segment-health nodecheck unix:///run/nvhcd/nvhcd.sock --timeout 120 -- --group gpu",
    ),
)
@click.argument("endpoint", metavar="ENDPOINT")
@click.argument("args", metavar="[-- ARG ...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=float,
    default=60,
    show_default=True,
    help="How long the answer may take. Launchers wait for 60 s.",
)
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def nodecheck(context: click.Context, endpoint: str, args: tuple[str, ...], timeout: float, format_: str) -> None:
    """Ask the health check service of this node, nvhcd, and read its answer as a launcher does.

    ENDPOINT is the path of a UNIX socket, or one behind unix: or unix://. Each ARG is handed to the service's
    health check; without any it is asked what NVRx asks: --no-slurm --group prolog epilog logs gpu.

    Exit status 0: the node is healthy, or the service is unavailable, which makes no node unhealthy; the first
    word says which. 1: the service reports a failure. 2: a usage error.
    """
    from segment_health.checks.answer import read  # noqa: PLC0415 - each command loads what it needs
    from segment_health.checks.asking import ask  # noqa: PLC0415
    from segment_health.checks.health_check import Unavailable  # noqa: PLC0415
    from segment_health.checks.node import DEFAULT_ARGS, socket_of  # noqa: PLC0415

    if not 0 < timeout < math.inf:
        raise Failure(f"--timeout {timeout:g}: that is no time to wait; give seconds above 0", USAGE)
    for arg in args:
        try:
            arg.encode()
        except UnicodeEncodeError as error:
            raise Failure(f"argument {os.fsencode(arg)!r} is no UTF-8, and cannot be sent", USAGE) from error
    sent = args or DEFAULT_ARGS
    began = time.monotonic()
    finding: Finding | None = None
    try:
        finding = read(ask(socket_of(endpoint), sent, timeout))
        told = [*finding.problems, *finding.remarks]
    except Unavailable as error:
        told = [str(error)]
    word = "unavailable" if finding is None else "healthy" if finding.is_healthy else "unhealthy"
    if format_ == "json":
        seconds = round(time.monotonic() - began, 3)
        say(json.dumps({"result": word, "args": sent, "seconds": seconds, "told": told}))
    else:
        say(printable(": ".join((word, "; ".join(told))) if told else f"{word}: {endpoint}"))
    context.exit(ATTENTION if word == "unhealthy" else DONE)

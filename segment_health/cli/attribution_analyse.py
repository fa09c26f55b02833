"""`segment-health attribution analyse`: what the rules make of logs that are there, without any service."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import click

from .command import Command, examples
from .failure import UNKNOWN, Failure, say

if TYPE_CHECKING:
    from segment_health.attribution.analysers.finding import Extract, Finding

_WIDTH = 300
"""Characters of a line of evidence that are shown."""


@click.command(
    cls=Command,
    short_help="Judge the logs of failed cycles here and now.",
    epilog=examples(
        "segment-health attribution analyse train_cycle3.log",
        "segment-health attribution analyse --format json train_cycle0.log train_cycle1.log",
    ),
)
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def analyse(format_: str, files: tuple[str, ...]) -> None:
    """Say what failed in each FILE, and whether to start again: what the service says with the analyser `rules`.

    Several are the logs of consecutive cycles of one job, the oldest first. Nothing is sent anywhere.

    Exit status 0: all were judged, whatever came of it. 2: a usage error. 3: a log cannot be read.
    """
    from segment_health.attribution.analysers.rules import Rules  # noqa: PLC0415 - each command loads what it needs

    rules = Rules()
    found: list[Finding] = []
    for file in files:
        found.append(rules.analyse(_read(file), found))
        tell = _as_json if format_ == "json" else _as_text
        say(tell(file, found[-1]))


def _read(file: str) -> Extract:
    from segment_health.attribution.analysers import reading  # noqa: PLC0415

    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Failure(f"{file}: not a regular file", UNKNOWN)
            return reading.read(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"{file}: cannot be read: {cause}", UNKNOWN) from error


def _as_text(file: str, finding: Finding) -> str:
    from segment_health.record import brief, printable  # noqa: PLC0415

    lines = [f"{printable(file)}: {finding.action.value} ({finding.category})", f"  {printable(finding.reason)}"]
    if finding.step is not None:
        lines.append(f"  last step: {finding.step}")
    if finding.nodes:
        lines.append(f"  blamed: {', '.join(finding.nodes)}")
    lines += [
        f"  line {'?' if line.number is None else line.number}: {brief(line.text, _WIDTH)}"
        for line in finding.evidence
    ]
    return "\n".join(lines)


def _as_json(file: str, finding: Finding) -> str:
    from segment_health.record import one_line  # noqa: PLC0415

    document = {
        "log": os.fsencode(file).decode("utf-8", "replace"),
        "action": finding.action.value,
        "category": finding.category,
        "reason": finding.reason,
        "source": finding.source,
        "step": finding.step,
        "nodes": list(finding.nodes),
        "signature": finding.signature,
        "evidence": [{"line": line.number, "text": line.text} for line in finding.evidence],
    }
    return one_line(document).decode("ascii").removesuffix("\n")

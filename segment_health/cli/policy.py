"""`segment-health policy`: check a policy file, show what is in force."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from segment_health.record import printable

from . import in_force
from .command import Group, examples
from .failure import USAGE, Failure, say


@click.group(cls=Group, epilog=examples("segment-health policy show --publish-at SeparateFault"))
def policy() -> None:
    """Fault levels: check a policy file, show what is in force."""


@policy.command(epilog=examples("segment-health policy check policy.toml"))
@click.argument("file", metavar="FILE")
def check(*, file: str) -> None:
    """Say whether FILE can be in force. Exit status 2: it cannot; the line says why."""
    from segment_health.policy.content import PolicyError  # noqa: PLC0415
    from segment_health.policy.file import load  # noqa: PLC0415
    from segment_health.sources import node_names  # noqa: PLC0415

    try:
        found = load(file, node_names)
    except PolicyError as error:
        raise Failure(str(error), USAGE) from error
    number = len(found.rules)
    say(printable(f"{file}: {number} rule{'' if number == 1 else 's'}"))


@policy.command(epilog=examples("segment-health policy show --publish-at SeparateFault"))
@in_force.policy_options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(*, config: str | None, format_: str, **flags: Any) -> None:
    """Print the policy in force, as a file that means the same."""
    from segment_health import settings  # noqa: PLC0415
    from segment_health.policy.content import PolicyError  # noqa: PLC0415
    from segment_health.policy.show import as_document, as_toml  # noqa: PLC0415

    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        found = in_force.policy(told)
    except (settings.SettingsError, PolicyError) as error:
        raise Failure(str(error), USAGE) from error
    say(json.dumps(as_document(found)) if format_ == "json" else as_toml(found))

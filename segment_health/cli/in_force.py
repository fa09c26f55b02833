"""The policy in force: the options of every command that judges nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.policy.assess import Policy
    from segment_health.settings import Settings

    Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--policy", metavar="FILE", help="Rules of the site above the table of levels, TOML."),
    click.option("--publish-at", metavar="LEVEL", help="Lowest level that excludes.  [default: PreSeparateFault]"),
    click.option("--clear-after", metavar="HEALTH", help="What lifts: `3 passes`, `10m`.  [default: 1 pass]"),
    click.option("--max-new-exclusions", metavar="N|N%", help="Hold a pass that has more.  [default: off]"),
    click.option("--hold-passes", metavar="N", help="Then publish after all.  [default: 3]"),
)


def options(command: Command) -> Command:
    """Add the options to a command; their values are settings."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def policy(told: Settings) -> Policy:
    """Return the policy in force: the file's, with what settings say instead of it. Raises PolicyError."""
    from segment_health.level import FaultLevel  # noqa: PLC0415 - each command loads what it needs
    from segment_health.policy import limits  # noqa: PLC0415
    from segment_health.policy.assess import Policy  # noqa: PLC0415
    from segment_health.policy.file import load  # noqa: PLC0415
    from segment_health.sources import node_names  # noqa: PLC0415

    found = load(told.policy, node_names) if told.policy else Policy()
    instead: dict[str, Any] = {}
    if told.publish_at is not None:
        instead["publish_at"] = FaultLevel[told.publish_at]
    if told.clear_after is not None:
        instead["clear_after"] = limits.clear_after(told.clear_after)
    if told.max_new_exclusions is not None:
        instead["max_new_exclusions"] = limits.max_new_exclusions(told.max_new_exclusions)
    if told.hold_passes is not None:
        instead["hold_passes"] = told.hold_passes
    return replace(found, **instead) if instead else found

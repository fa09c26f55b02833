"""What nodes are judged by: the policy, and NodeD's reports. The options of every command that judges."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segment_health.noded.directory import NodeReports
    from segment_health.policy.assess import Policy
    from segment_health.settings import Settings

    Command = TypeVar("Command", bound=Callable[..., Any])

_POLICY_OPTIONS = (
    click.option("--policy", metavar="FILE", help="Rules of the site above the table of levels, TOML."),
    click.option("--publish-at", metavar="LEVEL", help="Lowest level that excludes.  [default: PreSeparateFault]"),
    click.option("--clear-after", metavar="HEALTH", help="What lifts: `3 passes`, `10m`.  [default: 1 pass]"),
    click.option("--max-new-exclusions", metavar="N|N%", help="Hold a pass that has more.  [default: off]"),
    click.option("--hold-passes", metavar="N", help="Then publish after all.  [default: 3]"),
)
_REPORT_OPTIONS = (
    click.option("--noded-dir", metavar="DIR", help="Reports of NodeD, a source of faults beside Slurm."),
    click.option("--noded-max-age", "--max-age", metavar="SECONDS|never", help="Of a report.  [default: 3600]"),
    click.option(
        "--noded-unknown-level", metavar="LEVEL", help="Of a code in no list.  [default: PreSeparateFault]"
    ),
)


storage_option = click.option(
    "--storage-timeout", metavar="SECONDS", help="How long shared storage may take.  [default: 60]"
)


def policy_options(command: Command) -> Command:
    """Add the options of a policy to a command; their values are settings."""
    return _with(_POLICY_OPTIONS, command)


def report_options(command: Command) -> Command:
    """Add the options of NodeD's reports to a command; their values are settings."""
    return _with(_REPORT_OPTIONS, command)


def _with(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def policy(told: Settings, content: bytes | None = None) -> Policy:
    """Return the policy in force: the file's, with what settings say instead of it. Raises PolicyError.

    `content` is what the file holds, where that has been read already.
    """
    from segment_health.level import FaultLevel  # noqa: PLC0415 - each command loads what it needs
    from segment_health.policy import file, limits  # noqa: PLC0415
    from segment_health.policy.assess import Policy  # noqa: PLC0415
    from segment_health.sources import node_names  # noqa: PLC0415

    found = Policy()
    if told.policy:
        found = file.parse(file.content_of(told.policy) if content is None else content, told.policy, node_names)
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


def reports(told: Settings) -> NodeReports | None:
    """Return where NodeD's reports are read, None where nobody asked for them. Raises ConfigurationError."""
    if told.noded_dir is None:
        return None
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.level import FaultLevel  # noqa: PLC0415
    from segment_health.noded.directory import NodeReports  # noqa: PLC0415
    from segment_health.sources import SourceUnknown  # noqa: PLC0415

    max_age = None if told.noded_max_age == "never" else int(told.noded_max_age)
    found = NodeReports(told.noded_dir, max_age, FaultLevel[told.noded_unknown_level])

    def checked() -> NodeReports:
        with contextlib.suppress(
            SourceUnknown
        ):  # a pass without its directory is unknown; the next one may have it
            found.check()
        return found

    try:
        return bounded(checked, told.storage_timeout, told.noded_dir)
    except TimeoutError:
        return found

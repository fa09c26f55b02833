"""What nodes are judged by: the policy, and sources beside Slurm. The options of every command that judges."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segment_health.noded.directory import NodeReports
    from segment_health.policy.assess import Policy
    from segment_health.publication import Reporting
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
    click.option("--attribution-blame", metavar="DIR", help="What logs say against nodes, another such source."),
    click.option("--blame-max-age", metavar="SECONDS", help="How long that counts.  [default: 86400]"),
    click.option("--blame-jobs", metavar="N", help="Jobs that make it count for others too.  [default: 2]"),
)


storage_option = click.option(
    "--storage-timeout", metavar="SECONDS", help="How long shared storage may take.  [default: 60]"
)


def policy_options(command: Command) -> Command:
    """Add the options of a policy to a command; their values are settings."""
    return _with(_POLICY_OPTIONS, command)


def report_options(command: Command) -> Command:
    """Add the options of sources beside Slurm to a command; their values are settings."""
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
    from segment_health.policy import limits  # noqa: PLC0415
    from segment_health.policy.assess import Policy  # noqa: PLC0415

    found = Policy()
    if told.policy:
        from segment_health.policy import file  # noqa: PLC0415 - 0.2 s that only who has such a file pays
        from segment_health.policy.content import content_of  # noqa: PLC0415
        from segment_health.sources import node_names  # noqa: PLC0415

        found = file.parse(content_of(told.policy) if content is None else content, told.policy, node_names)
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


def reports(told: Settings) -> tuple[Reporting, ...]:
    """Return the sources beside Slurm that somebody asked for. Raises SettingsError."""
    found: list[Reporting] = []
    if told.noded_dir is not None:
        found.append(_noded(told, told.noded_dir))
    if told.attribution_blame is not None:
        found.append(_blames(told, told.attribution_blame))
    return tuple(found)


def _blames(told: Settings, path: str) -> Reporting:
    from segment_health.attribution.blame.directory import Blames  # noqa: PLC0415 - each command loads what it needs
    from segment_health.attribution.blame.grade import Bar  # noqa: PLC0415
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.settings import SettingsError  # noqa: PLC0415

    found = Blames(path, Bar(int(told.blame_max_age), told.blame_jobs))
    try:
        bounded(found.check, told.storage_timeout, path)
    except PermissionError as error:
        raise SettingsError(f"--attribution-blame: {error.strerror}") from error
    except OSError:
        pass  # a pass says so, and the next one may have it
    return found


def _noded(told: Settings, path: str) -> NodeReports:
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.level import FaultLevel  # noqa: PLC0415
    from segment_health.noded.config import ConfigurationError  # noqa: PLC0415
    from segment_health.noded.directory import NodeReports  # noqa: PLC0415
    from segment_health.settings import SettingsError  # noqa: PLC0415
    from segment_health.sources import SourceUnknown  # noqa: PLC0415

    max_age = None if told.noded_max_age == "never" else int(told.noded_max_age)
    found = NodeReports(path, max_age, FaultLevel[told.noded_unknown_level])

    def checked() -> NodeReports:
        with contextlib.suppress(
            SourceUnknown
        ):  # a pass without its directory is unknown; the next one may have it
            found.check()
        return found

    try:
        return bounded(checked, told.storage_timeout, path)
    except TimeoutError:
        return found
    except ConfigurationError as error:
        raise SettingsError(str(error)) from error

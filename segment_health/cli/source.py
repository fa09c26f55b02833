"""Where Slurm's state comes from: the options that `publish` and `record` share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from segment_health.settings import Settings
    from segment_health.sources import Access, Source

    Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--source", metavar="auto|text|json|rest|pyslurm", help="The door to Slurm.  [default: auto]"),
    click.option("--cluster", metavar="NAME", help="Ask this cluster; of saved answers: what they are of."),
    click.option("--slurm-conf", metavar="FILE", help="The slurm.conf to use, as SLURM_CONF."),
    click.option("--slurm-bin-dir", metavar="DIR", help="Where Slurm's commands are.  [default: PATH]"),
    click.option("--rest-url", metavar="URL", help="slurmrestd: http://host:6820 or unix:/path."),
    click.option("--rest-jwt-file", metavar="FILE", help="Its token.  [default: SLURM_JWT]"),
    click.option("--timeout", metavar="SECONDS", help="How long Slurm may take to answer.  [default: 30]"),
    click.option(
        "--nodes-from", metavar="FILE", help="Saved nodes of any door, instead of asking Slurm; - is stdin."
    ),
    click.option("--jobs-from", metavar="FILE", help="Saved jobs of any door."),
    click.option("--replay", metavar="FILE", help="What `segment-health record` wrote, instead of asking Slurm."),
)


def options(command: Command) -> Command:
    """Add the options to a command; their values are settings."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def opened(
    told: Settings, environ: Mapping[str, str], *, once: bool, meanwhile: Callable[[], object] | None = None
) -> tuple[Source, str]:
    """Return the source, and what tells its cluster from another one of this host before the first answer.

    `meanwhile` is as in access().

    Raises SettingsError.
    """
    from segment_health import sources  # noqa: PLC0415 - each command loads what it needs

    _check(told, once=once)
    saved = told.saved_answers()
    if told.replay is not None:
        return sources.replay(told.replay, cluster=told.cluster), "saved"
    if saved is not None:
        return sources.read_saved(*saved, cluster=told.cluster), told.cluster or "saved"
    # Two clusters of one host have two slurm.conf; the name is known only once one has answered.
    conf = told.slurm_conf or environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf"
    parts = (told.rest_url or os.path.realpath(conf), told.cluster)
    return sources.ask_slurm(told.source, access(told, environ, meanwhile)), " ".join(filter(None, parts))


def access(told: Settings, environ: Mapping[str, str], meanwhile: Callable[[], object] | None = None) -> Access:
    """Return how a living Slurm is reached; `meanwhile` is called once while it works on its first answer."""
    from segment_health.sources import Access  # noqa: PLC0415

    return Access(
        timeout=told.timeout,
        environ=environ,
        cluster=told.cluster,
        slurm_conf=told.slurm_conf,
        commands_directory=told.slurm_bin_dir,
        rest_url=told.rest_url,
        rest_token_file=told.rest_jwt_file,
        meanwhile=meanwhile,
    )


def _check(told: Settings, *, once: bool) -> None:
    """Refuse a source that is not told whole, or twice, for one pass or for many. Raises SettingsError."""
    from segment_health.settings import SettingsError  # noqa: PLC0415 - as above

    if told.replay and (told.nodes_from or told.jobs_from):
        raise SettingsError("--replay plays nodes and jobs: not together with --nodes-from and --jobs-from")
    if not once and told.replay:
        raise SettingsError("--replay plays one instant: add --once")
    if not once and "-" in {told.nodes_from, told.jobs_from}:
        raise SettingsError("standard input can be read only once: add --once")
    if told.nodes_from == told.jobs_from == "-":
        raise SettingsError("--nodes-from and --jobs-from: standard input can be read only once")
    if told.replay or told.nodes_from:
        return
    if told.source == "rest" and not told.rest_url:
        raise SettingsError("--source rest needs --rest-url: http://host:port or unix:/path/of/the/socket")
    if told.source == "auto" and told.rest_url:
        raise SettingsError("--rest-url alone asks nobody: add --source rest, or name another source")

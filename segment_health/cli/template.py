"""`segment-health template`: job scripts, units and hooks to begin with."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

import click

from .command import Group, examples
from .failure import USAGE, Failure, deliver, say


class _Template(NamedTuple):
    meaning: str
    """A line that tells people whether it is what they look for."""
    parts: tuple[str, ...]
    """The files that it is put together from."""


_TEMPLATES = {
    "sbatch-array": _Template(
        "job script: an array of segments and spares, which publishes for itself",
        ("sbatch-array.head", "sbatch.body"),
    ),
    "sbatch-regular": _Template(
        "job script: one job that publishes for itself", ("sbatch-regular.head", "sbatch.body")
    ),
    "scrontab": _Template("Slurm's own cron: all jobs of one user", ("scrontab",)),
    "cron": _Template("crontab: all jobs of one user", ("cron",)),
    "systemd": _Template("unit: one publisher for a site, watched over by systemd", ("systemd.service",)),
    "systemd-oneshot": _Template(
        "unit: a single pass for a site; systemd-timer starts it", ("systemd-oneshot.service",)
    ),
    "systemd-timer": _Template("timer: starts systemd-oneshot every five minutes", ("systemd.timer",)),
    "nvhcd-systemd": _Template(
        "unit: nvhcd on every node, which NVRx's node health check asks", ("nvhcd.service",)
    ),
    "nvhcd-socket": _Template("unit: nvhcd's socket, opened by systemd before anybody asks", ("nvhcd.socket",)),
    "nvhcd-config": _Template("configuration of nvhcd, each key with its default", ("nvhcd.yaml",)),
    "attribution-systemd": _Template(
        "unit: the service that judges the logs of failed cycles, for a site", ("attribution.service",)
    ),
    "strigger": _Template("script: sets Slurm's triggers, by which a drain asks for a pass", ("strigger",)),
    "epilog": _Template("script: Epilog= of Slurm that asks for a pass", ("epilog",)),
    "prometheus-alerts": _Template(
        "rules: what Prometheus wakes people up for (docs/alerts.md)", ("prometheus-alerts.yml",)
    ),
    "grafana": _Template("dashboard: what publishers see and do, for Grafana 10.4 and later", ("grafana.json",)),
    "nhc": _Template("script: LBNL Node Health Check asks for a pass once it has drained", ("nhc",)),
    "bcm-wrapper": _Template(
        "script: a site's health check, for nvhcd and launchers (docs/nodecheck.md)", ("bcm-wrapper",)
    ),
}


class _ByName(Group):
    """Takes `template systemd` for `template show systemd`, which is what people type first."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called."""
        return super().resolve_command(context, ["show", *args] if args[0] in _TEMPLATES else args)


@click.group(
    cls=_ByName,
    invoke_without_command=True,
    epilog=examples("segment-health template", "segment-health template show sbatch-array > train.sbatch"),
)
@click.pass_context
def template(context: click.Context) -> None:
    """Print a job script, a unit or a hook to begin with."""
    if context.invoked_subcommand is None:
        _say_all()


@template.command("list", epilog=examples("segment-health template list"))
def list_() -> None:
    """Name the templates, a line each."""
    _say_all()


@template.command(
    short_help="Print a template.", epilog=examples("segment-health template show sbatch-array > train.sbatch")
)
@click.argument("name", metavar="NAME", default="", shell_complete=lambda *_: list(_TEMPLATES))
def show(name: str) -> None:
    """Print a template, to be saved and edited; `segment-health template` names them."""
    if name not in _TEMPLATES:
        what = f"no template {name[:40]!a}" if name else "which template"
        raise Failure(f"{what}? There are {', '.join(_TEMPLATES)}", USAGE)
    folder = resources.files("segment_health") / "templates"
    deliver("".join((folder / part).read_text("utf-8") for part in _TEMPLATES[name].parts))


def _say_all() -> None:
    say("\n".join(f"{name:<19} {found.meaning}" for name, found in _TEMPLATES.items()))

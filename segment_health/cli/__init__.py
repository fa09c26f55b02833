"""The command line: the only place that prints, exits, or knows an exit code (docs/contract.md, Exit codes)."""

from __future__ import annotations

import gc

gc.disable()  # a fifth of the time that click takes to load is a search for garbage among what stays

import click  # noqa: E402

from segment_health import __version__  # noqa: E402

from .command import SETTINGS, Group, Late, examples  # noqa: E402
from .failure import reserve_streams  # noqa: E402

gc.freeze()  # nor is it looked through at the end
gc.enable()

_COMMANDS = {
    "publish": "publish.publish",
    "check": "check.check",
    "path": "check.path",
    "preflight": "preflight.preflight",
    "attribution": "attribution.attribution",
    "builtin": "builtin.builtin",
    "nodecheck": "nodecheck.nodecheck",
    "clear": "lift.clear",
    "prune": "lift.prune",
    "status": "status.status",
    "history": "history.history",
    "poke": "poke.poke",
    "explain": "explain.explain",
    "doctor": "doctor.doctor",
    "report": "page.page_report",
    "nvhcd": "nvhcd.nvhcd",
    "noded": "noded.noded",
    "policy": "policy.policy",
    "record": "record.record",
    "template": "template.template",
    "completion": "completion.completion",
    "demo": "demo.demo",
}
"""Where each command is, in this folder."""


@click.group(
    cls=Group,
    commands=Late(__name__, _COMMANDS),
    context_settings=SETTINGS,
    epilog=examples("segment-health demo", "segment-health publish --help", "segment-health template"),
)
@click.version_option(__version__, prog_name="segment-health")
def main() -> None:
    """Keep ft_launcher from reusing a Slurm allocation unit whose nodes went bad."""
    reserve_streams()

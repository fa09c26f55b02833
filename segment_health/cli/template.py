"""`segment-health template`: job scripts and wrappers to begin with."""

from __future__ import annotations

from importlib import resources

import click

from .failure import USAGE, Failure

_PARTS = {
    "sbatch-array": ("sbatch-array.head", "sbatch.body"),
    "sbatch-regular": ("sbatch-regular.head", "sbatch.body"),
}


@click.group()
def template() -> None:
    """Print a job script to begin with."""


@template.command()
@click.argument("name", metavar="sbatch-array|sbatch-regular")
def show(name: str) -> None:
    """Print a template: `segment-health template show sbatch-array > train.sbatch`."""
    if name not in _PARTS:
        raise Failure(f"no template {name[:40]!a}; there are {', '.join(_PARTS)}", USAGE)
    folder = resources.files("segment_health") / "templates"
    click.echo("".join((folder / part).read_text("utf-8") for part in _PARTS[name]), nl=False)

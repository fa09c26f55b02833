"""The command line: the only place that prints, exits, or knows an exit code (docs/contract.md, Exit codes)."""

from __future__ import annotations

import click

from segment_health import __version__

from .check import check, path
from .command import SETTINGS, Group, examples
from .completion import completion
from .demo import demo
from .doctor import doctor
from .explain import explain
from .failure import reserve_streams
from .history import history
from .lift import clear, prune
from .noded import noded
from .page import page_report
from .poke import poke
from .policy import policy
from .publish import publish
from .record import record
from .status import status
from .template import template


@click.group(
    cls=Group,
    context_settings=SETTINGS,
    epilog=examples("segment-health demo", "segment-health publish --help", "segment-health template"),
)
@click.version_option(__version__, prog_name="segment-health")
def main() -> None:
    """Keep ft_launcher from reusing a Slurm allocation unit whose nodes went bad."""
    reserve_streams()


main.add_command(publish)
main.add_command(check)
main.add_command(path)
main.add_command(clear)
main.add_command(prune)
main.add_command(status)
main.add_command(history)
main.add_command(poke)
main.add_command(explain)
main.add_command(doctor)
main.add_command(page_report)
main.add_command(noded)
main.add_command(policy)
main.add_command(record)
main.add_command(template)
main.add_command(completion)
main.add_command(demo)

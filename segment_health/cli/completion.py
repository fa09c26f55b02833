"""`segment-health completion`: what a shell has to know to complete our commands."""

from __future__ import annotations

import click

from .command import Command, examples
from .failure import USAGE, Failure, deliver

_PROGRAM = "segment-health"
_VARIABLE = "_SEGMENT_HEALTH_COMPLETE"
"""By which the command knows that it is asked for words: click makes it from the program's name."""


@click.command(
    cls=Command,
    short_help="Print what completes our commands in a shell.",
    epilog=examples(
        "segment-health completion bash > segment-health.bash && source segment-health.bash",
        "segment-health completion fish > segment-health.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes our commands and options in a SHELL.

    For good, in bash: save it as ~/.local/share/bash-completion/completions/segment-health; in fish: as
    ~/.config/fish/completions/segment-health.fish; in zsh: as _segment-health in a directory of $fpath.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - no other command needs it

    found = get_completion_class(shell)
    if found is None:
        raise Failure(f"click cannot complete in {shell}", USAGE)
    deliver(found(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())

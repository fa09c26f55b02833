"""What every command has in common: a help that fits a screen and shows how the command is called."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Of the outermost command; those below inherit them."""

_FOLDED_FROM = 24
"""A command with more options than these shows those that few need by name alone."""
_RARE = {
    "adopt", "allow_shared_dir", "attribution_blame", "blame_jobs", "blame_max_age", "clear_after", "cluster",
    "format_", "hold_passes", "jobs_from", "log_format", "max_new_exclusions", "noded_dir", "noded_max_age",
    "noded_unknown_level", "nodes_from", "on_separate", "precreate", "publish_at", "refresh_token_file",
    "rest_jwt_file", "rest_url", "slurm_bin_dir", "slurm_conf", "stale_after", "storage_timeout", "timeout",
}  # fmt: skip
_ALL = f"{__name__}.all"
"""In a context where every option is to be explained."""


def examples(*lines: str) -> str:
    """Write the end of a command's help: how it is called. Each line is a command that can be run as it stands."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class Command(click.Command):
    """A command whose help fits a screen: where it has many options, `--help-all` explains the rarer ones."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._rare: list[click.Parameter] = []
        if len(self.params) > _FOLDED_FROM:
            self._rare = [option for option in self.params if option.name in _RARE]
        if self._rare:
            names = ", ".join(option.opts[0] for option in self._rare)
            all_ = click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_tell_all,
                help=f"Explain these too: {names}.",
            )
            self.params.append(all_)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, of many only those that most people need."""
        hidden = {"help_all"} if _ALL in context.meta else {option.name for option in self._rare}
        shown = [option for option in self.get_params(context) if option.name not in hidden]
        records = [
            record
            for option in shown
            if isinstance(option, click.Option) and (record := option.get_help_record(context)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(records)


class Group(click.Group):
    """A command of commands, each of which is a Command."""

    command_class = Command
    group_class = type


class Late(MutableMapping[str, click.Command]):
    """Commands by name, each of which is read when it is called: all of them take longer than most of them run.

    `places` has for each name the module below `package` and what the command is called in it, `module.attribute`.
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self._package = package
        self._places = dict(places)
        self._read: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._read:
            module, _, attribute = self._places[name].partition(".")
            self._read[name] = getattr(import_module(f".{module}", self._package), attribute)
        return self._read[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name] = ""
        self._read[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._read.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        """Tell without reading it."""
        return name in self._places


def _tell_all(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()

"""`segment-health status`: who publishes in a decision directory, and what is excluded there."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import click

from segment_health.record import one_line, printable

from . import in_force, overview
from .command import Command, examples
from .failure import DONE, UNKNOWN, USAGE, Failure, ended_by_signals, is_terminal, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.survey import Survey

Result = TypeVar("Result")

_WATCH_SECONDS = 2.0


@click.command(
    cls=Command,
    short_help="Show who publishes, and what is excluded.",
    epilog=examples("segment-health status --dir /shared/segment-health/decisions --watch"),
)
@click.option("--dir", "directory", metavar="DIR", help="Decision directory.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--watch", metavar="[SECONDS]", is_flag=False, flag_value=_WATCH_SECONDS, type=click.FloatRange(0.1, 86_400),
    help="Look again and again until Ctrl-C.  [every 2 s]",
)  # fmt: skip
@in_force.storage_option
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.pass_context
def status(
    context: click.Context,
    /,
    *,
    directory: str | None,
    format_: str,
    watch: float | None,
    storage_timeout: str | None,
    config: str | None,
) -> None:
    """Show who publishes in DIR, which units are excluded, since when, for which nodes and reasons.

    Slurm is not asked. The first line is for monitors, as the exit status is:
    0: OK. 1: WARNING, something needs a person: a stale exclusion, an artifact of somebody else's, a
    publisher that cannot write, holds exclusions back, or has a policy that it cannot use. 2: a usage or
    configuration error. 3: UNKNOWN, no living publisher.
    """
    path, seconds = directory_of(directory, storage_timeout, config)
    if watch is not None:
        context.exit(_watch(path, seconds, format_, watch))
    try:
        found = _look(path, seconds)
    except Failure as failure:
        if format_ == "text" and failure.exit_code == UNKNOWN:  # a monitor reads stdout
            say(_unknown(failure))
        raise
    _tell(found, path, format_)
    context.exit(overview.verdict(found).code)


def directory_of(directory: str | None, storage_timeout: str | None, config: str | None) -> tuple[str, float]:
    """Return the decision directory that is meant, and how many seconds its storage may take."""
    from segment_health import settings  # noqa: PLC0415 - each command loads what it needs

    flags = {"dir": directory, "storage_timeout": storage_timeout}
    try:
        told = settings.load({key: value for key, value in flags.items() if value}, os.environ, config)
        return told.named_directory(), told.storage_timeout
    except settings.SettingsError as error:
        raise Failure(str(error), USAGE) from error


def within(path: str, seconds: float, look: Callable[[], Result]) -> Result:
    """Return what a look at a decision directory returns, within its time. Raises Failure.

    Where there is no such directory that is a mistake of whoever named it; whatever else fails is unknown.
    """
    from segment_health.bounded import bounded  # noqa: PLC0415

    try:
        return bounded(look, seconds, path)
    except ValueError as error:  # a NUL byte
        raise Failure(f"decision directory {path!a}: {error}", USAGE) from error
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError) and error.filename == path
        code = USAGE if missing else UNKNOWN
        raise Failure(f"decision directory {path}: {error.strerror or error}", code) from error


def _look(path: str, seconds: float) -> Survey:
    """Survey the directory. Raises Failure."""
    from segment_health.survey import survey  # noqa: PLC0415

    return within(path, seconds, lambda: survey(path, int(time.time())))


def _seen(path: str, seconds: float, *, is_first: bool) -> Survey | Failure:
    """Survey the directory, or return what failed, which may be over the next time.

    Raises what is a mistake: at the first look alone, for a directory that was there may come back.
    """
    try:
        return _look(path, seconds)
    except Failure as failure:
        if is_first and failure.exit_code != UNKNOWN:
            raise
        return failure


def _unknown(failure: Failure) -> str:
    return f"UNKNOWN: {printable(failure.message)}"


def _tell(found: Survey, path: str, format_: str) -> bool:
    """Print what was found; return whether anybody could read it."""
    if format_ == "json":
        return say(one_line(overview.document(found, path)).decode().rstrip("\n"))
    if is_terminal(sys.stdout):
        from .table import draw  # noqa: PLC0415 - what is piped needs no tables

        return say(draw(found))
    return say("\n".join(overview.lines(found)))


def _watch(path: str, seconds: float, format_: str, every: float) -> int:
    """Look again and again, until a person has seen enough."""
    try:
        with ended_by_signals(), ExitStack() as opened:
            screen = None
            if format_ == "text" and is_terminal(sys.stdout):
                from .table import Screen  # noqa: PLC0415

                screen = opened.enter_context(Screen())
            is_first = True
            while True:
                found = _seen(path, seconds, is_first=is_first)
                is_first = False
                if screen is not None:
                    screen.show(_unknown(found) if isinstance(found, Failure) else found)
                elif isinstance(found, Failure):
                    found.show()
                elif not _tell(found, path, format_) or (format_ == "text" and not say("")):
                    return DONE  # nobody reads on
                time.sleep(every)
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            return DONE
        raise

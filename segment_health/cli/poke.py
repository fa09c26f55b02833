"""`segment-health poke`: ask living publishers for a pass now."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from segment_health.record import printable

from . import in_force
from .command import Command, examples
from .failure import ATTENTION, UNKNOWN, USAGE, Failure, say

if TYPE_CHECKING:
    from segment_health.poke import Asked


@click.command(
    cls=Command,
    short_help="Ask the publishers of a directory for a pass now.",
    epilog=examples("segment-health poke --dir /shared/segment-health/decisions"),
)
@click.option("--dir", "directory", metavar="DIR", help="Decision directory, absolute.")
@in_force.storage_option
@click.option("--quiet", "-q", is_flag=True, help="Say only what is wrong.")
def poke(directory: str | None, storage_timeout: str | None, *, quiet: bool) -> None:
    """Ask the publishers of a directory for a pass now: after a drain, from a trigger, an epilog, a health check.

    Those of this host hear it at once, those of other hosts within two seconds; a publisher makes at most one
    such pass in five seconds. Slurm is not asked, and nothing is decided here.

    Exit status 0: somebody was asked. 1: those on other hosts could not be. 3: no publisher is alive.
    """
    from segment_health.bounded import bounded  # noqa: PLC0415 - each command loads what it needs
    from segment_health.poke import ask, ring_sockets  # noqa: PLC0415

    path, real, seconds = _located(directory, storage_timeout)
    sockets = ring_sockets(real, os.environ)
    try:
        asked = bounded(lambda: ask(path, sockets, time.time()), seconds, path)
    except OSError as error:
        here = f"; {sockets} on this host were asked" if sockets else ""
        remedy = "; run it as the publisher's user" if isinstance(error, PermissionError) else ""
        told = f"{path}: publishers on other hosts could not be asked: {error.strerror or error}{remedy}{here}"
        raise Failure(told, ATTENTION) from error
    if not asked.sockets and not asked.by_file:
        raise Failure(f"no publisher of {path} is alive: nobody was asked", UNKNOWN)
    if not quiet:
        say(printable(_told(asked)))


def _told(asked: Asked) -> str:
    here = [f"{asked.sockets} on this host"] if asked.sockets else []
    elsewhere = [f"{beat.publisher.scope} on {beat.publisher.host}" for beat in asked.by_file]
    return f"asked for a pass: {', '.join(here + elsewhere)}"


def _located(directory: str | None, storage_timeout: str | None) -> tuple[str, str, float]:
    """Return the decision directory, its real path, and how many seconds its storage may take."""
    from segment_health import settings  # noqa: PLC0415

    try:
        flags = {"dir": directory, "storage_timeout": storage_timeout}
        told = settings.load({key: value for key, value in flags.items() if value}, os.environ, None)
        return *told.located(), told.storage_timeout
    except settings.SettingsError as error:
        raise Failure(str(error), USAGE) from error
    except TimeoutError as error:
        raise Failure(f"the decision directory: {error.strerror}; nobody was asked", ATTENTION) from error

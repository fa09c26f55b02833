"""The status page: `segment-health report` writes it to a file, and a running publisher serves it (`--listen`)."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import click

from segment_health import __version__

from . import in_force, source
from .command import Command, examples
from .failure import ATTENTION, UNKNOWN, USAGE, Failure, say
from .progress import waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from segment_health.page.door import Door
    from segment_health.page.picture import Picture
    from segment_health.publication import Publication
    from segment_health.service import Service
    from segment_health.settings import Settings
    from segment_health.watch import Listener

    from .log import Log


@click.command(
    "report",
    cls=Command,
    short_help="Write the status page to one file.",
    epilog=examples(
        "segment-health report --dir /shared/segment-health/decisions --out page.html",
        "segment-health report --replay slurm.json --policy policy.toml --out page.html",
    ),
)
@click.option("--dir", metavar="DIR", help="Decision directory: what is published there, and its history.")
@click.option("--out", metavar="FILE", required=True, help="The page, replaced as a whole; - is standard output.")
@in_force.policy_options
@in_force.report_options
@in_force.storage_option
@click.option("--cluster", metavar="NAME", help="Of saved answers: what they are of.")
@click.option("--nodes-from", metavar="FILE", help="Saved nodes of any door; - is stdin.")
@click.option("--jobs-from", metavar="FILE", help="Saved jobs of any door.")
@click.option("--replay", metavar="FILE", help="What `segment-health record` wrote.")
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
def page_report(*, out: str, config: str | None, **flags: Any) -> None:
    """Write the status page to one file: `segment-health report --dir DIR --out page.html`.

    From a directory alone it shows the nodes of units that publishers know. With --replay, or --nodes-from and
    --jobs-from, it shows every node of the cluster; then, without --dir, what a first pass would exclude.
    Asks Slurm nothing, changes nothing, and the file needs nothing but a browser.

    Exit status 0: written. 1: it could not be. 2: a usage or configuration error. 3: the saved answers tell
    nothing that can be shown.
    """
    from segment_health import settings  # noqa: PLC0415 - each command loads what it needs
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.page.render import render  # noqa: PLC0415
    from segment_health.page.sheet import template  # noqa: PLC0415
    from segment_health.policy.content import PolicyError  # noqa: PLC0415

    from .record import write  # noqa: PLC0415

    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        saved = told.replay is not None or told.saved_answers() is not None
        if not told.dir and not saved:
            raise Failure("report: of what? Give --dir, --replay or --nodes-from with --jobs-from", USAGE)
        directory = told.directory() if told.dir else ""
        draw = _of_saved(told, directory) if saved else _of_directory(directory)
    except (settings.SettingsError, PolicyError) as error:
        raise Failure(str(error), USAGE) from error
    except TimeoutError as error:
        raise Failure(f"the decision directory: {error.strerror}; nothing was written", ATTENTION) from error
    try:
        with waiting("reading"):
            picture = bounded(draw, told.storage_timeout, directory or "no directory")
    except OSError as error:
        raise Failure(f"{directory}: {error.strerror or error}; nothing was written", ATTENTION) from error
    documents = {"nodes": picture.nodes, "decisions": picture.decisions}
    text = render(template(), {**documents, "traits": {"live": False, "whole": saved}})
    write(out, text.encode(), otherwise="nothing was written")
    if out != "-":
        units = picture.decisions["units"]
        excluded = sum(unit["excluded"] for unit in units)
        say(f"written: {len(picture.nodes['nodes'])} nodes, {len(units)} units, {excluded} excluded")


def _of_directory(directory: str) -> Callable[[], Picture]:
    from segment_health.page.portrait import portrait  # noqa: PLC0415

    return lambda: portrait(directory, int(time.time()), None)


def _of_saved(told: Settings, directory: str) -> Callable[[], Picture]:
    """Observe what was saved. Raises Failure, and what settings and policies raise."""
    from segment_health.observe import observe  # noqa: PLC0415
    from segment_health.page.portrait import imagined, portrait_of_pass  # noqa: PLC0415
    from segment_health.sources import SourceUnknown  # noqa: PLC0415

    publication = _publication(told, directory)
    observed, _ = source.opened(told, os.environ, once=True)
    with contextlib.closing(observed):
        try:
            observation = observe(publication, observed, time.time)
        except SourceUnknown as unknown:
            raise Failure(
                f"the saved answers tell nothing, so nothing was written: {unknown}", UNKNOWN
            ) from unknown
    if directory:
        return lambda: portrait_of_pass(observation, publication, {})
    return lambda: imagined(observation, publication)


def _publication(told: Settings, directory: str) -> Publication:
    from segment_health.publication import Publication  # noqa: PLC0415
    from segment_health.scope import EVERYTHING  # noqa: PLC0415

    return Publication(
        directory,
        EVERYTHING,
        in_force.policy(told),
        __version__,
        told.interval,
        replay=True,
        dry_run=True,
        reports=in_force.reports(told),
    )


@contextlib.contextmanager
def serving(told: Settings, service: Service, log: Log, further: Sequence[Listener]) -> Iterator[list[Door]]:
    """Serve the page while inside; the one door to it, or none where nobody asked. Raises Failure.

    The metrics that it hands out are among the `further` listeners.
    """
    if told.listen is None:
        if told.refresh_token_file is not None:
            raise Failure("--refresh-token-file is for a page: --listen", USAGE)
        yield []
        return
    from segment_health import address, listening  # noqa: PLC0415 - most publishers serve none
    from segment_health.metrics.registry import Metrics  # noqa: PLC0415
    from segment_health.page.door import Door  # noqa: PLC0415
    from segment_health.page.token import read_token  # noqa: PLC0415

    (metrics,) = (listener for listener in further if isinstance(listener, Metrics))
    where = address.parse(told.listen)
    traits: dict[str, Any] = {"token": None, "host": where.name if where.is_loopback else None}
    try:
        if told.refresh_token_file is not None:
            traits["token"] = read_token(told.refresh_token_file)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"--refresh-token-file {told.refresh_token_file!a}: {cause}", USAGE) from error
    try:
        socket = listening.listen(where)
    except OSError as error:
        raise Failure(f"--listen {told.listen}: {error.strerror or error}", USAGE) from error
    door = Door(
        socket,
        traits,
        interval=lambda: service.interval,
        monotonic=time.monotonic,
        say=lambda level, sentence: log.say(level, "page", sentence),
        remark=lambda sentence: log.remark("page", sentence),
        exposition=metrics.exposition,
    )
    try:
        log.say("INFO", "page", f"the status page is served at {where.url}")
        yield [door]
    finally:
        door.close()
        listening.close(socket, where)

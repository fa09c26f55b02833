"""`segment-health publish` without --once: the loop, put together."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

from .failure import DONE, USAGE, Failure, ended_by_signals
from .plan import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from segment_health.service import Plan
    from segment_health.settings import Settings
    from segment_health.signals import Signals

    from .log import Log

_FIXED = ("listen", "refresh_token_file", "metrics_file", "log_format", "standby")
"""Settings of what stays as the loop began with it."""


def loop(given: Mapping[str, Any], config: str | None) -> int:
    """Publish until asked to end; return the exit code. Raises Failure."""
    # All that it may need, now: an upgrade may replace our files under it.
    from segment_health import heartbeats, lock, separate, watch  # noqa: F401, PLC0415
    from segment_health.notify import Notifier  # noqa: PLC0415
    from segment_health.service import Service, prepare  # noqa: PLC0415
    from segment_health.signals import Signals  # noqa: PLC0415

    from . import metrics  # noqa: PLC0415
    from .log import Log  # noqa: PLC0415
    from .page import serving  # noqa: PLC0415

    prepare()
    with ended_by_signals():  # as in a single pass; a moment later signals are requests
        todo, told = plan(given, config, loop=True)
    publication = todo.publication
    log = Log(told.log_format, time.time)

    def reread(current: Plan) -> Plan:
        return _read_again(given, config, (todo, told), log) or current

    service = Service(todo, time.time, reread, lambda level, sentence: log.say(level, "policy", sentence))
    notifier = Notifier(os.environ)
    figures = metrics.listening(service, told, lambda remark: log.remark("metrics", remark))
    with Signals() as signals, figures as further, serving(told, service, log, further) as door:
        listener = watch.Listeners([log, notifier, *further, *door])
        while signals.ending is None:
            try:
                with _alone(todo), _heard(todo, signals, log):
                    signals.askers += door
                    log.say("INFO", "start", _introduction(todo))
                    try:
                        watch.run(
                            service,
                            signals,
                            listener,
                            monotonic=time.monotonic,
                            random=random.random,
                            age=service.age(),
                        )
                    finally:
                        notifier.stopping()
                        service.retire()
                        service.close()
            except lock.AlreadyRunning as running:
                if not told.standby:
                    other = f"another publisher of {publication.scope} in {publication.directory}"
                    raise Failure(f"{other} is running on this host: {running}", USAGE) from running
                listener.standing_by()
                signals.wait(watch.STANDBY_SECONDS)
            except lock.LockError as error:
                raise Failure(f"no lock, so nothing was done: {error}", USAGE) from error
        log.say("INFO", "end", f"{signal.Signals(signals.ending).name}: ended; exclusions stay in place")
    return DONE


def _read_again(
    given: Mapping[str, Any], config: str | None, began: tuple[Plan, Settings], log: Log
) -> Plan | None:
    """Return what the settings say now, but for what stays as it began; None, said aloud, if that is wrong."""
    (todo, told), publication = began, began[0].publication
    try:
        new, newly_told = plan(given, config, loop=True)
    except Failure as failure:
        log.say("ERROR", "reload", f"the settings in force stay: {failure.message}")
        return None
    if (new.publication.directory, new.publication.scope) != (publication.directory, publication.scope):
        log.say("ERROR", "reload", "the settings in force stay: directory and scope change by a restart only")
        return None
    fixed = [name for name in _FIXED if getattr(newly_told, name) != getattr(told, name)]
    if fixed:
        log.say("WARNING", "reload", f"{', '.join(fixed)}: as it was, changes by a restart only")
    log.say("INFO", "reload", f"settings read again; source {new.source.name}: {new.source.why}")
    # The page is served on, so its picture is drawn on.
    new.publication = new.publication._replace(portray=publication.portray)
    new.standby = todo.standby
    return new


def _alone(todo: Plan) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the scope's loop on this host. Raises lock.AlreadyRunning and lock.LockError."""
    from segment_health import lock  # noqa: PLC0415

    return lock.hold(lock.LOOP, todo.lock_directory, todo.lock_name, str(todo.publication.scope), os.environ)


@contextlib.contextmanager
def _heard(todo: Plan, signals: Signals, log: Log) -> Iterator[None]:
    """Hear those who ask for a pass without a signal (see segment_health.poke)."""
    from segment_health import lock, poke  # noqa: PLC0415

    with contextlib.ExitStack() as opened:
        try:
            local = opened.enter_context(contextlib.closing(poke.LocalSocket(todo.lock_directory, os.environ)))
            signals.askers.append(local)
        except (OSError, lock.LockError) as error:
            log.say("WARNING", "poke", f"`segment-health poke` is heard late on this host, by a file: {error}")
        file = opened.enter_context(contextlib.closing(poke.PokeFile(todo.publication.directory)))
        signals.askers.append(file)
        opened.callback(signals.askers.clear)
        yield


def _introduction(todo: Plan) -> str:
    publication, source = todo.publication, todo.source
    what = f"publishing {publication.scope} into {publication.directory} every {publication.interval:g} s"
    who = f"segment-health {publication.version}"
    return f"{who}: {what}; policy {publication.policy}; source {source.name}: {source.why}"

"""Metrics of `publish`: kept while it runs, and put into the file that `--metrics-file` names."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from segment_health import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segment_health.metrics.registry import Metrics
    from segment_health.metrics.textfile import Textfile
    from segment_health.publish import Pass
    from segment_health.service import Service
    from segment_health.settings import Settings
    from segment_health.watch import Listener


def kept(service: Service, told: Settings, say: Callable[[str], None]) -> tuple[Metrics, Textfile | None]:
    """Return the metrics of a publisher, and where they are written; counters go on from what is there."""
    from segment_health.metrics.registry import DamagedError, Metrics  # noqa: PLC0415 - 120 ms that only who wants them pays
    from segment_health.metrics.textfile import SUFFIX, Textfile  # noqa: PLC0415

    metrics = Metrics(service, service.scope, __version__, time.time)
    if told.metrics_file is None:
        return metrics, None
    if not told.metrics_file.endswith(SUFFIX):
        say(f"{told.metrics_file}: the name does not end in {SUFFIX}, so Prometheus' collector passes over it")
    textfile = Textfile(told.metrics_file, metrics.exposition, told.storage_timeout, say)
    try:
        before = textfile.read()
        if before is not None:
            metrics.restore(before)
    except OSError as error:
        say(f"{told.metrics_file}: {error.strerror or error}; all metrics begin anew")
    except DamagedError as error:
        say(f"{told.metrics_file}: not the metrics of a publisher ({error}); all of them begin anew")
    return metrics, textfile


@contextlib.contextmanager
def listening(service: Service, told: Settings, say: Callable[[str], None]) -> Iterator[list[Listener]]:
    """Give those who are to be told what a loop does, so that its figures are in the file until it ends."""
    if told.metrics_file is None and told.listen is None:
        yield []
        return
    metrics, textfile = kept(service, told, say)
    if textfile is None:  # the page's server hands them out
        yield [metrics]
        return
    yield [metrics, textfile]
    textfile.remove()  # not after a crash: then they are to be seen


def note(service: Service, told: Settings, came_of_it: Pass | str | None, why: str, seconds: float) -> list[str]:
    """Put a single pass, or why there is none (watch.Cause), into the file; return what a person should read."""
    if told.metrics_file is None or came_of_it is None:
        return []
    from segment_health.watch import Cause  # noqa: PLC0415

    remarks: list[str] = []
    metrics, textfile = kept(service, told, remarks.append)
    if isinstance(came_of_it, str):
        metrics.failed(Cause(came_of_it), why, seconds)
    else:
        metrics.completed(came_of_it, seconds)
    if textfile is not None:
        textfile.write()
    return remarks

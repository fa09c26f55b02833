"""What a loop does with the heartbeats of its directory: in a child each time, for storage may hang."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING

from .atomic import host_name
from .bounded import bounded
from .contract import Publisher
from .lift import lift_stale
from .store import open_decisions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .memory import Heartbeat
    from .publication import Publication
    from .store import Change


def heartbeats(publication: Publication) -> list[Heartbeat]:
    """Return all heartbeats of the directory; none where it cannot be read."""

    def work() -> list[Heartbeat]:
        with open_decisions(publication.directory) as directory:
            return directory.ledger("", "").heartbeats()

    try:
        return bounded(work, publication.storage_timeout, publication.directory)
    except OSError:
        return []


def retire(beats: Iterable[Heartbeat], publication: Publication) -> None:
    """Say in those that are this process's that nobody makes the next pass."""
    me = (host_name(), os.getpid())

    def work(beat: Heartbeat) -> None:
        with open_decisions(publication.directory) as directory:
            directory.ledger(beat.publisher.cluster, beat.publisher.scope).beat(beat._replace(loop=False))

    for beat in beats:
        if (beat.publisher.host, beat.publisher.pid) == me:
            with contextlib.suppress(OSError):
                bounded(partial(work, beat), publication.storage_timeout, publication.directory)


def lift(cluster: str, publication: Publication, now: int) -> list[Change]:
    """Clear what this scope published of a cluster. Raises OSError."""
    us = Publisher(host_name(), os.getpid(), publication.version, cluster, str(publication.scope))

    def work() -> list[Change]:
        return lift_stale(publication.directory, us, now, guarded=publication.guarded)

    return bounded(work, publication.storage_timeout, publication.directory)

"""Waiting until one of several descriptors can be read.

By poll(2): a launcher may come with any number of descriptors, and select(2) knows none above 1023.
"""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    Source = int | socket.socket

_MOST_SECONDS = 86400.0
"""poll(2) counts to 24 days; whoever waits longer looks again."""


def readable(sources: Sequence[Source], seconds: float | None) -> list[Source]:
    """Return which of these can be read, or were closed by the other side; none after so many seconds.

    None waits without end. More than a day is a day.
    """
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    told = poll.poll(None if seconds is None else math.ceil(max(0.0, min(seconds, _MOST_SECONDS)) * 1000))
    ready = {number for number, _ in told}
    return [source for source in sources if (source if isinstance(source, int) else source.fileno()) in ready]

"""What NVRx expects of a health check, and what each of ours says beyond that.

NVRx's runner calls a check without arguments before each rendezvous and takes whatever is false, and any
exception, for an unhealthy node. So a call answers True or False, and never raises.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LOG = logging.getLogger("nvrx")


class Finding(NamedTuple):
    """What a check found. `problems` make a node unhealthy, a sentence each; `remarks` do not."""

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether the node may be used."""
        return not self.problems


class Unavailable(Exception):  # noqa: N818 - what the check is
    """A check could not be made at all. The message is a sentence: why, on what, and what to do."""


class HealthCheck:
    """A check as NVRx has them: `check()` is True on a healthy node.

    `interval` is in seconds, from check to check of async_check. `on_failure` is awaited there, and there alone.
    """

    title: ClassVar[str]
    """What it is called in a log."""
    fails_open: ClassVar[bool]
    """Whether a node is healthy where the check itself fails."""

    def __init__(self, interval: float = 60, on_failure: Callable[[], Awaitable[object]] | None = None) -> None:
        self.interval = interval
        self.on_failure = on_failure

    def examine(self) -> Finding:
        """Look once. Raises Unavailable where that cannot be done, and may raise what it did not expect."""
        raise NotImplementedError

    def __call__(self) -> bool:
        """Return whether the node is healthy. Problems and remarks go to the logger `nvrx`; nothing is raised."""
        finding = self.look()
        for problem in finding.problems:
            _LOG.warning("%s failed: %s", self.title, problem)
        for remark in finding.remarks:
            _LOG.warning("%s: %s", self.title, remark)
        return finding.is_healthy

    def look(self) -> Finding:
        """Look once, log nothing, and raise nothing: a check that fails itself is a problem, or a remark."""
        try:
            return self.examine()
        except Unavailable as error:
            told = str(error)
        except Exception as error:  # noqa: BLE001 - NVRx takes any exception for an unhealthy node
            told = f"the check itself failed: {type(error).__name__}: {error}"
        return Finding(remarks=(told,)) if self.fails_open else Finding(problems=(told,))

    async def async_check(self) -> None:
        """Check every `interval` seconds until cancelled, and await `on_failure()` where the node is unhealthy."""
        import asyncio  # noqa: PLC0415 - 60 ms, and whoever awaits has it already

        while True:
            await asyncio.sleep(self.interval)
            if not await asyncio.to_thread(self) and self.on_failure is not None:
                await self.on_failure()

"""What the service asks of the storage of logs: each by a worker that may hang without anybody else noticing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from . import results
from .confine import FileState, Found
from .refusal import INTERNAL, STORAGE, Refusal
from .worker_pool import LateError, PoolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from segment_health.attribution.analysers.finding import Finding

    from .worker_pool import WorkerPool

LOOK_SECONDS = 1.0
"""What looking at a log may take while a client waits, who has two seconds."""
_PREVIEW_SECONDS = 5.0
_QUEUE_SECONDS = 0.2
"""What a client may wait beyond that for a worker to be free."""


class Storage:
    """Logs, by three pools: for clients, who wait; for logs that may still grow; and to analyse."""

    def __init__(self, lookers: WorkerPool, watchers: WorkerPool, analysts: WorkerPool) -> None:
        self._lookers, self._watchers, self._analysts = lookers, watchers, analysts

    @property
    def hanging(self) -> int:
        """How many workers hang in the kernel."""
        return sum(pool.hanging for pool in (self._lookers, self._watchers, self._analysts))

    async def look(self, path: str) -> Found:
        """Tell where a path leads to, while a client waits. Raises Refusal."""
        return _found(await self._asked({"do": "look", "path": path}, LOOK_SECONDS))

    async def preview(self, path: str) -> str:
        """Return how a log begins. Raises Refusal."""
        return str((await self._asked({"do": "preview", "path": path}, _PREVIEW_SECONDS))["text"])

    async def watch(self, path: str) -> FileState | None:
        """Return the state of a log; None where there is none, or where it does not say."""
        try:
            answer = await self._watchers.do({"do": "look", "path": path}, LOOK_SECONDS)
        except PoolError:
            return None
        return _found(answer).state if "found" in answer else None

    async def analyse(self, path: str, earlier: Sequence[Finding], seconds: float) -> tuple[Finding, FileState]:
        """Return what is found in a log, and which state of it was read. Raises Refusal and PoolError."""
        task = {"do": "analyse", "path": path, "earlier": [results.told(finding) for finding in earlier]}
        answer = _answered(await self._analysts.do(task, seconds))
        return results.finding_of(answer["finding"]), FileState(*answer["state"])

    def close(self) -> None:
        """Kill all workers."""
        for pool in (self._lookers, self._watchers, self._analysts):
            pool.close()

    async def _asked(self, task: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        """Ask while a client waits. Raises Refusal."""
        try:
            answer = await asyncio.wait_for(self._lookers.do(task, seconds), seconds + _QUEUE_SECONDS)
            return _answered(answer)
        except (LateError, asyncio.TimeoutError, TimeoutError):
            raise Refusal(STORAGE, "the storage of log_path does not answer") from None
        except PoolError as error:
            raise Refusal(INTERNAL, str(error)) from error


def _answered(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a worker's answer. Raises Refusal and PoolError where it is none."""
    if "refused" in answer:
        raise Refusal(*answer["refused"])
    if "failed" in answer:
        raise PoolError(answer["failed"])
    return answer


def _found(answer: Mapping[str, Any]) -> Found:
    found = answer["found"]
    return Found(found["path"], None if found["state"] is None else FileState(*found["state"]))

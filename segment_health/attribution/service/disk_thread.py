"""A thread that does what may wait for a disk, one job after the other; nobody has to wait for it."""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Result = TypeVar("Result")


class DiskThread:
    """A thread of which nobody waits for the end: the disk may never answer."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], Result]) -> Future[Result]:
        """Have something done, after all that was put before."""
        job: Future[Result] = Future()
        self._jobs.put((job, work))
        return job

    async def do(self, work: Callable[[], Result]) -> Result:
        """Have something done, and wait for it. Who is cancelled leaves it to be done all the same."""
        return await asyncio.shield(asyncio.wrap_future(self.put(work)))

    def close(self, seconds: float) -> bool:
        """Do what was put so far, for so long at the most; tell whether all was done."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _live(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is for who waits
                future.set_exception(error)

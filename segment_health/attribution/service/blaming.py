"""Has what was found said against nodes, while the service lives: by a thread of its own, since storage may hang.

A blame is a hint, and no more is done for it than that: one that is not written before the service is killed is
lost, and none is written a second time, for a person may have removed it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .blame import BlameDirectory, Failed
from .disk_thread import DiskThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.attribution.analysers.finding import Finding

    from .attempt import Attempt

    Say = Callable[[str, str, str], None]

_MAX_WAITING = 200
"""Findings that may wait for the directory's storage; further ones are not written."""
_END_SECONDS = 1.0


class Blaming:
    """Hears of findings (see Analyses.listeners); writes into the directory `path` what they say against nodes.

    `clock` gives seconds since the epoch; `say` takes a level, an event and a sentence.
    """

    def __init__(self, path: str, say: Say, clock: Callable[[], float]) -> None:
        self._directory = BlameDirectory(path)
        self._say = say
        self._clock = clock
        self._disk = DiskThread("attribution-blame")
        self._writing: set[asyncio.Task[None]] = set()

    async def begin(self, seconds: float) -> None:
        """Prepare the directory. Raises OSError, also where its storage does not answer in so many seconds."""
        try:
            await asyncio.wait_for(self._disk.do(lambda: self._directory.prepare(int(self._clock()))), seconds)
        except (asyncio.TimeoutError, TimeoutError):
            raise OSError(None, "its storage does not answer") from None

    def heard(self, done: Attempt) -> None:
        """Have a finding written down, some time."""
        if done.finding is None or not done.finding.nodes:
            return
        if len(self._writing) >= _MAX_WAITING:
            self._say(
                "WARNING", "blame", f"{done.path}: no node is blamed: the directory's storage does not answer"
            )
            return
        task = asyncio.ensure_future(self._write(done, done.finding))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def end(self) -> None:
        """Let what is under way come to its end, for a second."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=_END_SECONDS)
        for task in list(self._writing):
            task.cancel()
        self._disk.close(0.0)

    async def _write(self, done: Attempt, finding: Finding) -> None:
        owner = None if done.state is None else done.state.owner
        failed = Failed(done.path, done.job_id or None, done.cycle, owner)
        try:
            said = await self._disk.do(lambda: self._directory.record(finding, failed, int(done.completed)))
        except OSError as error:
            self._say("WARNING", "blame", f"{done.path}: no node could be blamed: {error.strerror or error}")
        else:
            if said:
                self._say("INFO", "blame", f"{done.path}: {said}")

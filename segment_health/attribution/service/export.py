"""Posts what was found to a URL: in order, each at least once, for as long as it takes until it is taken.

What waits stands in the register, so neither a restart nor kill -9 loses it; what was posted when the service was
killed may be posted again, with the same `id`. A thread of its own does the posting, and nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from segment_health.attribution import wire
from segment_health.attribution.http import Http, NoAnswerError, Question
from segment_health.record import utc

from . import results
from .disk_thread import DiskThread
from .register import RegisterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .attempt import Attempt
    from .register import Register

Result = TypeVar("Result")
_MAX_ANSWER = 1 << 16
_TOGETHER = 100
"""Results that are read at a time."""
_REFUSED = frozenset({400, 413, 422})
"""HTTP statuses by which a receiver says that it will never take this result."""


_COMPLAINT_SECONDS = 3600.0
"""From saying what is wrong to saying it again."""


class Destination(NamedTuple):
    """Where results are posted, and how patiently, in seconds. A password in the URL is sent, and never shown."""

    url: str
    attempt: float = 10.0
    """From a post to the whole answer."""
    first_wait: float = 1.0
    """From the first attempt to the second; each later pause is twice as long."""
    longest_wait: float = 300.0


class Export:
    """Posts results of the register, which `disk` alone uses; `say` writes a line of the log.

    ValueError where the destination is no URL of HTTP.
    """

    def __init__(
        self,
        to: Destination,
        register: Register,
        disk: DiskThread,
        say: Callable[[str, str, str], None],
        environ: Mapping[str, str],
    ) -> None:
        self._to = to
        self._name = wire.shown(to.url)
        checked = wire.base_url(to.url)
        if checked is None:
            raise ValueError(f"{self._name}: not a URL of HTTP")
        self._url = checked
        self._http = Http(checked, self._name, most=_MAX_ANSWER, environ=environ)
        self._register = register
        self._disk = disk
        self._say = say
        self._posting = DiskThread("attribution-export")
        self._woken = asyncio.Event()
        self._trouble = ""
        self._said = 0.0
        self._task: asyncio.Task[None] | None = None

    def wake(self, _judged: Attempt | None = None) -> None:
        """Look for results at once: there is one."""
        self._woken.set()

    def start(self) -> None:
        """Export from now on."""
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            for number, attempt in await self._waiting():
                await self._export(number, attempt)
                self._woken.set()  # there may be more than were read
            await self._woken.wait()

    def close(self) -> None:
        """End. What is being posted is posted again after the next start, if it was not taken."""
        if self._task is not None:
            self._task.cancel()
        self._posting.close(0.0)
        self._http.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Say it where a bug ended the export: what waits is posted after the next start."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._say(
                "ERROR", "export", f"no more is exported until the next start: {type(error).__name__}: {error}"
            )

    async def _waiting(self) -> list[tuple[int, Attempt]]:
        return await self._persist(lambda: self._register.unexported(_TOGETHER))

    async def _export(self, number: int, attempt: Attempt) -> None:
        """Post a result until it is taken, or refused for good."""
        content = json.dumps(record(number, attempt)).encode("ascii")
        pause = self._to.first_wait
        while not await self._is_settled(content, attempt):
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._to.longest_wait)
        await self._persist(lambda: self._register.exported([number]))

    async def _is_settled(self, content: bytes, attempt: Attempt) -> bool:
        """Post a result; return whether nothing more is to be done about it."""
        question = Question("POST", self._url, content, (("Content-Type", "application/json"),))
        seconds = self._to.attempt
        try:
            answer = await self._posting.do(lambda: self._http.ask(lambda: question, seconds))
        except NoAnswerError as error:
            self._complain(str(error))
            return False
        refused = wire.refusal(answer.status, answer.body)
        if refused is None:
            if self._trouble:
                self._say("INFO", "export", f"{self._name}: takes results again")
            self._trouble = ""
            return True
        if answer.status in _REFUSED:
            self._say("WARNING", "export", f"{attempt.path}: its result is not exported: {self._name}: {refused}")
            return True
        self._complain(f"{self._name}: {refused}")
        return False

    async def _persist(self, work: Callable[[], Result]) -> Result:
        """Use the register, however often that has to be tried."""
        while True:
            try:
                return await self._disk.do(work)
            except RegisterError as error:
                self._complain(str(error))
                await asyncio.sleep(self._to.first_wait)

    def _complain(self, trouble: str) -> None:
        """Say what is wrong; the same again only after a while."""
        now = asyncio.get_running_loop().time()
        if trouble != self._trouble or now - self._said > _COMPLAINT_SECONDS:
            self._say("WARNING", "export", f"results wait to be exported: {trouble}")
            self._trouble, self._said = trouble, now


def record(number: int, attempt: Attempt) -> dict[str, Any]:
    """Write what is posted: an answer of the API, and of what it is. `number` is another one for each result."""
    return {
        "id": number,
        "log_path": attempt.path,
        "user": attempt.user,
        "job_id": attempt.job_id or None,
        "cycle_id": attempt.cycle,
        "completed": utc(int(attempt.completed)),
        **results.answer(attempt),
    }

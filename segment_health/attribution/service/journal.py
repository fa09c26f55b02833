"""Writes changes to the register, many in one transaction: an fsync takes as long for a hundred as for one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .disk_thread import DiskThread
    from .register import Change, Register

_MAX_TOGETHER = 500


class Journal:
    """Takes changes from many at a time, and tells each of them when its own is on disk."""

    def __init__(self, register: Register, disk: DiskThread) -> None:
        self._register = register
        self._disk = disk
        self._waiting: list[tuple[Change, asyncio.Future[list[str]]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, change: Change) -> list[str]:
        """Return once a change is on disk; the logs that were forgotten with it. Raises RegisterError.

        Whoever is cancelled has it written all the same.
        """
        written: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())
        return await written

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX_TOGETHER], self._waiting[_MAX_TOGETHER:]
            changes = [change for change, _ in batch]
            try:
                forgotten = await self._disk.do(lambda changes=changes: self._register.write(changes))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - each of those who wait raises it
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
            else:
                for _, written in batch:
                    if not written.done():
                        written.set_result(forgotten)

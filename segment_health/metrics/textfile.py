"""Metrics in a file, as the textfile collector of Prometheus reads them: always whole, or the old ones.

Whatever goes wrong here is a remark: decisions are made and published all the same.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from segment_health.atomic import open_directory, read_file, replace_file, sweep
from segment_health.bounded import bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.publish import Pass
    from segment_health.store import Change
    from segment_health.watch import Cause

SUFFIX = ".prom"
"""What the name must end in: the collector passes over everything else, our temporaries too."""
_MODE = 0o644
_MAX_FILE = 1 << 20


class Textfile:
    """Writes what `exposition` gives to `path` whenever figures may have changed (see watch.Listener).

    The path may be on storage that hangs: `timeout` is how many seconds that may take. `say` is told what failed.
    """

    def __init__(
        self, path: str, exposition: Callable[[], bytes], timeout: float, say: Callable[[str], None]
    ) -> None:
        self._path = path
        self._exposition = exposition
        self._timeout = timeout
        self._say = say
        self._written: bytes | None = None

    def completed(self, _done: Pass, _seconds: float) -> None:
        """Write after a complete pass."""
        self.write()

    def failed(self, _cause: Cause, _why: str, _seconds: float) -> None:
        """Write after a pass that was not made."""
        self.write()

    def went_stale(self, _changes: list[Change], _silent: float) -> None:
        """Write after exclusions were lifted."""
        self.write()

    def standing_by(self) -> None:
        """Write while another publisher is at work."""
        self.write()

    def read(self) -> str | None:
        """Return what the file says; None where there is none. Raises OSError."""
        folder, name = os.path.split(self._path)

        def work() -> bytes:
            with open_directory(folder) as directory:
                return read_file(directory, name, _MAX_FILE)

        try:
            return bounded(work, self._timeout, self._path).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def write(self) -> None:
        """Replace the file, unless it says all that already."""
        content = self._exposition()
        if content == self._written:
            return
        folder, name = os.path.split(self._path)

        def work() -> None:
            with open_directory(folder) as directory:
                replace_file(directory, name, content, mode=_MODE, durable=False)
                sweep(directory, os.listdir(directory))  # what a killed publisher left

        try:
            bounded(work, self._timeout, self._path)
        except OSError as error:
            self._say(f"{self._path}: {error.strerror or error}; the metrics there stay as they were")
        else:
            self._written = content

    def remove(self) -> None:
        """Take away what was written: whoever has ended has no figures, and old ones would be taken for new."""
        if self._written is not None:
            with suppress(OSError):
                bounded(lambda: os.unlink(self._path), self._timeout, self._path)

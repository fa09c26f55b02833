"""Tells systemd how a service is: sd_notify(3), for units of Type=notify."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from .record import printable

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from .publish import Pass
    from .store import Change
    from .watch import Cause

_VARIABLE = "NOTIFY_SOCKET"
_MAX_STATUS = 400
"""Characters of a status: `systemctl status` shows them in one line."""


class Systemd:
    """Tells systemd, if it asked to be told, and if it listens. The variable is taken out of `environ`.

    What we start is not the service, so it is not to speak for it.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop(_VARIABLE, "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def tell(self, *lines: str) -> None:
        """Send lines such as READY=1; never wait, never fail."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode("utf-8", "backslashreplace"), self._address)

    def status(self, text: str, *lines: str) -> None:
        """Send what `systemctl status` shows in one line, and further lines."""
        self.tell(*lines, f"STATUS={printable(text)[:_MAX_STATUS]}")


class Notifier:
    """Says READY after the first attempt, STATUS after each, and WATCHDOG when a pass was complete.

    A listener of the loop (see watch.Listener). Slurm's silence does not keep a publisher from being ready, since
    nothing would be better after another start; but it feeds no watchdog.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._tell = Systemd(environ).tell

    def completed(self, done: Pass, seconds: float) -> None:
        """Tell of a complete pass."""
        outcome = done.outcome
        units = f"{outcome.excluded} of {outcome.units} units excluded, {done.nodes} nodes"
        told = [f"publishing: {units}; the last pass took {seconds:.1f} s"]
        if not done.wrote_everything:
            told.append("something was not written or is held, see the log")
        self._tell("READY=1", f"STATUS={'; '.join(told)}", "WATCHDOG=1")

    def failed(self, _cause: Cause, why: str, _seconds: float) -> None:
        """Tell of a pass that was not made."""
        self._tell("READY=1", f"STATUS={printable(why)[:_MAX_STATUS]}")

    def went_stale(self, changes: list[Change], silent: float) -> None:
        """Tell of exclusions that were lifted without evidence."""
        lifted = sum(change.error is None for change in changes)
        self._tell(f"STATUS=no complete pass for {silent:.0f} s: {lifted} exclusions lifted (fail open)")

    def standing_by(self) -> None:
        """Tell that another publisher is at work, which is all that is wanted of this one."""
        self._tell("READY=1", "STATUS=another publisher of this scope is alive; standing by", "WATCHDOG=1")

    def stopping(self) -> None:
        """Tell that the publisher is about to end."""
        self._tell("STOPPING=1", "STATUS=ending; exclusions stay in place")

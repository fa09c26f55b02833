"""What the server last heard from the publisher, and what follows from it. Pure: time is an argument."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FRESH_INTERVALS = 2
"""As long a complete pass counts, as everywhere (see memory.Heartbeat.is_alive)."""
LIFE_INTERVALS = 5
"""As long the loop may be silent: while Slurm does not answer it waits four intervals, and a tenth more."""
LIFE_SECONDS = 60.0
"""What a pass may take beyond that."""


@dataclass(frozen=True, slots=True)
class Body:
    """A document as it is sent, and its ETag."""

    content: bytes
    etag: str


@dataclass(slots=True)
class Board:
    """The newest documents. `since` is when this began to listen; times are by a clock that nobody sets.

    `asked` says that a pass was asked for, and that nothing has been heard since.
    """

    since: float
    interval: float = 300.0
    nodes: Mapping[str, Any] = field(default_factory=dict)
    decisions: Mapping[str, Any] = field(default_factory=dict)
    metrics: str | None = None
    why: str | None = "no pass was complete yet"
    standby: bool = False
    asked: bool = False
    heard_at: float | None = None
    complete_at: float | None = None
    bodies: dict[str, Body] = field(default_factory=dict)
    """Memo of what is sent, until the next event."""

    def hear(self, event: Mapping[str, Any], now: float) -> None:
        """Take what the publisher tells; what it does not tell stays. `age` is that of the last complete pass."""
        self.interval = float(event.get("interval", self.interval))
        self.nodes = event.get("nodes", self.nodes)
        self.decisions = event.get("decisions", self.decisions)
        self.metrics = event.get("metrics", self.metrics)
        self.why = event.get("why")
        self.standby = bool(event.get("standby", False))
        self.heard_at = now
        self.asked = False
        if event.get("age") is not None:
            self.complete_at = now - float(event["age"])
        self.bodies.clear()

    def silence(self, now: float) -> str | None:
        """Say that the loop gives no sign of life; None if it does."""
        silent = now - (self.since if self.heard_at is None else self.heard_at)
        if silent <= LIFE_INTERVALS * self.interval + LIFE_SECONDS:
            return None
        return f"nothing was heard of the publisher's loop for {silent:.0f} s"

    def unreadiness(self, now: float) -> str | None:
        """Say why the newest complete pass is none to go by; None if it is fresh."""
        if self.standby:
            return "standing by: another publisher of this scope is alive"
        if self.complete_at is not None and now - self.complete_at < FRESH_INTERVALS * self.interval:
            return None
        when = "" if self.complete_at is None else f"the last complete pass was {now - self.complete_at:.0f} s ago"
        return ": ".join(filter(None, [when, self.why])) or "no pass was complete yet"

    def document(self, name: str) -> Mapping[str, Any]:
        """Return "nodes" or "decisions", the latter with how the publisher itself does."""
        if name == "nodes":
            return self.nodes or {"time": None, "cluster": None, "nodes": []}
        empty: dict[str, Any] = {"time": None, "cluster": None, "publishers": [], "units": [], "history": []}
        return {**(self.decisions or empty), "interval": self.interval, "why": self.why}

    def body(self, name: str) -> Body:
        """Return a document as it is sent."""
        if name not in self.bodies:
            content = json.dumps(self.document(name), separators=(",", ":")).encode() + b"\n"
            self.bodies[name] = Body(content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
        return self.bodies[name]

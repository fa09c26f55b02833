"""What stands in the ledger's files, both ways. Pure: bytes and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .consumer import is_id
from .contract import Generation, Publisher, UnitId, artifact_of, document_of
from .record import Fields, one_line, utc
from .situation import Memory, Override, Remembered

if TYPE_CHECKING:
    from .contract import Artifact
    from .situation import Decision

_SCHEMA = 1


class Heartbeat(NamedTuple):
    """A scope's last complete pass: `last_complete_pass` in seconds since the epoch, `interval` in seconds.

    `asked` is when it began to ask Slurm, None where an older version did not say.

    `policy` names the policy in force, and `policy_error` says why the newest one is not, None if it is.

    `loop` says whether its publisher is one that makes the next pass by itself; after its end, and for a single
    pass, it is False, and a standby need not wait.
    """

    publisher: Publisher
    policy: str
    last_complete_pass: int
    interval: float
    loop: bool = False
    policy_error: str | None = None
    asked: int | None = None

    def is_alive(self, now: float) -> bool:
        """Whether its publisher counts as alive: younger than twice its interval, whatever its process id.

        One from further in the future than an interval was written by a clock that has been set back since.
        """
        return -self.interval <= now - self.last_complete_pass < 2 * self.interval


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Write a heartbeat."""
    return one_line(
        {
            "schema": _SCHEMA,
            **heartbeat.publisher._asdict(),
            "policy": heartbeat.policy,
            "policy_error": heartbeat.policy_error,
            "last_complete_pass": utc(heartbeat.last_complete_pass),
            "asked": None if heartbeat.asked is None else utc(heartbeat.asked),
            "interval": heartbeat.interval,
            "loop": heartbeat.loop,
        }
    )


def decode_heartbeat(content: bytes) -> Heartbeat:
    """Read a heartbeat. Raises ValueError, KeyError or TypeError, as Fields does."""
    beat = Fields(json.loads(content))
    publisher = Publisher(
        beat.text("host"), beat.number("pid"), beat.text("version"), beat.text("cluster"), beat.text("scope")
    )
    return Heartbeat(
        publisher,
        beat.text("policy"),
        beat.time("last_complete_pass"),
        beat.seconds("interval"),
        beat.truth("loop"),
        beat.optional("policy_error", beat.text),
        beat.optional("asked", beat.time),
    )


def encode_override(override: Override) -> bytes:
    """Write an override."""
    return one_line(
        {
            "schema": _SCHEMA,
            **override.generation._asdict(),
            "unavailable": override.unavailable,
            "reason": override.reason,
            "who": override.who,
            "since": utc(override.since),
            "scope": override.scope,
        }
    )


def decode_override(content: bytes) -> Override:
    """Read an override. Raises ValueError, KeyError or TypeError, as Fields does."""
    told = Fields(json.loads(content))
    generation = Generation(told.number("restart_count"), told.number("start_time"))
    return Override(
        generation,
        told.text("unavailable"),
        told.text("reason"),
        told.text("who"),
        told.time("since"),
        told.optional("scope", told.text) or "",
    )


def encode_state(memory: Memory) -> bytes:
    """Write what a scope remembers of its units."""
    return one_line(
        {
            "schema": _SCHEMA,
            "units": [
                {
                    "job_id": unit.job_id,
                    "task_id": unit.task_id,
                    "restart_count": known.generation.restart_count,
                    "start_time": known.generation.start_time,
                    "nodelist": known.nodelist,
                    "user_id": known.user_id,
                    "misses": known.misses,
                    "published": known.published,
                    "separated": known.separated,
                    "fit_passes": known.fit_passes,
                    "fit_since": known.fit_since,
                    "over": None if known.over is None else document_of(known.over),
                }
                for unit, known in memory.units.items()
            ],
            "seen": [{"node": node, "word": word, "since": since} for (node, word), since in memory.seen.items()],
            "held": memory.held,
        }
    )


def decode_state(content: bytes) -> Memory:
    """Read it back; what an older version did not write is as if nothing had been seen.

    Raises ValueError, KeyError or TypeError, as Fields does.
    """
    state = Fields(json.loads(content))
    units = {
        _unit_id(unit): Remembered(
            Generation(unit.number("restart_count"), unit.number("start_time")),
            unit.text("nodelist"),
            unit.text("user_id"),
            unit.number("misses"),
            unit.truth("published"),
            unit.truth("separated"),
            unit.optional("fit_passes", unit.number) or 0,
            unit.optional("fit_since", unit.number) or 0,
            _over(unit),
        )
        for unit in state.each("units")
    }
    seen = {
        (row.text("node"), row.text("word")): row.number("since")
        for row in state.optional("seen", state.each) or []
    }
    return Memory(units, seen, state.optional("held", state.number) or 0)


def _unit_id(unit: Fields) -> UnitId:
    ids = UnitId(unit.text("job_id"), unit.text("task_id"))
    if not all(map(is_id, ids)):  # they become numbers, and a file's name
        raise ValueError
    return ids


def _over(unit: Fields) -> Artifact | None:
    told = unit.optional("over", unit.fields)
    return None if told is None else artifact_of(told)


def history_entry(
    action: str, decision: Decision, publisher: Publisher, now: int, **further: str
) -> dict[str, Any]:
    """Return one line of the history: what was done to which unit, by whom, and which rules decided."""
    artifact = decision.artifact
    faults = () if artifact is None else artifact.nodes
    return {
        "time": utc(now),
        "action": action,
        "job_id": decision.unit.job_id,
        "task_id": decision.unit.task_id,
        "level": None if decision.level is None else decision.level.name,
        "nodes": decision.nodes,
        "faults": [
            {"name": n.name, "rule": n.rule, "reason": n.reason, "reason_user": n.reason_user} for n in faults
        ],
        "generation": None if artifact is None else artifact.generation._asdict(),
        "publisher": publisher._asdict(),
        **further,
    }

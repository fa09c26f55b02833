"""What stands in the ledger's files, both ways. Pure: bytes and values."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .consumer import is_id
from .contract import Generation, Publisher, UnitId, artifact_of, document_of
from .record import Fields, one_line, utc
from .situation import Memory, Override, Remembered

_SCHEMA = 1
_FAILURES = 5
"""Lines of what could not be written that a heartbeat has room for."""
_FAILURE = 300
"""Characters of each."""


class Heartbeat(NamedTuple):
    """A scope's last complete pass: `last_complete_pass` in seconds since the epoch, `interval` in seconds.

    `asked` is when it began to ask Slurm, None where an older version did not say.

    `policy` names the policy in force, and `policy_error` says why the newest one is not, None if it is.

    `loop` says whether its publisher is one that makes the next pass by itself; after its end, and for a single
    pass, it is False, and a standby need not wait.

    `units` and `excluded` count the scope's units, None where an older version did not say. `failures` says what
    that pass could not write, the first lines of it, and `held` counts the new exclusions that it held back.
    """

    publisher: Publisher
    policy: str
    last_complete_pass: int
    interval: float
    loop: bool = False
    policy_error: str | None = None
    asked: int | None = None
    units: int | None = None
    excluded: int | None = None
    failures: tuple[str, ...] = ()
    held: int = 0

    def is_alive(self, now: float) -> bool:
        """Whether its publisher counts as alive: younger than twice its interval, whatever its process id.

        One from further in the future than an interval was written by a clock that has been set back since.
        """
        return -self.interval <= now - self.last_complete_pass < 2 * self.interval


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Write a heartbeat."""
    return one_line({"schema": _SCHEMA, **heartbeat_document(heartbeat)})


def heartbeat_document(heartbeat: Heartbeat) -> dict[str, Any]:
    """Return what a heartbeat says, as a JSON object."""
    return {
        **heartbeat.publisher._asdict(),
        "policy": heartbeat.policy,
        "policy_error": heartbeat.policy_error,
        "last_complete_pass": utc(heartbeat.last_complete_pass),
        "asked": None if heartbeat.asked is None else utc(heartbeat.asked),
        "interval": heartbeat.interval,
        "loop": heartbeat.loop,
        "units": heartbeat.units,
        "excluded": heartbeat.excluded,
        "failures": list(_shortened(heartbeat.failures)),
        "held": heartbeat.held,
    }


def _shortened(failures: tuple[str, ...]) -> tuple[str, ...]:
    """Keep as many lines, and as much of each, as a person reads."""
    shown = [line[:_FAILURE] for line in failures[:_FAILURES]]
    if len(failures) > _FAILURES:
        shown[-1] = f"and {len(failures) - _FAILURES + 1} more"
    return tuple(shown)


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
        beat.optional("units", beat.number),
        beat.optional("excluded", beat.number),
        _shortened(tuple(beat.optional("failures", beat.texts) or ())),
        beat.optional("held", beat.number) or 0,
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
                    "held": known.held,
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
    rows, faults = state.many("units"), state.optional("seen", state.many) or []
    job_ids, task_ids = _column(rows, "job_id", str), _column(rows, "task_id", str)
    if not all(map(is_id, {*job_ids, *task_ids})):  # they become numbers, and a file's name
        raise ValueError
    remembered = map(
        Remembered,
        map(Generation, _column(rows, "restart_count", int), _column(rows, "start_time", int)),
        _column(rows, "nodelist", str),
        _column(rows, "user_id", str),
        _column(rows, "misses", int),
        _column(rows, "published", bool),
        _column(rows, "separated", bool),
        _column(rows, "fit_passes", int, absent=0),
        _column(rows, "fit_since", int, absent=0),
        [None if told is None else artifact_of(Fields(told)) for told in [row.get("over") for row in rows]],
        _column(rows, "held", bool, absent=False),
    )
    units = dict(zip(map(UnitId, job_ids, task_ids), remembered, strict=True))
    shown = zip(_column(faults, "node", str), _column(faults, "word", str), strict=True)
    seen = dict(zip(shown, _column(faults, "since", int), strict=True))
    return Memory(units, seen, state.optional("held", state.number) or 0)


def _column(rows: list[Any], key: str, kind: type, *, absent: object = None) -> list[Any]:
    """Take one field of each of many objects, as strictly as Fields does: a state has thousands of them.

    `absent` stands for what is null or missing, where a field may be.
    """
    if absent is None:
        values = [row[key] for row in rows]  # TypeError where a row is no object
    else:
        values = [absent if (value := row.get(key)) is None else value for row in rows]
    if not {kind}.issuperset(map(type, values)):  # true is no number here
        raise TypeError
    return values

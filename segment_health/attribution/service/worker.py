"""`python -m segment_health.attribution.service.worker`: touches logs for the service, a task after the other.

Storage may hang, a log may be hostile, and an analyser may crash: whatever happens here, the service kills this
process and starts another one. It dies with the service (prctl(2)), and when its input ends.

Standard input: a line of JSON that says what it is (see Order), then one for each task:

    {"do": "look" | "preview" | "analyse", "path": absolute path, "earlier": findings}

Standard output: a line of JSON for each: {"found": {...}}, {"text": ...}, {"finding": {...}, "state": [...]}, or
{"refused": [code, sentence]}, {"failed": sentence}.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from segment_health.record import brief

from . import confine, results
from .refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from segment_health.attribution.analysers.finding import Finding

    Analyse = Callable[[int, Sequence[Finding]], Finding]
    """Reads an open log, and finds out what failed, by what was found in earlier cycles."""

PREVIEW = 4096
"""Bytes of a log that a preview shows."""
_PR_SET_PDEATHSIG = 1
_SHOWN = 500


class Order(NamedTuple):
    """What a worker is told at first: who started it, below which directory it reads, and how it analyses."""

    parent: int
    root: str
    analyser: Mapping[str, Any]


def main(prepare: Callable[[Mapping[str, Any]], Analyse]) -> None:
    """Do what standard input says, with what `prepare` makes of the order's analyser when it is first needed."""
    order = Order(**json.loads(sys.stdin.readline()))
    die_with(order.parent)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    analyse: Analyse | None = None
    for line in sys.stdin:
        task = json.loads(line)
        try:
            if task["do"] == "analyse" and analyse is None:
                analyse = prepare(order.analyser)
        except Exception as error:  # noqa: BLE001 - so does one that cannot be made
            _tell(answers, _failed(error))
        else:
            _tell(answers, answer_to(task, order.root, analyse))


def answer_to(task: Mapping[str, Any], root: str, analyse: Analyse | None) -> dict[str, Any]:
    """Do a task below a root; return the answer, whatever happens."""
    try:
        return _done(root, task, analyse)
    except Refusal as refused:
        return {"refused": [refused.code, refused.message]}
    except Exception as error:  # noqa: BLE001 - a bug in an analyser costs this analysis, and no other
        return _failed(error)


def die_with(parent: int) -> None:
    """Be killed as soon as the thread that started this is gone; ended where it was quicker."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _failed(error: Exception) -> dict[str, Any]:
    return {"failed": brief(f"{type(error).__name__}: {error}", _SHOWN)}


def _done(root: str, task: Mapping[str, Any], analyse: Analyse | None) -> dict[str, Any]:
    """Do a task. Raises Refusal."""
    path = task["path"]
    if task["do"] == "look":
        found = confine.look(root, path)
        return {"found": {"path": found.path, "state": found.state}}
    log = confine.open_log(root, path)
    try:
        if analyse is None or task["do"] == "preview":
            return {"text": os.read(log, PREVIEW).decode("utf-8", "replace")}
        # Before it is read: what is written meanwhile makes it another state, and a new analysis possible.
        state = confine.state_of(log)
        found_in = analyse(log, [results.finding_of(earlier) for earlier in task["earlier"]])
        return {"finding": results.told(found_in), "state": state}
    finally:
        os.close(log)


def _tell(answers: int, answer: dict[str, Any]) -> None:
    view = memoryview(json.dumps(answer).encode() + b"\n")
    while view:
        view = view[os.write(answers, view) :]


def prepared(told: Mapping[str, Any]) -> Analyse:
    """Make the analyser that the service was told to use."""
    from segment_health.attribution.analysers import reading  # noqa: PLC0415 - only who analyses loads this

    from .analyser import analyser_of  # noqa: PLC0415

    analyser = analyser_of(told)

    def analyse(log: int, earlier: Sequence[Finding]) -> Finding:
        return analyser.analyse(reading.read(log), earlier)

    return analyse


if __name__ == "__main__":
    main(prepared)

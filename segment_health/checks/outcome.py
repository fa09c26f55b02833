"""What came of touching a path: what its process tells, and the sentence that a person reads of it. Pure."""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from segment_health.record import brief, printable

from .probe import LIMIT

_ANSWER = re.compile(rb"^answer (\d+) (\d+)\n", re.MULTILINE)
_DOING = re.compile(rb"^doing ([a-z ]+)\n", re.MULTILINE)
NOISE = 1 << 16
"""Bytes within which an answer begins: the loader may say something before, or a library of LD_PRELOAD."""
_QUOTED = 200
"""Characters of a foreign text that stand in a sentence."""
_WORTH_TELLING = 1.0
"""Seconds from which a failure is said to have taken its time."""


class Answer(NamedTuple):
    """All that a process had to tell: the number of an error, 0 for none, and what it hands over."""

    number: int
    content: bytes


def answer_in(told: bytes | bytearray) -> Answer | None:
    """Find a whole answer in what a process has written so far (probe.py), whatever it wrote before that."""
    found = _ANSWER.search(told, 0, NOISE)
    if found is None or len(told) < found.end() + int(found[2]):
        return None
    return Answer(int(found[1]), bytes(told[found.end() : found.end() + int(found[2])]))


def is_endless(told: bytes | bytearray) -> bool:
    """Whether a process has written more than it ever has to."""
    return len(told) > NOISE + LIMIT or (len(told) > NOISE and _ANSWER.search(told, 0, NOISE) is None)


def doing_in(told: bytes | bytearray) -> str | None:
    """Find what a process did last, `listed`; None if it did not come to do anything."""
    found = _DOING.findall(told, 0, NOISE)
    return found[-1].decode("ascii") if found else None


class Outcome(NamedTuple):
    """What came of a path. `problem` is None where all went well; `number` is None where there was no answer."""

    path: str
    problem: str | None
    number: int | None = None
    content: bytes = b""


def answered(path: str, answer: Answer, *, reason: str, doing: str, waited: float) -> Outcome:
    """Judge an answer. `reason` is its error in words; it took `waited` seconds."""
    name = printable(path)
    after = f", after {waited:.1f} s" if waited >= _WORTH_TELLING else ""
    if answer.number == 0:
        problem = None
    elif answer.number == errno.ENOENT and answer.content:
        target = brief(answer.content.decode("utf-8", "surrogateescape"), _QUOTED)
        problem = f"{name} is a symbolic link to {target}, which is missing ({reason}{after})"
    elif answer.number == errno.ENOENT:
        problem = f"{name} is missing ({reason}{after})"
    else:
        problem = f"{name} cannot be {doing} ({reason}{after})"
    return Outcome(path, problem, answer.number, answer.content)


def late(path: str, *, doing: str | None, seconds: float, program: str, left: int | None) -> Outcome:
    """Say that there was no answer within so many seconds. `left` is the process that could not be killed."""
    if doing is None:
        what = f"was not looked at: {printable(program)} did not start within {seconds:g} s"
    else:
        what = f"did not answer within {seconds:g} s when it was {doing}"
    fate = "killed" if left is None else f"left behind: process {left} hangs in the kernel"
    return Outcome(path, f"{printable(path)} {what}; {fate}")


def still(path: str, process: int, *, waited: float) -> Outcome:
    """Say that an earlier process hangs there since so many seconds, so that there is no further one."""
    problem = (
        f"{printable(path)} still does not answer: process {process} hangs in the kernel since {waited:.0f} s"
    )
    return Outcome(path, problem)


def died(path: str, *, doing: str | None, how: str, told: bytes | bytearray) -> Outcome:
    """Say that a process ended without an answer, how (`by SIGKILL`), and its last words."""
    said = told.decode("utf-8", "backslashreplace").strip().rpartition("\n")[2]
    words = "" if not said or said.startswith("doing ") else f": {brief(said, _QUOTED)}"
    when = "" if doing is None else f" when it was {doing}"
    return Outcome(path, f"{printable(path)} is not known to be well: its process ended {how}{when}{words}")


def not_asked(path: str, reason: str) -> Outcome:
    """Say that nothing could be asked."""
    return Outcome(path, f"{printable(path)} was not looked at: {reason}")

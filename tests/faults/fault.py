"""Faults by name: each is a context manager that puts one fault in force on a Laboratory.

To add one, write in the module of its kind (storage.py, content.py, process.py, clock.py; slurm.py, cluster.py,
commands.py):

    @fault(
        "the disk is full",                                   # its name: a few plain words, unique
        attacks="a decision that cannot be written stays",    # the promise, in a sentence of the page
        how="a tmpfs whose last byte is taken",               # how it was tried
        holds=EVERYONE,                                       # whose last decision may stay while it is in force
    )
    @contextmanager
    def disk_full(lab: Laboratory) -> Iterator[None]:
        ...                                                   # in force from here
        yield
        ...                                                   # and gone after this, whatever happens

What a scenario does with it (scenario.py): with a publisher running, poked several times a second, and a reader
that never pauses, it enters the fault; drains and resumes nodes, requeues a job; waits `seconds`; leaves the
fault; waits for readers to be told the truth; and hands all logs to `promise.violations`.

The body has these duties. It raises AssertionError if it cannot see that the fault is in force: a fault that was
not there proves nothing (`says` does that where the publisher must have logged something). It undoes all that it
did. It may end, kill, stop, start publishers with lab.publisher and lab.start(): a fault that kills one starts
another before it returns. What it does to nodes and jobs it tells the truth about, `with lab.truth.changing(role,
to)`. What is to be true when all is over, and another fault too, it says by `lab.afterwards`.

`holds` and `blinds` are roles of units (laboratory.ROLES):
    worsening    fit, becomes bad while the fault is in force      recovering   bad, becomes fit meanwhile
    steady       bad all the time; its set of bad nodes changes    fit          fit all the time
    requeued     bad, and is requeued onto fit nodes meanwhile
`holds`: the last decision of these may stay until `settle` after the fault's end. Leave it at NOBODY where the
publisher must go on as if nothing were wrong. `blinds`: these may be told healthy, since the storage is not there
for readers either (fail open).

`ground` is what the decision directory is: "tmpfs" (a directory of its own file system: lab.directory is
lab.storage), or "fuse" (lab.directory is a FUSE mount over lab.storage whose operations lab.storage_fails() makes
fail or hang; readers look at lab.storage, as those of other hosts would).

`before` is called before the publisher starts, and may set lab.environ (variables of the publisher), lab.options
(more of `segment-health publish`) and lab.prefix (words before its command line).

`slurm_answers=False`: scontrol cannot be used while the fault is in force, so nodes are drained and resumed in the
instant before, unseen by the publisher, and nothing is requeued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .laboratory import Laboratory

ROLES = ("steady", "fit", "worsening", "recovering", "requeued")
EVERYONE: frozenset[str] = frozenset(ROLES)
NOBODY: frozenset[str] = frozenset()

Ground = Literal["tmpfs", "fuse"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; see the top of this file."""

    name: str
    kind: str
    attacks: str
    how: str
    hold: Callable[[Laboratory], AbstractContextManager[None]]
    holds: frozenset[str]
    blinds: frozenset[str]
    ground: Ground
    before: Callable[[Laboratory], None] | None
    seconds: float
    says: str | None
    slurm_answers: bool
    stale_after: float | None


FAULTS: dict[str, Fault] = {}
"""Every fault by its name, in the order of definition."""


def fault(
    name: str,
    *,
    attacks: str,
    how: str,
    holds: frozenset[str] = NOBODY,
    blinds: frozenset[str] = NOBODY,
    ground: Ground = "tmpfs",
    before: Callable[[Laboratory], None] | None = None,
    seconds: float = 1.0,
    says: str | None = None,
    slurm_answers: bool = True,
    stale_after: float | None = None,
) -> Callable[[Callable[[Laboratory], AbstractContextManager[None]]], Fault]:
    """Register a fault; `says` is what the publisher must have logged in it, `stale_after` its setting."""

    def register(hold: Callable[[Laboratory], AbstractContextManager[None]]) -> Fault:
        assert name not in FAULTS, name
        kind = hold.__module__.rpartition(".")[2]
        made = Fault(
            name,
            kind,
            attacks,
            how,
            hold,
            holds,
            blinds,
            ground,
            before,
            seconds,
            says,
            slurm_answers,
            stale_after,
        )
        FAULTS[name] = made
        return made

    return register

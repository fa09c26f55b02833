"""`make test-faults`: plays every fault, pairs of them, and kills; judges each by the promise.

    make test-faults                                 all of it, some 10 minutes; writes docs/reliability.md
    make test-faults ARGS=--short                    as many as fit into some minutes, drawn by lot; writes nothing
    make test-faults ARGS="--only 'no space'"        those whose name has this text; pairs by `--pairs`
    make test-faults ARGS="--only none --kills 1000" kills alone

Exit status 1: a promise was broken, or a fault could not be put in force.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field

from .fault import FAULTS
from .kills import Kills, kill_forked, kill_whole
from .kinds import KINDS
from .laboratory import Laboratory, laboratory
from .page import missing, render, write
from .pairs import PAIRS
from .scenario import Report, play

SHORT_SECONDS = 130.0
"""After which a short run begins no further scenario."""
FORKED, WHOLE = 1000, 150


@dataclass(slots=True)
class Run:
    """What a run has found so far."""

    lab: Laboratory
    requeue: bool
    deadline: float
    reports: list[Report] = field(default_factory=list)
    kills: list[Kills] = field(default_factory=list)
    failures: int = 0

    def play(self, names: tuple[str, ...]) -> None:
        """Play a scenario, unless the time is over."""
        if time.monotonic() > self.deadline:
            return
        title = " + ".join(names)
        try:
            report = play(self.lab, [FAULTS[name] for name in names], requeue=self.requeue)
        except AssertionError as failure:
            print(f"FAILED {title}: {failure}", flush=True)
            self.failures += 1
            return
        self.reports.append(report)
        print(
            f"{title:60} {report.in_force:5.1f} s in force; old for {report.lag:5.2f} s, "
            f"back in {report.recovery:5.2f} s; {report.restarts or 'no'} restarts",
            flush=True,
        )
        self.complain(report)
        if report.violations:
            print("\n".join(f"    {line}" for line in report.log))

    def kill(self, forked: int, whole: int, dice: random.Random) -> None:
        """Kill so many publishers of each kind."""
        for count, way in ((forked, kill_forked), (whole, kill_whole)):
            if count:
                killed = way(self.lab, count, dice)
                self.kills.append(killed)
                print(f"{count} kills ({way.__name__}): {killed.left} left a temporary file", flush=True)
                self.complain(killed)

    def complain(self, found: Report | Kills) -> None:
        """Name what broke the promise."""
        for violation in found.violations:
            print(f"    VIOLATION {violation}")
        self.failures += len(found.violations)


def main() -> int:
    """Play what is asked for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="make test-faults")
    parser.add_argument("--short", action="store_true", help="what fits into some minutes, drawn by lot")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 1_000_000, help="of the lot, and of the kills"
    )
    parser.add_argument("--only", action="append", help="only the faults, or pairs, whose names have this text")
    parser.add_argument("--pairs", action="store_true", help="with --only: pairs")
    parser.add_argument("--kills", type=int, default=0, help="with --only: so many kills")
    told = parser.parse_args()
    if os.geteuid() != 0:
        print("make test-faults: mounts and traces, so it wants root", file=sys.stderr)
        return 2
    kinds = [kind.__name__.rpartition(".")[2] for kind in KINDS]
    ordered = sorted(FAULTS, key=lambda name: kinds.index(FAULTS[name].kind))
    singles: list[tuple[str, ...]] = [(name,) for name in ordered]
    wanted = [*singles, *PAIRS]
    dice = random.Random(told.seed)
    forked, whole = FORKED, WHOLE
    if told.only:
        among = PAIRS if told.pairs else singles
        wanted = [names for names in among if any(text in " + ".join(names) for text in told.only)]
        forked, whole = told.kills, told.kills // 10
    if told.short:
        absent = missing(wanted)
        if absent:
            print(f"docs/reliability.md does not name {absent}: run `make test-faults`", file=sys.stderr)
            return 1
        dice.shuffle(wanted)
        forked, whole = 100, 10
        print(f"seed {told.seed}")
    # Ended from outside it ends what it started, mounts above all.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with laboratory() as lab:
        run = Run(lab, not told.short, time.monotonic() + (SHORT_SECONDS if told.short else 1e9))
        for names in wanted:
            run.play(names)
        run.kill(forked, whole, dice)
    print(f"{len(run.reports)} scenarios of {len(wanted)}, {run.failures} failures")
    if not told.only and not told.short and not run.failures:
        alone = [report for report in run.reports if len(report.faults) == 1]
        both = [report for report in run.reports if len(report.faults) > 1]
        write(render(alone, both, run.kills))
    return int(run.failures > 0)


if __name__ == "__main__":
    sys.exit(main())

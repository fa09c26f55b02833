"""One scenario: all is well, faults come, Slurm changes, faults go, and readers are told the truth again."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .fault import ROLES
from .laboratory import looks, transitions
from .promise import Bound, Health, Told, Violation, longest_lag, violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .fault import Fault, Ground
    from .laboratory import Laboratory, Process

SETTLE = 8.0
"""Seconds from a change on Slurm, or from a fault's end, to the moment when every reader is told the truth: an
interval of 5 s, its jitter, and a pass."""


@dataclass(slots=True)
class Report:
    """What came of a scenario; times in seconds.

    `lag` is for how long at most a reader was told what was no longer true, `recovery` from the last fault's end
    to the moment when all were told the truth. `restarts` counts publishers that ended by themselves, and were
    started again.
    """

    faults: tuple[str, ...]
    in_force: float = 0.0
    lag: float = 0.0
    recovery: float = 0.0
    looks: int = 0
    transitions: int = 0
    violations: list[Violation] = field(default_factory=list)
    restarts: int = 0
    log: list[str] = field(default_factory=list)


def play(lab: Laboratory, faults: Sequence[Fault], *, requeue: bool = True) -> Report:
    """Play a scenario with faults that come one after the other and go in the opposite order."""
    report = Report(tuple(fault.name for fault in faults))
    ground: Ground = "fuse" if any(fault.ground == "fuse" for fault in faults) else "tmpfs"
    stale = min((fault.stale_after for fault in faults if fault.stale_after is not None), default=None)
    with lab.open(ground, stale):
        lab.arrange()
        for fault in faults:
            if fault.before is not None:
                fault.before(lab)
        lab.start()
        lab.until(lambda: lab.said('"event": "complete"'), "a complete pass")
        with lab.reading() as reader, lab.poking():
            lab.until(lambda: is_told_the_truth(lab, reader), "readers who know the truth")
            started = time.monotonic_ns()
            _under(lab, faults, requeue=requeue)
            ended = time.monotonic_ns()
            if requeue and not all(fault.slurm_answers for fault in faults):
                lab.requeue("requeued")
            report.restarts = _wait_for_truth(lab, reader)
            settled = time.monotonic_ns()
            lab.check_afterwards()
        told, passes = transitions(reader)
        bound = Bound(int(SETTLE * 1e9), None if stale is None else int(stale * 1e9))
        until = time.monotonic_ns()
        told = [one for one in told if one.at <= until]
        report.violations = violations(told, lab.truth.steps, passes, bound, spans=lab.truth.spans, until=until)
        report.lag = longest_lag(told, lab.truth.steps, until) / 1e9
        report.in_force, report.recovery = (ended - started) / 1e9, (settled - ended) / 1e9
        report.looks, report.transitions = looks(reader)[0], len(told)
        report.log = lab.log()
        _must_have_said(lab, faults)
        if len(faults) == 1:  # of two faults one may end what the other does not let begin
            assert not report.restarts, f"{faults[0].name}: the publisher ended\n" + "\n".join(lab.log())
    lab.swap("worsening", "recovering")
    return report


def is_told_the_truth(lab: Laboratory, reader: Process) -> bool:
    """Whether what the reader was told last is true of every unit."""
    last = {transition.unit: transition.told for transition in transitions(reader)[0]}
    return all((last[role] is Told.EXCLUDED) is (lab.truth.of(role) is Health.BAD) for role in ROLES)


def _under(lab: Laboratory, faults: Sequence[Fault], *, requeue: bool) -> None:
    """Put the faults in force, change what Slurm says, wait, and take the faults away."""
    answers = all(fault.slurm_answers for fault in faults)
    with contextlib.ExitStack() as stack:
        if not answers:
            lab.quiet = True  # the publisher is not to see the change before the fault
            _change(lab)
        for fault in faults:
            stack.enter_context(lab.truth.in_force(fault))
            stack.enter_context(fault.hold(lab))
        lab.quiet = False
        if answers:
            _change(lab)
            if requeue:
                lab.requeue("requeued")
        time.sleep(max(fault.seconds for fault in faults))  # what it is to last, not a wait for something


def _change(lab: Laboratory) -> None:
    lab.drain("worsening")
    lab.drain("steady")
    lab.resume("recovering")


def _wait_for_truth(lab: Laboratory, reader: Process) -> int:
    """Wait until readers are told the truth, or so long that what they are told is a violation.

    A publisher that has ended is started again, as systemd would; returns how often.
    """
    deadline = time.monotonic() + SETTLE + 1
    restarts = 0
    while not is_told_the_truth(lab, reader) and time.monotonic() < deadline:
        time.sleep(0.02)
        if not lab.publisher.is_running():
            lab.start()
            restarts += 1
    return restarts


def _must_have_said(lab: Laboratory, faults: Sequence[Fault]) -> None:
    if len(faults) == 1 and faults[0].says is not None:
        assert lab.said(faults[0].says), f"{faults[0].name}: never in force\n" + "\n".join(lab.log())

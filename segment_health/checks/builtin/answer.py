"""What the built-in checks answer together, in the JSON that every release of NVRx reads right. Pure.

NVRx 0.6 wants `fail_count` to be 0, 0.7 does not want it above 0, and seed 001 looks at `failed_checks`: so the
two always agree. A check that does not know is no failure; nvhcd then gives no answer, which excludes nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from segment_health.record import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.checks.health_check import Finding


class Unknown(Exception):  # noqa: N818 - a state of the world, not a bug
    """A check cannot tell whether the node is healthy. The message says why."""


class Verdict(NamedTuple):
    """What one check says: a finding, or why there is none."""

    name: str
    finding: Finding | None
    unknown: str = ""


def failures(verdicts: Sequence[Verdict]) -> list[str]:
    """Name the checks that failed, an entry for each problem: `slurm: n1 is IDLE+DRAIN ...`."""
    return [
        printable(f"{verdict.name}: {problem}")
        for verdict in verdicts
        if verdict.finding is not None
        for problem in verdict.finding.problems
    ]


def unknowns(verdicts: Sequence[Verdict]) -> list[str]:
    """Say what is not known."""
    return [printable(f"{verdict.name}: {verdict.unknown}") for verdict in verdicts if verdict.finding is None]


def remarks(verdicts: Sequence[Verdict]) -> list[str]:
    """Say what a person should know all the same."""
    return [
        printable(f"{verdict.name}: {remark}")
        for verdict in verdicts
        if verdict.finding is not None
        for remark in verdict.finding.remarks
    ]


def document(verdicts: Sequence[Verdict]) -> dict[str, Any] | None:
    """Return the answer; None where something is not known and nothing failed, so that there is none.

    `remarks` stands in it where there are any, and tells what is not known beside a failure.
    """
    failed, unknown = failures(verdicts), unknowns(verdicts)
    if unknown and not failed:
        return None
    told: dict[str, Any] = {"fail_count": len(failed), "failed_checks": failed}
    if further := [*remarks(verdicts), *(f"{sentence} (not known)" for sentence in unknown)]:
        told["remarks"] = further
    return told

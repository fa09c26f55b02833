"""Slurm, as the publisher will meet it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .check import error, ok, seconds, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .check import Check

_OLDEST = (22, 5)
"""The oldest release of Slurm that this project is tried on."""
_SKEW_SECONDS = 5.0
"""Clocks that NTP keeps are closer than this by far."""


class Answer(NamedTuple):
    """What came of asking Slurm once.

    `failure` is None when it answered. `asked` and `answered` are our clock before and after, `as_of` slurmctld's
    in between (whole seconds); `settings` are those of slurm.conf(5). Those two are None where the door does not
    tell them, and `visible_user` is None when every job was visible.
    """

    door: str
    door_why: str
    failure: str | None
    cluster: str
    version: str | None
    nodes: int
    allocations: int
    visible_user: str | None
    settings: Mapping[str, str] | None
    as_of: int | None
    asked: float
    answered: float
    remarks: Sequence[str]


def check_answer(answer: Answer, *, publisher: str | None) -> Check:
    """Judge whether Slurm answers; `publisher` names one on another host, that goes on asking it."""
    name = "slurm.answer"
    if answer.failure is None:
        took = seconds(answer.answered - answer.asked)
        remarks = "".join(f"; {remark}" for remark in answer.remarks)
        return ok(
            name,
            f"{answer.nodes} nodes, {answer.allocations} allocations of {answer.cluster} within {took}{remarks}",
        )
    remedy = (
        "`scontrol ping` and `scontrol show config` have to work for the publisher's user on its host; "
        "--slurm-conf, --slurm-bin-dir and --source say how Slurm is reached, --timeout how long it may take"
    )
    if publisher is not None:
        return warning(
            name,
            f"{answer.failure}; {publisher} has asked it, and launchers need no Slurm",
            f"if need be: {remedy}",
        )
    return error(name, answer.failure, remedy)


def check_version(answer: Answer) -> Check:
    """Judge whether it is a release that this project is tried on."""
    name = "slurm.version"
    if answer.version is None:
        return skipped(name, _untold(answer))
    found = re.match(r"(\d+)\.(\d+)", answer.version)
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        return warning(
            name,
            f"Slurm {answer.version} is older than 22.05, the oldest that this is tried on",
            "run `segment-health publish --once --all --dry-run` and compare it with `sinfo -N`",
        )
    return ok(name, f"Slurm {answer.version}")


def check_door(answer: Answer) -> Check:
    """Tell which way Slurm is asked, and why."""
    return ok("slurm.door", f"{answer.door}: {answer.door_why}")


def check_private_data(answer: Answer) -> Check:
    """Judge whether we see everybody's jobs."""
    name = "slurm.private-data"
    if answer.failure is not None or (answer.settings is None and answer.visible_user is None):
        return skipped(name, _untold(answer))
    value = None if answer.settings is None else answer.settings.get("PrivateData", "none")
    told = f"{answer.door} does not tell PrivateData" if value is None else f"PrivateData={value}"
    if answer.visible_user is not None:
        return warning(
            name,
            f"{told}: of other users' jobs than uid {answer.visible_user}'s nothing may be known, and no decision "
            "about them is retired",
            "a publisher of other users' jobs has to run as root or SlurmUser (or with a token of root); for jobs "
            "of one's own nothing is to be done",
        )
    return ok(name, f"every user's jobs are visible ({told})")


def check_job_requeue(answer: Answer, *, own_job_requeues: bool | None) -> Check:
    """Judge whether jobs are requeued that did not ask for it; `own_job_requeues` is known inside a job."""
    name = "slurm.job-requeue"
    value = None if answer.settings is None else answer.settings.get("JobRequeue")
    if value is None:
        return skipped(name, _untold(answer))
    if value == "0":
        return ok(name, "JobRequeue=0: only jobs that ask for it are requeued")
    if own_job_requeues is False:
        return ok(name, f"JobRequeue={value}, and this job was submitted with --no-requeue")
    return warning(
        name,
        f"JobRequeue={value}: whatever does not say --no-requeue may come back under the same ids",
        "submit arrays with --no-requeue; in jobs that may be requeued run `segment-health publish --once --wait` "
        "before srun, as `segment-health template show` does",
    )


def check_force_requeue(answer: Answer) -> Check:
    """Judge whether a failing prolog requeues jobs whatever they said."""
    name = "slurm.force-requeue"
    flags = None if answer.settings is None else answer.settings.get("PrologFlags")
    if flags is None:
        return skipped(name, _untold(answer))
    if "forcerequeueonfail" in {flag.strip().lower() for flag in flags.split(",")}:
        return warning(
            name,
            f"PrologFlags={flags}: a job whose prolog fails is requeued under its ids, whatever --no-requeue says",
            "run `segment-health publish --once --wait` before srun, as `segment-health template show` does, in "
            "arrays too: a new run then meets no decision about the one before",
        )
    return ok(name, f"PrologFlags={flags}")


def check_clock(answer: Answer, interval: float) -> Check:
    """Judge whether slurmctld and this host agree about the time; `interval` is a publisher's, in seconds."""
    name = "slurm.clock"
    if answer.as_of is None:
        return skipped(name, _untold(answer))
    behind, ahead = answer.asked - (answer.as_of + 1), answer.as_of - answer.answered
    skew = max(behind, ahead, 0.0)
    told = (
        f"slurmctld's clock is at least {seconds(skew)} {'behind' if behind > ahead else 'ahead of'} this host's"
    )
    remedy = "let chrony or ntpd keep both: publishers on several hosts judge each other by their clocks"
    if skew >= interval:
        return error(
            name, f"{told}: as much as an interval ({seconds(interval)}), so liveness is misjudged", remedy
        )
    if skew >= _SKEW_SECONDS:
        return warning(name, told, remedy)
    return ok(name, "slurmctld's clock and this host's agree within what can be seen")


def _untold(answer: Answer) -> str:
    if answer.failure is not None:
        return "Slurm did not answer"
    return f"{answer.door} does not tell it; --source text does"

"""`segment-health doctor`: what is wrong, or can go wrong, with a place; each with its remedy."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from segment_health.record import printable

from . import in_force, source
from .command import Command, examples
from .failure import ATTENTION, USAGE, Failure, say
from .progress import waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.doctor.check import Check
    from segment_health.doctor.checkup import Facts
    from segment_health.doctor.directory import JobUser, Place, Unseen
    from segment_health.doctor.job import Job
    from segment_health.doctor.slurm import Answer
    from segment_health.settings import Settings


@click.command(
    cls=Command,
    short_help="Say what is wrong with a place, and what to do about it.",
    epilog=examples("segment-health doctor --dir /shared/segment-health/decisions"),
)
@click.option("--dir", metavar="DIR", help="Decision directory.")
@click.option("--job-user", metavar="USER", help="Whose launchers look there.  [default: you; of root: everybody]")
@click.option("--max-restarts", metavar="N", type=click.IntRange(0), help="The launcher's restart budget.")
@click.option("--replacement-group-size", metavar="N", type=click.IntRange(1), help="What the launcher is told.")
@click.option("--interval", metavar="SECONDS", help="Of the publisher.  [default: 300]")
@in_force.storage_option
@source.options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(
    *,
    job_user: str | None,
    max_restarts: int | None,
    replacement_group_size: int | None,
    config: str | None,
    format_: str,
    **flags: Any,
) -> None:
    """Look whether decisions can be published, seen and obeyed here, and say what to do where they cannot.

    Looks at the directory, Slurm, the publishers, NVRx, and, inside a job, at how its launchers are started.
    Changes nothing; in the directory it writes a probe file of its own and removes it.

    Exit status 0: nothing needs a person, though there may be warnings. 1: a check is an error. 2: a usage or
    configuration error.
    """
    from segment_health import settings  # noqa: PLC0415 - each command loads what it needs
    from segment_health.doctor.check import needs_a_person  # noqa: PLC0415
    from segment_health.doctor.checkup import checkup  # noqa: PLC0415
    from segment_health.doctor.surroundings import job_user as user_of  # noqa: PLC0415

    try:
        told = settings.load({k: v for k, v in flags.items() if v is not None}, os.environ, config)
        told.named_directory()
        who = user_of(job_user)
        if who is None:
            raise Failure(f"--job-user: there is no user {job_user!a}", USAGE)
        with waiting("looking"):
            found = _facts(told, who)
    except settings.SettingsError as error:
        raise Failure(str(error), USAGE) from error
    checks = [
        _shown(check) for check in checkup(found._replace(budget=max_restarts, group=replacement_group_size))
    ]
    if format_ == "json":
        say(json.dumps({"checks": [check._asdict() for check in checks]}))
    else:
        _print(checks)
    if needs_a_person(checks):
        raise SystemExit(ATTENTION)


def _shown(check: Check) -> Check:
    """Escape what a terminal would act upon: names of directories are other people's."""
    remedy = None if check.remedy is None else printable(check.remedy)
    return check._replace(detail=printable(check.detail), remedy=remedy)


def _print(checks: Sequence[Check]) -> None:
    for check in checks:
        say(f"{check.severity:8} {check.name:23} {check.detail}")
        if check.remedy is not None:
            say(f"{'':8} {'':23} -> {check.remedy}")
    counts = Counter(check.severity for check in checks)
    say(", ".join(f"{counts[severity]} {severity}" for severity in ("error", "warning", "ok", "skipped")))


def _facts(told: Settings, who: JobUser) -> Facts:
    """Look at everything, each within its time."""
    from segment_health.atomic import host_name  # noqa: PLC0415
    from segment_health.doctor.checkup import Facts  # noqa: PLC0415
    from segment_health.doctor.surroundings import nvrx_version  # noqa: PLC0415

    path = told.named_directory()
    answer = _answer(told)
    return Facts(
        path=path,
        place=_place(path, told.storage_timeout),
        uid=os.geteuid(),
        host=host_name(),
        allows_strangers=told.allow_shared_dir,
        job_user=who,
        answer=answer,
        job=_job(told, answer),
        budget=None,
        group=None,
        nvrx=nvrx_version(),
        python=sys.executable,
        interval=told.interval,
        now=time.time(),
    )


def _place(path: str, timeout: float) -> Place | Unseen:
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.doctor.directory import Unseen  # noqa: PLC0415
    from segment_health.doctor.facts import examine  # noqa: PLC0415

    try:
        return bounded(lambda: examine(path), timeout, path)
    except OSError as error:
        return Unseen(error.strerror or str(error), error.errno)
    except ValueError as error:  # a NUL byte
        return Unseen(str(error), None)


def _answer(told: Settings) -> Answer:
    from segment_health import sources  # noqa: PLC0415
    from segment_health.doctor.slurm import Answer  # noqa: PLC0415

    asked = time.time()
    observed, _ = source.opened(told, os.environ, once=True)
    failure, snapshot = None, None
    with closing(observed):
        try:
            snapshot = observed.observe()
        except sources.SourceUnknown as unknown:
            failure = str(unknown)
        answered = time.time()
        of_slurm = observed.configuration()
    return Answer(
        door=observed.name,
        door_why=observed.why,
        failure=failure,
        cluster="" if snapshot is None else snapshot.cluster,
        version=None if snapshot is None else snapshot.slurm_version,
        nodes=0 if snapshot is None else len(snapshot.nodes),
        allocations=0 if snapshot is None else len(snapshot.allocations),
        visible_user=None if snapshot is None else snapshot.visible_user,
        settings=None if of_slurm is None else of_slurm.settings,
        as_of=None if of_slurm is None else of_slurm.as_of,
        asked=asked,
        answered=answered,
        remarks=[] if snapshot is None else observed.remarks,
    )


def _job(told: Settings, answer: Answer) -> Job:
    """Look at the job that this runs in; Slurm is asked of it where its commands answer."""
    from segment_health import sources  # noqa: PLC0415
    from segment_health.doctor.job import Job  # noqa: PLC0415
    from segment_health.doctor.surroundings import srun_commands  # noqa: PLC0415

    job = Job(dict(os.environ), None, "not inside a job", None, (), answer.settings)
    if not job.job_id:
        return job
    job = job._replace(sruns=srun_commands(job.job_id))
    if answer.settings is None:
        return job._replace(untold=f"Slurm's commands were not asked, or did not answer (door: {answer.door})")
    try:
        options = sources.ask_job(job.job_id, source.access(told, os.environ))
    except sources.SourceUnknown as unknown:
        return job._replace(untold=str(unknown))
    return job._replace(requeue=options.requeue, script=options.script)

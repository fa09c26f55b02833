"""Every check, in the order in which they are read. Pure: what was found is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import directory, job, launcher, publisher, slurm
from .check import skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .check import Check


class Facts(NamedTuple):
    """All that the checks judge.

    `uid` asks, on the host of this name; `allows_strangers` is the setting allow_shared_dir. `budget` and `group`
    are the launcher's restarts and size of replacement group, as far as they were told; `nvrx` is the version
    installed for `python`.
    """

    path: str
    place: directory.Place | directory.Unseen
    uid: int
    host: str
    allows_strangers: bool
    job_user: directory.JobUser
    answer: slurm.Answer
    job: job.Job
    budget: int | None
    group: int | None
    nvrx: str | None
    python: str
    interval: float
    now: float


def checkup(facts: Facts) -> list[Check]:
    """Judge everything: always the same checks, whatever was found."""
    beats = [] if isinstance(facts.place, directory.Unseen) else facts.place.heartbeats
    alive = publisher.living(beats, facts.now)
    return [
        *_of_directory(facts, is_published=bool(alive)),
        *_of_slurm(facts, publisher.asking_elsewhere(alive, facts.host)),
        *_of_job(facts),
        job.check_restarts(facts.budget, facts.job),
        launcher.check_nvrx(facts.nvrx, facts.python, is_array=facts.job.is_array if facts.job.job_id else None),
        *_of_publishers(facts),
    ]


def _of_directory(facts: Facts, *, is_published: bool) -> list[Check]:
    place = facts.place
    if isinstance(place, directory.Unseen):
        return directory.missing_place(facts.path, place)
    for_many = not facts.allows_strangers and (facts.uid == 0 or publisher.serves_many(place.heartbeats))
    return [
        directory.check_path(place),
        directory.check_shared(place),
        directory.check_visibility(place),
        directory.check_replace(place, is_published=is_published),
        directory.check_readers(place, facts.job_user),
        directory.check_writers(place, for_many=for_many),
        directory.check_space(place),
        directory.check_inodes(place),
    ]


def _of_slurm(facts: Facts, elsewhere: str | None) -> list[Check]:
    answer = facts.answer
    return [
        slurm.check_answer(answer, publisher=elsewhere),
        slurm.check_version(answer),
        slurm.check_door(answer),
        slurm.check_private_data(answer),
        slurm.check_job_requeue(answer, own_job_requeues=facts.job.requeue),
        slurm.check_force_requeue(answer),
        slurm.check_clock(answer, facts.interval),
    ]


def _of_job(facts: Facts) -> Sequence[Check]:
    if not facts.job.job_id:
        return [skipped(name, "not inside a job") for name in job.CHECKS]
    return [
        job.check_processes(facts.job),
        job.check_kill_on_bad_exit(facts.job),
        job.check_requeue(facts.job),
        job.check_replacement_group(facts.job, facts.group),
    ]


def _of_publishers(facts: Facts) -> Sequence[Check]:
    if isinstance(facts.place, directory.Unseen):
        return [skipped(name, "the directory could not be looked at") for name in publisher.CHECKS]
    beats = facts.place.heartbeats
    alive = publisher.living(beats, facts.now)
    return [
        publisher.check_alive(beats, facts.now, facts.job.scope_id),
        publisher.check_policy(alive),
        publisher.check_overlap(alive),
    ]

"""The STOP of a job: a file that ends the launchers of all its tasks, and of no later run.

It lies where all tasks see it, by default beside the application logs. The task that asks the attribution service
writes it, once, whole; the others look for it. Whoever requeues the job starts a new generation, for which it is
not meant: a false STOP keeps a job down until a person comes, a missed one costs some restarts, so in doubt it
binds nobody.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from segment_health.atomic import open_directory, read_file, replace_file, sync_directory
from segment_health.consumer import identify, is_id
from segment_health.record import Fields, one_line, utc

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "segment_health_stop."
_LIMIT = 1 << 16
_SCHEMA = 1


class Run(NamedTuple):
    """One run of one task: what a STOP is bound to. A regular job is its own only task."""

    cluster: str
    job_id: str
    task_id: str
    restart_count: int


class Stop(NamedTuple):
    """A STOP: the run whose launcher's service gave it, and the log that it was given for."""

    run: Run
    log: str
    host: str
    written: int
    """Seconds since the epoch."""


def run_of(environ: Mapping[str, str]) -> Run | None:
    """Return the run whose environment this is; None outside a job. ValueError for ids that are none."""
    unit = identify(environ)
    if unit is None:
        return None
    count = environ.get("SLURM_RESTART_COUNT") or "0"
    if not is_id(count):
        raise ValueError(f"SLURM_RESTART_COUNT is no number: {count[:40]!a}")
    return Run(environ.get("SLURM_CLUSTER_NAME") or "", *unit, int(count))


def asks(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is the one of its job that asks the service: process 0 of the first task.

    That is where the rendezvous store usually is, whose launcher asks in NVRx. Outside Slurm every process is.
    """
    first, task = environ.get("SLURM_ARRAY_TASK_MIN"), environ.get("SLURM_ARRAY_TASK_ID")
    return is_first(environ) and (not task or not first or task == first)


def is_first(environ: Mapping[str, str]) -> bool:
    """Tell whether this is process 0 of its step, whose end is the end of the step."""
    return environ.get("SLURM_PROCID", "0") == "0"


def encode(stop: Stop) -> bytes:
    """Write a STOP as one JSON line."""
    return one_line(
        {"schema": _SCHEMA, **stop.run._asdict(), "log": stop.log, "host": stop.host, "written": utc(stop.written)}
    )


def decode(content: bytes) -> Stop:
    """Read a STOP back; ValueError for what is none."""
    try:
        fields = Fields(json.loads(content))
        run = Run(
            fields.text("cluster"), fields.text("job_id"), fields.text("task_id"), fields.number("restart_count")
        )
        return Stop(run, fields.text("log"), fields.text("host"), fields.time("written"))
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ValueError("no STOP that this program wrote") from error


class StopFile:
    """The STOP of a run's job in a directory, looked for by that run.

    Made when the run begins: what lies there then may be an earlier run's. Only what belongs to this user or to
    root counts.
    """

    def __init__(self, directory: str, run: Run) -> None:
        self.path = os.path.join(directory, f"{_PREFIX}{run.job_id}")
        self._directory = directory
        self._name = os.path.basename(self.path)
        self._run = run
        self._found_first: bytes | None = None
        self._looked = False

    def write(self, log: str, host: str, now: int) -> bool:
        """Leave this run's STOP unless one is there that binds it; tell whether it was written. Raises OSError."""
        stop = Stop(self._run, log, host, now)
        with suppress(ValueError):  # what nobody can read is replaced
            if self.look() is not None:
                return False
        with open_directory(self._directory) as directory:
            replace_file(directory, self._name, encode(stop), mode=0o644)
            sync_directory(directory)
        return True

    def look(self) -> Stop | None:
        """Return the STOP that binds this run; None where there is none.

        Raises OSError where that cannot be told, ValueError for a file that is no STOP: neither binds.
        """
        content = self._read()
        if not self._looked:
            self._found_first, self._looked = content, True
        if content is None:
            return None
        stop = decode(content)
        is_old = content == self._found_first
        return stop if _binds(stop.run, self._run, is_old=is_old) else None

    def forget_predecessor(self) -> bool:
        """Remove a STOP of an earlier run of this very task, so that it binds no task of the new one.

        Tells whether there was one. Raises OSError; ValueError for a file that is no STOP.
        """
        content = self._read()
        if content is None:
            return False
        run = decode(content).run
        if not _same_job(run, self._run) or run.task_id != self._run.task_id:
            return False
        if run.restart_count >= self._run.restart_count:
            return False
        with open_directory(self._directory) as directory:
            os.unlink(self._name, dir_fd=directory)
        self._found_first, self._looked = None, True
        return True

    def _read(self) -> bytes | None:
        owners = {0, os.geteuid()}
        try:
            with open_directory(self._directory) as directory:
                return read_file(directory, self._name, _LIMIT, owners=owners)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ESTALE}:  # ESTALE: replaced while we opened it
                return None
            raise


def _same_job(one: Run, other: Run) -> bool:
    return (one.cluster, one.job_id) == (other.cluster, other.job_id)


def _binds(stopped: Run, run: Run, *, is_old: bool) -> bool:
    """Tell whether the STOP of a run binds another run, which found it when it began (`is_old`) or later."""
    if not _same_job(stopped, run):
        return False
    if stopped.task_id == run.task_id:
        return stopped.restart_count == run.restart_count
    # Each task of an array counts its own restarts, so the numbers of two tasks cannot be compared. What is
    # written during a run is meant for it. What it found is meant for it if it is its task's first run, such as
    # one that had to wait for nodes; a later one was made by a person who wants the job to run.
    return not is_old or run.restart_count == 0

"""`segment-health publish`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from segment_health import __version__
from segment_health.record import printable

from .failure import ATTENTION, DONE, UNKNOWN, USAGE, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from segment_health.scope import Scope
    from segment_health.sources import Source
    from segment_health.watch import Change, Pass, Publication


@click.command()
@click.option("--dir", metavar="DIR", help="Decision directory: absolute, on storage that every launcher sees.")
@click.option("--once", is_flag=True, help="Make one pass and end.")
@click.option("--job", metavar="ID", multiple=True, help="Units of this job; an array's id means all its tasks.")
@click.option("--user", metavar="NAME", help="Units of this user.")
@click.option("--partition", metavar="NAME", help="Units of this partition.")
@click.option("--all", is_flag=True, default=None, help="Every unit of the cluster.")
@click.option("--timeout", metavar="SECONDS", help="How long Slurm may take to answer.  [default: 30]")
@click.option("--interval", metavar="SECONDS", help="How soon the next pass is to be expected.  [default: 300]")
@click.option("--publish-at", metavar="LEVEL", help="Lowest level that excludes.  [default: PreSeparateFault]")
@click.option("--adopt", is_flag=True, default=None, help="Take over artifacts that somebody else wrote.")
@click.option("--nodes-from", metavar="FILE", help="Saved `scontrol show nodes -o`, instead of asking Slurm.")
@click.option("--jobs-from", metavar="FILE", help="Saved `scontrol show jobs`, with -o or without.")
@click.option("--cluster", metavar="NAME", help="The cluster that the saved answers are of.  [default: saved]")
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def publish(
    context: click.Context, /, *, once: bool, config: str | None, dry_run: bool, format_: str, **flags: Any
) -> None:
    """Read node states and running allocations from Slurm, and publish which units not to reuse.

    Inside a job the default scope is that job. Exit status 0: done. 1: done, but something could not be
    written. 2: a usage or configuration error. 3: Slurm's state is unknown, and nothing was changed.
    """
    if not once:
        raise Failure("publish: only single passes so far; add --once", USAGE)
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    given = {key: value for key, value in flags.items() if value not in (None, ())}
    publication, source, cluster = _prepare(given, config, dry_run=dry_run)
    result = _run(publication, source, cluster)
    duration = time.monotonic() - began
    if format_ == "json":
        click.echo(json.dumps(_document(result, source, dry_run=dry_run, duration=duration)))
    elif result.done is not None:
        for line in _lines(result.done, dry_run=dry_run, duration=duration):
            click.echo(printable(line))
    for line in result.complaints():
        click.echo(f"segment-health: {printable(line)}", err=True)
    context.exit(result.code)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End on SIGTERM through every `finally`: Slurm's commands must not outlive us."""
    raise SystemExit(128 + number)


def _prepare(given: Mapping[str, Any], config: str | None, *, dry_run: bool) -> tuple[Publication, Source, str]:
    """Return what to publish, from what, and what tells this cluster from another one of this host."""
    from segment_health import settings, sources  # noqa: PLC0415 - each command loads what it needs
    from segment_health.level import FaultLevel  # noqa: PLC0415
    from segment_health.policy import Policy  # noqa: PLC0415
    from segment_health.watch import Publication  # noqa: PLC0415

    try:
        told = settings.load(given, os.environ, config)
        saved = told.saved_answers()
        scope = told.scope(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID"))
        publication = Publication(
            directory=told.directory(),
            scope=scope,
            policy=Policy(FaultLevel[told.publish_at]),
            version=__version__,
            interval=told.interval,
            own_job=None if saved else _own_job(scope, os.environ),
            adopt=told.adopt,
            dry_run=dry_run,
        )
    except settings.SettingsError as error:
        raise Failure(str(error), USAGE) from error
    if saved is not None:
        cluster = told.cluster or "saved"
        return publication, sources.replay(*saved, cluster=cluster), cluster
    source = sources.ask_slurm(timeout=told.timeout, environ=os.environ)
    # Two clusters of one host have two slurm.conf; the name is known only once one has answered.
    return publication, source, os.environ.get("SLURM_CONF", "")


def _own_job(scope: Scope, environ: Mapping[str, str]) -> str | None:
    """Return the job in which this process runs, if the scope covers it."""
    names = {
        "job": ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"),
        "user": ("SLURM_JOB_USER", "SLURM_JOB_UID"),
        "partition": ("SLURM_JOB_PARTITION",),
        "all": (),
    }[scope.kind]
    covered = scope.kind == "all" or any(environ.get(name) in scope.values for name in names)
    return environ.get("SLURM_JOB_ID") or None if covered else None


@dataclass(frozen=True, slots=True)
class _Result:
    """How a pass ended: `done` is None unless it was complete, `error` then says why."""

    done: Pass | None
    error: str | None
    code: int

    def complaints(self) -> list[str]:
        """Return what a person should read, a line each."""
        if self.done is None:
            return [self.error or "failed"]
        outcome = self.done.outcome
        unclear = [
            f"node flag {flag} (seen on {node}) is not known; ignored"
            for flag, node in sorted(outcome.unknown_flags.items())
        ]
        unclear += [
            f"unit {unit} is in a job state that is not known; its decision stays"
            for unit in outcome.not_understood
        ]
        if outcome.no_verdict:
            names = self.done.snapshot.fold(sorted(outcome.no_verdict))
            unclear.append(f"no verdict on {names}, whose state is not known; their part of each decision stays")
        failed = [
            f"{change.path}: {change.error}; left as it was, tried again in the next pass"
            for change in self.done.changes
            if change.error is not None
        ]
        return [*self.done.remarks, *unclear, *failed, *self.done.failures]


def _run(publication: Publication, source: Source, cluster: str) -> _Result:
    """Make the pass, alone of its kind on this host."""
    from segment_health import lock  # noqa: PLC0415
    from segment_health.sources import SourceUnknown  # noqa: PLC0415
    from segment_health.watch import run_once  # noqa: PLC0415

    alone = (
        contextlib.nullcontext()
        if publication.dry_run
        else lock.hold(publication.directory, cluster, str(publication.scope), os.environ)
    )
    try:
        with alone:
            done = run_once(publication, source, time.time)
    except lock.AlreadyRunning:
        running = f"another publisher of {publication.scope} in {publication.directory} is running on this host"
        return _Result(None, f"{running}; nothing to do", DONE)
    except lock.LockError as error:
        return _Result(None, f"no lock, so nothing was done: {error}", USAGE)
    except SourceUnknown as unknown:
        return _Result(None, f"Slurm's state is unknown, so every decision stays as it is: {unknown}", UNKNOWN)
    except OSError as error:
        return _Result(None, f"{publication.directory}: {error.strerror or error}; nothing was changed", ATTENTION)
    return _Result(done, None, DONE if done.wrote_everything else ATTENTION)


def _document(result: _Result, source: Source, *, dry_run: bool, duration: float) -> dict[str, Any]:
    """Return the public JSON of a pass."""
    done = result.done
    return {
        "pass": "unknown" if done is None else "complete",
        "source": source.name,
        "slurm_version": None if done is None else done.snapshot.slurm_version,
        "nodes": {
            "total": 0 if done is None else len(done.snapshot.nodes),
            "unavailable": 0 if done is None else done.outcome.unavailable_nodes,
        },
        "units": {
            "total": 0 if done is None else done.outcome.units,
            "excluded": 0 if done is None else done.outcome.excluded,
        },
        "changes": [] if done is None else [_change(change) for change in done.changes],
        "dry_run": dry_run,
        "duration_ms": round(duration * 1000, 1),
        "error": result.error if done is None else "; ".join(done.failures) or None,
    }


def _change(change: Change) -> dict[str, Any]:
    decision = change.decision
    return {
        "action": decision.action.value if change.error is None else "failed",
        "job_id": decision.unit.job_id,
        "task_id": decision.unit.task_id,
        "level": None if decision.level is None else decision.level.name,
        "nodes": decision.nodes,
        "path": change.path,
        "error": change.error,
    }


def _lines(done: Pass, *, dry_run: bool, duration: float) -> list[str]:
    """Return what a person reads: a line a change, and one that sums up."""
    nodes, outcome = done.snapshot.nodes, done.outcome
    lines = [
        " ".join(
            filter(None, [change["action"], str(decision.unit), change["level"], change["nodes"], change["path"]])
        )
        for change, decision in ((_change(change), change.decision) for change in done.changes)
    ]
    lines.append(
        f"{'dry run' if dry_run else 'complete'}: {len(nodes)} nodes, {outcome.unavailable_nodes} unavailable; "
        f"{outcome.units} units, {outcome.excluded} excluded; {duration:.2f} s"
    )
    return lines

"""`segment-health publish`: one pass, or the loop."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any, NoReturn

import click

from segment_health import __version__
from segment_health.record import printable

from . import in_force, report, source
from .failure import ATTENTION, DONE, UNKNOWN, USAGE, Failure, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from segment_health.publish import Pass
    from segment_health.scope import Scope
    from segment_health.service import Plan
    from segment_health.settings import Settings


@click.command()
@click.option("--dir", metavar="DIR", help="Decision directory: absolute, on storage that every launcher sees.")
@click.option("--once", is_flag=True, help="Make one pass and end; otherwise pass after pass until SIGTERM.")
@click.option(
    "--wait", is_flag=True, help="With --once: let a pass of this scope that is under way end, then make one."
)
@click.option("--job", metavar="ID", multiple=True, help="Units of this job; an array's id means all its tasks.")
@click.option("--user", metavar="NAME", help="Units of this user.")
@click.option("--partition", metavar="NAME", help="Units of this partition.")
@click.option("--all", is_flag=True, default=None, help="Every unit of the cluster.")
@click.option("--interval", metavar="SECONDS", help="From pass to pass, within 10 %.  [default: 300]")
@click.option("--stale-after", metavar="SECONDS", help="Without a complete pass, or `never`.  [default: 1800]")
@click.option("--standby", is_flag=True, default=None, help="Only publish while no other of this scope is alive.")
@in_force.policy_options
@in_force.report_options
@click.option("--force", is_flag=True, help="With --once: publish whatever the number of new exclusions.")
@click.option("--allow-shared-dir", is_flag=True, default=None, help="With --all: others may write to DIR.")
@click.option("--precreate", is_flag=True, default=None, help="Leave an empty artifact for each unit without one.")
@in_force.storage_option
@click.option("--adopt", is_flag=True, default=None, help="Take over artifacts that somebody else wrote.")
@click.option("--on-separate", metavar="COMMAND", help="Run for each unit that reaches SeparateFault.")
@source.options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.option("--quiet", "-q", is_flag=True, help="With --once: say only what is wrong.")
@click.option("--dry-run", is_flag=True, help="With --once: say what would change, and change nothing.")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), help="Of a single pass.  [default: text]"
)
@click.option("--log-format", metavar="text|json", help="Of the loop.  [default: text]")
@click.pass_context
def publish(
    context: click.Context,
    /,
    *,
    once: bool,
    wait: bool,
    quiet: bool,
    config: str | None,
    dry_run: bool,
    force: bool,
    format_: str | None,
    **flags: Any,
) -> None:
    """Read node states and running allocations from Slurm, and publish which units not to reuse.

    Inside a job the default scope is that job. Without --once it goes on until SIGTERM or SIGINT, which leave
    every exclusion in place; SIGUSR1 asks for a pass now, SIGHUP to reread the settings.

    Exit status 0: done. 1: done, but something could not be written, or new exclusions were held. 2: a usage or
    configuration error. 3: Slurm's state is unknown, and nothing was changed.
    """
    given = {key: value for key, value in flags.items() if value not in (None, ())}
    if once:
        plan = functools.partial(_plan, given, config, dry_run=dry_run, force=force)
        context.exit(_once(plan, wait=wait, quiet=quiet, format_=format_ or "text"))
    if wait or quiet or dry_run or force or format_:
        raise Failure(
            "publish: --wait, --quiet, --dry-run, --force, --format are for a single pass: --once", USAGE
        )
    context.exit(_loop(given, config))


def _once(planned: Callable[[], tuple[Plan, Settings]], *, wait: bool, quiet: bool, format_: str) -> int:
    from segment_health import lock  # noqa: PLC0415 - each command loads what it needs
    from segment_health.service import Service  # noqa: PLC0415
    from segment_health.sources import SourceUnknown  # noqa: PLC0415

    began = time.monotonic()
    with _ended_by_signals():  # also while the source is opened, which may ask Slurm
        plan, told = planned()
    publication, service = plan.publication, Service(plan, time.time)
    dry_run = publication.dry_run
    done: Pass | None = None
    if publication.replay and not dry_run and (company := service.company()):
        where = f"{publication.directory} is in use ({company})"
        raise Failure(f"{where}: play a recording with --dry-run, or into a directory of its own", USAGE)
    try:
        with _ended_by_signals(), contextlib.closing(plan.source):
            done = service.attempt(wait=told.timeout if wait else 0.0)
        error, code = None, DONE if done.wrote_everything else ATTENTION
    except lock.AlreadyRunning as running:
        where = f"another publisher of {publication.scope} in {publication.directory} is running on this host"
        error, code = f"{where} ({running}); nothing to do", DONE
    except lock.LockError as failure:
        error, code = f"no lock, so nothing was done: {failure}", USAGE
    except SourceUnknown as unknown:
        error, code = f"Slurm's state is unknown, so every decision stays as it is: {unknown}", UNKNOWN
    except OSError as failure:
        error, code = f"{publication.directory}: {failure.strerror or failure}; nothing was changed", ATTENTION
    seconds = time.monotonic() - began
    if format_ == "json":
        observed = plan.source
        say(json.dumps(report.document(done, error, source=observed, dry_run=dry_run, seconds=seconds)))
    elif done is not None and not quiet:
        for change in done.changes:
            say(printable(report.change_line(change)))
        say(f"{'dry run' if dry_run else 'complete'}: {report.summary(done)}; {seconds:.2f} s")
    for line in [error or "failed"] if done is None else report.complaints(done):
        say(f"segment-health: {printable(line)}", err=True)
    return code


def _loop(given: Mapping[str, Any], config: str | None) -> int:
    from segment_health import lock, watch  # noqa: PLC0415
    from segment_health.service import Service  # noqa: PLC0415
    from segment_health.signals import Signals  # noqa: PLC0415

    from .log import Log  # noqa: PLC0415

    with _ended_by_signals():  # as in a single pass; a moment later signals are requests
        plan, told = _plan(given, config, loop=True)
    publication = plan.publication
    log = Log(told.log_format, time.time)

    def reread(current: Plan) -> Plan:
        try:
            new, _ = _plan(given, config, loop=True)
        except Failure as failure:
            log.say("ERROR", "reload", f"the settings in force stay: {failure.message}")
            return current
        if (new.publication.directory, new.publication.scope) != (publication.directory, publication.scope):
            log.say("ERROR", "reload", "the settings in force stay: directory and scope change by a restart only")
            return current
        log.say("INFO", "reload", f"settings read again; source {new.source.name}: {new.source.why}")
        return new

    service = Service(plan, time.time, reread, lambda level, sentence: log.say(level, "policy", sentence))
    where = (plan.lock_directory, plan.lock_name, str(publication.scope))
    with Signals() as signals:
        while signals.ending is None:
            try:
                with lock.hold(lock.LOOP, *where, os.environ):
                    log.say("INFO", "start", _introduction(plan))
                    try:
                        watch.run(
                            service,
                            signals,
                            log,
                            monotonic=time.monotonic,
                            random=random.random,
                            age=service.age(),
                        )
                    finally:
                        service.retire()
                        service.close()
            except lock.AlreadyRunning as running:
                if not told.standby:
                    other = f"another publisher of {publication.scope} in {publication.directory}"
                    raise Failure(f"{other} is running on this host: {running}", USAGE) from running
                log.standing_by()
                signals.wait(watch.STANDBY_SECONDS)
            except lock.LockError as error:
                raise Failure(f"no lock, so nothing was done: {error}", USAGE) from error
        log.say("INFO", "end", f"{signal.Signals(signals.ending).name}: ended; exclusions stay in place")
    return DONE


def _introduction(plan: Plan) -> str:
    publication, source = plan.publication, plan.source
    what = f"publishing {publication.scope} into {publication.directory} every {publication.interval:g} s"
    return f"{what}; source {source.name}: {source.why}"


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a signal end what runs inside through every `finally`."""
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: None)  # a pass is on its way already
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End by a signal through every `finally`: Slurm's commands must not outlive us."""
    raise SystemExit(128 + number)


def _plan(
    given: Mapping[str, Any], config: str | None, *, loop: bool = False, dry_run: bool = False, force: bool = False
) -> tuple[Plan, Settings]:
    """Return what to do, and by which settings."""
    from segment_health import settings  # noqa: PLC0415
    from segment_health.noded.config import ConfigurationError  # noqa: PLC0415
    from segment_health.policy.file import PolicyError  # noqa: PLC0415
    from segment_health.publication import Publication  # noqa: PLC0415
    from segment_health.reload import PolicyFile  # noqa: PLC0415
    from segment_health.service import Plan  # noqa: PLC0415

    try:
        told = settings.load(given, os.environ, config)
        scope = told.scope(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID"))
        directory, real = _located(told, guarded=told.guards(scope), loop=loop)
        policy_file = PolicyFile(told.policy, functools.partial(in_force.policy, told)) if told.policy else None
        publication = Publication(
            directory=directory,
            scope=scope,
            policy=policy_file.read() if policy_file else in_force.policy(told),
            version=__version__,
            interval=told.interval,
            own_job=None if told.replay or told.nodes_from else _own_job(scope, told.cluster, os.environ),
            loop=loop,
            replay=told.replay is not None,
            adopt=told.adopt,
            dry_run=dry_run,
            force=force,
            reports=in_force.reports(told),
            guarded=told.guards(scope),
            storage_timeout=told.storage_timeout,
            precreate=told.precreate,
        )
        observed, lock_name = source.opened(told, os.environ, once=not loop)
    except (settings.SettingsError, PolicyError, ConfigurationError) as error:
        raise Failure(str(error), USAGE) from error
    return Plan(
        publication,
        observed,
        stale_after=None if told.stale_after == "never" else float(told.stale_after),
        standby=told.standby,
        on_separate=told.on_separate,
        lock_name=lock_name,
        policy_file=policy_file,
        lock_directory=real,
    ), told


def _located(told: Settings, *, guarded: bool, loop: bool) -> tuple[str, str]:
    """Return the decision directory and its real path; a loop begins although storage hangs, and tries again."""
    try:
        return told.located(guarded=guarded)
    except TimeoutError as error:
        if not loop:
            raise Failure(f"the decision directory: {error.strerror}; nothing was done", ATTENTION) from error
        return told.named_directory(), os.path.normpath(told.named_directory())


def _own_job(scope: Scope, asked: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the job in which this process runs, if the scope covers it, and it is of the cluster asked for."""
    names = {
        "job": ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"),
        "user": ("SLURM_JOB_USER", "SLURM_JOB_UID"),
        "partition": ("SLURM_JOB_PARTITION",),
        "all": (),
    }[scope.kind]
    if asked not in {None, environ.get("SLURM_CLUSTER_NAME")}:
        return None  # ids of another cluster
    covered = scope.kind == "all" or any(environ.get(name) in scope.values for name in names)
    return environ.get("SLURM_JOB_ID") or None if covered else None

"""`segment-health publish`: one pass, or the loop."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from typing import TYPE_CHECKING, Any

import click

from segment_health.record import printable

from . import in_force, metrics, report, source
from .command import Command, examples
from .failure import ATTENTION, DONE, UNKNOWN, USAGE, Failure, ended_by_signals, say
from .plan import plan
from .progress import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.publish import Pass
    from segment_health.service import Plan
    from segment_health.settings import Settings


@click.command(
    cls=Command,
    short_help="Ask Slurm, decide, and publish: once, or in a loop.",
    epilog=examples(
        "segment-health publish --once --all --dir /shared/segment-health/decisions --dry-run",
        'segment-health publish --user "$USER" --dir /shared/segment-health/decisions',
    ),
)
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
@click.option("--listen", metavar="ADDRESS", help="Serve a page: PORT, HOST:PORT, unix:/path.  [default: off]")
@click.option("--refresh-token-file", metavar="FILE", help="Who has this token may ask for a pass over HTTP.")
@click.option("--adopt", is_flag=True, default=None, help="Take over artifacts that somebody else wrote.")
@click.option("--on-separate", metavar="COMMAND", help="Run for each unit that reaches SeparateFault.")
@source.options
@click.option("--config", metavar="FILE", envvar="SEGMENT_HEALTH_CONFIG", help="Settings, TOML.")
@click.option("--quiet", "-q", is_flag=True, help="With --once: say only what is wrong.")
@click.option("--dry-run", is_flag=True, help="With --once: say what would change, and change nothing.")
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), help="Of a single pass.  [default: text]"
)
@click.option("--metrics-file", metavar="FILE.prom", help="Metrics, for Prometheus' textfile collector.")
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
        planned = functools.partial(plan, given, config, dry_run=dry_run, force=force)
        context.exit(_once(planned, wait=wait, quiet=quiet, format_=format_ or "text"))
    if wait or quiet or dry_run or force or format_:
        raise Failure(
            "publish: --wait, --quiet, --dry-run, --force, --format are for a single pass: --once", USAGE
        )
    from .loop import loop  # noqa: PLC0415 - a single pass needs none of it

    context.exit(loop(given, config))


def _once(planned: Callable[[], tuple[Plan, Settings]], *, wait: bool, quiet: bool, format_: str) -> int:
    from segment_health import lock  # noqa: PLC0415 - each command loads what it needs
    from segment_health.service import Service  # noqa: PLC0415
    from segment_health.sources import SourceUnknown  # noqa: PLC0415

    began = time.monotonic()
    gc.disable()  # what a single pass leaves goes with the process, and it makes some ten thousand values
    cause: str | None = None
    with ended_by_signals():  # also while the source is opened, which may ask Slurm
        todo, told = planned()
    publication, service = todo.publication, Service(todo, time.time)
    dry_run = publication.dry_run
    done: Pass | None = None
    if publication.replay and not dry_run and (company := service.company()):
        where = f"{publication.directory} is in use ({company})"
        raise Failure(f"{where}: play a recording with --dry-run, or into a directory of its own", USAGE)
    try:
        with ended_by_signals(), waiting("one pass"), contextlib.closing(todo.source):
            done = service.attempt(wait=told.timeout if wait else 0.0)
        error, code = None, DONE if done.wrote_everything else ATTENTION
    except lock.AlreadyRunning as running:
        where = f"another publisher of {publication.scope} in {publication.directory} is running on this host"
        error, code = f"{where} ({running}); nothing to do", DONE
    except lock.LockError as failure:
        error, code, cause = f"no lock, so nothing was done: {failure}", USAGE, "lock"
    except SourceUnknown as unknown:
        error, code = f"Slurm's state is unknown, so every decision stays as it is: {unknown}", UNKNOWN
        cause = "slurm"
    except OSError as failure:
        error, code = f"{publication.directory}: {failure.strerror or failure}; nothing was changed", ATTENTION
        cause = "directory"
    seconds = time.monotonic() - began
    if format_ == "json":
        import json  # noqa: PLC0415 - 3 ms, which most passes need only once Slurm has been asked

        observed = todo.source
        say(json.dumps(report.document(done, error, source=observed, dry_run=dry_run, seconds=seconds)))
    elif done is not None and not quiet:
        for change in done.changes:
            say(printable(report.change_line(change)))
        say(f"{'dry run' if dry_run else 'complete'}: {report.summary(done)}; {seconds:.2f} s")
    remarks = [] if dry_run else metrics.note(service, told, done or cause, error or "", seconds)
    for line in [*([error or "failed"] if done is None else report.complaints(done)), *remarks]:
        say(f"segment-health: {printable(line)}", err=True)
    gc.freeze()  # else Python looks through them all once more when it ends
    return code

"""`segment-health attribution`: whether a job should be restarted at all, beside a launcher that does not ask."""

from __future__ import annotations

import math
import os
import posixpath
import time
from typing import TYPE_CHECKING, Any

import click

from segment_health.attribution.flags import FLAGS, KEYS, FlagError, settings_of
from segment_health.record import printable

from .command import Command, Group, Late, examples
from .failure import ATTENTION, DONE, UNKNOWN, USAGE, Failure, say
from .launch import become, cannot, descriptors, environment, file_of, keep, remark

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from segment_health.attribution.flags import AttributionSettings
    from segment_health.attribution.managed import Service
    from segment_health.attribution.observer import Asking
    from segment_health.attribution.stop import StopFile

_GRACE_SECONDS = 30.0
_LOOK_SECONDS = 30.0
_MOMENT_SECONDS = 5.0
"""How much longer than its start-up time a service of the job's own may take, and how long its end."""


_ELSEWHERE = {"analyse": "attribution_analyse.analyse", "serve": "attribution_service.serve"}
"""Commands in modules of their own."""


@click.group(
    cls=Group,
    commands=Late(__package__, _ELSEWHERE),
    short_help="Ask whether to restart a failed job.",
    epilog=examples("segment-health attribution watch --help"),
)
def attribution() -> None:
    """Ask a service whether a job that failed should be restarted at all, or be that service."""


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ft_launcher's flags of attribution, each as it was written or None."""
    for flag in reversed(FLAGS):
        command = click.option(*flag.options, flag.field, metavar=flag.metavar, help=flag.help)(command)
    return command


@attribution.command(
    cls=Command,
    short_help="Run a launcher, and have its failed cycles analysed.",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "segment-health attribution watch --ft-cfg ft.yaml -- ft_launcher --ft-cfg-path ft.yaml train.py"
    ),
)
@_flags
@click.option("--ft-cfg", "--ft-cfg-path", "--ft-cfg_path", "ft_cfg", metavar="FILE", help="ft_launcher's YAML.")
@click.option("--state-dir", metavar="DIR", help="Where a STOP is left for other tasks. [beside the logs]")
@click.option(
    "--grace",
    metavar="SECONDS",
    type=float,
    default=_GRACE_SECONDS,
    show_default=True,
    help="From SIGTERM to SIGKILL at a STOP.",
)
@click.option(
    "--asker/--no-asker", "asker", default=None, help="Ask here, or not. [process 0 of the first array task does]"
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.pass_context
def watch(
    context: click.Context,
    /,
    *,
    ft_cfg: str | None,
    state_dir: str | None,
    grace: float,
    asker: bool | None,
    command: tuple[str, ...],
    **flags: str | None,
) -> None:
    """Run COMMAND, a launcher, and have its failed cycles analysed beside it; it notices nothing of that.

    Only with the stop action no-restart does a STOP end the launcher, and those of the job's other tasks. Without
    an endpoint, and in processes that have nothing to do, this becomes COMMAND at once.

    Exit status: COMMAND's own, or the signal that it died of; 93 (--ft-no-restart-exit-code) after a STOP.
    2: a wrong flag or file, nothing was run. 126, 127: COMMAND cannot be run, is not there.
    """
    inherited = descriptors()
    if not command:
        raise Failure("which launcher? Give it behind --: -- ft_launcher train.py", USAGE)
    if not 0 <= grace < math.inf:
        raise Failure(f"--grace {grace:g}: that is no time to wait; give seconds from 0 on", USAGE)
    if state_dir is not None and not os.path.isabs(state_dir):
        raise Failure(f"--state-dir: not an absolute path: {state_dir[:80]!a}", USAGE)
    settings = _settings(flags, ft_cfg)
    environ = _environment(settings)
    asks, stop_file = _duties(settings, state_dir, asker=asker)
    if not asks and stop_file is None:
        become(command, environ, inherited)
    keep(inherited)

    from segment_health.attribution import ends, relay  # noqa: PLC0415 - each process loads what it needs

    patience = relay.Patience(grace)
    if asks and settings.is_managed:
        patience = relay.Patience(grace, settings.startup_timeout + _MOMENT_SECONDS, _MOMENT_SECONDS)

    def observe(channel: socket.socket) -> None:
        _observe(channel, settings if asks else None, stop_file)

    try:
        ended = relay.run(command, environ, observe, patience)
    except relay.RefusedError:
        context.exit(ATTENTION)
    except (OSError, ValueError) as error:
        raise cannot(command[0], error) from error
    if ended.was_stopped:
        context.exit(settings.no_restart_exit_code)
    ends.end_as(ended.status)


@attribution.command(
    cls=Command,
    short_help="Tell whether a STOP is for this run.",
    epilog=examples("segment-health attribution stopped --state-dir /shared/logs"),
)
@click.option("--state-dir", metavar="DIR", required=True, help="Where watch leaves a STOP; absolute.")
@click.pass_context
def stopped(context: click.Context, state_dir: str) -> None:
    """Tell in a batch script, after its launchers ended, whether the job is to be restarted.

    Exit status 0: no STOP is for this run of this job. 1: one is, do not restart. 2: a usage error, or no job.
    3: that cannot be told.
    """
    from segment_health.attribution import stop  # noqa: PLC0415 - each command loads what it needs
    from segment_health.bounded import bounded  # noqa: PLC0415

    if not os.path.isabs(state_dir):
        raise Failure(f"--state-dir: not an absolute path: {state_dir[:80]!a}", USAGE)
    try:
        run = stop.run_of(os.environ)
    except ValueError as error:
        raise Failure(str(error), USAGE) from error
    if run is None:
        raise Failure("not in a Slurm job: neither SLURM_ARRAY_JOB_ID nor SLURM_JOB_ID is set", USAGE)
    file = stop.StopFile(state_dir, run)
    try:
        found = bounded(file.look, _LOOK_SECONDS, state_dir)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"{file.path}: cannot be read: {cause}", UNKNOWN) from error
    if found is None:
        say(f"no STOP for this run of job {run.job_id}")
    else:
        say(printable(f"STOP for job {run.job_id}, of task {found.run.task_id} on {found.host}: {found.log}"))
    context.exit(DONE if found is None else ATTENTION)


def _settings(flags: dict[str, str | None], ft_cfg: str | None) -> AttributionSettings:
    told = {field: value for field, value in flags.items() if value is not None}
    try:
        return settings_of(told, {} if ft_cfg is None else file_of(ft_cfg, KEYS), os.environ)
    except FlagError as error:
        raise Failure(str(error), USAGE) from error


def _environment(settings: AttributionSettings) -> dict[bytes, bytes]:
    """Return the launcher's environment: as it came, but for the API key of a service of the job's own."""
    came = environment()
    if settings.is_managed:
        return {name: value for name, value in came.items() if not name.startswith(b"LLM_API_KEY")}
    return came


def _duties(
    settings: AttributionSettings, state_dir: str | None, *, asker: bool | None
) -> tuple[bool, StopFile | None]:
    """Say what is to be done in this process: whether it asks, and which STOP it looks for."""
    from segment_health.attribution import stop  # noqa: PLC0415 - each command loads what it needs

    if not settings.is_enabled:
        return False, None
    asks = stop.asks(os.environ) if asker is None else asker
    if not settings.enforces or not stop.is_first(os.environ):
        return asks, None
    try:
        run = stop.run_of(os.environ)
    except ValueError as error:
        remark(f"a STOP ends this task alone: {error}")
        run = None
    directory = state_dir or posixpath.dirname(settings.applog_prefix)
    return asks, None if run is None else stop.StopFile(directory, run)


def _observe(channel: socket.socket, asked: AttributionSettings | None, stop_file: StopFile | None) -> None:
    """Be the observer, which asks as these settings say, if any do."""
    from segment_health.attribution.observer import Task, observe  # noqa: PLC0415 - the observer loads what it needs

    from .lines import Lines  # noqa: PLC0415

    task = Task(stop_file=stop_file)
    if asked is not None:
        settings = asked

        def attribution() -> Asking:
            from segment_health.attribution.poller import Attribution  # noqa: PLC0415 - loads httpx

            return Attribution(settings.client_endpoint, stop_action="no-restart" if settings.enforces else "log")

        def service(say: Callable[[str, str], None]) -> Service:
            from segment_health.attribution.managed import Service  # noqa: PLC0415

            return Service(settings, environ=os.environ, say=say)

        task = Task(settings.applog_prefix, attribution, service if settings.is_managed else None, stop_file)
    observe(channel, task, Lines("text", time.time))

"""`segment-health preflight`: NVRx's checks before a rendezvous, for launchers without any; then the launcher."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from segment_health.checks.wanted import KEYS, Wanted, directory_of, is_yes, paths_of

from .command import Command, examples
from .failure import ATTENTION, USAGE, Failure, ended_by_signals
from .launch import become, descriptors, environment, file_of, remark

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.checks.chain import Result


def _read(reader: Callable[[object], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Read the value of a flag; where there is none the file may have its say."""

    def read(_context: click.Context, option: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return reader(value)
        except ValueError as error:
            raise Failure(f"{option.opts[0]}: {error}", USAGE) from error

    return read


@click.command(
    cls=Command,
    short_help="Check this node, then become the launcher.",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "segment-health preflight --ft-segment-health-check-dir /shared/decisions -- torchrun train.py",
        "segment-health preflight --ft-cfg ft.yaml --explain",
    ),
)
@click.option(
    "--ft-segment-health-check-dir",
    "--ft_segment_health_check_dir",
    "segment_dir",
    metavar="DIR",
    callback=_read(directory_of),
    help="Decision directory, absolute: is this job's unit excluded?",
)
@click.option(
    "--ft-enable-dist-storage-healthcheck",
    "--ft_enable_dist_storage_healthcheck",
    "storage",
    metavar="WORD",
    callback=_read(is_yes),
    help="true, 1, yes: does Lustre say that it is healthy, and does every Lustre and NFS mount answer?",
)
@click.option(
    "--ft-storage-health-check-path",
    "--ft_storage_health_check_path",
    "storage_paths",
    metavar="PATHS",
    callback=_read(paths_of),
    help="Absolute paths with commas between them: is each there, and can it be read?",
)
@click.option(
    "--ft-node-health-check-endpoint",
    "--ft-node_health_check_endpoint",
    "endpoint",
    metavar="SOCKET",
    help="nvhcd's UNIX socket, a path or unix:///path: what does it say of this node?",
)
@click.option(
    "--ft-cfg",
    "--ft-cfg-path",
    "--ft-cfg_path",
    "ft_cfg",
    metavar="FILE",
    help="ft_launcher's YAML; a flag counts before its section fault_tolerance.",
)
@click.option(
    "--explain", is_flag=True, help="Say on stderr what was checked, how long it took, and what was not."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
def preflight(
    *,
    segment_dir: str | None,
    storage: bool | None,
    storage_paths: tuple[str, ...] | None,
    endpoint: str | None,
    ft_cfg: str | None,
    explain: bool,
    command: tuple[str, ...],
) -> None:
    """Make the checks that are enabled, in NVRx's order; where all pass, become COMMAND.

    Checks once, at the start: checking again at each rendezvous is the launcher's part. Flags are ft_launcher's,
    and no environment variable stands in for one. Nothing is written to stdout.

    Exit status 1: a check failed, COMMAND was not run. 2: a wrong flag or file, nothing was checked. 126, 127:
    COMMAND cannot be run, is not there. Else COMMAND's own; 0 where there is none.
    """
    inherited = descriptors()
    flags = {"segment_dir": segment_dir, "storage": storage, "storage_paths": storage_paths, "endpoint": endpoint}
    told = {name: value for name, value in flags.items() if value is not None}
    wanted = Wanted(**{**(file_of(ft_cfg, KEYS) if ft_cfg is not None else {}), **told})
    if explain or wanted != Wanted():
        _check(wanted, explain=explain)
    if command:
        become(command, environment(), inherited)


def _check(wanted: Wanted, *, explain: bool) -> None:
    """Walk the chain; raise SystemExit where a check failed, each of whose problems was told."""
    from segment_health.checks import chain  # noqa: PLC0415 - each command loads what it needs

    failed = False
    with ended_by_signals():
        for result in chain.walk(chain.steps(wanted, os.environ)):
            if explain:
                remark(_told(result))
            if result.finding is None:
                continue
            for problem in result.finding.problems:
                remark(f"{result.step.title} failed: {problem}")
            for told in result.finding.remarks:
                remark(f"{result.step.title}: {told}")
            failed = failed or not result.finding.is_healthy
    if failed:
        raise SystemExit(ATTENTION)


def _told(result: Result) -> str:
    """Say of one step what was done."""
    step = result.step
    if step.about is None:
        return f"{step.title}: not enabled; {step.flag} does"
    if result.finding is None:
        return f"{step.title} ({step.about}): not reached"
    passed = "passed" if result.finding.is_healthy else "failed"
    if result.finding.is_healthy and result.finding.remarks:
        passed = "passed, with a remark,"
    return f"{step.title} ({step.about}): {passed} in {result.seconds:.3f} s"

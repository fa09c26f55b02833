"""`segment-health nvhcd`, and the script `nvhcd`: the daemon that NVRx's node health check asks."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from segment_health.record import brief

from .command import SETTINGS, Command, examples
from .failure import DONE, USAGE, Failure, ended_by_signals, reserve_streams
from .lines import RationedLines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.checks.nvhcd.config import Config
    from segment_health.checks.nvhcd.outcome import Outcome

_MAX_ARGS = 200
"""Characters of a request's arguments that a line shows."""
_MAX_SAID = 1000
"""Characters of a program's standard error that a line shows: who is to mend the node may have nothing else."""
_LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "warning": "WARNING", "error": "ERROR"}


class DaemonLog(RationedLines):
    """The log of the daemon: what calls bring about is rationed."""

    def configure(self, log_level: str) -> None:
        """Write what is of this level, as a configuration names it, or above."""
        self.least = _LEVELS[log_level]

    def ran(self, args: Sequence[str], outcome: Outcome, seconds: float) -> None:
        """Say how a program ended."""
        from segment_health.checks.nvhcd.outcome import Answer, Refusal  # noqa: PLC0415

        if isinstance(outcome, Refusal):
            level, told, result = "WARNING", f"no answer: {brief(outcome.sentence, 1000)}", outcome.code
        else:
            level = "INFO" if outcome.success else "WARNING"
            told, result = f"{'healthy' if outcome.success else 'unhealthy'}: {outcome.summary}", outcome.summary
        shown = _shown(args)
        message = f"check {shown}: {told}, after {seconds:.1f} s"
        further = {"args": shown, "result": result, "seconds": round(seconds, 3)}
        if isinstance(outcome, Answer) and (said := brief(outcome.said.strip(), _MAX_SAID)):
            message, further = f"{message}; {said}", {**further, "error": said}
        self.ration(level, "check", message, **further)

    def repeated(self, args: Sequence[str]) -> None:
        """Say that a call was answered from the cache."""
        if self.least == "DEBUG":
            self.ration("DEBUG", "cached", f"check {_shown(args)}: the same answer as a moment ago")


@click.command(
    "nvhcd",
    cls=Command,
    short_help="Answer NVRx's node health check on this node.",
    context_settings=SETTINGS,
    epilog=examples(
        "segment-health nvhcd --config /etc/nvhcd/config.yaml",
        "segment-health template show nvhcd-config > config.yaml",
    ),
)
@click.option(
    "--config",
    "-config",
    "config_path",
    metavar="FILE",
    required=True,
    help="Configuration, YAML; also -config FILE.",
)
@click.option(
    "--log-format", "-log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How lines are written to standard error.",
)  # fmt: skip
def nvhcd(config_path: str, log_format: str) -> None:
    """Answer NVRx's node health check on a UNIX socket, by running a program.

    A daemon for each node: `ft_launcher --ft-node-health-check-endpoint unix:///run/nvhcd/nvhcd.sock` asks it
    before each rendezvous. It says what the program of `healthcheck_path` found. SIGHUP: read the configuration
    again. SIGTERM: let those who wait have their answer, then end; a second one: end at once.

    Exit status 0: told to end. 2: a usage or configuration error, or the socket is taken; nothing was done.
    """
    from segment_health import toml  # noqa: PLC0415 - each command loads what it needs
    from segment_health.checks.builtin.settings import MAX_FILE, ConfigError  # noqa: PLC0415
    from segment_health.checks.nvhcd.config import parse  # noqa: PLC0415

    reserve_streams()
    path = os.path.abspath(config_path)
    with ended_by_signals():
        try:
            config = parse(toml.content_of(path, MAX_FILE), path)
        except ConfigError as error:
            raise Failure(f"nvhcd: {error}", USAGE) from error
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else error
            raise Failure(f"nvhcd: {path}: {cause}", USAGE) from error
        log = DaemonLog(log_format, time.time)
        log.configure(config.log_level)
        number = _run(config, path, log)
    if number:
        raise SystemExit(128 + number)
    raise SystemExit(DONE)


def _run(config: Config, path: str, log: DaemonLog) -> int:
    """Run the daemon. Raises Failure."""
    # Before gRPC is read: it need not prepare for forks, of which there are none once it serves, and what callers
    # do wrong is no business of standard error.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from segment_health.checks.nvhcd import daemon  # noqa: PLC0415 - 200 ms
        from segment_health.checks.nvhcd.place import PlaceError  # noqa: PLC0415
        from segment_health.checks.nvhcd.relay import ActivationError  # noqa: PLC0415
        from segment_health.checks.nvhcd.server import Server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"grpc", "google"}:
            raise
        raise Failure(
            f"nvhcd: no gRPC here ({error.name}); it comes with: pip install 'segment-health[nvhcd]'",
            USAGE,
        ) from error
    try:
        return daemon.run(config, path, log, os.environ, Server)
    except (PlaceError, ActivationError) as error:
        raise Failure(f"nvhcd: {error}", USAGE) from error
    except OSError as error:
        raise Failure(
            f"nvhcd: {config.socket_path}: {error.strerror or error}; nothing was done", USAGE
        ) from error


def _shown(args: Sequence[str]) -> str:
    return brief(" ".join(args), _MAX_ARGS) or "without arguments"

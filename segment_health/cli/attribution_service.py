"""`segment-health attribution serve`: the service that says whether a failed job should be restarted."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from .command import Command, examples
from .failure import USAGE, Failure, reserve_streams
from .lines import RationedLines

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.address import Address

    _Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_RATIONED = frozenset({"judged", "failed", "accepted"})
"""What callers can have said as often as they like."""


class ServiceLog(RationedLines):
    """The log of the service: what it does by itself in full, what callers bring about rationed."""

    def say(self, level: str, event: str, message: str, **further: Any) -> None:
        """Write a line, or ration it."""
        if event in _RATIONED:
            self.ration(level, event, message, **further)
        else:
            super().say(level, event, message, **further)


def _seconds(default: float, what: str, *names: str, least: float = 0.0) -> _Decorator:
    within = _within(least, 86400.0)
    return click.option(
        *names, metavar="SECONDS", type=float, default=default, show_default=True, help=what, callback=within
    )


def _count(default: int, what: str, *names: str, most: int = 1_000_000) -> _Decorator:
    within = _within(1, most)
    return click.option(
        *names, metavar="N", type=int, default=default, show_default=True, help=what, callback=within
    )


def _within(least: float, most: float) -> Callable[[click.Context, click.Parameter, float], float]:
    """Return what refuses other numbers; click's own ranges take a line of the help each."""

    def check(_context: click.Context, _option: click.Parameter, value: float) -> float:
        if not least <= value <= most:
            raise click.BadParameter(f"{value} is not within {least:g} and {most:g}.")
        return value

    return check


@click.command(
    cls=Command,
    short_help="Be the service that is asked.",
    epilog=examples(
        "segment-health attribution serve --allowed-root /shared/logs --state /var/lib/attribution.db"
    ),
)
@click.option(
    "--listen", metavar="ADDRESS", default="127.0.0.1:8000", envvar="NVRX_ATTRSVC_ENDPOINT", show_default=True,
    help="PORT (of 127.0.0.1), HOST:PORT or unix:/path.",
)  # fmt: skip
@click.option(
    "--allowed-root", metavar="DIR", required=True, envvar="NVRX_ATTRSVC_ALLOWED_ROOT",
    help="Below which logs are read, and nothing else.",
)  # fmt: skip
@click.option("--state", metavar="FILE", required=True, help="What was accepted and found; made if need be.")
@click.option(
    "--analyser", type=click.Choice(["rules", "llm"]), default="rules", show_default=True,
    help="How logs are judged; llm: by rules, and by a language model.",
)  # fmt: skip
@click.option(
    "--llm-base-url", metavar="URL", envvar="NVRX_ATTRSVC_LLM_BASE_URL", help="Below which /chat/completions is."
)
@click.option(
    "--llm-model", metavar="NAME", envvar="NVRX_ATTRSVC_LLM_MODEL", help="What the model is called there."
)
@click.option(
    "--llm-key-file", metavar="FILE", envvar="LLM_API_KEY_FILE", help="Where its API key is, if it has one."
)
@_seconds(60.0, "What asking the model may take.", "--llm-timeout", least=0.1)
@_count(5_000_000, "What a day may cost, in tokens.", "--llm-daily-tokens", most=10**12)
@click.option(
    "--export-url", metavar="URL", envvar="NVRX_ATTRSVC_EXPORT_URL", help="Where findings are posted. [nowhere]"
)
@click.option("--blame-dir", metavar="DIR", help="Leave there what logs say against nodes.  [default: off]")
@_count(4, "Analyses at a time.", "--workers", most=64)
@_count(2000, "Logs that may wait to be judged.", "--max-queued")
@_count(3000, "Findings that are kept.", "--keep")
@_seconds(300.0, "What an analysis may take.", "--analysis-timeout", least=0.1)
@_seconds(10.0, "A log is waited for at least so long.", "--drain-min")
@_seconds(5.0, "It is whole when it has not changed for so long.", "--drain-quiet")
@_seconds(40.0, "It is read after so long, whole or not.", "--drain-max")
@_count(1200, "Submissions a minute, of one address.", "--rate-submit")
@_count(60, "Questions a minute, of one address.", "--rate-ask")
@_count(120, "Previews a minute, of one address.", "--rate-preview")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING"]), default="INFO", show_default=True,
    envvar="NVRX_ATTRSVC_LOG_LEVEL", help="The least of stderr.",
)  # fmt: skip
def serve(*, listen: str, allowed_root: str, state: str, log_format: str, log_level: str, **told: Any) -> None:
    """Take logs of failed cycles, and say whether their jobs should be restarted.

    The API is that of NVRx's nvrx-attrsvc: ft_launcher --ft-attribution-endpoint http://127.0.0.1:8000 asks it,
    and so does segment-health attribution watch. There is no password: who reaches it can have logs judged, and
    read how they begin. SIGTERM ends it; what it had accepted it judges after its next start.

    Exit status 0: told to end. 2: a usage error, a state file that is in use or damaged, an address that is taken.
    """
    from segment_health.attribution.service import server  # noqa: PLC0415 - each command loads what it needs
    from segment_health.attribution.service.analyses import Limits  # noqa: PLC0415
    from segment_health.attribution.service.app import PerMinute  # noqa: PLC0415
    from segment_health.attribution.service.drain import Patience  # noqa: PLC0415
    from segment_health.attribution.service.export import Destination  # noqa: PLC0415
    from segment_health.attribution.service.register import RegisterError  # noqa: PLC0415

    reserve_streams()
    log = ServiceLog(log_format, time.time)
    log.least = log_level
    address = _address(listen)
    blame = told["blame_dir"] or ""
    for flag, path in (("--allowed-root", allowed_root), ("--state", state), ("--blame-dir", blame or "/")):
        if not os.path.isabs(path):
            raise Failure(f"{flag}: not an absolute path: {path[:80]!a}", USAGE)
    patience = Patience(told["drain_min"], told["drain_quiet"], told["drain_max"])
    settings = server.Settings(
        address,
        allowed_root,
        state,
        _analyser(told, state, log),
        workers=told["workers"],
        keep=told["keep"],
        per_minute=PerMinute(told["rate_submit"], told["rate_ask"], told["rate_preview"]),
        export=Destination(told["export_url"]) if told["export_url"] else None,
        limits=Limits(told["max_queued"], told["analysis_timeout"], patience),
        blame=blame,
    )
    if not address.path and not address.is_loopback:
        log.say(
            "WARNING",
            "open",
            f"{address} is reached from other hosts, and there is no password: whoever does can read how "
            f"every log below {allowed_root} begins, and have any of them judged",
        )
    try:
        server.run(settings, log, os.environ)
    except (server.StartError, RegisterError) as error:
        raise Failure(f"attribution serve: {error}", USAGE) from error


def _analyser(told: dict[str, Any], state: str, log: ServiceLog) -> dict[str, Any]:
    """Return what workers are told of the analyser."""
    if told["analyser"] == "rules":
        return {"name": "rules"}
    from segment_health.attribution.http import NoAnswerError  # noqa: PLC0415 - loads httpx
    from segment_health.attribution.service.analyser import llm_of  # noqa: PLC0415

    for field in ("llm_base_url", "llm_model"):
        if not told[field]:
            raise Failure(f"--analyser llm needs --{field.replace('_', '-')}", USAGE)
    if told["llm_timeout"] >= told["analysis_timeout"]:  # it would end what the rules found, too
        raise Failure("--llm-timeout: not less than --analysis-timeout", USAGE)
    key_file = told["llm_key_file"] or None
    if key_file is not None and not key_file.startswith(("/", "~/")):  # not quoted: some give the key itself
        raise Failure("--llm-key-file: not an absolute path", USAGE)
    order = {
        "name": "llm",
        "base_url": told["llm_base_url"],
        "model": told["llm_model"],
        "key_file": key_file and os.path.expanduser(key_file),
        "seconds": told["llm_timeout"],
        "tokens_per_day": told["llm_daily_tokens"],
        "spent_file": f"{state}.tokens",
    }
    try:
        analyser = llm_of(order)
        for warning in analyser.warnings():
            log.say("WARNING", "llm", warning)
    except ValueError as error:
        raise Failure(f"--llm-base-url: {error}", USAGE) from error
    except NoAnswerError as error:
        raise Failure(f"--llm-key-file: {error}", USAGE) from error
    analyser.close()
    return order


def _address(told: str) -> Address:
    """Read an address, also as NVRx's environment has it: http://host:port, unix:///path, /path."""
    from segment_health import address  # noqa: PLC0415

    text = told.removeprefix("http://").rstrip("/") if told.startswith("http://") else told
    text = f"unix:{text}" if text.startswith("/") else text.replace("unix://", "unix:", 1)
    try:
        return address.parse(text)
    except ValueError as error:
        raise Failure(f"--listen {told[:80]!a}: {error}", USAGE) from error

"""What the launcher's side of attribution is told: ft_launcher's flags, and the keys of its file. Pure.

Flags and rules are those of NVRx 0.7.0 (fault_tolerance/cli_args.py, attribution_manager.py, launcher.py), so that
one command line means the same to ft_launcher and to us.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import words
from .words import LOG, MANAGED, NO_RESTART, NO_RESTART_EXIT_CODE, STARTUP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from segment_health.ft_cfg import Keys

MANAGED_PORT = 50050
"""Where a service of the job's own listens, on 127.0.0.1."""
KEY_FILE_VARIABLE = "LLM_API_KEY_FILE"
_KEY_VARIABLES = "LLM_API_KEY"
"""How the names of variables begin that hold the API key, or say where it is."""
_LOG_SUFFIX = ".log"


class FlagError(ValueError):
    """Flags, or a flag and the file, that cannot be meant so; one line, for a person."""


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """What was told. What is empty was not.

    `endpoint` is `localhost`, or a URL as it was given. `applog_prefix` and `launcher_log` are absolute paths.
    `key_file` is a path as it was given, `~` and relative ones too. `startup_timeout` is in seconds.
    """

    endpoint: str = ""
    applog_prefix: str = ""
    launcher_log: str = ""
    key_file: str = ""
    base_url: str = ""
    model: str = ""
    backend: str = ""
    log_level: str = ""
    export_url: str = ""
    stop_action: str = LOG
    startup_timeout: float = STARTUP_SECONDS
    no_restart_exit_code: int = NO_RESTART_EXIT_CODE

    @property
    def is_enabled(self) -> bool:
        """Whether there is a service to ask."""
        return bool(self.endpoint)

    @property
    def is_managed(self) -> bool:
        """Whether the service is the job's own, to be started with it."""
        return self.endpoint == MANAGED

    @property
    def enforces(self) -> bool:
        """Whether a STOP ends the job."""
        return self.stop_action == NO_RESTART

    @property
    def client_endpoint(self) -> str:
        """Where the service is asked; an address, so that no resolver and no IPv6 come between."""
        return f"http://127.0.0.1:{MANAGED_PORT}" if self.is_managed else self.endpoint

    @property
    def service_log(self) -> str:
        """Where a managed service's output goes: beside the launcher's log, else in `nvrx/` beside the logs."""
        named_by = self.launcher_log or self.applog_prefix
        name = f"{posixpath.basename(named_by).removesuffix(_LOG_SUFFIX)}_attribution{_LOG_SUFFIX}"
        folder = posixpath.dirname(named_by)
        return posixpath.join(folder, name) if self.launcher_log else posixpath.join(folder, "nvrx", name)


def without_key(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment without what the API key is, or where: a workload has no use for either."""
    return {name: value for name, value in environ.items() if not name.startswith(_KEY_VARIABLES)}


class Flag(NamedTuple):
    """A flag: its field of AttributionSettings, its name without dashes, and how its value is read."""

    field: str
    name: str
    metavar: str
    read: Callable[[object], Any]
    help: str

    @property
    def options(self) -> tuple[str, str]:
        """As it is written: with hyphens, and with the underscores of its alias."""
        return f"--{self.name}", f"--{self.name.replace('-', '_')}"

    @property
    def key(self) -> str:
        """What it is called in the section `fault_tolerance` of ft_launcher's file."""
        return self.name.removeprefix("ft-").replace("-", "_")


FLAGS = (
    Flag(
        "endpoint",
        "ft-attribution-endpoint",
        "ENDPOINT",
        words.endpoint_of,
        "Whom to ask: http://host:port, https://host; or localhost: a service for this job.",
    ),
    Flag(
        "applog_prefix",
        "ft-per-cycle-applog-prefix",
        "PATH",
        words.prefix_of,
        "The launcher's: /logs/a.log where the logs are /logs/a_cycle0.log ...",
    ),
    Flag("launcher_log", "ft-nvrx-logfile", "FILE", words.path_of, "The launcher's own log, absolute."),
    Flag(
        "stop_action",
        "ft-attribution-stop-action",
        "{log,no-restart}",
        words.stop_action_of,
        "log (default): a STOP is logged; no-restart: it ends the job.",
    ),
    Flag(
        "no_restart_exit_code",
        "ft-no-restart-exit-code",
        "CODE",
        words.exit_code_of,
        f"Exit status of a job that a STOP ended. [{NO_RESTART_EXIT_CODE}]",
    ),
    Flag(
        "key_file",
        "ft-attribution-llm-api-key-file",
        "FILE",
        words.text_of,
        f"localhost: the API key's file. [${KEY_FILE_VARIABLE}]",
    ),
    Flag("base_url", "ft-attribution-llm-base-url", "URL", words.url_of, "localhost: the LLM's URL."),
    Flag("model", "ft-attribution-llm-model", "MODEL", words.text_of, "localhost: the LLM's name."),
    Flag("backend", "ft-attribution-analysis-backend", "{lib}", words.backend_of, "localhost: how it analyses."),
    Flag(
        "startup_timeout",
        "ft-attribution-startup-timeout",
        "SECONDS",
        words.startup_timeout_of,
        f"localhost: how long it may take to be ready. [{STARTUP_SECONDS:g}]",
    ),
    Flag(
        "log_level", "ft-attribution-log-level", "LEVEL", words.log_level_of, "localhost: DEBUG, INFO or WARNING."
    ),
    Flag(
        "export_url",
        "ft-attribution-export-url",
        "URL",
        words.export_url_of,
        "localhost: where results are posted.",
    ),
)
"""Every flag, in the order in which a person is told of them."""
KEYS: Keys = {flag.key: (flag.field, flag.read) for flag in FLAGS}
"""The keys of ft_launcher's file. Of these NVRx itself has endpoint, stop action and export URL."""
_FLAG_OF = {flag.field: flag for flag in FLAGS}


def settings_of(
    flags: Mapping[str, object], file: Mapping[str, Any], environ: Mapping[str, str]
) -> AttributionSettings:
    """Return what flags and a file tell together. A flag counts before the file, an empty one too.

    `flags` holds those that were given, as they were, and `file` what was read from there (see ft_cfg.told_by);
    both by fields. Raises FlagError.
    """
    told = dict(file)
    for field, value in flags.items():
        flag = _FLAG_OF[field]
        try:
            told[field] = flag.read(value)
        except ValueError as error:
            raise FlagError(f"{flag.options[0]}: {error}") from error
    told["key_file"] = told.get("key_file") or environ.get(KEY_FILE_VARIABLE, "")
    settings = AttributionSettings(**told)
    for field, wanted in (("endpoint", settings.endpoint), ("launcher_log", settings.launcher_log)):
        if wanted and not settings.applog_prefix:
            raise FlagError(
                f"{_option(field)} needs {_option('applog_prefix')}: what is in these logs is analysed"
            )
    if settings.export_url and not settings.is_managed:
        raise FlagError(
            f"{_option('export_url')} is for a service of the job's own: {_option('endpoint')} {MANAGED}"
        )
    return settings


def _option(field: str) -> str:
    return _FLAG_OF[field].options[0]

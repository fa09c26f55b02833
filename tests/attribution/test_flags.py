"""What flags, NVRx's file and the environment say of attribution; and that NVRx's own code reads them so."""

from __future__ import annotations

import importlib
import re
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from segment_health import ft_cfg
from segment_health.attribution import words
from segment_health.attribution.flags import (
    FLAGS,
    KEYS,
    AttributionSettings,
    FlagError,
    settings_of,
    without_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WHEEL = Path(__file__).parents[2] / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
PACKAGE = "nvidia_resiliency_ext"
URL = "http://attribution.example:8000"
PREFIX = "/logs/train.log"
SECRET = "nvapi-Pa55word"  # what must be quoted nowhere


class Nvrx:
    """NVRx's own reading of its flags and its file."""

    def __init__(self) -> None:
        self.manager = importlib.import_module(f"{PACKAGE}.fault_tolerance.attribution_manager")
        self.config = importlib.import_module(f"{PACKAGE}.fault_tolerance.config")
        self._arguments = importlib.import_module(f"{PACKAGE}.fault_tolerance.cli_args")
        self.no_restart_exit_code = self._arguments.DEFAULT_NO_RESTART_EXIT_CODE

    def parse(self, *line: str) -> Namespace:
        """Parse a command line, as ft_launcher does."""
        parser = ArgumentParser()
        self._arguments.add_attribution_args(parser)
        self._arguments.add_no_restart_args(parser)
        self._arguments.add_log_funnel_args(parser)
        return parser.parse_args(line)

    def read(self, line: list[str], section: dict[str, Any], prefix: str) -> Any:
        """Read flags and a section of the file; raises as NVRx does."""
        file = self.config.FaultToleranceConfig.from_kwargs(**section)
        return self.manager.AttributionConfig.from_args(self.parse(*line), prefix, file)


@pytest.fixture(scope="module")
def nvrx() -> Iterator[Nvrx]:
    """NVRx's modules, unmodified; bare packages stand for those that import torch."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for name in (PACKAGE, f"{PACKAGE}.fault_tolerance", f"{PACKAGE}.shared_utils"):
            package = ModuleType(name)
            package.__path__ = [str(WHEEL.joinpath(*name.split(".")))]
            patch.setitem(sys.modules, name, package)
        utils = ModuleType(f"{PACKAGE}.fault_tolerance.utils")
        text = WHEEL.joinpath(*utils.__name__.split(".")).with_suffix(".py").read_text()
        (code,) = re.findall(r"^DEFAULT_NO_RESTART_EXIT_CODE = ([0-9]+)$", text, re.MULTILINE)
        utils.__dict__["DEFAULT_NO_RESTART_EXIT_CODE"] = int(code)
        patch.setitem(sys.modules, utils.__name__, utils)
        yield Nvrx()
    for name in set(sys.modules) - before:
        if name.startswith(PACKAGE):
            del sys.modules[name]


ENDPOINTS = {
    "managed": "localhost",
    "managed-case": " LocalHost ",
    "http": URL,
    "http-address": "http://10.0.0.1:8000",
    "http-v6": "http://[2001:db8::1]:8000/base",
    "grpc": "grpc://attribution.example:50051",
    "unix": "unix:///run/attribution.sock",
    "nothing": " ",
    "http-no-port": "http://attribution.example",
    "grpc-no-port": "grpc://attribution.example",
    "http-bad-port": "http://attribution.example:99999",
    "http-word-port": "http://attribution.example:port",
    "bind-all": "http://0.0.0.0:8000",
    "bind-all-v6": "http://[::]:8000",
    "bind-all-bare": "0.0.0.0",
    "bare-name": "attribution.example",
    "bare-port": "localhost:50050",
    "no-host": "http://:8000",
    "no-socket": "unix://",
    "other-scheme": "ftp://attribution.example:21",
    "half-v6": "http://[::1:8000",
}


@pytest.mark.wheel
@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=ENDPOINTS)
@pytest.mark.parametrize("by", ["flag", "file"])
def test_an_endpoint_is_what_nvrx_takes_it_for(nvrx: Nvrx, endpoint: str, by: str, tmp_path: Path) -> None:
    """Managed, external, none or refused: NVRx and we say the same of each, told by flag and by file."""
    prefix = str(tmp_path / "train.log")
    line = ["--ft-attribution-endpoint", endpoint] if by == "flag" else []
    section = {"attribution_endpoint": endpoint} if by == "file" else {}
    theirs: Any = None
    try:
        theirs = nvrx.read(line, section, prefix)
    except ValueError as error:
        theirs = error
    flags = {"endpoint": endpoint} if by == "flag" else {}
    if isinstance(theirs, ValueError):
        with pytest.raises((FlagError, ft_cfg.FtCfgError)):
            settings_of({**flags, "applog_prefix": prefix}, _told(section), {})
        return
    ours = settings_of({**flags, "applog_prefix": prefix}, _told(section), {})
    assert (ours.is_enabled, ours.is_managed) == (theirs.is_enabled, theirs.is_managed)
    if theirs.is_enabled:
        assert ours.client_endpoint == theirs.client_endpoint.endpoint


def _told(section: dict[str, Any]) -> dict[str, Any]:
    lines = "\n".join(f"  {key}: '{value}'" for key, value in section.items())
    return ft_cfg.told_by(f"fault_tolerance:\n  other: 1\n{lines}\n".encode(), "ft.yaml", KEYS) or {}


@pytest.mark.wheel
@pytest.mark.parametrize("launcher_log", [None, "launcher.log", "deep/launcher.out"], ids=["none", "log", "other"])
@pytest.mark.parametrize("prefix", ["train.log", "train", "a.b.log"])
def test_the_service_log_is_where_nvrx_has_it(
    nvrx: Nvrx, tmp_path: Path, launcher_log: str | None, prefix: str
) -> None:
    """Beside the launcher's log and named by it, else in nvrx/ and named by the prefix."""
    flags = {"endpoint": "localhost", "applog_prefix": f"{tmp_path}/{prefix}"}
    line = ["--ft-attribution-endpoint", "localhost"]
    if launcher_log is not None:
        flags["launcher_log"] = f"{tmp_path}/{launcher_log}"
        line += ["--ft-nvrx-logfile", flags["launcher_log"]]
    theirs = nvrx.read(line, {}, flags["applog_prefix"])
    assert settings_of(flags, {}, {}).service_log == theirs.log_file


@pytest.mark.wheel
def test_every_flag_is_one_of_ft_launcher(nvrx: Nvrx) -> None:
    """Under both of its names ft_launcher parses it, to the same value; what is left out has its default."""
    values = {
        "endpoint": URL,
        "applog_prefix": PREFIX,
        "launcher_log": "/logs/launcher.log",
        "stop_action": "No-Restart",
        "no_restart_exit_code": "7",
        "key_file": "/k",
        "base_url": "https://llm.example/v1",
        "model": "a model",
        "backend": "LIB",
        "startup_timeout": "1.5",
        "log_level": "debug",
        "export_url": "https://export.example/x",
    }
    assert set(values) == {flag.field for flag in FLAGS}
    for flag in FLAGS:
        for option in flag.options:
            theirs = getattr(nvrx.parse(option, values[flag.field]), flag.name.replace("-", "_"))
            assert flag.read(values[flag.field]) == theirs, option


@pytest.mark.wheel
@pytest.mark.parametrize(
    ("line", "section", "accepted"),
    [
        pytest.param([], {"attribution_stop_action": " NO-RESTART "}, True, id="stop-file"),
        pytest.param(
            ["--ft-attribution-stop-action", "log"], {"attribution_stop_action": "x"}, True, id="flag-first"
        ),
        pytest.param([], {"attribution_stop_action": "stop"}, False, id="stop-wrong"),
        pytest.param(["--ft-attribution-export-url", "https://e.example/x"], {}, True, id="export"),
        pytest.param(["--ft-attribution-export-url", ""], {"attribution_export_url": "e"}, True, id="export-off"),
        pytest.param(["--ft-attribution-export-url", "e.example/x"], {}, False, id="export-half"),
        pytest.param(["--ft-attribution-export-url", "https://e.example/?k=1"], {}, False, id="export-query"),
        pytest.param(["--ft-attribution-export-url", "https://e.example/#f"], {}, False, id="export-fragment"),
        pytest.param(["--ft-attribution-startup-timeout", "0"], {}, False, id="timeout-none"),
        pytest.param(["--ft-attribution-startup-timeout", "-1"], {}, False, id="timeout-negative"),
    ],
)
def test_other_values_are_what_nvrx_takes_them_for(
    nvrx: Nvrx, line: list[str], section: dict[str, Any], accepted: bool, tmp_path: Path
) -> None:
    """With a managed service: which are taken, and to what. A wrong file we refuse where a flag counts, too."""
    prefix = str(tmp_path / "train.log")
    line = ["--ft-attribution-endpoint", "localhost", *line]
    fields = {option: flag.field for flag in FLAGS for option in flag.options}
    flags = {fields[option]: value for option, value in zip(line[::2], line[1::2], strict=True)}
    flags["applog_prefix"] = prefix
    if not accepted:
        with pytest.raises(ValueError, match="--ft-"):
            nvrx.read(line, section, prefix)
        with pytest.raises((FlagError, ft_cfg.FtCfgError)):
            settings_of(flags, _told(section), {})
        return
    theirs = nvrx.read(line, section, prefix)
    told = {} if set(flags) & {"stop_action", "export_url"} else _told(section)
    ours = settings_of(flags, told, {})
    assert (ours.stop_action, ours.export_url or None) == (theirs.stop_action, theirs.export_url)
    assert ours.startup_timeout == theirs.startup_timeout


@pytest.mark.wheel
def test_defaults_are_those_of_nvrx(nvrx: Nvrx) -> None:
    """What a line without flags means, and where a managed service listens."""
    settings = AttributionSettings(endpoint="localhost")
    theirs = nvrx.manager
    assert settings.startup_timeout == theirs.DEFAULT_ATTRIBUTION_STARTUP_TIMEOUT
    assert settings.stop_action == theirs.DEFAULT_ATTRIBUTION_STOP_ACTION
    assert settings.client_endpoint == theirs._managed_attribution_client_endpoint()
    assert settings.no_restart_exit_code == nvrx.no_restart_exit_code


def test_nothing_told_is_nothing_wanted() -> None:
    """Without flags and a file there is no attribution, and defaults are NVRx's."""
    settings = settings_of({}, {}, {})
    assert settings == AttributionSettings()
    assert not settings.is_enabled
    assert (settings.stop_action, settings.startup_timeout, settings.no_restart_exit_code) == ("log", 20.0, 93)
    assert not settings.enforces


def test_a_file_says_all_that_flags_say() -> None:
    """Every flag has a key in the section, and null is as if it were not there."""
    text = """
        a: [{fault_tolerance: {
            attribution_endpoint: LOCALHOST, per_cycle_applog_prefix: /logs/a.log, nvrx_logfile: /logs/l.log,
            attribution_stop_action: no-restart, no_restart_exit_code: 7, attribution_llm_api_key_file: ~/key,
            attribution_llm_base_url: 'https://llm.example/v1', attribution_llm_model: m,
            attribution_analysis_backend: lib, attribution_startup_timeout: 5, attribution_log_level: warning,
            attribution_export_url: 'https://e.example/x', rank_heartbeat_timeout: 60}}]
    """
    told = ft_cfg.told_by(text.encode(), "ft.yaml", KEYS)
    assert told is not None
    assert settings_of({}, told, {}) == AttributionSettings(
        endpoint="localhost",
        applog_prefix="/logs/a.log",
        launcher_log="/logs/l.log",
        key_file="~/key",
        base_url="https://llm.example/v1",
        model="m",
        backend="lib",
        log_level="WARNING",
        export_url="https://e.example/x",
        stop_action="no-restart",
        startup_timeout=5.0,
        no_restart_exit_code=7,
    )
    nulls = "\n".join(f"  {key}: null" for key in KEYS)
    told = ft_cfg.told_by(f"fault_tolerance:\n{nulls}\n".encode(), "ft.yaml", KEYS)
    assert told is not None
    assert settings_of({}, told, {}) == AttributionSettings()


def test_a_flag_counts_before_the_file() -> None:
    """An empty one too: it takes the endpoint of the file away."""
    file = {"endpoint": URL, "applog_prefix": PREFIX, "stop_action": "no-restart"}
    assert settings_of({"endpoint": "", "stop_action": "log"}, file, {}) == AttributionSettings(
        applog_prefix=PREFIX
    )


@pytest.mark.parametrize(
    ("flags", "environ", "path"),
    [
        ({"key_file": "/flag"}, {"LLM_API_KEY_FILE": "/variable"}, "/flag"),
        ({"key_file": ""}, {"LLM_API_KEY_FILE": "/variable"}, "/variable"),
        ({}, {"LLM_API_KEY_FILE": "/variable"}, "/variable"),
        ({}, {"LLM_API_KEY": "x"}, ""),
    ],
    ids=["flag", "empty-flag", "variable", "neither"],
)
def test_who_names_the_key_file(flags: dict[str, str], environ: dict[str, str], path: str) -> None:
    """The flag, else the variable; the key itself is never asked for."""
    assert settings_of(flags, {}, environ).key_file == path


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"endpoint": URL}, "--ft-attribution-endpoint needs --ft-per-cycle-applog-prefix"),
        ({"launcher_log": "/l"}, "--ft-nvrx-logfile needs --ft-per-cycle-applog-prefix"),
        ({"applog_prefix": "logs/a.log"}, "--ft-per-cycle-applog-prefix: not an absolute path: 'logs/a.log'"),
        ({"applog_prefix": "/logs/"}, "--ft-per-cycle-applog-prefix: names a directory"),
        ({"applog_prefix": "/logs/.."}, "--ft-per-cycle-applog-prefix: names a directory"),
        ({"launcher_log": "l.log", "applog_prefix": PREFIX}, "--ft-nvrx-logfile: not an absolute path"),
        (
            {"endpoint": URL, "applog_prefix": PREFIX, "export_url": "https://e.example/x"},
            "--ft-attribution-export-url is for a service of the job's own: --ft-attribution-endpoint localhost",
        ),
        ({"backend": "mcp"}, "--ft-attribution-analysis-backend: not lib: 'mcp'"),
        ({"backend": ""}, "--ft-attribution-analysis-backend: not lib: ''"),
        ({"stop_action": ""}, "--ft-attribution-stop-action: not log or no-restart: ''"),
        ({"log_level": "ERROR"}, "--ft-attribution-log-level: not DEBUG or INFO or WARNING"),
        (
            {"startup_timeout": "nan"},
            "--ft-attribution-startup-timeout: not a number of seconds above 0, up to a year: 'nan'",
        ),
        ({"startup_timeout": "1e10"}, "--ft-attribution-startup-timeout: not a number"),
        ({"startup_timeout": "inf"}, "--ft-attribution-startup-timeout: not a number"),
        ({"startup_timeout": "soon"}, "--ft-attribution-startup-timeout: not a number"),
        ({"no_restart_exit_code": "256"}, "--ft-no-restart-exit-code: not an exit status from 0 to 255: '256'"),
        ({"no_restart_exit_code": "-1"}, "--ft-no-restart-exit-code: not an exit status"),
        ({"no_restart_exit_code": "٩"}, "--ft-no-restart-exit-code: not an exit status"),
        ({"endpoint": "https://:443"}, "--ft-attribution-endpoint: a URL without a host"),
        ({"endpoint": "http://a.example:0"}, "--ft-attribution-endpoint: a URL without a port"),
        ({"endpoint": "http://a.example :80"}, "--ft-attribution-endpoint: a URL with a blank"),
        ({"endpoint": "http://a.exa\nmple:80"}, "--ft-attribution-endpoint: a URL with a blank"),
        (
            {"endpoint": "http://a.example:80/x?y"},
            "--ft-attribution-endpoint: a URL with a query (?) or a fragment",
        ),
        ({"endpoint": "https://a.example#x"}, "--ft-attribution-endpoint: a URL with a query (?) or a fragment"),
        ({"model": "a\0b"}, "--ft-attribution-llm-model: a text with a NUL"),
    ],
    ids=str,
)
def test_what_is_refused(flags: dict[str, str], complaint: str) -> None:
    """The complaint names the flag."""
    with pytest.raises(FlagError) as raised:
        settings_of(flags, {}, {})
    assert complaint in str(raised.value)


@pytest.mark.parametrize("endpoint", ["https://a.example", "https://a.example:8443/x", "https://u:p@a.example"])
def test_https_is_an_endpoint(endpoint: str) -> None:
    """NVRx refuses it, though its client could; it needs no port, and is kept as it was given."""
    settings = settings_of({"endpoint": endpoint, "applog_prefix": PREFIX}, {}, {})
    assert settings.client_endpoint == endpoint
    assert not settings.is_managed


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (words.startup_timeout_of, True),
        (words.startup_timeout_of, [1]),
        (words.startup_timeout_of, 10**400),
        (words.exit_code_of, True),
        (words.exit_code_of, 1.5),
        (words.text_of, False),
        (words.endpoint_of, 8000),
        (words.path_of, ["/a"]),
        (words.text_of, {"a": 1}),
    ],
    ids=str,
)
def test_what_only_a_file_can_say_wrong(read: Callable[[object], object], value: object) -> None:
    """Values of other types are refused, and not taken for words."""
    with pytest.raises(ValueError, match="not a"):
        read(value)


@pytest.mark.parametrize(
    "flags",
    [
        {"endpoint": f"http://user:{SECRET}@attribution.example"},
        {"endpoint": f"ftp://{SECRET}@attribution.example"},
        {"endpoint": f"http://{SECRET}:{SECRET}:1"},
        {"endpoint": SECRET},
        {"export_url": f"https://e.example/?key={SECRET}"},
        {"export_url": f"{SECRET}"},
        {"base_url": f"https://llm.example/ {SECRET}"},
        {"key_file": f"{SECRET}\0"},
        {"model": f"{SECRET}\0"},
    ],
    ids=range(9),
)
def test_no_complaint_quotes_what_may_be_a_secret(flags: dict[str, str]) -> None:
    """URLs may hold passwords, and some give the key where its file is asked for."""
    with pytest.raises(FlagError) as raised:
        settings_of({"applog_prefix": PREFIX, **flags}, {}, {})
    assert SECRET not in str(raised.value)


def test_a_workload_gets_no_key() -> None:
    """Neither the key nor where it is; all else stays."""
    environ = {
        "LLM_API_KEY": "x",
        "LLM_API_KEY_FILE": "/k",
        "LLM_API_KEY_2": "y",
        "LLM_MODEL": "m",
        "PATH": "/bin",
    }
    assert without_key(environ) == {"LLM_MODEL": "m", "PATH": "/bin"}

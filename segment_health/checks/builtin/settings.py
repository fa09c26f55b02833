"""What the built-in checks are told: the mapping `builtin:` in nvhcd's configuration."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError

from segment_health import toml, values, yaml
from segment_health.checks import wanted
from segment_health.record import brief

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_FILE = 1 << 20
"""Bytes of a configuration that are read."""
SECTION = "builtin"
DEFAULT_SECONDS = 55.0
"""The time of a health check where the configuration names none, for the answer to be there before NVRx's client
gives up at 60."""
_MAX_QUOTED = 200
_ENDING_SECONDS = 5.0
"""What is left of nvhcd's time for the answer: what it has to kill knows nothing."""

_Path = Annotated[StrictStr, AfterValidator(values.absolute)]


class ConfigError(ValueError):
    """A configuration that cannot be meant so; one line, which names the file and the key."""


class Builtin(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paths: Annotated[tuple[str, ...], BeforeValidator(wanted.paths_of)] = ()
    """Files and directories that `paths` reads: a list, or a text with commas between them."""
    storage_types: Annotated[tuple[Annotated[StrictStr, Field(min_length=1)], ...], Field(min_length=1)] = (
        "lustre",
        "nfs",
        "nfs4",
    )
    """Types of the file systems that `storage` looks at, as /proc/self/mountinfo has them."""
    segment_health_check_dir: Annotated[str, BeforeValidator(wanted.directory_of)] = ""
    """Decision directory in which `segment` looks."""
    policy: _Path | None = None
    """Policy file by which `slurm` judges; else the contract's table."""
    publish_at: Literal["PreSeparateFault", "SeparateFault"] | None = None
    """The level from which on `slurm` calls the node unhealthy. Counts before the policy file."""
    node_name: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    """NodeName of this node; else SLURMD_NODENAME, else the host's name up to its first dot."""
    slurm_conf: _Path | None = None
    slurm_bin_dir: _Path | None = None
    """As for `publish`."""
    nhc: _Path = "/usr/sbin/nhc"
    """LBNL Node Health Check."""


Seconds = Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)]


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")  # the others are nvhcd's, which refuses what it does not know

    timeout: Seconds = DEFAULT_SECONDS
    builtin: Builtin = Builtin()


def load(path: str) -> tuple[Builtin, float]:
    """Read nvhcd's configuration: what the checks are told, and how many seconds they have. Raises ConfigError."""
    try:
        content = toml.content_of(path, MAX_FILE)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise ConfigError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from error
    return parse(content, path)


def parse(content: bytes, path: str) -> tuple[Builtin, float]:
    """Read what stands in nvhcd's configuration. Raises ConfigError."""
    try:
        document = yaml.read(content)
    except yaml.NotYaml as error:
        raise ConfigError(f"{path}:{error.line}: {error}" if error.line else f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a mapping of keys to values")
    told = told_by(document, path)
    return told.builtin, told.timeout - min(_ENDING_SECONDS, told.timeout / 10)


def told_by(document: dict[Any, Any], path: str) -> _File:
    """Take what is ours of a configuration. Raises ConfigError."""
    told = {key: document[key] for key in _File.model_fields if document.get(key) is not None}  # `builtin:` alone
    try:
        return _File.model_validate(told)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_explained(error)}") from error


def require(names: Collection[str], told: Builtin, path: str) -> None:
    """Refuse checks that lack what they need: ConfigError."""
    if "segment" in names and not told.segment_health_check_dir:
        raise ConfigError(f"{path}: builtin.segment_health_check_dir: `segment` needs a decision directory")
    if "paths" in names and not told.paths:
        raise ConfigError(f"{path}: builtin.paths: `paths` has none to look at")


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])[:_MAX_QUOTED]
        nearest = difflib.get_close_matches(word, Builtin.model_fields, n=1, cutoff=0)[0]
        return f"unknown key {brief(key, _MAX_QUOTED)}; the nearest known one is {nearest}"
    return f"{brief(key, _MAX_QUOTED)}: {brief(first['msg'].removeprefix('Value error, '), _MAX_QUOTED)}"

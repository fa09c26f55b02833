"""nvhcd's configuration: the keys of seed 001's sample, and our own beside them. Pure.

It is YAML, `key: value` a line. A key that nobody knows is refused, since it is a slip of the finger that would
otherwise go unnoticed.
"""

from __future__ import annotations

import difflib
import grp
import pwd
import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError

from segment_health import address, values, yaml
from segment_health.checks.builtin import NAMES
from segment_health.checks.builtin.settings import (
    DEFAULT_SECONDS,
    SECTION,
    Builtin,
    ConfigError,
    Seconds,
    require,
    told_by,
)
from segment_health.record import brief, printable

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT_SECONDS = 60.0
"""After which NVRx's client gives up on a call, and takes the node for healthy."""
ANSWER_SECONDS = 2.0
"""What a call may take beside the program: its start, its end by force, the way there and back."""
BUILTIN = "builtin:"
_MAX_QUOTED = 200
_NO_ID = (1 << 32) - 1
"""What chown(2) takes for "as it is"; no user and no group has it."""


def _program(text: str) -> str:
    """Take an absolute path, or `builtin:NAME,NAME`."""
    if not text.startswith(BUILTIN):
        if not text.startswith("/") or "\0" in text:
            raise ValueError(f"neither an absolute path nor {BUILTIN}NAME[,NAME...]")
        return text
    for name in builtins_of(text):
        if name not in NAMES:
            raise ValueError(f"no built-in check {brief(name, 40)!a}; there are {', '.join(NAMES)}")
    return text


def builtins_of(text: str) -> tuple[str, ...]:
    """Return the built-in checks that a `healthcheck_path` names; none where it is a path."""
    if not text.startswith(BUILTIN):
        return ()
    return tuple(name.strip() for name in text.removeprefix(BUILTIN).split(","))


def _socket_path(text: str) -> str:
    """Take a path that a UNIX socket can have."""
    address.parse(f"unix:{values.absolute(text)}")
    if text.endswith("/"):
        raise ValueError("the path of a directory")
    if "," in text:
        raise ValueError("has a comma, which ends a path for gRPC's clients")
    return text


def _mode(value: object) -> int:
    """Take `"0660"`: without quotes YAML reads 0660 as 432, and 660 as 660, and who knows what was meant."""
    if not isinstance(value, str) or re.fullmatch(r"(0|0o)?[0-7]{3}", value) is None:
        raise ValueError('not a mode in quotes, such as "0660"')
    return int(value.removeprefix("0o"), 8)


def _id_of(kind: str, find: Callable[[str], int]) -> Callable[[object], int]:
    """Take the name or the number of a user, or a group."""

    def take(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NO_ID:
            return value
        try:
            return find(str(value))
        except (KeyError, ValueError):
            raise ValueError(f"no such {kind}") from None

    return take


_User = Annotated[int, BeforeValidator(_id_of("user", lambda name: pwd.getpwnam(name).pw_uid))]
_Group = Annotated[int, BeforeValidator(_id_of("group", lambda name: grp.getgrnam(name).gr_gid))]


class Config(BaseModel):
    """What the daemon is told. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    socket_path: Annotated[StrictStr, AfterValidator(_socket_path)]
    """Where launchers ask. Read at the start alone, as all that is said of the socket."""
    healthcheck_path: Annotated[StrictStr, AfterValidator(_program)]
    """The program that checks this node; `builtin:storage,paths` are checks of ours."""
    log_level: Literal["debug", "info", "warn", "warning", "error"] = "info"
    timeout: Seconds = DEFAULT_SECONDS
    """Seconds that the program may take."""
    cache: Annotated[float, Field(strict=True, ge=0, le=3600, allow_inf_nan=False)] = 0.0
    """Seconds that an answer is given again, from its end. None: a launcher asks because something may just have
    broken, and those who ask at the same moment share one run anyhow."""
    max_programs: Annotated[int, Field(strict=True, ge=1, le=256)] = 4
    """Programs at a time; they differ in their arguments, and further calls wait."""
    socket_mode: Annotated[int, BeforeValidator(_mode)] = 0o666
    """Who may ask: jobs of any user, for a daemon that cannot be reached excludes nobody, and nobody notices."""
    socket_owner: _User | None = None
    socket_group: _Group | None = None
    builtin: Builtin = Builtin()
    """What the built-in checks are told. They read it again themselves, each time."""

    @property
    def needs_restart(self) -> tuple[object, ...]:
        """What a running daemon keeps as it began with it."""
        return (self.socket_path, self.socket_mode, self.socket_owner, self.socket_group)


def parse(content: bytes, path: str) -> Config:
    """Read a configuration; `path` is what it is called in messages. Raises ConfigError."""
    try:
        document = yaml.read(content)
    except yaml.NotYaml as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise ConfigError(f"{place}: {brief(str(error), _MAX_QUOTED)}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a mapping of keys to values")
    for key in document:
        if key not in Config.model_fields:
            nearest = difflib.get_close_matches(str(key)[:_MAX_QUOTED], Config.model_fields, n=1, cutoff=0)[0]
            raise ConfigError(f"{path}: unknown key {_quoted(key)}; the nearest known one is {nearest}")
    builtin = told_by({SECTION: document.get(SECTION)}, path).builtin
    try:
        config = Config.model_validate({**document, SECTION: builtin})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            raise ConfigError(f"{path}: {key} is missing") from error
        raise ConfigError(f"{path}: {key}: {problem}, got {_quoted(document[key])}") from error
    require(builtins_of(config.healthcheck_path), config.builtin, path)
    return config


def remarks(config: Config) -> tuple[str, ...]:
    """Return what a person should know of a configuration that is taken as it is."""
    if config.timeout + ANSWER_SECONDS <= CLIENT_SECONDS:
        return ()
    told = (
        f"timeout: {config.timeout:g} s, but NVRx's client gives up after {CLIENT_SECONDS:g} s and treats the "
        f"node as healthy: a check that takes longer than that excludes nobody"
    )
    return (f"{told}. {Config.model_fields['timeout'].default:g} s leaves time for the answer",)


def _quoted(value: object) -> str:
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; a list in itself
        return "something absurd"
    return brief(printable(text), _MAX_QUOTED)

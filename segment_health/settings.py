"""Settings of the publisher: flag, then environment, then `--config` file (TOML), then default.

The field names below are the keys of the file, `--name-with-dashes` on the command line and
`SEGMENT_HEALTH_NAME` in the environment. The scope (`job`, `user`, `partition`, `all`) is one setting of four
keys: the first layer that names any of them decides alone, so that a flag never mixes with a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from . import scope as scopes
from . import values
from .bounded import bounded
from .policy import limits
from .record import brief
from .trust import stranger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

    from .scope import Scope

ENVIRONMENT_PREFIX = "SEGMENT_HEALTH_"
_NVRX_DIRECTORY = "NVRX_SEGMENT_HEALTH_CHECK_DIR"
_NOT_A_FIELD = frozenset({"SEGMENT_HEALTH_CONFIG"})
_SECRET = frozenset({"rest_jwt_file", "rest_url"})
"""Settings in whose place somebody may have put a token or a password: never repeated."""
_MAX_FILE = 1 << 20
"""Bytes of a settings file that are read."""
_MAX_QUOTED = 200
"""Characters of a wrong value that are repeated."""
_SCOPE_KEYS = ("job", "user", "partition", "all")


class SettingsError(Exception):
    """A setting is missing, unknown or wrong; nothing was done. One line, for a person."""


def _by(take: Callable[[object], object]) -> dict[str, Any]:
    """Say how a setting's value is taken: `take` gives what it means, or raises ValueError, a sentence."""
    return {"take": take}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a publisher is told, as `load` makes it: each field says how its value is taken."""

    dir: str | None = field(default=None, metadata=_by(values.text))
    """Decision directory: absolute, on storage that every launcher sees. Never created."""
    job: tuple[str, ...] = field(default=(), metadata=_by(values.ids))
    user: str | None = field(default=None, metadata=_by(values.name))
    partition: str | None = field(default=None, metadata=_by(values.name))
    all: bool = field(default=False, metadata=_by(values.truth))
    timeout: float = field(default=30.0, metadata=_by(values.number(above=0, most=3600)))
    """Seconds that Slurm may take to answer a pass's queries; a failover takes slurmctld up to 120."""
    interval: float = field(default=300.0, metadata=_by(values.number(least=5, most=86400)))
    """Seconds to the next pass. By it others judge whether this publisher lives (twice as long without a pass);
    300 is what slurmctld's administrators put up with from every job."""
    policy: str | None = field(default=None, metadata=_by(values.name))
    """Policy file (TOML), absolute or as seen from where the publisher starts: a site's rules above the contract's
    table of levels. Read again when it changes."""
    publish_at: Literal["PreSeparateFault", "SeparateFault"] | None = field(
        default=None, metadata=_by(values.one_of("PreSeparateFault", "SeparateFault"))
    )
    """The lowest level that excludes a unit. This and the next three count before what the policy file says."""
    clear_after: str | None = field(default=None, metadata=_by(values.clear_after))
    """Health that lifts an exclusion: `1 pass`, `3 passes` in a row, or a time such as `10m`."""
    max_new_exclusions: str | None = field(default=None, metadata=_by(values.max_new_exclusions))
    """Units that a pass may newly exclude, else it is held: a number, `10%` of the scope's units, `off`."""
    hold_passes: int | None = field(default=None, metadata=_by(values.whole(least=1, most=limits.MAX_HOLD_PASSES)))
    """Passes in a row that are held before new exclusions are published whatever their number."""
    noded_dir: str | None = field(default=None, metadata=_by(values.absolute))
    """Directory of NodeD's reports and configuration: a source of node faults beside Slurm."""
    noded_max_age: float | Literal["never"] = field(
        default=3600.0, metadata=_by(values.number_or_never(least=1, finite=True))
    )
    """Seconds after which a report of NodeD is stale: it writes anew every 1800. What is stale decides nothing."""
    noded_unknown_level: Literal["NotHandleFault", "PreSeparateFault", "SeparateFault"] = field(
        default="PreSeparateFault",
        metadata=_by(values.one_of("NotHandleFault", "PreSeparateFault", "SeparateFault")),
    )
    """The level of a fault code that NodeD's configuration does not list."""
    attribution_blame: str | None = field(default=None, metadata=_by(values.absolute))
    """Directory in which an attribution service leaves what logs say against nodes: one more source of faults."""
    blame_max_age: float = field(default=86400.0, metadata=_by(values.number(least=60, most=31536000)))
    """Seconds for which a blame counts; then the node is what Slurm says again."""
    blame_jobs: int = field(default=2, metadata=_by(values.whole(least=1, most=1000)))
    """Jobs whose logs blame a node before that counts for others than those jobs themselves."""
    storage_timeout: float = field(default=60.0, metadata=_by(values.number(least=1, most=3600)))
    """Seconds that shared storage may take: for all that a pass reads and writes there, and for each file that is
    read. A server that fails over is back within some tens of seconds; what hangs, a child process waits for."""
    allow_shared_dir: bool = field(default=False, metadata=_by(values.truth))
    """Publish for other users' jobs into a directory that others may write to: whoever can write there can exclude
    and un-exclude every unit."""
    precreate: bool = field(default=False, metadata=_by(values.truth))
    """Leave an empty artifact for each unit that has none: where a missing name is cached for longer than the size
    of a file (NFS) an exclusion is seen sooner."""
    stale_after: float | Literal["never"] = field(default=1800.0, metadata=_by(values.number_or_never(above=0)))
    """Seconds without a complete pass after which a running publisher lifts its exclusions; or `never`."""
    standby: bool = field(default=False, metadata=_by(values.truth))
    """Only publish while no other publisher of the scope lives: every task of a job may offer, one does."""
    on_separate: str | None = field(default=None, metadata=_by(values.command))
    """Command to run, once per generation, for a unit that reaches SeparateFault; words as a shell splits them."""
    log_format: Literal["text", "json"] = field(default="text", metadata=_by(values.one_of("text", "json")))
    metrics_file: str | None = field(default=None, metadata=_by(values.absolute))
    """File of this publisher alone for Prometheus' textfile collector, which reads `*.prom`; read at the start."""
    listen: str | None = field(default=None, metadata=_by(values.listen))
    """Where a running publisher serves its page and its metrics: a port of 127.0.0.1, HOST:PORT or unix:/path."""
    refresh_token_file: str | None = field(default=None, metadata=_by(values.absolute))
    """File of the token by which a pass may be asked for over HTTP; nobody but its owner can read it."""
    adopt: bool = field(default=False, metadata=_by(values.truth))
    """Take over artifacts that somebody else wrote; off, since they may be a person's decision."""
    source: Literal["auto", "text", "json", "rest", "pyslurm"] = field(
        default="auto", metadata=_by(values.one_of("auto", "text", "json", "rest", "pyslurm"))
    )
    """The door to Slurm: what its commands print as text or as JSON, slurmrestd, or libslurm through pyslurm.
    `auto` is pyslurm where that is installed and fits the Slurm that runs, else text."""
    cluster: str | None = field(default=None, metadata=_by(values.cluster))
    """Name of the cluster to ask, where that is not slurm.conf's own; of saved answers, what they do not tell."""
    slurm_conf: str | None = field(default=None, metadata=_by(values.absolute))
    """Path of the slurm.conf to use, as SLURM_CONF."""
    slurm_bin_dir: str | None = field(default=None, metadata=_by(values.absolute))
    """Directory of Slurm's commands, where they are not on PATH."""
    rest_url: str | None = field(default=None, metadata=_by(values.rest_url))
    """slurmrestd: `http://host:6820`, `https://host` or `unix:/run/slurmrestd/slurmrestd.socket`."""
    rest_jwt_file: str | None = field(default=None, metadata=_by(values.absolute))
    """File that holds a JSON web token for slurmrestd and nothing else, read at every pass; else SLURM_JWT."""
    nodes_from: str | None = field(default=None, metadata=_by(values.text))
    jobs_from: str | None = field(default=None, metadata=_by(values.text))
    """Saved answers of any door instead of asking Slurm; `-` is standard input."""
    replay: str | None = field(default=None, metadata=_by(values.text))
    """A recording (`segment-health record`) instead of asking Slurm."""

    def saved_answers(self) -> tuple[str, str] | None:
        """Return the files to read nodes and jobs from instead of asking Slurm. Raises SettingsError."""
        if self.nodes_from and self.jobs_from:
            return self.nodes_from, self.jobs_from
        if self.nodes_from or self.jobs_from:
            raise SettingsError(
                "--nodes-from and --jobs-from go together: saved nodes beside living jobs fit no instant"
            )
        return None

    def scope(self, own_job: str | None) -> Scope:
        """Return the scope asked for, or that of the job in which this runs. Raises SettingsError."""
        asked = [key for key in _SCOPE_KEYS if getattr(self, key)]
        if len(asked) > 1:
            raise SettingsError(f"scope: --{' and --'.join(asked)} exclude each other")
        try:
            if self.user:
                return scopes.of_user(self.user)
            if self.partition:
                return scopes.of_partition(self.partition)
            if self.all:
                return scopes.EVERYTHING
            jobs = self.job or ((own_job,) if own_job else ())
            if jobs:
                return scopes.of_jobs(jobs)
        except ValueError as error:
            raise SettingsError(f"scope: {error}") from error
        raise SettingsError("scope: outside a job, say whose units: --job ID, --user, --partition or --all")

    def guards(self, scope: Scope) -> bool:
        """Whether the decision directory must be ours alone: a scope of other people's jobs is theirs to trust."""
        return scope.kind in {"all", "partition"} and not self.allow_shared_dir

    def directory(self) -> str:
        """Return the decision directory, which is there. Raises SettingsError, and TimeoutError where it hangs."""
        return self.located()[0]

    def located(self, *, guarded: bool = False) -> tuple[str, str]:
        """Return the decision directory, which is there, and its real path.

        Raises SettingsError; a `guarded` one is refused where somebody else may write to it. TimeoutError where it
        does not answer.
        """
        path = self.named_directory()
        try:
            real, told = bounded(lambda: _looked_at(path, guarded=guarded), self.storage_timeout, path)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            cause = error.strerror if isinstance(error, OSError) else error
            remedy = "; it is never created, make it first" if isinstance(error, FileNotFoundError) else ""
            raise SettingsError(f"decision directory {path!a}: {cause}{remedy}") from error
        if told is not None:
            raise SettingsError(
                f"decision directory: {told}. Whoever can write there excludes and un-excludes everybody's units: "
                f"take that right away, or accept it with --allow-shared-dir"
            )
        return path, real

    def named_directory(self) -> str:
        """Return the path of the decision directory, whatever is there. Raises SettingsError."""
        path = self.dir
        if not path:
            raise SettingsError(
                f"no decision directory: give --dir, or set {ENVIRONMENT_PREFIX}DIR or {_NVRX_DIRECTORY}"
            )
        if not os.path.isabs(path):
            raise SettingsError(f"decision directory is not an absolute path: {path!a}")
        return path


FIELDS: Mapping[str, Callable[[object], object]] = {one.name: one.metadata["take"] for one in fields(Settings)}
"""Every setting, and how its value is taken."""


def _looked_at(path: str, *, guarded: bool) -> tuple[str, str | None]:
    """Return the real path of a directory that can be listed, and who else may write to it where that matters."""
    os.listdir(path)
    return os.path.realpath(path), stranger(path) if guarded else None


def load(flags: Mapping[str, object], environ: Mapping[str, str], config: str | None) -> Settings:
    """Put the layers together; `flags` holds what was given on the command line only. Raises SettingsError."""
    layers = [
        _from_flags(flags),
        _from_environment(environ),
        _from_file(config) if config else {},
    ]
    merged: dict[str, tuple[str, object]] = {}
    for layer in layers:
        scope_is_settled = any(key in merged for key in _SCOPE_KEYS)
        for key, told in layer.items():
            if key not in merged and not (scope_is_settled and key in _SCOPE_KEYS):
                merged[key] = told
    taken: dict[str, Any] = {}
    for key, take in FIELDS.items():
        if key in merged:
            told_by, value = merged[key]
            try:
                taken[key] = take(value)
            except ValueError as error:
                quoted = "" if key in _SECRET else f", got {_quoted(value)}"
                raise SettingsError(f"{told_by}: {error}{quoted}") from error
    return Settings(**taken)


def _from_flags(flags: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    layer = {key: (f"--{key.replace('_', '-')}", value) for key, value in flags.items()}
    for key, (name, _) in layer.items():
        _must_be_known(key, name, like=lambda known: f"--{known.replace('_', '-')}")
    return layer


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    layer: dict[str, tuple[str, object]] = {}
    if environ.get(_NVRX_DIRECTORY):
        layer["dir"] = (_NVRX_DIRECTORY, environ[_NVRX_DIRECTORY])
    for name, value in environ.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_A_FIELD and value:
            key = name[len(ENVIRONMENT_PREFIX) :].lower()
            _must_be_known(key, name, like=lambda known: ENVIRONMENT_PREFIX + known.upper())
            layer[key] = (name, value)
    return layer


def _from_file(path: str) -> dict[str, tuple[str, object]]:
    from . import toml  # noqa: PLC0415 - 10 ms that only who has such a file pays

    try:
        document = toml.read(toml.content_of(path, _MAX_FILE))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except toml.NotToml as error:
        place = f"{path}:{error.line}" if error.line else path
        raise SettingsError(f"{place}: {error}") from error
    for key in document:
        _must_be_known(key, f"{key!a} in {path}")
    return {key: (f"{key} in {path}", value) for key, value in document.items()}


def _must_be_known(key: str, shown: str, *, like: Callable[[str], str] = str) -> None:
    if key not in FIELDS:
        import difflib  # noqa: PLC0415 - 10 ms that only a mistake costs

        nearest = difflib.get_close_matches(key, FIELDS, n=1, cutoff=0)[0]
        told = brief(shown, _MAX_QUOTED)
        raise SettingsError(f"unknown setting {told}; the nearest known one is {like(nearest)}")


def _quoted(value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:  # a number of thousands of digits
        return "an absurd number"
    return brief(text, _MAX_QUOTED)

"""What commands before a launcher have in common: it finds all as it was, and they read its file."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from .failure import USAGE, Failure, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segment_health.ft_cfg import Keys

_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_READ_SECONDS = 30.0
"""How long YAML may take: a few lines of it can be made to mean a document of any size."""


def remark(line: str) -> None:
    """Say on stderr what is not the launcher's."""
    from segment_health.record import printable  # noqa: PLC0415 - who has nothing to say does without

    say(f"segment-health: {printable(line)}", err=True)


def file_of(path: str, keys: Keys) -> dict[str, Any]:
    """Read what ft_launcher's YAML says of these keys, by their fields. Raises Failure for one that is wrong."""
    from segment_health import ft_cfg  # noqa: PLC0415 - each command loads what it needs
    from segment_health.bounded import bounded  # noqa: PLC0415
    from segment_health.toml import content_of  # noqa: PLC0415

    try:
        content = content_of(path, ft_cfg.MAX_CONTENT)
        told = bounded(lambda: ft_cfg.told_by(content, path, keys), _READ_SECONDS, path)
    except ft_cfg.FtCfgError as error:
        raise Failure(str(error), USAGE) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        cause = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"{path}: cannot be read: {cause}", USAGE) from error
    if told is None:
        remark(f"{path}: no section {ft_cfg.SECTION}, so nothing of it counts")
    return told or {}


def become(command: tuple[str, ...], environ: Mapping[bytes, bytes], inherited: frozenset[str]) -> NoReturn:
    """Become the command: this process, with all that it came with. Raises Failure (126, 127) where that fails."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and who is executed inherits that
        signal.signal(ignored, signal.SIG_DFL)
    keep(inherited)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - this is what we are for
    except (OSError, ValueError) as error:  # ValueError: of a name without a letter
        raise cannot(command[0], error) from error


def cannot(name: str, error: OSError | ValueError) -> Failure:
    """Return what to end with where a command cannot be run: 127 for one that is not there, else 126."""
    if isinstance(error, FileNotFoundError | ValueError):
        return Failure(f"{name or repr('')}: command not found", _NOT_FOUND)
    return Failure(f"{name}: cannot be run: {error.strerror}", _NOT_EXECUTABLE)


def keep(inherited: frozenset[str]) -> None:
    """Leave open for a launcher what was open for us, and no more."""
    for number in descriptors() - inherited:
        with contextlib.suppress(OSError):  # that of the listing itself
            os.set_inheritable(int(number), False)


def descriptors() -> frozenset[str]:
    """Name the descriptors that are open; to be asked before anything is opened."""
    with contextlib.suppress(OSError):  # no /proc
        return frozenset(os.listdir("/proc/self/fd"))
    return frozenset()


def environment() -> dict[bytes, bytes]:
    """Return the environment as it came: in the C locale Python adds LC_CTYPE to it, or changes it (PEP 538)."""
    came: dict[bytes, bytes] = {}
    try:
        with open("/proc/self/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                name, found, value = entry.partition(b"=")
                if found:
                    came.setdefault(name, value)  # of two of one name the first counts, as getenv(3) has it
    except OSError:  # no /proc: as it is now
        return dict(os.environb)
    return came

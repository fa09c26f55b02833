"""Which checks a launcher is told to make, as NVRx's flags and files say it. Pure.

The words are those of NVRx 0.7.0 (fault_tolerance/launcher.py), so that one command line and one file mean the
same to ft_launcher and to us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from segment_health.ft_cfg import Keys

_YES = frozenset({"true", "1", "yes"})
_NO = frozenset({"false", "0", "no", ""})


class Wanted(NamedTuple):
    """The checks to make; as it stands, none.

    `segment_dir` is the decision directory, `storage_paths` are files and directories: absolute, all of them.
    `endpoint` is the UNIX socket of nvhcd. What is empty is not wanted.
    """

    segment_dir: str = ""
    storage: bool = False
    storage_paths: tuple[str, ...] = ()
    endpoint: str = ""


def directory_of(value: object) -> str:
    """Return a decision directory, or nothing where there is none. ValueError for one that is not absolute."""
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise ValueError(f"not a path: {value!r:.80}")  # noqa: TRY004 - a setting that is wrong
    return _absolute(value)


def is_yes(value: object) -> bool:
    """Tell what a boolean word means: true, 1 and yes, or false, 0, no and nothing, in any case. ValueError."""
    word = "" if value is None else str(value).strip().lower()
    if word not in _YES | _NO:
        raise ValueError(f"not one of true, 1, yes, false, 0, no: {value!r:.80}")
    return word in _YES


def paths_of(value: object) -> tuple[str, ...]:
    """Return the paths of a text with commas between them, or of a list. ValueError for one that is not absolute.

    Blanks around a path are no part of it, and what is empty is none.
    """
    if isinstance(value, str):
        value = value.split(",")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(f"neither a text with commas between paths nor a list of paths: {value!r:.80}")  # noqa: TRY004
    paths = []
    for part in value:
        if part is not None and not isinstance(part, str):
            raise ValueError(f"not a path: {part!r:.80}")
        if part and part.strip():
            paths.append(_absolute(part.strip()))
    return tuple(paths)


def _absolute(path: str) -> str:
    if "\0" in path:
        raise ValueError(f"not a path: {path!r:.80}")
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r:.80}")
    return path


KEYS: Keys = {
    "segment_health_check_dir": ("segment_dir", directory_of),
    "enable_dist_storage_healthcheck": ("storage", is_yes),
    "storage_healthcheck_path": ("storage_paths", paths_of),
}
"""NVRx's keys in its file, by the fields of Wanted. nvhcd's endpoint has none there."""

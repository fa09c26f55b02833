"""The YAML file that NVRx's launcher is configured by: its section, and what is said there of us. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Keys = Mapping[str, tuple[str, Callable[[object], Any]]]
    """Keys of the section: which field of ours each is, and how it is read. A reader raises ValueError."""

SECTION = "fault_tolerance"
MAX_CONTENT = 1 << 20
"""Bytes of such a file."""


class FtCfgError(ValueError):
    """A file that cannot be meant so; one line, for a person."""


def told_by(content: bytes, path: str, keys: Keys) -> dict[str, Any] | None:
    """Return what a file says, by the fields that `keys` names; None where it has no section `fault_tolerance`.

    As NVRx does, keys that are not asked for are passed over, and so is a section that says nothing. Raises
    FtCfgError.
    """
    try:
        section = _section_of(yaml.read(content))
    except yaml.NotYaml as error:
        raise FtCfgError(f"{path}:{error.line}: {error}" if error.line else f"{path}: {error}") from error
    if section is None:
        return None
    if not isinstance(section, dict):
        raise FtCfgError(f"{path}: {SECTION} is no mapping of keys to values")
    told = {}
    for key, (field, read) in keys.items():
        if key in section:
            try:
                told[field] = read(section[key])
            except ValueError as error:
                raise FtCfgError(f"{path}: {SECTION}.{key}: {error}") from error
    return told


def _section_of(document: object) -> object:
    """Find the first section that says something, at whatever depth, in the order of the file; else None.

    What an alias repeats is looked at once: a few lines of them are a tree of any size, or one without end.
    """
    seen: set[int] = set()
    left = [document]
    while left:
        value = left.pop()
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            left.extend(reversed(value))
        elif SECTION not in value:
            left.extend(reversed(value.values()))
        elif value[SECTION]:
            return value[SECTION]
    return None

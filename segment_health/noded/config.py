"""NodeD's configuration: which fault code has which level. Pure.

Upstream takes what it does not understand for an empty list, and then every fault for none. Here a configuration
is understood whole or refused.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from segment_health.level import FaultLevel

from . import wire

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FILE = "NodeDConfiguration.json"
"""The file of NodeD's image, and the key of the ConfigMap that overrides it."""
OVERRIDE = "mindx-dl-node-fault-config"
"""The ConfigMap that overrides it."""

_ROOT = "FaultTypeCode"
_LISTS = {f"{level.name}Codes": level for level in FaultLevel}
_CODE = re.compile(r"[0-9A-Fa-f]{8}")


class ConfigurationError(ValueError):
    """A configuration is there and cannot be used: `path` says which, `problem` why. One line, for a person."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[str, str]]:
        """Pickle it: it is raised in a child process (see segment_health.bounded)."""
        return type(self), (self.path, self.problem)


def parse(content: bytes, path: str) -> Mapping[str, FaultLevel]:
    """Return the level of each fault code, by its eight upper-case hexadecimal digits.

    `path` names the configuration in messages. Names of members may be of any case, as for Go, codes too; a list
    that is empty, null or missing has no code. Raises ConfigurationError for anything that upstream reads as less
    than it says: names that nobody knows, codes that are none, a code in two lists, no code at all.
    """
    try:
        root = _known(wire.loads(content), (_ROOT,), "the configuration")
        return _levels(_known(root.get(_ROOT), _LISTS, _ROOT))
    except ValueError as error:
        raise ConfigurationError(path, str(error)) from error


def is_code(text: str) -> bool:
    """Tell whether a text is eight hexadecimal digits."""
    return _CODE.fullmatch(text) is not None


def _known(value: object, names: Collection[str], where: str) -> Mapping[str, Any]:
    if value is None:
        raise ValueError(f"{where} is missing")
    found, unknown = wire.members(value, names, where)
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], names, n=1, cutoff=0)[0]
        raise ValueError(f"unknown member {_shown(unknown[0])} of {where}; the nearest known one is {nearest}")
    return found


def _levels(lists: Mapping[str, Any]) -> Mapping[str, FaultLevel]:
    listed: dict[str, str] = {}
    for name in _LISTS:
        for told in wire.items(lists.get(name), name) or ():
            code = _code(told, name)
            if listed.setdefault(code, name) != name:
                raise ValueError(f"code {code} is in {listed[code]} and in {name}")
    if not listed:
        raise ValueError(f"no code in any list of {_ROOT}: every fault would count for nothing")
    return {code: _LISTS[name] for code, name in listed.items()}


def _code(told: object, name: str) -> str:
    if not isinstance(told, str) or isinstance(told, wire.Number) or not is_code(told):
        what = _shown(told) if isinstance(told, str) else "something that is no string"
        raise ValueError(f"{what} in {name} is not a code, which is a string of 8 hexadecimal digits")
    return told.upper()


def _shown(told: str) -> str:
    return f"`{wire.shown(told)}`"

"""JSON as Go's encoding/json reads and writes it, as far as NodeD's files need it. Pure.

Go's reader takes member names whatever their case, passes over members that it does not know, takes null for the
zero value, and puts U+FFFD in the place of bytes and escapes that are no text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from segment_health.record import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_BYTES = 1024 * 1024
"""What a ConfigMap may hold. Nothing larger is a report or a configuration."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile('["\\\\<>&\u2028\u2029\x00-\x1f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SHORT_SINCE_1_22 = _SHORT | {"\b": "\\b", "\f": "\\f"}


class Number(str):
    """A number as it is written: in members that nobody asks for, Go takes any."""

    __slots__ = ()


class Object(list[tuple[str, Any]]):
    """The members of an object in their order, those that stand there twice too."""

    __slots__ = ()


def loads(content: bytes) -> Any:
    """Read JSON, objects as Object and numbers as Number. Raises ValueError for what Go refuses, and too large."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    try:
        # Each byte that is no text becomes one lone surrogate, and so one U+FFFD, as in Go.
        return json.loads(
            content.decode("utf-8", "surrogateescape"),
            object_pairs_hook=Object,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("not JSON: nested too deep") from error


def members(value: object, known: Collection[str], where: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return an object's members by their known names, and the names that are not known; null has no member.

    Raises ValueError where it is no object, and where a member stands twice: which of them counts depends on
    who reads.
    """
    if value is None:
        return {}, []
    if not isinstance(value, Object):
        raise _is_not("an object", where)
    names = {_folded(name): name for name in known}
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for key, told in value:
        name = names.get(_folded(key))
        if name is None:
            unknown.append(key)
        elif name in found:
            raise ValueError(f"{name} is there twice")
        else:
            found[name] = told
    return found, unknown


def text(value: object, where: str) -> str:
    """Return a string; null is an empty one. Raises ValueError."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Number):
        raise _is_not("a string", where)
    return valid(value)


def items(value: object, where: str) -> list[Any] | None:
    """Return a list; null is none at all. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, list) or isinstance(value, Object):
        raise _is_not("a list", where)
    return value


def integer(value: object, where: str) -> int:
    """Return an integer of 64 bits; null is 0. Raises ValueError, for 1.0 and 1e3 too."""
    if value is None:
        return 0
    if not isinstance(value, Number) or re.fullmatch(r"-?[0-9]{1,19}", value) is None:
        raise _is_not("an integer of 64 bits", where)
    return in_64_bits(int(value), where)


def in_64_bits(number: int, where: str) -> int:
    """Return a number that an int64 can hold. Raises ValueError."""
    if not -(2**63) <= number < 2**63:
        raise _is_not("an integer of 64 bits", where)
    return number


def valid(told: str) -> str:
    """Put U+FFFD in the place of each half of a surrogate pair, as Go's reader does."""
    return _LONE_SURROGATE.sub("\ufffd", told)


def quoted(told: str, *, short: bool = True) -> str:
    r"""Write a string as json.Marshal does; `short` is \b and \f, which Go writes since 1.22."""
    table = _SHORT_SINCE_1_22 if short else _SHORT
    escaped = _ESCAPED.sub(lambda found: table.get(found[0]) or f"\\u{ord(found[0]):04x}", valid(told))
    return f'"{escaped}"'


def shown(told: str, limit: int = 32) -> str:
    """Return text from outside, short and without what moves a cursor, for a message or a name."""
    return printable(told if len(told) <= limit else told[: limit - 3] + "...")


def _folded(name: str) -> str:
    """Fold the case of a member's name as Go does, for which long s is an s, and the Kelvin sign a k."""
    return name.replace("\u017f", "s").lower()


def _is_not(what: str, where: str) -> ValueError:
    return ValueError(f"{where} is not {what}")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"not JSON: {constant} is no number")

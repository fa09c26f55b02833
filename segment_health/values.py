"""What single settings may hold: each function takes what was written, or raises ValueError, a sentence. Pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from .policy import limits

if TYPE_CHECKING:
    from collections.abc import Callable

_TRUTHS = {"1": True, "on": True, "t": True, "true": True, "y": True, "yes": True} | {
    "0": False, "off": False, "f": False, "false": False, "n": False, "no": False
}  # fmt: skip
_WHOLE = r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?"
_MAX_COMMAND = 10_000
"""Characters of a command: shlex needs time by the square of a word, a minute for 1 MB."""


def ids(value: object) -> object:
    """Take `123`, `"123"`, `"123,140"` and lists of them for the ids that they are."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(part.strip() for item in values for part in str(item).split(","))


def text(value: object) -> str:
    """Take a string."""
    if not isinstance(value, str):
        raise ValueError("Input should be a valid string")  # noqa: TRY004 - ValueError is what every function raises
    return value


def name(value: object) -> str:
    """Take a string that is not empty, and is text."""
    found = text(value)
    if not found:
        raise ValueError("String should have at least 1 character")
    if any("\ud800" <= letter <= "\udfff" for letter in found):  # bytes of a command line that are no UTF-8
        raise ValueError("Input should be a valid string, unable to parse raw data as a unicode string")
    return found


def one_of(*words: str) -> Callable[[object], str]:
    """Take one of these words, as it is written."""
    shown = [repr(word) for word in words]

    def take(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"Input should be {', '.join(shown[:-1])} or {shown[-1]}")
        return value

    return take


def truth(value: object) -> bool:
    """Take yes or no: a boolean, 1 or 0, or a word for them."""
    found = None
    if isinstance(value, str):
        found = _TRUTHS.get(value.lower())
    elif isinstance(value, int | float) and value in {0, 1}:
        found = bool(value)
    if found is None:
        why = ", unable to interpret input" if isinstance(value, str | int) else ""
        raise ValueError(f"Input should be a valid boolean{why}")
    return found


def number(
    *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf, finite: bool = False
) -> Callable[[object], float]:
    """Take a number, or a text that is one, within these bounds; NaN is within none."""

    def take(value: object) -> float:
        found = _number(value)
        if finite and not math.isfinite(found):
            raise ValueError("Input should be a finite number")
        if most < math.inf and not found <= most:
            raise ValueError(f"Input should be less than or equal to {most}")
        if above > -math.inf and not found > above:
            raise ValueError(f"Input should be greater than {above}")
        if least > -math.inf and not found >= least:
            raise ValueError(f"Input should be greater than or equal to {least}")
        return found

    return take


def number_or_never(
    *, above: float = -math.inf, least: float = -math.inf, finite: bool = False
) -> Callable[[object], float | str]:
    """Take a number as above, or the word `never`."""
    take = number(above=above, least=least, finite=finite)
    return lambda value: value if value == "never" and isinstance(value, str) else take(value)


def whole(*, least: int, most: int) -> Callable[[object], int]:
    """Take an integer, or a text that is one, within these bounds."""

    def take(value: object) -> int:
        found = _whole(value)
        if found > most:
            raise ValueError(f"Input should be less than or equal to {most}")
        if found < least:
            raise ValueError(f"Input should be greater than or equal to {least}")
        return found

    return take


def _number(value: object) -> float:
    if isinstance(value, str):
        told = value.strip()
        if told.isascii():  # float() also reads the digits of other scripts
            try:
                return float(told)
            except ValueError:
                pass
        raise ValueError("Input should be a valid number, unable to parse string as a number")
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            pass
    raise ValueError("Input should be a valid number")


def _whole(value: object) -> int:
    if isinstance(value, str):
        told = value.strip()
        if re.fullmatch(_WHOLE, told) is None:
            raise ValueError("Input should be a valid integer, unable to parse string as an integer")
        try:
            return int(told.partition(".")[0])
        except ValueError:  # thousands of digits
            raise ValueError("Unable to parse input string as an integer, exceeded maximum size") from None
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        raise ValueError("Input should be a valid integer")  # noqa: TRY004 - as above
    if not math.isfinite(value):
        raise ValueError("Input should be a finite number")
    if not value.is_integer():
        raise ValueError("Input should be a valid integer, got a number with a fractional part")
    return int(value)


def absolute(value: object) -> str:
    """Take an absolute path."""
    path = text(value)
    if not path.startswith("/"):
        raise ValueError("not an absolute path")
    return path


def rest_url(value: object) -> str:
    """Take the address of a slurmrestd."""
    url = text(value)
    if re.fullmatch(r"https?://[^/@\s]+/?|unix:(//)?/\S+", url) is None:
        raise ValueError("not http://host:port, https://host or unix:/path (a password has no place in it)")
    return url


def cluster(value: object) -> str:
    """Take the name of a cluster."""
    found = text(value)
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", found) is None:
        raise ValueError("not the name of a cluster")
    return found.lower()  # as slurmctld does with ClusterName


def clear_after(value: object) -> str:
    """Take what lifts an exclusion: passes, or a time."""
    health = text(value)
    limits.clear_after(health)
    return health


def max_new_exclusions(value: object) -> str:
    """Take a number of new exclusions, a part, or `off`."""
    told = str(value)  # a number, in a file
    limits.max_new_exclusions(told)
    return told


def command(value: object) -> str:
    """Refuse what cannot be split into the words of a command."""
    import shlex  # noqa: PLC0415 - few settings name a command

    line = text(value)
    if len(line) > _MAX_COMMAND or "\0" in line or not shlex.split(line):
        raise ValueError("not a command")
    return line


def listen(value: object) -> str:
    """Take an address to listen at."""
    from . import address  # noqa: PLC0415 - ipaddress: 5 ms that only who listens pays

    told = str(value)  # a port, in a file
    address.parse(told)
    return told

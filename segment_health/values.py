"""What single settings may hold: each function takes what was written, or raises ValueError, a sentence. Pure."""

from __future__ import annotations

import re
import shlex

from . import address as addresses
from .policy import limits

_MAX_COMMAND = 10_000
"""Characters of a command: shlex needs time by the square of a word, a minute for 1 MB."""


def ids(value: object) -> object:
    """Take `123`, `"123"`, `"123,140"` and lists of them for the ids that they are."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(part.strip() for item in values for part in str(item).split(","))


def absolute(text: str) -> str:
    """Take an absolute path."""
    if not text.startswith("/"):
        raise ValueError("not an absolute path")
    return text


def rest_url(text: str) -> str:
    """Take the address of a slurmrestd."""
    if re.fullmatch(r"https?://[^/@\s]+/?|unix:(//)?/\S+", text) is None:
        raise ValueError("not http://host:port, https://host or unix:/path (a password has no place in it)")
    return text


def cluster(text: str) -> str:
    """Take the name of a cluster."""
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text) is None:
        raise ValueError("not the name of a cluster")
    return text.lower()  # as slurmctld does with ClusterName


def clear_after(text: str) -> str:
    """Take what lifts an exclusion: passes, or a time."""
    limits.clear_after(text)
    return text


def max_new_exclusions(value: object) -> str:
    """Take a number of new exclusions, a part, or `off`."""
    text = str(value)  # a number, in a file
    limits.max_new_exclusions(text)
    return text


def command(text: str) -> str:
    """Refuse what cannot be split into the words of a command."""
    if len(text) > _MAX_COMMAND or "\0" in text or not shlex.split(text):
        raise ValueError("not a command")
    return text


def listen(value: object) -> str:
    """Take an address to listen at."""
    text = str(value)  # a port, in a file
    addresses.parse(text)
    return text

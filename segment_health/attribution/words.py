"""How the value of each flag is read. Pure; every reader takes what a file may hold too, and null.

Words and rules are those of NVRx 0.7.0 (fault_tolerance/attribution_manager.py); where we are stricter or wider
that is said. No complaint quotes a URL, or what was given for the key's file: either may hold a secret.
"""

from __future__ import annotations

import ipaddress
import posixpath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

MANAGED = "localhost"
"""The endpoint that asks for a service of the job's own."""
LOG, NO_RESTART = "log", "no-restart"
STARTUP_SECONDS = 20.0
MOST_SECONDS = 86400.0 * 365
"""The longest time that can be waited for: the system's calls count so far, and not much further."""
NO_RESTART_EXIT_CODE = 93
_STOP_ACTIONS = (LOG, NO_RESTART)
_BACKENDS = ("lib",)
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING")
_MAX_EXIT_CODE = 255
_SCHEMES = ("http", "https", "grpc", "unix")
_HAVE_A_PORT = ("http", "grpc")


def endpoint_of(value: object) -> str:
    """Return `localhost` in whatever case, or a URL as it stands; nothing where there is none. ValueError.

    A host of http and grpc has a port, as in NVRx; https, which NVRx refuses, needs none.
    """
    endpoint = url_of(value)
    if not endpoint or endpoint.lower() == MANAGED:
        return endpoint.lower()
    parts = _split(endpoint)
    if not parts.scheme:
        _refuse_bind_all(endpoint)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"neither {MANAGED} alone, nor a URL of {', '.join(_SCHEMES)}, such as http://host:port")
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("unix:// without the path of a socket")
        return endpoint
    if not parts.hostname:
        raise ValueError("a URL without a host")
    _refuse_bind_all(parts.hostname)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or (port is None and parts.scheme in _HAVE_A_PORT):
        raise ValueError("a URL without a port, from 1 to 65535")
    if parts.query or parts.fragment:
        raise ValueError("a URL with a query (?) or a fragment (#): a path is put behind it")
    return endpoint


def prefix_of(value: object) -> str:
    """Return the absolute path that names of logs begin with, or nothing. ValueError.

    One that ends in no name is refused: all that its parent directory holds would be the service's to read.
    """
    path = path_of(value)
    if path and posixpath.basename(path) in {"", ".", ".."}:
        raise ValueError(f"names a directory, and not how the logs' names begin: {path!r:.80}")
    return path


def path_of(value: object) -> str:
    """Return an absolute path, or nothing. ValueError."""
    path = text_of(value)
    if path and not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r:.80}")
    return path


def export_url_of(value: object) -> str:
    """Return a whole http or https URL without a query and a fragment, or nothing. ValueError."""
    url = url_of(value)
    if url:
        parts = _split(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("not a whole URL of http or https")
        if parts.query or parts.fragment:
            raise ValueError("a URL with a query (?) or a fragment (#): neither is sent")
    return url


def stop_action_of(value: object) -> str:
    """Return `log` or `no-restart`, given in any case. ValueError."""
    return LOG if value is None else _one_of(_STOP_ACTIONS, str(value).strip().lower())


def backend_of(value: object) -> str:
    """Return `lib`, or nothing. ValueError."""
    return "" if value is None else _one_of(_BACKENDS, str(value).strip().lower())


def log_level_of(value: object) -> str:
    """Return a level, or nothing. ValueError."""
    return "" if value is None else _one_of(_LOG_LEVELS, str(value).strip().upper())


def text_of(value: object) -> str:
    """Return a text, or nothing. ValueError, which does not quote it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"not a text but a {type(value).__name__}")  # noqa: TRY004 - a setting that is wrong
    if "\0" in value:
        raise ValueError("a text with a NUL")
    return value


def url_of(value: object) -> str:
    """Return a text without blanks and what nobody can see (parsers pass over both), or nothing. ValueError."""
    url = text_of(value).strip()
    if " " in url or not url.isprintable():
        raise ValueError("a URL with a blank in it, or with a character that nobody can see")
    return url


def startup_timeout_of(value: object) -> float:
    """Return seconds, more than none and not more than MOST_SECONDS. ValueError."""
    if value is None:
        return STARTUP_SECONDS
    try:
        seconds = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        seconds = 0.0
    if not 0 < seconds <= MOST_SECONDS:  # false of NaN too
        raise ValueError(f"not a number of seconds above 0, up to a year: {value!r:.80}")
    return seconds


def exit_code_of(value: object) -> int:
    """Return what a process can end with. ValueError: above 255 another status would be seen."""
    if value is None:
        return NO_RESTART_EXIT_CODE
    word = "" if isinstance(value, bool) else str(value).strip()
    if not (word.isascii() and word.isdigit() and len(word) < 4 and int(word) <= _MAX_EXIT_CODE):  # noqa: PLR2004
        raise ValueError(f"not an exit status from 0 to {_MAX_EXIT_CODE}: {value!r:.80}")
    return int(word)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ValueError("not a URL: its host is none") from error


def _refuse_bind_all(host: str) -> None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:  # a name, which the client resolves
        return
    if address.is_unspecified:
        raise ValueError(f"an address to listen on, and not one to be asked at; {MANAGED} starts a service here")


def _one_of(words: tuple[str, ...], word: str) -> str:
    if word not in words:
        raise ValueError(f"not {' or '.join(words)}: {word!r:.80}")
    return word

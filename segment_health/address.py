"""Where the page is served: `9400`, `:9400`, `host:9400`, `[::1]:9400` or `unix:/run/page.sock`. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
"""Where a port alone is: seen from this host only."""
_MAX_PATH = 107
"""Bytes of a UNIX socket's path: what the kernel has room for (unix(7))."""
_MAX_PORT = 65535
_ADDRESS = re.compile(
    r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):)?(?P<port>[0-9]{1,5})", re.ASCII
)


class Address(NamedTuple):
    """A TCP `host` and `port`, or the `path` of a UNIX socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether only this host's own programs reach it, over TCP."""
        return not self.path and (self.host == "localhost" or _is_loopback(self.host))

    @property
    def name(self) -> str:
        """Its host as a Host header names it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        """Where a person finds it."""
        return str(self) if self.path else f"http://{self}/"

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"{self.name}:{self.port}"


def parse(text: str) -> Address:
    """Read an address. Raises ValueError, with a sentence."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or "\0" in path:
            raise ValueError("not unix:/path, with an absolute path")
        if len(path.encode("utf-8", "surrogateescape")) > _MAX_PATH:
            raise ValueError(f"the path of a UNIX socket has at most {_MAX_PATH} bytes")
        return Address(path=path)
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
        raise ValueError("not PORT, HOST:PORT, [::1]:PORT or unix:/path")
    if match["v6"]:
        _must_be_v6(match["v6"])
    return Address(match["v6"] or match["host"] or LOOPBACK, int(match["port"]))


def _must_be_v6(text: str) -> None:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError("not an IPv6 address between the brackets") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

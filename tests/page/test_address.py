"""Addresses to listen at."""

from __future__ import annotations

import pytest

from segment_health import address
from segment_health.address import Address


@pytest.mark.parametrize(
    ("text", "found", "shown", "loopback"),
    [
        ("9400", Address("127.0.0.1", 9400), "http://127.0.0.1:9400/", True),
        (":9400", Address("127.0.0.1", 9400), "http://127.0.0.1:9400/", True),
        ("localhost:1", Address("localhost", 1), "http://localhost:1/", True),
        ("127.0.0.2:80", Address("127.0.0.2", 80), "http://127.0.0.2:80/", True),
        ("[::1]:9400", Address("::1", 9400), "http://[::1]:9400/", True),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535), "http://0.0.0.0:65535/", False),
        ("[::]:9400", Address("::", 9400), "http://[::]:9400/", False),
        ("login-1.example:9400", Address("login-1.example", 9400), "http://login-1.example:9400/", False),
        ("unix:/run/page.sock", Address(path="/run/page.sock"), "unix:/run/page.sock", False),
    ],
)
def test_what_is_an_address(text: str, found: Address, shown: str, loopback: bool) -> None:
    """A port alone is on loopback; a host, an IPv6 address in brackets and a UNIX socket are what they say."""
    assert address.parse(text) == found
    assert found.url == shown
    assert found.is_loopback is loopback


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "65536",
        "999999",
        "-1",
        "９４００",
        "host",
        "host:",
        "host:http",
        "::1:9400",
        "[::1]",
        "[nonsense]:9400",
        "[::1%eth0]:9400",
        "a b:9400",
        "http://localhost:9400",
        "user@host:9400",
        "unix:page.sock",
        "unix:",
        "unix:/a\0b",
        "unix:/" + "a" * 107,
        "9400\n",
    ],
)
def test_what_is_none(text: str) -> None:
    """Everything else is refused with a sentence."""
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        address.parse(text)

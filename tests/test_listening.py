"""Sockets to listen at."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from segment_health import listening
from segment_health.address import Address
from slurm.sandbox.processes import free_ports

if TYPE_CHECKING:
    from pathlib import Path


def test_a_port_in_use_is_refused() -> None:
    """Two publishers cannot serve at one port."""
    address = Address("127.0.0.1", free_ports(1))
    with listening.listen(address), pytest.raises(OSError, match="in use"):
        listening.listen(address)


def test_a_port_is_free_again_at_once() -> None:
    """What a former server leaves in TIME_WAIT does not stop its successor."""
    address = Address("127.0.0.1", free_ports(1))
    with listening.listen(address) as first, socket.create_connection((address.host, address.port)):
        accepted, _ = first.accept()
        accepted.close()
    listening.listen(address).close()


def test_ipv6_loopback() -> None:
    """`[::1]` is listened at as such."""
    with listening.listen(Address("::1", free_ports(1))) as opened:
        assert opened.family == socket.AF_INET6


def test_a_socket_file_is_its_owners_and_goes_in_the_end(short_path: Path) -> None:
    """Whatever the umask, a UNIX socket is 0600; it is removed when its publisher ends."""
    address = Address(path=str(short_path / "page.sock"))
    before = os.umask(0)
    try:
        opened = listening.listen(address)
        assert os.umask(0) == 0  # put back
    finally:
        os.umask(before)
    assert (short_path / "page.sock").stat().st_mode & 0o7777 == 0o600
    listening.close(opened, address)
    assert list(short_path.iterdir()) == []


def test_what_a_killed_publisher_left_is_replaced(short_path: Path) -> None:
    """A socket that nobody answers at is dead, and makes way."""
    address = Address(path=str(short_path / "page.sock"))
    listening.listen(address).close()  # leaves the file
    listening.close(listening.listen(address), address)


def test_a_socket_that_lives_stays(short_path: Path) -> None:
    """A socket at which somebody answers is in use."""
    address = Address(path=str(short_path / "page.sock"))
    with listening.listen(address), pytest.raises(OSError, match="in use"):
        listening.listen(address)


def test_what_another_publisher_put_there_stays(short_path: Path) -> None:
    """Whoever ends removes its own socket, not the one that took its place."""
    address = Address(path=str(short_path / "page.sock"))
    first = listening.listen(address)
    os.unlink(address.path)
    with listening.listen(address):
        listening.close(first, address)
        assert (short_path / "page.sock").exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_what_is_no_socket_stays(short_path: Path, kind: str) -> None:
    """A file, a directory, a link and a fifo are never replaced."""
    path = short_path / "page.sock"
    if kind == "file":
        path.write_text("somebody's")
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(short_path / "elsewhere")
    with pytest.raises(OSError, match="no socket"):
        listening.listen(Address(path=str(path)))
    assert os.path.lexists(path)

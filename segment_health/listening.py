"""Sockets that listen, for what is served over HTTP: at a port, or at a path."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING

from segment_health.sockets import clear

if TYPE_CHECKING:
    from segment_health.address import Address

_BACKLOG = 64


def listen(address: Address) -> socket.socket:
    """Return a socket that listens at an address. Raises OSError: it is in use, or none of ours.

    A UNIX socket is its owner's alone (0600). What lies in its place is replaced only if it is a socket of which
    nobody takes a call any more.
    """
    return _at_path(address.path) if address.path else _at_port(address)


def close(listening: socket.socket, address: Address) -> None:
    """End listening, and remove a UNIX socket, unless another one has taken its place."""
    with contextlib.suppress(OSError):
        if address.path and _names(address.path, listening):
            os.unlink(address.path)
    listening.close()


def _at_port(address: Address) -> socket.socket:
    # AI_PASSIVE: no name of a host to connect to, but an address to be reached by.
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise OSError(errno.EADDRNOTAVAIL, f"{address.host}: no address of this host ({error})") from error
    family, kind, protocol, _, where = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a former one leaves in TIME_WAIT
        listening.bind(where)
        listening.listen(_BACKLOG)
    except BaseException:  # an interrupt too: nobody else would close it
        listening.close()
        raise
    return listening


def _at_path(path: str) -> socket.socket:
    clear(path)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # its mode is there before it is
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except BaseException:  # an interrupt too: nobody else would close it
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _names(path: str, listening: socket.socket) -> bool:
    """Whether the socket at a path is still this one: it answers to that name, and nobody else took it."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)
        listening.setblocking(False)
        caller.connect(path)
        try:
            accepted, _ = listening.accept()
        except OSError:
            return False
        accepted.close()
        return True

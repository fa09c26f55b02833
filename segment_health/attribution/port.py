"""Whose a TCP port of this host's loopback is: asked before a service is started, and before it is believed.

Whoever listens there is told where the logs are, and is believed when it says STOP. So another job's service on
the same host, or anybody's, must not be taken for ours (proc(5), /proc/net/tcp).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys

LOOPBACK = "127.0.0.1"
_LISTENS = "0A"
_ADDRESS = f"{int.from_bytes(socket.inet_aton(LOOPBACK), sys.byteorder):08X}"
"""LOOPBACK, as the kernel writes it."""


def is_free(port: int) -> bool:
    """Tell whether a service could listen at a port. Raises OSError where that cannot be told."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that have ended do not count
        try:
            trial.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def is_of(session: int, port: int) -> bool:
    """Tell whether somebody of a session (setsid(2)) listens at a port, and nobody else. Raises OSError.

    Who listens at LOOPBACK itself is connected to before those who listen at every address.
    """
    with open("/proc/self/net/tcp", encoding="ascii") as file:
        listening = listening_in(file.read(), port)
    return bool(listening) and listening <= _sockets_of(session)


def listening_in(table: str, port: int) -> set[str]:
    """Return the inodes of the sockets that listen at a port of LOOPBACK, of a table of /proc/net."""
    inodes = set[str]()
    for line in table.splitlines()[1:]:
        fields = line.split()
        address, _, number = fields[1].partition(":")
        if fields[3] == _LISTENS and address == _ADDRESS and int(number, 16) == port:
            inodes.add(fields[9])
    return inodes


def _sockets_of(session: int) -> set[str]:
    """Return the inodes of the sockets that processes of a session have open, as far as we may look."""
    inodes = set[str]()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            with open(f"/proc/{process}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # its name may hold anything
            if int(fields[3]) != session:
                continue
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(f"/proc/{process}/fd/{descriptor}"))
    return {inode[8:-1] for inode in inodes if inode.startswith("socket:[")}

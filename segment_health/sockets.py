"""UNIX sockets as files: what an earlier process left where one is wanted."""

from __future__ import annotations

import errno
import os
import socket
import stat

_ANSWER_SECONDS = 1.0


def clear(path: str) -> bool:
    """Remove a socket of which nobody takes a call; tell whether one was there.

    Raises OSError for everything else that is there: FileExistsError where it is no socket, EADDRINUSE where
    somebody takes calls, or may.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "something else is there, and it is no socket", path)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(_ANSWER_SECONDS)
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return True
        except TimeoutError:  # its queue is full: somebody slow is still somebody
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)

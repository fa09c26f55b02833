"""Where the daemon is reached: its socket's file, which nobody can connect to before its mode and owner are set.

A server binds in a directory beside that file, which is its user's alone, and what it has bound is renamed into
place. gRPC makes and binds sockets by itself, so this is done to files, and by whoever holds the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from typing import TYPE_CHECKING

from segment_health.sockets import clear

if TYPE_CHECKING:
    from types import TracebackType

_NAME = "s"
"""What the socket is called where it is bound."""


class PlaceError(Exception):
    """The socket cannot be where it should; a sentence that names it."""


class Place:
    """The place of a socket, ours alone inside `with`.

    A lock beside it, `.NAME.lock`, is held so long: two daemons that start at once are told apart by it. What a
    killed one left is removed. Raises PlaceError on entry, where another daemon has it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        parent, name = os.path.split(path)
        self._lock_path = os.path.join(parent, f".{name}.lock")
        self._private = os.path.join(parent, f".{name}.private")
        self._lock = self._folder = -1
        self._inode: tuple[int, int] | None = None
        self.replaced = False
        """Whether a dead socket was there."""

    def __enter__(self) -> Place:  # noqa: PYI034 - Self is Python 3.11
        try:
            self._enter()
        except BaseException:  # an interrupt too: the lock must not be held by nobody
            self._leave()
            raise
        return self

    def _enter(self) -> None:
        try:
            self._lock = os.open(
                self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaceError(f"{self.path}: another nvhcd serves it, or is about to; nothing was done") from None
        except OSError as error:
            remedy = "; its directory is never created, make it first" if error.errno == errno.ENOENT else ""
            raise PlaceError(f"{self._lock_path}: {error.strerror}{remedy}") from error
        try:
            self._discard()
            os.mkdir(self._private, 0o700)
            self._folder = os.open(self._private, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise PlaceError(f"{self._private}: {error.strerror}") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            if self._inode is not None and _identity(self.path) == self._inode:
                os.unlink(self.path)
        self._leave()

    @property
    def to_bind(self) -> str:
        """The path to bind at: short, however long the socket's own is."""
        return f"/proc/self/fd/{self._folder}/{_NAME}"

    def publish(self, mode: int, owner: int | None, group: int | None) -> None:
        """Let what was bound be found, as whose it is to be. Raises PlaceError, where it cannot."""
        try:
            os.chown(self.to_bind, -1 if owner is None else owner, -1 if group is None else group)
            os.chmod(self.to_bind, mode)
            self._inode = _identity(self.to_bind)
        except (OSError, OverflowError) as error:  # OverflowError: a number that no user has
            cause = error.strerror if isinstance(error, OSError) else error
            raise PlaceError(
                f"{self.path}: its mode or owner cannot be set ({cause}); nothing was done"
            ) from error
        try:
            self.replaced = clear(self.path)
            os.rename(self.to_bind, self.path)
            os.rmdir(self._private)
        except FileExistsError as error:
            raise PlaceError(f"{self.path}: {error.strerror}; it was left alone") from error
        except OSError as error:
            living = error.errno == errno.EADDRINUSE
            cause = "another daemon answers there; nothing was done" if living else error.strerror
            raise PlaceError(f"{self.path}: {cause}") from error

    def _leave(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            with contextlib.suppress(OSError):
                self._discard()
        if self._lock >= 0:
            os.close(self._lock)
        self._folder = self._lock = -1

    def _discard(self) -> None:
        """Remove the private directory, ours or that of one who was killed."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(self._private).st_mode):
                raise FileExistsError(errno.EEXIST, "something else is there, and it is no directory")
            shutil.rmtree(self._private)


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino

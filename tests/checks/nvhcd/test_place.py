"""Where a socket is: nobody connects too early, the dead make way, and the living and everything else stay."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from segment_health.checks.nvhcd.place import Place, PlaceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    """A socket to bind."""
    with socket.socket(socket.AF_UNIX) as made:
        yield made


def serve(place: Place, bound: socket.socket, mode: int = 0o666) -> None:
    """Bind as gRPC does, and publish."""
    bound.bind(place.to_bind)
    bound.listen()
    place.publish(mode, None, None)


def test_it_comes_with_its_mode_and_goes_in_the_end(short_path: Path, bound: socket.socket) -> None:
    """Until it is published it is where its own user alone can be; a lock's file is all that is left."""
    path = short_path / "s.sock"
    with Place(str(path)) as place:
        bound.bind(place.to_bind)
        private = short_path / ".s.sock.private"
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert not path.exists()
        place.publish(0o640, os.getuid(), os.getgid())
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert not private.exists()
        assert not place.replaced
    assert [entry.name for entry in short_path.iterdir()] == [".s.sock.lock"]
    assert stat.S_IMODE((short_path / ".s.sock.lock").stat().st_mode) == 0o600


def test_the_longest_path(short_path: Path, bound: socket.socket) -> None:
    """Where it is bound is no longer than where it is."""
    path = f"{short_path}/".ljust(107, "x")
    assert len(path) == 107
    with Place(path) as place:
        serve(place, bound)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(path)


def test_what_a_killed_one_left_is_replaced(short_path: Path, bound: socket.socket) -> None:
    """Its socket, and what it had not published yet."""
    path = short_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    (short_path / ".s.sock.private").mkdir()
    (short_path / ".s.sock.private" / "s").touch()
    with Place(str(path)) as place:
        serve(place, bound)
        assert place.replaced
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))


def test_a_living_one_is_refused(short_path: Path, bound: socket.socket) -> None:
    """One of ours by its lock, also before it can be reached; any other by its taking of calls."""
    path = short_path / "s.sock"
    with Place(str(path)), pytest.raises(PlaceError, match="another nvhcd serves it"), Place(str(path)):
        pass
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with Place(str(path)) as place, pytest.raises(PlaceError, match="another daemon answers there"):
            serve(place, bound)
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_what_is_no_socket_is_left_alone(short_path: Path, bound: socket.socket, kind: str) -> None:
    """Somebody may want it."""
    path = short_path / "s.sock"
    if kind == "file":
        path.write_text("mine")
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)
    before = path.lstat()
    with Place(str(path)) as place, pytest.raises(PlaceError, match="it is no socket; it was left alone"):
        serve(place, bound)
    assert path.lstat().st_ino == before.st_ino


def test_one_that_took_its_place_stays(short_path: Path, bound: socket.socket) -> None:
    """What is removed in the end is our own socket only."""
    path = short_path / "s.sock"
    with Place(str(path)) as place, socket.socket(socket.AF_UNIX) as other:
        serve(place, bound)
        path.unlink()
        other.bind(str(path))
    assert path.is_socket()


def test_places_that_cannot_be(short_path: Path, bound: socket.socket) -> None:
    """A directory that is missing is named, and never made; so is whatever is in the way."""
    with (
        pytest.raises(PlaceError, match="its directory is never created, make it first"),
        Place(str(short_path / "no" / "s.sock")),
    ):
        pass
    (short_path / ".s.sock.private").write_text("in the way")
    with pytest.raises(PlaceError, match="no directory"), Place(str(short_path / "s.sock")):
        pass
    (short_path / ".t.sock.lock").symlink_to("/etc/passwd")
    with pytest.raises(PlaceError, match="Too many levels"), Place(str(short_path / "t.sock")):
        pass
    assert bound.fileno() >= 0


@pytest.mark.parametrize("number", [1 << 40, 1 << 80])
def test_an_owner_that_nobody_is(short_path: Path, bound: socket.socket, number: int) -> None:
    """A number that is too large is a sentence, as a user is whom one may not give it to."""
    with Place(str(short_path / "s.sock")) as place:
        bound.bind(place.to_bind)
        with pytest.raises(PlaceError, match=r"its mode or owner cannot be set \(.*\); nothing was done"):
            place.publish(0o666, number, None)


@pytest.mark.root
def test_it_is_given_away_before_it_is_seen(short_path: Path, bound: socket.socket) -> None:
    """Owner and group are set first."""
    path = short_path / "s.sock"
    with Place(str(path)) as place:
        bound.bind(place.to_bind)
        place.publish(0o600, 65534, 65533)
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)

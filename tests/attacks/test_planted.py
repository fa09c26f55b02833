"""A directory that others may write to, by --allow-shared-dir: what lies there under our names may be anything.

Whoever may write there may lie to us about what lies there. What must hold all the same: nothing outside the
directory is touched or told, no pass hangs or breaks, and no other unit waits for it.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Ended, Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]

SECRET = "root:$6$salt$secret:0:0:99999:7:::"


@pytest.fixture
def treasure(place: Path, shared: Service) -> Iterator[Path]:
    """A file of the service's own user, outside, that nobody else may read; it must be as it was."""
    path = place / "shadow"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    os.chown(path, shared.uid, shared.gid)
    empty = place / "empty"
    empty.touch(0o600)
    os.chown(empty, shared.uid, shared.gid)
    home = place / "home"
    home.mkdir(mode=0o700)
    os.chown(home, shared.uid, shared.gid)
    before = _look(place)
    yield path
    assert _look(place) == before


def _look(place: Path) -> dict[str, tuple[object, ...]]:
    seen: dict[str, tuple[object, ...]] = {}
    for name in ("shadow", "empty"):
        path = place / name
        found = path.stat()
        seen[name] = (path.read_text(), found.st_mode, found.st_uid, found.st_ino, found.st_mtime_ns)
    home = (place / "home").stat()
    seen["home"] = (home.st_mode, home.st_uid, home.st_ino, sorted(os.listdir(place / "home")))
    return seen


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _fifo(path: Path) -> None:
    os.mkfifo(path)
    path.chmod(0o666)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _full_directory(path: Path) -> None:
    path.mkdir()
    (path / "junk").touch()


def _unreadable(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0)


# What the attacker puts under a name. `outside` holds `shadow`, `empty` and `home`, which are not the attacker's.
PLANTS: dict[str, Callable[[Path, Path], Any]] = {
    "a link to a file": lambda path, outside: path.symlink_to(outside / "shadow"),
    "a link to an empty file": lambda path, outside: path.symlink_to(outside / "empty"),
    "a link to a directory": lambda path, outside: path.symlink_to(outside / "home"),
    "a link to nothing yet": lambda path, outside: path.symlink_to(outside / "home" / "new"),
    "a link to itself": lambda path, _: path.symlink_to(path),
    "a fifo": lambda path, _: _fifo(path),
    "a socket": lambda path, _: _socket(path),
    "a directory": lambda path, _: path.mkdir(),
    "a full directory": lambda path, _: _full_directory(path),
    "garbage": lambda path, _: path.write_bytes(b"\x1b]0;x\x07\xff\n[{" * 99),
    "a terabyte of nothing": lambda path, _: _sparse(path),
    "what we may not read": lambda path, _: _unreadable(path),
}

# What only root can make, or the attacker only where fs.protected_hardlinks is 0.
PLANTS_OF_ROOT: dict[str, Callable[[Path, Path], Any]] = {
    "a hard link to a file": lambda path, outside: os.link(outside / "shadow", path),
    "a hard link to an empty file": lambda path, outside: os.link(outside / "empty", path),
    "a device without end": lambda path, _: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
}

LEDGER_FILES = ("heartbeat/all@sandbox.json", "state/all@sandbox.json", "history.jsonl", "history.jsonl.1")
FOLDERS = ("heartbeat", "state", "override")
ALL_PLANTS = PLANTS | PLANTS_OF_ROOT


def _make_folders(service: Service) -> None:
    """Be the first to make the ledger, as whoever wants to own it."""
    for folder in (service.ledger, *(service.ledger / name for name in FOLDERS)):
        folder.mkdir()
        folder.chmod(0o777)


@pytest.fixture
def put(attacker: Person, treasure: Path) -> Callable[[str, list[Path]], None]:
    """Put a plant under each of some names."""

    def put(plant: str, paths: list[Path]) -> None:
        def act() -> None:
            for path in paths:
                ALL_PLANTS[plant](path, treasure.parent)

        attacker.does(act) if plant in PLANTS else act()

    return put


@pytest.mark.parametrize("plant", ALL_PLANTS)
def test_whatever_lies_under_the_names_of_files(
    shared: Service, jobs: Jobs, attacker: Person, put: Callable[[str, list[Path]], None], plant: str
) -> None:
    """It is not followed, not written to, not repeated, and holds up nothing; without it all is well again."""
    attacker.does(lambda: _make_folders(shared))
    files = [shared.ledger / name for name in (*LEDGER_FILES, f"override/{jobs.bad}.json")]
    paths = [*(shared.path(unit) for unit in (jobs.bad, jobs.good)), *files]
    put(plant, paths)
    for _ in range(2):
        _survives(shared, jobs)
    for path in paths:
        _remove(path)
    _converges(shared, jobs)


@pytest.mark.parametrize("plant", ALL_PLANTS)
@pytest.mark.parametrize("shared", ["root, sticky"], indirect=True)
def test_whatever_lies_under_the_names_of_folders(
    shared: Service, jobs: Jobs, attacker: Person, put: Callable[[str, list[Path]], None], plant: str
) -> None:
    """What a scope keeps is lost, and said to be; units are published all the same."""
    folders = [shared.ledger / folder for folder in FOLDERS]
    for paths in ([shared.ledger], folders):
        if paths is folders:
            attacker.does(lambda: _make_folders(shared))
            for path in folders:
                path.rmdir()
        put(plant, paths)
        done = _survives(shared, jobs)
        assert done.code == 0 or "could not be" in done.err
        assert shared.is_excluded(jobs.bad)
        assert not shared.is_excluded(jobs.good)
        for path in paths:
            _remove(path)
        _converges(shared, jobs)
        shutil.rmtree(shared.ledger)


def _survives(service: Service, jobs: Jobs) -> Ended:
    """Make a pass, in time, in which the units that nobody attacks are published."""
    done = service.publish(code=None)
    assert done.code in {0, 1}, done
    assert service.is_excluded(jobs.other)
    assert service.is_excluded(jobs.own)
    told = done.out + done.err
    assert SECRET not in told
    assert "\x1b" not in told
    return done


def _converges(service: Service, jobs: Jobs) -> None:
    """Make passes as if nothing had happened."""
    service.publish(code=None)  # a ledger that could not be read is written anew with this one
    service.publish()
    assert service.is_excluded(jobs.bad)
    assert not service.is_excluded(jobs.good)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

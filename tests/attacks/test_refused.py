"""A directory that others may write to, or put another one in the place of, is refused for everybody's units."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]


def _acl(path: Path, attacker: Person) -> None:
    """Let one user in by an access control list (acl(5)): rwx for the owner and that user, the mask shows it."""
    everybody = 0xFFFFFFFF
    entries = [(1, 7, everybody), (2, 7, attacker.uid), (4, 5, everybody), (16, 7, everybody), (32, 5, everybody)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_access", packed)


def _led_by(link: Path, directory: Path, attacker: Person) -> Path:
    """Let a link of the attacker's, in a directory where everybody may make one, lead to the one that is ours."""
    link.parent.chmod(0o1777)
    attacker.does(lambda: link.symlink_to(directory))
    return link


def _open(path: Path, mode: int) -> tuple[Path | str, str]:
    path.chmod(mode)
    who = "everybody" if mode & 0o002 else f"the group {path.stat().st_gid}"
    return path, f"{who} may write to {path} (mode {mode:04o})"


def _given(path: Path, attacker: Person) -> str:
    os.chown(path, attacker.uid, attacker.gid)
    return f"{path} belongs to uid {attacker.uid}"


def _listed(path: Path, attacker: Person) -> tuple[Path | str, str]:
    _acl(path, attacker)
    return path, f"may write to {path} (mode 0775)"


def _linked(path: Path, attacker: Person, *, end: str) -> tuple[Path | str, str]:
    link = _led_by(path.parent / "link", path, attacker)
    told = f"{link} is a symbolic link" if not end else f"the symbolic link {link} belongs to uid {attacker.uid}"
    return f"{link}{end}", told


def _above(path: Path, attacker: Person) -> tuple[Path | str, str]:
    link = _led_by(path.parent / "link", path.parent, attacker)
    return link / path.name, f"the symbolic link {link} belongs to uid {attacker.uid}"


# What makes a service's directory unsafe: each returns how the directory is named, and what is to be said of it.
UNSAFE: dict[str, Callable[[Path, Person], tuple[Path | str, str]]] = {
    "everybody writes, as to /tmp": lambda path, _: _open(path, 0o1777),
    "everybody writes": lambda path, _: _open(path, 0o777),
    "a group writes": lambda path, _: _open(path, 0o2775),
    "an access control list lets the attacker write": _listed,
    "the attacker's own": lambda path, attacker: (path, _given(path, attacker)),
    "below the attacker's own": lambda path, attacker: (path, _given(path.parent, attacker)),
    "below one that everybody writes to": lambda path, _: (path, _open(path.parent, 0o777)[1]),
    "below one that a group writes to": lambda path, _: (path, _open(path.parent, 0o770)[1]),
    "a link": lambda path, attacker: _linked(path, attacker, end=""),
    "a link and a slash": lambda path, attacker: _linked(path, attacker, end="/"),
    "a link and a dot": lambda path, attacker: _linked(path, attacker, end="/."),
    "a link on the way": _above,
}


@pytest.mark.parametrize("unsafe", UNSAFE)
@pytest.mark.parametrize("person", ["root"], indirect=True)
def test_an_unsafe_directory(service: Service, attacker: Person, unsafe: str) -> None:
    """Nothing is written: a single pass and a loop end with status 2, and say what, why, and what to do."""
    directory, told = UNSAFE[unsafe](service.directory, attacker)
    for scope in (("--all", "--once"), ("--partition", "main")):
        done = service.call("publish", "--dir", f"{directory}", *scope)
        assert done.code == 2, done
        assert told in done.err
        assert "take that right away, or accept it with --allow-shared-dir" in done.err
    assert os.listdir(service.directory) == []


@pytest.mark.parametrize("person", ["user"], indirect=True)
def test_an_unsafe_directory_of_a_service_that_is_not_root(service: Service, attacker: Person) -> None:
    """For a service of its own user the same holds; what belongs to it or to root is safe."""
    directory = service.directory
    directory.chmod(0o1777)
    assert f"everybody may write to {directory} (mode 1777)" in service.publish(code=2).err
    directory.chmod(0o755)
    os.chown(directory, attacker.uid, attacker.gid)
    assert f"belongs to uid {attacker.uid}" in service.publish(code=2).err
    os.chown(directory, service.uid, service.gid)
    service.publish()


@pytest.mark.parametrize("unsafe", ["everybody writes", "the attacker's own", "a link", "a link on the way"])
@pytest.mark.parametrize("person", ["root"], indirect=True)
def test_it_is_taken_if_told_so(service: Service, jobs: Jobs, attacker: Person, unsafe: str) -> None:
    """With --allow-shared-dir the units are published there."""
    directory, _ = UNSAFE[unsafe](service.directory, attacker)
    service.directory = Path(directory)
    service.publish("--allow-shared-dir")
    assert service.is_excluded(jobs.bad)


def test_it_becomes_unsafe_while_a_loop_runs(service: Service, jobs: Jobs) -> None:
    """Each pass looks again: nothing more is written, that is said, and with the right taken away it goes on."""
    loop = service.loop()
    loop.until(lambda: loop.lines("complete"))
    service.directory.chmod(0o777)
    service.path(jobs.bad).unlink()
    loop.poke()
    loop.until(lambda: loop.lines("unknown"))
    assert "everybody may write to" in loop.lines("unknown")[0]["message"]
    assert not service.path(jobs.bad).exists()
    service.directory.chmod(0o755)
    loop.poked_until(lambda: service.is_excluded(jobs.bad))
    assert loop.end() == 0


def _exchange(one: Path, other: Path) -> None:
    """Swap two entries in one step (renameat2(2), RENAME_EXCHANGE)."""
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


@pytest.fixture
def exchanged(attacker: Person) -> Callable[[Path, Path], contextlib.AbstractContextManager[Callable[[], int]]]:
    """Swap two entries for as long as a block runs; gives how often that was done."""

    @contextlib.contextmanager
    def swapping(one: Path, other: Path) -> Iterator[Callable[[], int]]:
        count = mmap.mmap(-1, 8)

        def swap() -> None:
            _exchange(one, other)
            count[:] = (int.from_bytes(count[:], "big") + 1).to_bytes(8, "big")
            time.sleep(0.0005)

        with attacker.keeps_doing(swap):
            yield lambda: int.from_bytes(count[:], "big")

    return swapping


@pytest.mark.parametrize("what", ["the directory", "one above", "a link"])
@pytest.mark.parametrize("person", ["root"], indirect=True)
def test_it_is_swapped_all_the_time(
    service: Service, attacker: Person, exchanged: Callable[..., Any], place: Path, what: str
) -> None:
    """Whatever lies there at the moment, what the attacker can swap is refused each time; nothing is written."""
    stage = place / "stage"
    stage.mkdir()
    os.chown(stage, attacker.uid, attacker.gid)
    if what == "a link":
        stage.chmod(0o1777)
        os.chown(stage, 0, 0)
        ways = [stage / "one", stage / "other"]
        for way, target in zip(ways, (service.directory.parent, Path("/etc")), strict=True):
            attacker.does(functools.partial(way.symlink_to, target))
    else:
        ways = [stage / "one", stage / "other"]
        for way in ways:
            (way / "decisions").mkdir(parents=True)
            os.chown(way, attacker.uid, attacker.gid)
        if what == "the directory":
            stage, ways = ways[0], [ways[0] / "decisions", ways[0] / "mine"]
            attacker.does(ways[1].mkdir)
    directory = ways[0] if what == "the directory" else ways[0] / "decisions"
    with exchanged(*ways) as count:
        rounds = 0
        while rounds < 10 or count() < 200:
            rounds += 1
            done = service.call("publish", "--all", "--once", "--dir", str(directory))
            assert done.code == 2, done
            assert "belongs to uid" in done.err or "it is never created" in done.err
    written = [path for way in (place, Path("/etc")) for path in way.rglob("*segment*health*") if path.is_file()]
    assert written == []


def test_a_shared_one_is_swapped_during_passes(
    shared: Service, jobs: Jobs, attacker: Person, exchanged: Callable[..., Any], place: Path
) -> None:
    """A pass stays in the directory that it opened; nothing else is written to, and at the end all is well."""
    os.chown(place, attacker.uid, attacker.gid)
    outside = place / "outside"
    outside.mkdir(mode=0o755)
    os.chown(outside, shared.uid, shared.gid)
    trap, link = place / "trap", place / "trap" / ".segment-health"

    def set_trap() -> None:
        trap.mkdir()
        link.symlink_to(outside)
        for unit in (jobs.bad, jobs.good):
            (trap / shared.path(unit).name).symlink_to(outside / "new")

    attacker.does(set_trap)
    with exchanged(shared.directory, trap) as count:
        rounds = 0
        while rounds < 10 or count() < 200:
            rounds += 1
            assert shared.publish(code=None).code in {0, 1}
    assert list(outside.iterdir()) == []
    if (shared.directory / ".segment-health").is_symlink():
        _exchange(shared.directory, trap)
    shared.publish(code=None)
    shared.publish()
    assert shared.is_excluded(jobs.bad)
    assert not shared.is_excluded(jobs.good)

"""The lock of a publisher is on this host's own disk, and nobody else may sit on it, or lead it elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]


def _directory(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


PLANTS: dict[str, Callable[[Path], object]] = {
    "a directory": _directory,
    "a directory like ours": lambda path: path.mkdir(mode=0o700),
    "a link": lambda path: path.symlink_to("/etc"),
    "a link to nothing": lambda path: path.symlink_to("/var/tmp/segment-health-nowhere"),
    "a file": lambda path: path.write_text("1"),
    "a fifo": os.mkfifo,
}


@pytest.fixture
def place_of_locks(account: Person) -> Iterator[Path]:
    """Where the service's user would have its locks: in a directory where everybody may be first."""
    path = Path(f"/tmp/segment-health-{account.uid}")
    shutil.rmtree(path, ignore_errors=True)
    yield path
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("person", ["user"], indirect=True)
def test_somebody_was_first(
    service: Service, jobs: Jobs, attacker: Person, place_of_locks: Path, plant: str
) -> None:
    """Nothing is done without a lock, and the way out is named: a directory where nobody else can be first."""
    attacker.does(lambda: PLANTS[plant](place_of_locks))
    before = sorted(os.listdir("/etc"))
    for once in (["--once"], []):
        done = service.call("publish", "--all", "--dir", str(service.directory), *once)
        assert done.code == 2, done
        assert str(place_of_locks) in done.err
        assert "XDG_RUNTIME_DIR" in done.err
    assert sorted(os.listdir("/etc")) == before
    assert not Path("/var/tmp/segment-health-nowhere").exists()
    runtime = service.directory.parent / "runtime"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, service.uid, service.gid)
    service.env["XDG_RUNTIME_DIR"] = str(runtime)
    service.publish()
    assert service.is_excluded(jobs.bad)


@pytest.mark.parametrize("person", ["user"], indirect=True)
def test_a_runtime_directory_of_somebody_else(
    service: Service, jobs: Jobs, attacker: Person, place: Path, place_of_locks: Path
) -> None:
    """A variable that was carried over from somebody's session names a place that is not used, nor touched."""
    theirs = place / "theirs"
    theirs.mkdir(mode=0o777)
    theirs.chmod(0o777)
    os.chown(theirs, attacker.uid, attacker.gid)
    (place / "link").symlink_to(theirs)
    for name in ("theirs", "link"):
        service.env["XDG_RUNTIME_DIR"] = str(place / name)
        service.publish()
    assert service.is_excluded(jobs.bad)
    assert list(theirs.iterdir()) == []
    assert place_of_locks.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("person", ["root"], indirect=True)
def test_nobody_is_before_root(service: Service, jobs: Jobs, attacker: Person) -> None:
    """Root's locks lie where no user can make anything; /run/lock and /tmp are everybody's."""
    service.env["XDG_RUNTIME_DIR"] = "/tmp"
    loop = service.loop()
    loop.until(lambda: loop.lines("complete"))
    held = [os.readlink(f"/proc/{loop.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{loop.process.pid}/fd")]
    (lock,) = [Path(path) for path in held if path.endswith(".loop")]
    for path in (lock, lock.parent):
        with pytest.raises(PermissionError):
            attacker.does(lambda path=path: os.open(path, os.O_RDONLY))  # type: ignore[misc]
    for path in lock.parents[1:]:
        assert path.stat().st_uid == 0
        assert not path.stat().st_mode & 0o022, path
    assert loop.end() == 0
    assert service.is_excluded(jobs.bad)

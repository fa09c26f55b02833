"""One publisher per host, directory, cluster and scope."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

from segment_health import lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a runtime directory of this user (root does not use it)."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {"XDG_RUNTIME_DIR": str(runtime)}


@pytest.fixture
def holder(tmp_path: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of (tmp_path, c, all)."""
    code = textwrap.dedent(f"""
        import time
        from segment_health import lock
        with lock.hold("pass", {str(tmp_path)!r}, "c", "all", {environ!r}):
            print("held", flush=True)
            time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def opened(path: str) -> list[int]:
    """Return the descriptors of this process that are open on a file."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            if os.readlink(f"/proc/self/fd/{name}") == path:
                found.append(int(name))
    return found


def test_a_second_holder_is_refused_at_once(
    tmp_path: Path, environ: dict[str, str], holder: subprocess.Popen[str]
) -> None:
    """Other scopes, clusters and directories are others' affair, and so is what else is locked."""
    with pytest.raises(lock.AlreadyRunning), lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
        pytest.fail("held twice")
    with lock.hold(lock.WRITE, str(tmp_path), "c", "all", environ):
        pass
    for other in ((str(tmp_path), "c", "job:1"), (str(tmp_path), "d", "all"), (str(tmp_path.parent), "c", "all")):
        with lock.hold(lock.PASS, *other, environ):
            pass
    holder.kill()
    holder.wait()
    with lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
        pass


def test_nothing_of_it_lies_in_the_decision_directory(tmp_path: Path, environ: dict[str, str]) -> None:
    """The lock is on this host's own disk, in a directory that is ours alone."""
    directory = tmp_path / "decisions"
    directory.mkdir()
    with lock.hold(lock.PASS, str(directory), "c", "all", environ):
        assert list(directory.iterdir()) == []
    private = lock.lock_directory(environ)
    assert os.stat(private).st_mode & 0o7777 == 0o700
    if os.geteuid() == 0:
        assert private == f"{'/run' if os.access('/run', os.W_OK) else '/tmp'}/segment-health-0"
    else:
        assert private.startswith(environ["XDG_RUNTIME_DIR"])


def test_a_runtime_directory_that_is_not_private_is_not_used(tmp_path: Path) -> None:
    """A variable carried over from a login node may name anything; only a private directory of ours will do."""
    exposed = tmp_path / "exposed"
    exposed.mkdir()
    exposed.chmod(0o777)
    for runtime in (str(exposed), str(tmp_path / "missing"), "relative", ""):
        assert not lock.lock_directory({"XDG_RUNTIME_DIR": runtime}).startswith((str(tmp_path), "relative"))


def test_a_directory_that_somebody_else_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp anybody can put a link, or an open directory, where ours would be: then there is no lock."""
    uid = 4_000_000_000  # nobody's, so that no lock of anybody is in the way
    path = f"/tmp/segment-health-{uid}"
    elsewhere = tempfile.mkdtemp(dir=tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    if os.path.lexists(path):
        pytest.fail(f"{path} is in use; remove it")
    os.symlink(elsewhere, path)
    try:
        with pytest.raises(lock.LockError, match="somebody else made it"):
            lock.lock_directory({})
    finally:
        os.unlink(path)


def test_who_waits_has_it_as_soon_as_it_is_free(
    tmp_path: Path, environ: dict[str, str], holder: subprocess.Popen[str]
) -> None:
    """A pass that is under way may end first; one that does not is waited for no longer than was said."""
    began = time.monotonic()
    with (
        pytest.raises(lock.AlreadyRunning, match=f"process {holder.pid}"),
        lock.hold(lock.PASS, str(tmp_path), "c", "all", environ, wait=0.3),
    ):
        pytest.fail("held twice")
    assert 0.3 <= time.monotonic() - began < 30
    end = threading.Timer(0.2, holder.kill)
    end.start()
    with lock.hold(lock.PASS, str(tmp_path), "c", "all", environ, wait=60):
        assert not end.is_alive()
    assert time.monotonic() - began < 30


def test_its_file_stays_and_is_ours_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    """Who removed it would let two publishers hold a lock each; and a program that is started holds none of it."""
    path = lock.path_of(lock.PASS, str(tmp_path), "c", "all", environ)
    inodes = set()
    for _ in range(2):
        with lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
            inodes.add(os.stat(path).st_ino)
            assert [os.get_inheritable(descriptor) for descriptor in opened(path)] == [False]
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert opened(path) == []
    assert len(inodes) == 1


def test_a_child_that_was_forked_does_not_keep_it(tmp_path: Path, environ: dict[str, str]) -> None:
    """A child shares the descriptor until it has closed it, and may be slow."""
    receiving, sending = os.pipe()
    with lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
        child = os.fork()
        if child == 0:
            os.close(sending)
            os.read(receiving, 1)
            os._exit(0)
    try:
        with lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
            pass
    finally:
        os.close(sending)
        os.close(receiving)
        os.waitpid(child, 0)


def test_a_file_that_was_replaced_meanwhile_is_opened_anew(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a file that is no longer at its path would keep nobody out."""
    path = lock.path_of(lock.PASS, str(tmp_path), "c", "all", environ)
    held: list[tuple[int, int]] = []

    def flock(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX:
            held.append((os.fstat(descriptor).st_ino, operation))
            if len(held) <= 2:  # a cleaner of old files, between our open and our lock
                os.rename(path, f"{path}.{len(held)}")
            if len(held) == 2:
                with open(path, "x", encoding="ascii"):
                    pass
        taken(descriptor, operation)

    taken = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    with lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
        assert len(held) == 3
        assert held[-1][0] == os.stat(path).st_ino
        descriptor = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            taken(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_a_file_that_is_replaced_all_the_time_gives_no_lock(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried some times, and not for ever."""
    path = lock.path_of(lock.PASS, str(tmp_path), "c", "all", environ)
    monkeypatch.setattr(fcntl, "flock", lambda *_: os.unlink(path))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(lock.LockError, match="Stale"), lock.hold(lock.PASS, str(tmp_path), "c", "all", environ):
        pytest.fail("held")
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EIO])
def test_where_there_is_no_flock_there_is_no_lock(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nothing weaker takes its place, and nobody waits for what will not come."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    began = time.monotonic()
    with (
        pytest.raises(lock.LockError, match=rf"\.pass: {os.strerror(number)}$"),
        lock.hold(lock.PASS, str(tmp_path), "c", "all", environ, wait=60),
    ):
        pytest.fail("held")
    assert time.monotonic() - began < 30


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, environ: dict[str, str]) -> None:
    """It would lead to a file that is not for us to open."""
    path = lock.path_of(lock.PASS, str(tmp_path), "c", "all", environ)
    target = tmp_path / "target"
    target.touch()
    os.symlink(target, path)
    try:
        with (
            pytest.raises(lock.LockError, match="symbolic links"),
            lock.hold(lock.PASS, str(tmp_path), "c", "all", environ),
        ):
            pytest.fail("held")
    finally:
        os.unlink(path)

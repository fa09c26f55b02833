"""One publisher per host, directory, cluster and scope."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
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

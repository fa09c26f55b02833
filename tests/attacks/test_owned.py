"""A directory that the service owns, as it should be: what a user can do there, and to whom."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]


def test_everybodys_units_are_served(service: Service, jobs: Jobs) -> None:
    """Without an attack: what is drained is excluded, whoever's it is, by root's service and by a user's."""
    done = service.publish()
    assert done.changes() == [f"exclude {unit}" for unit in (jobs.bad, jobs.other, jobs.own)]
    assert not service.is_excluded(jobs.good)
    assert service.publish().changes() == []


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


# What a user may try, with an artifact that excludes a unit, one that is not there, and a ledger.
ATTEMPTS: dict[str, Callable[[Path, Path, Path], object]] = {
    "exclude by a file": lambda _, good, __: good.write_text("n1"),
    "exclude by a link": lambda _, good, __: good.symlink_to("/etc/passwd"),
    "exclude by a hard link": lambda bad, good, _: os.link(bad, good),
    "be first with nothing": lambda _, good, __: good.touch(),
    "be first with a fifo": lambda _, good, __: os.mkfifo(good),
    "be first with a socket": lambda _, good, __: _bind(good),
    "be first with a directory": lambda _, good, __: good.mkdir(),
    "un-exclude by removing": lambda bad, _, __: bad.unlink(),
    "un-exclude by emptying": lambda bad, _, __: os.truncate(bad, 0),
    "un-exclude by writing": lambda bad, _, __: bad.write_text(""),
    "un-exclude by renaming": lambda bad, _, __: bad.rename(bad.parent / "x"),
    "un-exclude by hiding": lambda bad, _, __: bad.chmod(0),
    "make it look new": lambda bad, _, __: os.utime(bad, (0, 0)),
    "take it over": lambda bad, _, __: os.chown(bad, os.getuid(), -1),
    "open the directory": lambda bad, _, __: bad.parent.chmod(0o777),
    "put another directory in its place": lambda bad, _, __: bad.parent.rename(bad.parent.parent / "x"),
    "remove the ledger": lambda _, __, ledger: (ledger / "history.jsonl").unlink(),
    "rewrite the history": lambda _, __, ledger: (ledger / "history.jsonl").write_text(""),
    "add to the history": lambda _, __, ledger: (ledger / "history.jsonl").open("a"),
    "forge a heartbeat": lambda _, __, ledger: (ledger / "heartbeat" / "job:1@sandbox.json").write_text("{}"),
    "forge a state": lambda _, __, ledger: (ledger / "state" / "all@sandbox.json").write_text("{}"),
    "forge a word": lambda _, __, ledger: (ledger / "override" / "1.1.json").write_text("{}"),
    "keep words of its own": lambda _, __, ledger: (ledger / "override").mkdir(),
    "sit on a temporary": lambda bad, _, __: (bad.parent / ".segment-health.tmp.h.1.1").touch(),
}


def test_nobody_else_writes_there(service: Service, jobs: Jobs, attacker: Person, victim: Person) -> None:
    """The kernel refuses it all, to the attacker and to the job's owner: the modes that we give are right."""
    service.publish()
    paths = (service.path(jobs.bad), service.path(jobs.good), service.ledger)
    for user in (attacker, victim):
        for name, act in ATTEMPTS.items():
            with pytest.raises(OSError, match=r"^\[Errno ") as refused:
                user.does(lambda act=act: act(*paths))  # type: ignore[misc]
            # ENOENT: the folder of words is there only when one was said.
            assert refused.value.errno in {errno.EACCES, errno.EPERM, errno.ENOENT}, name
    assert service.is_excluded(jobs.bad)
    assert not service.path(jobs.good).exists()
    assert service.publish().changes() == []


def test_our_own_commands_refuse_it_too(
    service: Service, jobs: Jobs, attacker: Person, service_in: Callable[..., Service]
) -> None:
    """Who is not the service clears, prunes and publishes nothing there, and is told why."""
    service.publish()
    theirs = service_in(service.directory, attacker)
    cleared = theirs.call("clear", jobs.bad.split(".")[0], "--reason", "mine", "--dir", str(service.directory))
    assert cleared.code == 1, cleared
    assert "Permission denied" in cleared.err
    pruned = theirs.call("prune", "--max-age", "1s", "--dir", str(service.directory))
    assert "clear" not in pruned.out, pruned
    service.path(jobs.other).unlink()
    for scope, code in ("--all", 1 if service.uid == 0 else 2), (f"--job={jobs.own.split('.')[0]}", 1):
        published = theirs.call("publish", "--once", scope, "--dir", str(service.directory))
        assert published.code == code, published
        assert "Permission denied" in published.err or f"belongs to uid {service.uid}" in published.err
    assert not service.path(jobs.other).exists()
    assert service.is_excluded(jobs.bad)
    assert service.publish().changes() == [f"exclude {jobs.other}"]


def test_what_a_user_may_read_holds_nothing_up(service: Service, jobs: Jobs, attacker: Person) -> None:
    """Locks on whatever may be opened, the directory too, and signals to the service, are of no consequence."""
    service.publish()
    service.path(jobs.other).unlink()

    def hold() -> None:
        for path in (service.directory, *service.directory.rglob("*")):
            with contextlib.suppress(OSError):
                fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        signal.pause()

    with attacker.keeps_doing(hold) as holder:
        held = f"/proc/{holder}/fd"
        loop = service.loop()
        loop.until(lambda: str(service.path(jobs.bad)) in map(os.readlink, _entries(held)))
        loop.until(lambda: service.is_excluded(jobs.other))
        with pytest.raises(PermissionError):
            attacker.does(lambda: os.kill(loop.process.pid, signal.SIGKILL))
        done = service.publish()
        assert done.seconds < 20
        assert loop.end() == 0


def _entries(directory: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if os.path.lexists(f"{directory}/{name}"):
                yield f"{directory}/{name}"


@pytest.mark.parametrize("full", ["size=256k", "nr_inodes=40"])
def test_a_user_fills_the_file_system(service: Service, jobs: Jobs, attacker: Person, full: str) -> None:
    """Where it is shared with users: what was published stays, what could not be is said, and is made up for."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", full, "none", service.directory], check=True)
    try:
        for name in ("ours", "theirs"):
            (service.directory / name).mkdir(mode=0o777)
            (service.directory / name).chmod(0o755 if name == "ours" else 0o777)
        service.directory.chmod(0o755)
        theirs, service.directory = service.directory / "theirs", service.directory / "ours"
        os.chown(service.directory, service.uid, service.gid)
        service.publish()
        service.path(jobs.other).unlink()

        def fill() -> None:
            for number in range(1000):
                with (theirs / str(number)).open("wb", buffering=0) as file:
                    while file.write(b"x" * 4096) and "size" in full:
                        pass

        with pytest.raises(OSError, match="No space left"):
            attacker.does(fill)
        done = service.publish(code=1)
        assert f"failed {jobs.other}: No space left on device" in done.changes()
        assert service.is_excluded(jobs.bad)
        for path in theirs.iterdir():
            path.unlink()
        service.publish()
        assert service.is_excluded(jobs.other)
    finally:
        subprocess.run(["umount", "-l", service.directory.parent], check=True)


def test_what_others_left_when_they_could_write_there(service: Service, jobs: Jobs, attacker: Person) -> None:
    """A directory that was open once and is closed now is not safe while files and folders of others lie in it."""
    service.directory.chmod(0o1777)
    artifact, folder = service.path(jobs.good), service.ledger
    attacker.does(lambda: artifact.write_text("n1"))
    service.directory.chmod(0o755)
    told = f"{artifact} belongs to uid {attacker.uid}"
    assert told in service.publish(code=2).err
    artifact.unlink()
    service.publish()
    for left in (folder, folder / "state"):
        mode = left.stat().st_mode & 0o7777
        left.chmod(0o1777)
        assert f"everybody may write to {left}" in service.publish(code=2).err
        left.chmod(mode)
        os.chown(left, attacker.uid, -1)
        assert f"{left} belongs to uid {attacker.uid}" in service.publish(code=2).err
        os.chown(left, service.uid, -1)
    state = folder / "state" / "all@sandbox.json"
    os.chown(state, attacker.uid, -1)
    assert f"{state} belongs to uid {attacker.uid}" in service.publish(code=2).err
    os.chown(state, service.uid, -1)
    service.publish()

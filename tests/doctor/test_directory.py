from __future__ import annotations

import errno
import os

import pytest

from segment_health.doctor.directory import (
    CHECKS,
    JobUser,
    Place,
    Room,
    Step,
    Trial,
    Unseen,
    check_inodes,
    check_path,
    check_readers,
    check_replace,
    check_shared,
    check_space,
    check_visibility,
    check_writers,
    missing_place,
)
from segment_health.mount import Mount

NFS = Mount(1, "/shared", "nfs4", "server:/export", ("rw", "acdirmax=5"))
TRIAL = Trial(200, 3000, {}, 0o644, None)
ROOM = Room(1 << 40, 1 << 41, 1 << 20)
EVERYBODY = JobUser("everybody", None)


def step(mode: int, uid: int = 0, gid: int = 0, path: str = "/shared") -> Step:
    """A directory on the way."""
    return Step(path, mode, uid, gid, has_acl=False)


PLACE = Place("/shared/d", "/shared/d", [step(0o755), step(0o755, path="/shared/d")], NFS, None, ROOM, TRIAL, [])


def test_a_missing_place_has_every_check() -> None:
    """One error, and the others say why there is no verdict."""
    checks = missing_place("/nowhere", Unseen("No such file or directory", errno.ENOENT))
    assert [check.name for check in checks] == list(CHECKS)
    assert [check.severity for check in checks] == ["error"] + ["skipped"] * (len(CHECKS) - 1)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOENT, "create it"),
        (errno.EACCES, "permission"),
        (errno.EPERM, "permission"),
        (errno.ENOTDIR, "something else"),
        (errno.ELOOP, "lead to each other"),
        (errno.EIO, "see to the storage"),
        (errno.ETIMEDOUT, "see to the storage"),
        (None, "see to the storage"),
    ],
)
def test_why_a_place_is_missing(number: int | None, told: str) -> None:
    """Only what is not there is to be created; whatever else is wrong has its own remedy."""
    remedy = str(missing_place("/nowhere", Unseen("it failed", number))[0].remedy)
    assert told in remedy
    assert ("create" in remedy) == (number == errno.ENOENT)


@pytest.mark.parametrize(
    ("path", "real", "severity"),
    [
        ("/a/b", "/a/b", "ok"),
        ("/a/b/", "/a/b", "ok"),
        ("/a//b/.", "/a/b", "ok"),
        ("//a/b", "/a/b", "ok"),
        ("/a/b/../b", "/a/b", "ok"),
        ("/", "/", "ok"),
        ("/a/b", "/c/b", "warning"),
        ("/a//b/../b", "/c/b", "warning"),
    ],
)
def test_path(path: str, real: str, severity: str) -> None:
    """A symbolic link on the way can be turned."""
    assert check_path(PLACE._replace(path=path, real=real)).severity == severity


@pytest.mark.parametrize(
    ("kind", "shared", "visibility"),
    [
        ("nfs4", "ok", "ok"),  # acdirmax=5
        ("nfs", "ok", "ok"),
        ("lustre", "ok", "ok"),
        ("ext4", "warning", "ok"),
        ("overlay", "warning", "ok"),
        ("fuse.sshfs", "warning", "warning"),
        ("novelfs", "warning", "warning"),
    ],
)
def test_file_systems(kind: str, shared: str, visibility: str) -> None:
    """What is local is told, and so is what nobody can tell."""
    place = PLACE._replace(mount=NFS._replace(kind=kind))
    assert (check_shared(place).severity, check_visibility(place).severity) == (shared, visibility)


def test_a_long_window_is_told_with_its_remedy() -> None:
    """NFS as it is mounted by default: both times in seconds, and what helps."""
    check = check_visibility(PLACE._replace(mount=NFS._replace(options=("rw",))))
    assert check.severity == "warning"
    assert "no artifact for up to 60 s" in check.detail
    assert "lookupcache=pos" in str(check.remedy)


def test_no_mount_is_no_verdict() -> None:
    """Where /proc is not mounted nothing is made up."""
    place = PLACE._replace(mount=None)
    assert {check_shared(place).severity, check_visibility(place).severity} == {"skipped"}


@pytest.mark.parametrize(
    ("trial", "is_published", "severity"),
    [
        pytest.param(TRIAL, False, "ok", id="whole"),
        pytest.param(TRIAL._replace(wrong={"no file": 3}), True, "error", id="not atomic"),
        pytest.param(TRIAL._replace(failure="No space left", errno=errno.ENOSPC), True, "error", id="full"),
        pytest.param(
            TRIAL._replace(failure="Permission denied", errno=errno.EACCES), False, "error", id="forbidden"
        ),
        pytest.param(
            TRIAL._replace(failure="Permission denied", errno=errno.EACCES), True, "skipped", id="a service's"
        ),
        pytest.param(
            TRIAL._replace(failure="Read-only", errno=errno.EROFS), True, "skipped", id="a launcher's mount"
        ),
    ],
)
def test_replace(trial: Trial, is_published: bool, severity: str) -> None:
    """Who may not write is no fault where somebody else publishes."""
    assert check_replace(PLACE._replace(trial=trial), is_published=is_published).severity == severity


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EACCES, "run this as the publisher's user"),
        (errno.EIO, "run this as the publisher's user"),
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "mount it writable"),
    ],
)
def test_why_nothing_is_replaced(number: int, told: str) -> None:
    """The cause is named, and the remedy is that cause's: another user finds no more room."""
    trial = TRIAL._replace(failure=os.strerror(number), errno=number)
    check = check_replace(PLACE._replace(trial=trial), is_published=False)
    assert os.strerror(number) in check.detail
    assert told in str(check.remedy)
    assert ("run this as" in str(check.remedy)) == (number in {errno.EACCES, errno.EIO})


@pytest.mark.parametrize(
    ("above", "who", "severity"),
    [
        pytest.param(step(0o755), EVERYBODY, "ok", id="open to all"),
        pytest.param(step(0o711), EVERYBODY, "ok", id="search is enough"),
        pytest.param(step(0o750), EVERYBODY, "error", id="a group's"),
        pytest.param(step(0o644), EVERYBODY, "error", id="reading is not searching"),
        pytest.param(step(0o700, uid=7), JobUser("eng", 7), "ok", id="its owner"),
        pytest.param(step(0o077, uid=7), JobUser("eng", 7), "error", id="its owner, kept out"),
        pytest.param(step(0o750, gid=5), JobUser("eng", 7, {5}), "ok", id="of its group"),
        pytest.param(step(0o701, gid=5), JobUser("eng", 7, {5}), "error", id="of its group, kept out"),
        pytest.param(step(0o750, gid=5), JobUser("eng", 7, {6}), "error", id="of another group"),
        pytest.param(step(0o000), JobUser("root", 0), "ok", id="root"),
    ],
)
def test_readers(above: Step, who: JobUser, severity: str) -> None:
    """Each directory above an artifact has to be searched, by the class of bits that is the user's."""
    check = check_readers(PLACE._replace(steps=[above, step(0o755)]), who)
    assert check.severity == severity
    assert (above.path in check.detail) == (severity == "error")


def test_a_mode_that_does_not_stay_is_told() -> None:
    """Some file systems give files a mode of their own."""
    assert check_readers(PLACE._replace(trial=TRIAL._replace(mode=0o600)), EVERYBODY).severity == "warning"


@pytest.mark.parametrize(
    ("stranger", "for_many", "severity"),
    [
        (None, False, "ok"),
        (None, True, "ok"),
        ("everybody may write to /shared", False, "warning"),
        ("everybody may write to /shared", True, "error"),
    ],
)
def test_writers(stranger: str | None, severity: str, *, for_many: bool) -> None:
    """Whoever else may write is named, and who refuses that."""
    check = check_writers(PLACE._replace(stranger=stranger), for_many=for_many)
    assert check.severity == severity
    if stranger is not None:
        assert stranger in check.detail
        assert "refuse it unless --allow-shared-dir" in check.detail


@pytest.mark.parametrize(
    ("free", "inodes", "space", "files"),
    [
        (0, 0, "error", "error"),
        (4096, 1, "error", "warning"),
        (1 << 20, 999, "warning", "warning"),
        (1 << 30, 1000, "ok", "ok"),
        (1 << 50, None, "ok", "ok"),
        (None, None, "skipped", "ok"),
    ],
)
def test_room(free: int | None, inodes: int | None, space: str, files: str) -> None:
    """None is an error, little a warning; some file systems make inodes as they need them."""
    place = PLACE._replace(room=Room(free, 1 << 50, inodes))
    assert (check_space(place).severity, check_inodes(place).severity) == (space, files)

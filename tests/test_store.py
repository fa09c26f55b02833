"""The writer, on real file systems that are full, read-only, forbidden, or in somebody else's hands."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from segment_health import atomic
from segment_health.consumer import SegmentHealthCheck
from segment_health.contract import Artifact, Content, Generation, Publisher, UnitId, encode
from segment_health.level import FaultLevel
from segment_health.situation import Action, Decision
from segment_health.store import open_decisions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT = UnitId("123", "7")


def exclusion(unit: UnitId = UNIT, unavailable: str = "n1") -> Artifact:
    """An exclusion of one unit."""
    publisher = Publisher("host", 1, "0.1.0", "c", "all")
    return Artifact(unit, FaultLevel.SeparateFault, (), unavailable, Generation(0, 1), "n[1-2]", 1, 1, publisher)


def exclude(unit: UnitId = UNIT, unavailable: str = "n1") -> Decision:
    """The decision to write it."""
    return Decision(Action.EXCLUDE, unit, exclusion(unit, unavailable))


def carry_out(directory: Path, *decisions: Decision) -> None:
    """Carry decisions out in one pass over a directory."""
    with open_decisions(str(directory)) as decisions_directory:
        decisions_directory.read()
        for decision in decisions:
            decisions_directory.carry_out(decision)
        decisions_directory.sync()


def visible(directory: Path) -> list[str]:
    """List everything in a directory."""
    return sorted(entry.name for entry in directory.iterdir())


def test_exclude_clear_retire(tmp_path: Path) -> None:
    """Content, then zero bytes, then nothing; read back as it was written."""
    carry_out(tmp_path, exclude())
    assert (tmp_path / UNIT.artifact_name).read_bytes() == encode(exclusion())
    with open_decisions(str(tmp_path)) as directory:
        assert directory.read() == {UNIT: exclusion()}
    carry_out(tmp_path, Decision(Action.CLEAR, UNIT))
    assert (tmp_path / UNIT.artifact_name).read_bytes() == b""
    with open_decisions(str(tmp_path)) as directory:
        assert directory.read() == {}
    carry_out(tmp_path, Decision(Action.RETIRE, UNIT), Decision(Action.RETIRE, UnitId("8", "8")))
    assert visible(tmp_path) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_mode_is_0644_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Every launcher may read a decision, and only its writer may change it."""
    before = os.umask(umask)
    try:
        carry_out(tmp_path, exclude())
    finally:
        os.umask(before)
    assert (tmp_path / UNIT.artifact_name).stat().st_mode & 0o7777 == 0o644


def test_a_setgid_directory_keeps_its_group(tmp_path: Path) -> None:
    """In a project's directory the artifact belongs to the project's group."""
    tmp_path.chmod(0o2755)
    if os.geteuid() == 0:
        os.chown(tmp_path, 0, 12_345)
        tmp_path.chmod(0o2755)
    carry_out(tmp_path, exclude())
    assert (tmp_path / UNIT.artifact_name).stat().st_gid == tmp_path.stat().st_gid


def test_what_somebody_changed_in_the_meantime_is_left_alone(tmp_path: Path) -> None:
    """A decision made on what was read never falls on what has come since."""
    carry_out(tmp_path, exclude())
    with open_decisions(str(tmp_path)) as directory:
        directory.read()
        (tmp_path / UNIT.artifact_name).write_text("a person: do not use")
        for decision in (exclude(), Decision(Action.CLEAR, UNIT), Decision(Action.RETIRE, UNIT)):
            with pytest.raises(OSError, match="changed by somebody else"):
                directory.carry_out(decision)
        other = UnitId("9", "9")
        (tmp_path / other.artifact_name).write_text("new")
        with pytest.raises(OSError, match="changed by somebody else"):
            directory.carry_out(exclude(other))
    assert (tmp_path / UNIT.artifact_name).read_text() == "a person: do not use"


def test_what_stands_under_a_units_name(tmp_path: Path) -> None:
    """Non-empty and not ours is foreign; what the consumer takes for healthy is nothing; nothing hangs."""
    names = {kind: UnitId(str(number), "1") for number, kind in enumerate(
        ["text", "link", "fifo", "directory", "dangling", "loop", "empty-link", "huge"], start=1
    )}  # fmt: skip
    path = {kind: tmp_path / unit.artifact_name for kind, unit in names.items()}
    (tmp_path / "elsewhere").write_bytes(encode(exclusion(names["link"])))
    (tmp_path / "nothing").touch()
    path["text"].write_text("n1,n2")
    path["link"].symlink_to("elsewhere")
    path["empty-link"].symlink_to("nothing")
    os.mkfifo(path["fifo"])
    path["directory"].mkdir()
    path["dangling"].symlink_to("nowhere")
    path["loop"].symlink_to(path["loop"].name)
    with path["huge"].open("wb") as file:
        file.truncate(1 << 40)
    with open_decisions(str(tmp_path)) as directory:
        found = directory.read()
        foreign = dict.fromkeys((names["link"], names["huge"], names["loop"]), Content.FOREIGN)
        assert found == {names["text"]: Content.REFERENCE} | foreign
        assert directory.empty == {}
        assert set(directory.unreadable) == {names["loop"], names["huge"]}
        for kind in ("fifo", "dangling", "empty-link"):
            directory.carry_out(exclude(names[kind]))
        with pytest.raises(IsADirectoryError):
            directory.carry_out(exclude(names["directory"]))
    for kind in ("fifo", "dangling", "empty-link"):
        assert not SegmentHealthCheck(tmp_path, *names[kind])()
    assert (tmp_path / "nothing").read_bytes() == b""
    assert not [name for name in visible(tmp_path) if ".tmp." in name]


FAULTS = [
    pytest.param("write:error=ENOSPC", errno.ENOSPC, id="full"),
    pytest.param("write:error=EDQUOT", errno.EDQUOT, id="quota"),
    pytest.param("fsync:error=EIO", errno.EIO, id="fsync-fails"),
    pytest.param("fchmod:error=EPERM", errno.EPERM, id="no-mode"),
    pytest.param("rename,renameat,renameat2:error=EROFS", errno.EROFS, id="read-only"),
]


@pytest.mark.parametrize(("fault", "number"), FAULTS)
def test_a_failing_disk_keeps_the_old_decision(tmp_path: Path, fault: str, number: int) -> None:
    """Whichever step the kernel refuses, the old artifact stays whole, no temporary is left, the error says it."""
    carry_out(tmp_path, exclude())
    before = (tmp_path / UNIT.artifact_name).read_bytes()
    code = textwrap.dedent(f"""
        import sys
        from segment_health.atomic import open_directory, replace_file
        with open_directory({str(tmp_path)!r}) as directory:
            try:
                replace_file(directory, {UNIT.artifact_name!r}, b"new" * 1000, mode=0o644)
            except OSError as error:
                sys.exit(error.errno)
    """)
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={fault}"]
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # so that no write but ours is made
    ended = subprocess.run([*strace, sys.executable, "-c", code], env=environ, check=False)
    assert ended.returncode == number
    assert (tmp_path / UNIT.artifact_name).read_bytes() == before
    assert visible(tmp_path) == [UNIT.artifact_name]


def test_a_reader_never_sees_a_gap(tmp_path: Path) -> None:
    """While exclusions replace one another, a reader that never pauses finds each whole, never empty or gone."""
    carry_out(tmp_path, exclude())
    path = tmp_path / UNIT.artifact_name
    code = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        from pathlib import Path
        from test_store import carry_out, exclude
        n = 0
        while True:
            n += 1
            carry_out(Path({str(tmp_path)!r}), exclude(unavailable=f"n[1-{{n}}]" * (n % 50 + 1)))
    """)
    writer = subprocess.Popen([sys.executable, "-c", code])
    try:
        seen: set[bytes] = set()
        deadline = time.monotonic() + 60
        while len(seen) < 50 and time.monotonic() < deadline:
            content = path.read_bytes()
            assert content.startswith(b'{"schema"')
            assert content.endswith(b"}\n")
            seen.add(content)
        assert len(seen) >= 50
    finally:
        writer.kill()
        writer.wait()


def test_kill_9_leaves_only_whole_artifacts_and_the_next_pass_tidies(tmp_path: Path) -> None:
    """Killed at any instant, a writer leaves old or new; its temporaries go in the next pass of the host."""
    carry_out(tmp_path, exclude())
    code = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        from pathlib import Path
        from test_store import carry_out, exclude
        print(flush=True)
        while True:
            carry_out(Path({str(tmp_path)!r}), exclude(unavailable="n1" * 30_000))
    """)
    for kill in range(20):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.001 * kill)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        content = (tmp_path / UNIT.artifact_name).read_bytes()
        assert content.startswith(b'{"schema"')
        assert content.endswith(b"}\n")
    (tmp_path / f".segment-health.tmp.{atomic.host_name()}.{writer.pid}.0").write_text("half")
    living = tmp_path / f".segment-health.tmp.{atomic.host_name()}.{os.getppid()}.0"
    other_host = tmp_path / ".segment-health.tmp.elsewhere.1.0"
    living.write_text("being written")
    other_host.write_text("being written")
    with open_decisions(str(tmp_path)) as directory:
        directory.tidy()
    assert visible(tmp_path) == sorted([UNIT.artifact_name, living.name, other_host.name])


def test_a_writer_that_nobody_waits_for_is_dead(tmp_path: Path) -> None:
    """Where pid 1 never reaps a killed writer keeps its number for ever: its temporaries go all the same."""
    writer = subprocess.Popen(["sleep", "1000"])
    left = tmp_path / f".segment-health.tmp.{atomic.host_name()}.{writer.pid}.0"
    left.write_text("half")
    try:
        with open_decisions(str(tmp_path)) as directory:
            directory.tidy()
        assert left.exists()
        writer.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        with open_decisions(str(tmp_path)) as directory:
            directory.tidy()
        assert not left.exists()
    finally:
        writer.kill()
        writer.wait()


def test_a_symlink_under_a_temporarys_name_is_not_followed(tmp_path: Path) -> None:
    """O_EXCL: what an attacker puts where a temporary would be is not followed, not harmed, not in the way."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    directory = tmp_path / "decisions"
    directory.mkdir()
    serial = next(atomic._serial)
    for ahead in range(1, 4):
        name = f".segment-health.tmp.{atomic.host_name()}.{os.getpid()}.{serial + ahead}"
        (directory / name).symlink_to(victim)
    carry_out(directory, exclude())
    assert (directory / UNIT.artifact_name).stat().st_size
    assert victim.read_text() == "precious"


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A fifo that somebody holds open for writing has nothing to read yet, which is neither empty nor a hang."""
    os.mkfifo(tmp_path / "fifo")
    holding = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    try:
        with atomic.open_directory(str(tmp_path)) as directory:
            for name in ("fifo", "folder", "link"):
                with pytest.raises(OSError, match=r"^\[Errno "):
                    atomic.read_file(directory, name, 100)
    finally:
        os.close(holding)


if os.geteuid() == 0:  # mounting is root's; an ordinary user has the injected faults above

    @pytest.fixture
    def small_disk(tmp_path: Path) -> Iterator[Path]:
        """A file system of 64 KiB."""
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def test_a_full_disk_keeps_the_old_decision(small_disk: Path) -> None:
        """Without space the old artifact stays whole; with space again the next pass writes the new one."""
        carry_out(small_disk, exclude())
        before = (small_disk / UNIT.artifact_name).read_bytes()
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            file.write(bytes(1 << 20))
        with pytest.raises(OSError, match="No space left"):
            carry_out(small_disk, exclude(unavailable="n2"))
        assert (small_disk / UNIT.artifact_name).read_bytes() == before
        assert not [name for name in visible(small_disk) if ".tmp." in name]
        ballast.unlink()
        carry_out(small_disk, exclude(unavailable="n2"))
        assert b'"unavailable": "n2"' in (small_disk / UNIT.artifact_name).read_bytes()

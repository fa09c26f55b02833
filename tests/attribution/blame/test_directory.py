"""What a publisher makes of the directory of blames, hostile or broken as that may be."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.blame.directory import Blames
from segment_health.attribution.blame.grade import Bar
from segment_health.attribution.blame.record import MARKER, MAX_BYTES, Blame, encode
from segment_health.publication import Holder
from segment_health.sources import SourceUnknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = 1_800_000_000
BLAME = Blame("n1", "xid-hardware", "7", NOW - 10, cycle=1)
HELD = {"n1": {Holder("7", "1001")}, "n2": {Holder("8", "1001")}}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A marked directory with a blame of n1."""
    path = tmp_path / "blame"
    path.mkdir(mode=0o755)
    (path / MARKER).touch(mode=0o644)
    put(path, BLAME)
    return path


def put(path: Path, blame: Blame) -> None:
    """Write one as the service does."""
    (path / blame.name).write_bytes(encode(blame))
    (path / blame.name).chmod(0o644)


def read(path: Path) -> tuple[dict[str, str], list[str]]:
    """Read as a publisher does; return the rule of each node, and remarks."""
    told = Blames(str(path), Bar(86400, 2)).read(HELD, NOW)
    return {name: one.rule for name, one in told.assessments.items()}, told.remarks


def test_a_blame_is_read(directory: Path) -> None:
    """Of a node that Slurm lists; files of other nodes, and other files, are not looked at."""
    put(directory, replace(BLAME, node="elsewhere"))
    (directory / "README").write_text("ours")
    (directory / ("elsewhere@" + "0" * 16 + ".blame")).write_text("damaged")
    assert read(directory) == ({"n1": "attribution:xid-hardware"}, [])


def damaged(path: Path) -> None:
    """A file that was cut."""
    path.write_bytes(path.read_bytes()[:30])


def linked(path: Path) -> None:
    """A link to a good blame."""
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def fifo(path: Path) -> None:
    """What hangs whoever opens it."""
    path.unlink()
    os.mkfifo(path, 0o644)


def folder(path: Path) -> None:
    """No file at all."""
    path.unlink()
    path.mkdir(mode=0o755)


def huge(path: Path) -> None:
    """More than one blame can be."""
    path.write_bytes(path.read_bytes() + b" " * MAX_BYTES)


def shared(path: Path) -> None:
    """Everybody may write to it."""
    path.chmod(0o666)


def for_a_group(path: Path) -> None:
    """A group may write to it."""
    path.chmod(0o664)


def stranger(path: Path) -> None:
    """Somebody else's."""
    os.chown(path, 65534, 65534)


def about_another(path: Path) -> None:
    """A blame of n1 under a name of n2, and none of n1."""
    path.write_bytes(encode(replace(BLAME, node="n2")))


def future(path: Path) -> None:
    """Written by a clock that is ahead."""
    path.write_bytes(encode(replace(BLAME, time=NOW + 61)))


def unreadable_time(path: Path) -> None:
    """A time that nobody can tell."""
    path.write_bytes(path.read_bytes().replace(b"2027", b"9999999"))


@pytest.mark.parametrize(
    "spoil",
    [
        damaged,
        linked,
        fifo,
        folder,
        huge,
        shared,
        for_a_group,
        pytest.param(stranger, marks=pytest.mark.root),
        about_another,
        future,
        unreadable_time,
    ],
)
def test_what_may_not_be_believed_is_no_verdict(directory: Path, spoil: Callable[[Path], None]) -> None:
    """Neither a fault nor health of its node, whose name a person is told; other nodes are as they are."""
    put(directory, replace(BLAME, node="n2", job_id="8"))
    spoil(directory / BLAME.name)
    rules, remarks = read(directory)
    assert rules == {"n1": "attribution:damaged", "n2": "attribution:xid-hardware"}
    assert [BLAME.name in remark and "no verdict on n1" in remark for remark in remarks] == [True]


def test_a_damaged_one_takes_nothing_from_a_good_one(directory: Path) -> None:
    """The good blame counts, and not all is known."""
    put(directory, replace(BLAME, cycle=2))
    damaged(directory / BLAME.name)
    told = Blames(str(directory), Bar(86400, 2)).read(HELD, NOW).assessments["n1"]
    assert (told.rule, told.final) == ("attribution:xid-hardware", False)


def unmounted(path: Path) -> None:
    """It is empty."""
    for file in path.iterdir():
        file.unlink()


def gone(path: Path) -> None:
    """It is not there."""
    path.rename(path.parent / "gone")


def a_file(path: Path) -> None:
    """It is none."""
    gone(path)
    path.touch()


def opened_to_all(path: Path) -> None:
    """Everybody may write to it."""
    path.chmod(0o777)


def led_elsewhere(path: Path) -> None:
    """A link stands in its place."""
    gone(path)
    path.symlink_to(path.parent / "gone")


@pytest.mark.parametrize("spoil", [unmounted, gone, a_file, opened_to_all, led_elsewhere])
def test_a_directory_that_tells_nothing(directory: Path, spoil: Callable[[Path], None]) -> None:
    """It is unknown, and never an all-clear; the sentence names it."""
    spoil(directory)
    with pytest.raises(SourceUnknown, match=r"the blames in .*blame' cannot be read: "):
        read(directory)


def test_more_files_than_are_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown: which of them are left out nobody would know."""
    monkeypatch.setattr("segment_health.attribution.blame.directory.MAX_ENTRIES", 2)
    assert read(directory)[0] == {"n1": "attribution:xid-hardware"}
    (directory / "further").touch()
    with pytest.raises(SourceUnknown, match="it has 3 entries, and 2 are read"):
        read(directory)


def test_a_path_that_cannot_be() -> None:
    """A NUL byte is a trouble as every other."""
    with pytest.raises(SourceUnknown, match="cannot be read"):
        Blames("/no\0where", Bar(86400, 2)).read(HELD, NOW)


def test_many_remarks_are_counted(directory: Path) -> None:
    """A directory of rubbish does not fill a log."""
    names = [f"n{number}" for number in range(100)]
    for name in names:
        (directory / f"{name}@{'0' * 16}.blame").write_text("rubbish")
    held: dict[str, set[Holder]] = {name: set() for name in names}
    told = Blames(str(directory), Bar(86400, 2)).read(held, int(time.time()))
    assert len(told.remarks) == 21
    assert told.remarks[-1] == "blames: 80 more remarks"
    assert len(told.assessments) == 100

"""The storage checks on what is really there; test_storage_hangs.py has what does not answer."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.checks.health_check import Finding
from segment_health.checks.probing import AT_ONCE, REAP_SECONDS
from segment_health.checks.storage import SECONDS, DistributedStorageHealthCheck, StoragePathHealthCheck
from tests.attacks.conftest import Person, as_person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(short_path: Path) -> Iterator[Path]:
    """Some of everything."""
    (short_path / "file").write_bytes(b"x" * 10000)
    (short_path / "empty").touch()
    (short_path / "full" / "below").mkdir(parents=True)
    (short_path / "none").mkdir()
    (short_path / "to file").symlink_to("file")
    (short_path / "to dir").symlink_to(short_path / "full")
    (short_path / "dangling").symlink_to("nowhere")
    (short_path / "chain").symlink_to("dangling")
    (short_path / "loop").symlink_to("loop")
    os.mkfifo(short_path / "fifo")
    (short_path / "né à\n\x1b[31m").mkdir()
    os.mkdir(os.fsencode(short_path) + b"/\xff\xfe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(short_path / "socket"))
        yield short_path


WELL = ["file", "empty", "full", "none", "to file", "to dir", "fifo", "né à\n\x1b[31m", os.fsdecode(b"\xff\xfe"),
        "socket", "full/", "full/../file", "//none", "."]  # fmt: skip


def test_what_is_well(place: Path) -> None:
    """Files, directories, links to them, names of any bytes; and what is only looked at, a fifo or a device."""
    paths = [f"{place}/{name}" for name in WELL]
    assert StoragePathHealthCheck([*paths, "/dev/null", "/dev/ptmx", "/", ""]).look().problems == ()


MISSING = "No such file or directory"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("no", "PLACE/no is missing (No such file or directory)", id="missing"),
        pytest.param("no/such", "PLACE/no/such is missing (No such file or directory)", id="missing above"),
        pytest.param(
            "dangling",
            "PLACE/dangling is a symbolic link to nowhere, which is missing (No such file or directory)",
            id="dangling",
        ),
        pytest.param(
            "chain",
            "PLACE/chain is a symbolic link to dangling, which is missing (No such file or directory)",
            id="dangling further on",
        ),
        pytest.param("loop", "PLACE/loop cannot be looked at (Too many levels of symbolic links)", id="loop"),
        pytest.param("file/x", "PLACE/file/x cannot be looked at (Not a directory)", id="below a file"),
        pytest.param("x" * 256, f"PLACE/{'x' * 256} cannot be looked at (File name too long)", id="long name"),
        pytest.param("\n\x1b[31m", "PLACE/\\n\\x1b[31m is missing (No such file or directory)", id="unprintable"),
        pytest.param("\udcff", "PLACE/\\udcff is missing (No such file or directory)", id="no UTF-8"),
        pytest.param(
            "\ud800", "PLACE/\\ud800 was not looked at: no file has a name that is written so", id="half a letter"
        ),
        pytest.param("a\0b", "PLACE/a\\x00b was not looked at: a path holds no NUL", id="NUL"),
    ],
)
def test_what_is_not_well(place: Path, name: str, problem: str) -> None:
    """One sentence names the path, what was tried, and what came of it."""
    told = StoragePathHealthCheck([f"{place}/file", f"{place}/{name}"]).look()
    assert told.problems == (problem.replace("PLACE", str(place)),)


def test_a_path_longer_than_any() -> None:
    """What no system call takes is refused here, however long it is."""
    (problem,) = StoragePathHealthCheck(["/" + "x/" * 100_000]).look().problems
    assert problem.endswith(" was not looked at: File name too long")


def test_every_problem_is_told_in_order(place: Path) -> None:
    """The first does not hide the others, and a path given twice is looked at once."""
    paths = [f"{place}/{name}" for name in ("c", "file", "a", "b", "./a", "")]
    problems = StoragePathHealthCheck(paths).look().problems
    assert [problem.partition(" ")[0] for problem in problems] == [f"{place}/{name}" for name in "cab"]


def test_no_path_is_well() -> None:
    """Nothing asked is nothing wrong, as NVRx has it."""
    assert StoragePathHealthCheck([]).look() == StoragePathHealthCheck([""]).look() == Finding()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(lambda: StoragePathHealthCheck(["data"]), "not an absolute path: 'data'", id="relative"),
        pytest.param(lambda: StoragePathHealthCheck(["/a", " /b"]), "not an absolute path: ' /b'", id="blank"),
        pytest.param(
            lambda: StoragePathHealthCheck("/data"), r"paths are several, as in \['/data'\]", id="a string"
        ),
        pytest.param(lambda: StoragePathHealthCheck([5]), "not a path: 5", id="a number"),  # type: ignore[list-item]
        pytest.param(lambda: StoragePathHealthCheck([], seconds=0), "from 0 to 86400: 0", id="no time"),
        pytest.param(lambda: StoragePathHealthCheck([], seconds=float("nan")), "to 86400: nan", id="not a number"),
        pytest.param(lambda: DistributedStorageHealthCheck(seconds=1e300), "from 0 to 86400", id="too long"),
        pytest.param(
            lambda: DistributedStorageHealthCheck(mountinfo="m"), "not an absolute path: 'm'", id="mountinfo"
        ),
        pytest.param(
            lambda: DistributedStorageHealthCheck(health_file=""), "not an absolute path: ''", id="health"
        ),
        pytest.param(lambda: DistributedStorageHealthCheck(types="nfs"), r"as in \('nfs',\)", id="a type"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], error: str) -> None:
    """A setting that cannot be meant is refused before anything is looked at."""
    with pytest.raises((ValueError, TypeError), match=error):
        make()


def test_it_is_a_check_as_nvrx_has_them(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Called, it answers True or False, and logs each problem on `nvrx`."""
    with caplog.at_level(logging.DEBUG, "nvrx"):
        assert StoragePathHealthCheck([f"{place}/file"])() is True
        assert caplog.messages == []
        assert StoragePathHealthCheck([f"{place}/no"])() is False
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("nvrx", "WARNING")
    assert record.getMessage() == f"Storage path health check failed: {place}/no is missing ({MISSING})"


def test_it_asks_again_and_again(place: Path) -> None:
    """async_check awaits what is to be done about a failure, and goes on."""
    (place / "soon gone").touch()

    async def failed() -> None:
        raise asyncio.CancelledError

    async def watch() -> None:
        check = DistributedStorageHealthCheck(0.01, failed, types=(), health_file=f"{place}/health")
        (place / "health").write_text("LBUG")
        await check.async_check()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch())


@pytest.fixture
def lustre(place: Path) -> Callable[..., tuple[str, ...]]:
    """What is said of Lustre's own word, given what stands in its file; no mount is looked at."""

    def told(content: bytes | None) -> tuple[str, ...]:
        if content is not None:
            (place / "health_check").write_bytes(content)
        return DistributedStorageHealthCheck(types=(), health_file=f"{place}/health_check").look().problems

    return told


@pytest.mark.parametrize("content", [None, b"healthy", b"healthy\n", b"\n healthy \n"])
def test_lustre_is_well(lustre: Callable[..., tuple[str, ...]], content: bytes | None) -> None:
    """It says so, or there is none."""
    assert lustre(content) == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"NOT HEALTHY\n", "'NOT HEALTHY'", id="not healthy"),
        pytest.param(b"device lov-1 reported unhealthy\nNOT HEALTHY\n", None, id="with a device"),
        pytest.param(b"", "''", id="nothing"),
        pytest.param(b"Healthy", "'Healthy'", id="another word"),
        pytest.param(b"healthy?", "'healthy?'", id="more"),
        pytest.param(b"\x1b[31m\xff", None, id="what no terminal shows"),
        pytest.param(b"x" * 100_000, None, id="much"),
    ],
)
def test_lustre_is_not_well(lustre: Callable[..., tuple[str, ...]], content: bytes, said: str | None) -> None:
    """Whatever else it says is no health, and is quoted so that any terminal can show it."""
    (problem,) = lustre(content)
    assert problem.startswith("Lustre is not healthy: ")
    assert problem.isprintable()
    assert len(problem) < 400
    assert said is None or problem.endswith(f"/health_check says {said}")


def test_lustres_word_cannot_be_read(place: Path) -> None:
    """A file that is there and cannot be read is no health; one in a place that is no directory is not there."""
    (problem,) = DistributedStorageHealthCheck(types=(), health_file=str(place)).look().problems
    assert problem == f"Lustre's health cannot be told: {place} cannot be read (Is a directory)"
    assert DistributedStorageHealthCheck(types=(), health_file=f"{place}/file/x").look().problems == ()
    (place / "big").write_bytes(bytes((1 << 24) + 1))
    (problem,) = DistributedStorageHealthCheck(types=(), health_file=f"{place}/big").look().problems
    assert problem.endswith("/big cannot be read (File too large)")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "is missing (No such file or directory)", id="missing"),
        pytest.param("", "lists none", id="empty"),
        pytest.param("a line of another kernel\n" * 9, "lists none", id="garbled"),
    ],
)
def test_what_is_mounted_cannot_be_told(place: Path, content: str | None, reason: str) -> None:
    """Without a list of mounts the check fails, as NVRx's does: no answer is no all-clear."""
    if content is not None:
        (place / "mountinfo").write_text(content)
    (problem,) = DistributedStorageHealthCheck(mountinfo=f"{place}/mountinfo", health_file="/no").look().problems
    assert problem == f"what is mounted cannot be told: {place}/mountinfo {reason}"


def test_mounts_of_the_wanted_types_are_used(place: Path) -> None:
    """Types count whole, an autofs trigger is no mount of its server, and what is hidden is nobody's matter."""
    rows = [
        "1 0 0:1 / / rw - ext4 /dev/x rw",
        rf"2 1 0:2 / {place}/full\040 rw - nfs4 x:/y rw",
        f"3 1 0:2 / {place}/none rw - nfs x:/y rw",
        f"4 1 0:2 / {place}/auto rw - autofs auto.nfs rw",
        f"5 1 0:2 / {place}/daemon rw - nfsd nfsd rw",
        f"6 1 0:2 / {place}/hidden/deep rw - lustre x@tcp:/y rw",
        f"7 1 0:2 / {place}/hidden rw - tmpfs none rw",
        f"8 1 0:2 / {place}/gone rw - lustre x@tcp:/y rw",
        f"9 3 0:2 / {place}/none/file rw - lustre x@tcp:/y rw",
        f"10 1 0:2 /hosts {place}/file rw - nfs x:/y rw",
        "11 1 0:2 / /\xff rw - nfs x:/y rw",
    ]
    (place / "mountinfo").write_text("\n".join(rows), encoding="latin-1")
    told = DistributedStorageHealthCheck(mountinfo=f"{place}/mountinfo", health_file="/no").look().problems
    missing = [f"{place}/full ", f"{place}/gone", f"{place}/none/file", "/\\udcff"]
    assert told == tuple(f"{path} is missing ({MISSING})" for path in missing)


def test_this_machine_is_well() -> None:
    """With its own mounts and without settings, the check ends and says what it thinks."""
    assert DistributedStorageHealthCheck(health_file="/no", types=("proc",)).look() == Finding()


def test_the_page_states_the_times() -> None:
    """What docs/storage.md promises is what the code does."""
    page = (ROOT / "docs/storage.md").read_text()
    paths, mounts = re.findall(r"^\| (?:paths|mounts) \| `(.*)` \| (\d+) s up to (\d+)", page, re.MULTILINE)
    assert paths == (
        f"seconds * ceil(paths / {AT_ONCE}) + {REAP_SECONDS:g}",
        f"{SECONDS + REAP_SECONDS:g}",
        f"{AT_ONCE}",
    )
    assert mounts == (
        f"seconds * (1 + ceil(mounts / {AT_ONCE})) + {2 * REAP_SECONDS:g}",
        f"{2 * SECONDS + 2 * REAP_SECONDS:g}",
        f"{AT_ONCE}",
    )
    for check in (StoragePathHealthCheck([]), DistributedStorageHealthCheck()):
        assert check.seconds == SECONDS
        formula = (paths if isinstance(check, StoragePathHealthCheck) else mounts)[0]
        assert f"`{formula}`" in (type(check).__doc__ or "")


USE = """
import json, sys
from segment_health.checks.storage import StoragePathHealthCheck
print(json.dumps(StoragePathHealthCheck(sys.argv[1:]).look().problems))
"""


def as_somebody() -> list[str]:
    """The words before a command that make it an ordinary user's."""
    return as_person(Person("nobody") if os.geteuid() == 0 else None)


@pytest.fixture
def closed(place: Path) -> Iterator[dict[str, str | None]]:
    """What an ordinary user may not do: by path, what is said of it, None where nothing is."""
    place.chmod(0o755)
    names = {
        "unreadable": ("dir", 0o000, "", "cannot be listed (Permission denied)"),
        "passable": ("dir", 0o711, "below", None),
        "passed only": ("dir", 0o311, "", "cannot be listed (Permission denied)"),
        "shut": ("dir", 0o600, "below", "cannot be looked at (Permission denied)"),
        "listed only": ("dir", 0o444, "", None),
        "secret": ("file", 0o000, "", "cannot be read (Permission denied)"),
        "written only": ("file", 0o222, "", "cannot be read (Permission denied)"),
        "public": ("file", 0o444, "", None),
    }
    told = {}
    for name, (kind, mode, below, problem) in names.items():
        path = place / name
        if kind == "dir":
            (path / "below").mkdir(parents=True)
        else:
            path.write_text(name)
        path.chmod(mode)
        full = str(path / below)
        told[full] = problem and f"{full} {problem}"
    os.mkfifo(place / "shut fifo", 0o000)
    told[str(place / "shut fifo")] = None  # to look at it needs no right on it
    yield told
    for name in names:
        (place / name).chmod(0o755)


def test_as_an_ordinary_user(closed: dict[str, str | None], tmp_path: Path) -> None:
    """The rights are those of whoever asks: what may not be listed, read or reached is a problem."""
    assert tmp_path.is_dir()
    command = [*as_somebody(), sys.executable, "-c", USE, *closed]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [problem for problem in closed.values() if problem]

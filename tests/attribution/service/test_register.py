"""The register: a real file of SQLite, on real disks, some of which are full, damaged or somebody else's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.analysers.finding import Action, Finding, Line
from segment_health.attribution.service.attempt import Attempt, Status, finished
from segment_health.attribution.service.confine import FileState
from segment_health.attribution.service.register import Change, Register, RegisterError

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = FileState(1, 2, 3, 4)
FINDING = Finding(
    "cuda", Action.STOP, "it \x1b broke", "rules", "s", (Line(None, "a"), Line(2, "\udcff")), ("n1", "n2"), 12
)
PENDING = Attempt("/l/a_cycle0.log", "/way/a_cycle0.log", "ann", "7", 0, 1.5, state=STATE)


def judged(number: int, **more: object) -> Attempt:
    """Return a log that is judged."""
    path = f"/l/{number:04d}_cycle0.log"
    flight = Attempt(path, path, "ann", "7", 0, 1.0, Status.IN_FLIGHT, number)
    return replace(finished(flight, FINDING, "", STATE, 2.0 + number), **more)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the register is to be."""
    return str(tmp_path / "state.db")


@pytest.fixture
def register(path: str) -> Iterator[Register]:
    """A register that keeps ten findings."""
    made = Register(path, keep=10)
    yield made
    made.close()


def test_what_was_written_is_read_back(path: str) -> None:
    """Every state of a log survives, whatever its name and its lines hold."""
    odd = os.fsdecode(b"/l/\xff\n_cycle9.log")
    failed = finished(replace(PENDING, path=odd, given=odd, sequence=5), None, "no \\udcff", None, 3.0)
    flight = replace(
        PENDING, path="/l/b", given="/l/b", status=Status.IN_FLIGHT, sequence=6, cycle=None, state=None
    )
    wanted = [PENDING, failed, flight, judged(7)]
    first = Register(path, keep=10)
    first.write([Change(attempt) for attempt in wanted if attempt is not failed])
    first.write([Change(replace(failed, failure="no \udcff"))])
    first.close()
    second = Register(path, keep=10)
    assert sorted(second.attempts(), key=lambda attempt: attempt.sequence) == wanted
    assert [found.finding for found in second.judged()] == [FINDING]
    second.close()


def test_a_state_file_is_its_owners_alone(register: Register, path: str) -> None:
    """What users' logs hold is nobody else's business."""
    register.write([Change(PENDING)])
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_the_oldest_findings_go(register: Register) -> None:
    """So many are kept; with an older one goes what is known of its log, but never what is still in flight."""
    flight = replace(PENDING, status=Status.IN_FLIGHT, sequence=1000)
    register.write([Change(flight)])
    forgotten = [path for number in range(15) for path in register.write([Change(judged(number + 1))])]
    assert forgotten == [f"/l/{number + 1:04d}_cycle0.log" for number in range(5)]
    left = sorted(attempt.path for attempt in register.attempts())
    assert left == [f"/l/{number + 1:04d}_cycle0.log" for number in range(5, 15)] + [flight.path]


def test_an_old_finding_does_not_undo_a_new_submission(register: Register) -> None:
    """A finding that could be written only late leaves a log in flight that was submitted again meanwhile."""
    again = replace(judged(1), status=Status.IN_FLIGHT, sequence=2, finding=None, state=None, completed=0.0)
    register.write([Change(again)])
    register.write([Change(judged(1))])
    assert register.attempts() == [again]


def test_logs_are_forgotten_with_a_change(register: Register) -> None:
    """What makes room goes in the same transaction."""
    register.write([Change(PENDING)])
    other = replace(PENDING, path="/l/b", given="/l/b")
    register.write([Change(other, [PENDING.path])])
    assert register.attempts() == [other]


def test_findings_wait_to_be_exported(path: str) -> None:
    """What is to be exported is kept until it was, through restarts; without an export nothing waits."""
    register = Register(path, keep=2, exports=True)
    register.write([Change(judged(number + 1)) for number in range(5)])
    register.close()
    register = Register(path, keep=2, exports=True)
    waiting = register.unexported(3)
    assert [attempt.sequence for _, attempt in waiting] == [1, 2, 3]
    assert waiting[0][1].finding == FINDING
    assert waiting[0][1].state == STATE
    register.exported([number for number, _ in waiting])
    assert [attempt.sequence for _, attempt in register.unexported(10)] == [4, 5]
    register.write([Change(judged(6))])
    assert [attempt.sequence for _, attempt in register.unexported(10)] == [4, 5, 6]
    register.close()


def test_a_second_service_is_kept_out(register: Register, path: str) -> None:
    """A file that is in use is not opened, however little its service does."""
    register.attempts()
    with pytest.raises(RegisterError, match="another service uses it; nothing was changed"):
        Register(path, keep=10)


def test_nothing_is_accepted_in_a_file_that_no_start_finds(register: Register, path: str) -> None:
    """A state file that somebody removes or replaces takes no more, and goes on when it is put back."""
    register.write([Change(judged(1))])
    os.rename(path, f"{path}.old")
    with pytest.raises(RegisterError, match="removed or replaced"):
        register.write([Change(judged(2))])
    Path(path).touch()
    with pytest.raises(RegisterError, match="removed or replaced"):
        register.write([Change(judged(2))])
    os.rename(f"{path}.old", path)
    register.write([Change(judged(3))])
    assert len(register.attempts()) == 2


def damaged(path: str) -> None:
    """Spoil the middle of a register."""
    register = Register(path, keep=1000)
    register.write([Change(judged(number + 1)) for number in range(200)])
    register.close()
    with open(path, "r+b") as file:
        file.seek(8192)
        file.write(b"\xaa" * 20_000)


def foreign(path: str) -> None:
    """Leave a database of something else."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.commit()
    connection.close()


def newer(path: str) -> None:
    """Leave a register of a version to come."""
    Register(path, keep=10).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def text(path: str) -> None:
    """Leave a text."""
    with open(path, "w") as file:
        file.write("not a database, but long enough to be looked at as one " * 100)


def directory(path: str) -> None:
    """Leave a directory."""
    os.mkdir(path)


def fifo(path: str) -> None:
    """Leave a fifo."""
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (damaged, "damaged"),
        (foreign, "is a database of something else; nothing was changed"),
        (newer, "has form 99, and this version writes form 1"),
        (text, "file is not a database"),
        (directory, "cannot be opened: Is a directory"),
        (fifo, "cannot be opened"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_register_is_refused(path: str, make: object, told: str) -> None:
    """Whatever stands there instead is told by a sentence with its name, and left as it is."""
    assert callable(make)
    make(path)
    before = Path(path).read_bytes() if os.path.isfile(path) else b""
    with pytest.raises(RegisterError, match=told) as refused:
        Register(path, keep=10)
    assert str(refused.value).startswith(path)
    assert (Path(path).read_bytes() if os.path.isfile(path) else b"") == before


def test_no_directory_no_register(tmp_path: Path) -> None:
    """The directory is never made."""
    with pytest.raises(RegisterError, match="No such file or directory"):
        Register(str(tmp_path / "none/state.db"), keep=10)


def test_a_finding_that_nobody_wrote_is_told(path: str) -> None:
    """What the file holds is data, and may be anything."""
    register = Register(path, keep=10)
    register.write([Change(judged(1))])
    register.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE findings SET finding = '{}'")
    connection.commit()
    connection.close()
    register = Register(path, keep=10)
    with pytest.raises(RegisterError, match="holds what no service wrote"):
        register.attempts()
    register.close()


FILLS = """
import resource, signal, sys
from segment_health.attribution.service.register import Change, Register, RegisterError
sys.path.insert(0, {here!r})
from test_register import judged
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
register = Register({path!r}, keep=100000)
register.write([Change(judged(1))])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
number = 1
try:
    while number < 10000:
        register.write([Change(judged(number + 1))])
        number += 1
except RegisterError as error:
    print(number, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
register.write([Change(judged(20000))])
print(sorted(attempt.sequence for attempt in register.attempts()) == [*range(1, number + 1), 20000])
"""


def test_a_full_disk_costs_the_change_and_nothing_else(path: str) -> None:
    """Where no more can be written a sentence says so, what was written stays, and later it goes on."""
    code = FILLS.format(path=path, here=os.path.dirname(__file__))
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    first, second = told.stdout.splitlines()
    assert int(first.split()[0]) > 10
    assert f"{path}: cannot be written: " in first
    assert second == "True"

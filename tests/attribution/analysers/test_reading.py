"""Logs of every size and make are read in bounded memory and time."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from segment_health.attribution.analysers.finding import Action
from segment_health.attribution.analysers.pieces import MAX_CHARACTERS
from segment_health.attribution.analysers.reading import Bounds, read
from segment_health.attribution.analysers.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from segment_health.attribution.analysers.finding import Extract

SMALL = Bounds(whole_bytes=1000, head_lines=5, head_bytes=400, tail_lines=5, tail_bytes=400)
GIB = 1 << 30
MAX_MEMORY = 300 << 20


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a log as the service does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def extract_of(path: Path, content: bytes, bounds: Bounds = SMALL) -> Extract:
    """Write a log and read it."""
    path.write_bytes(content)
    with opened(path) as descriptor:
        return read(descriptor, bounds)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"one\ntwo", [(1, "one"), (2, "two")], id="no-newline-at-the-end"),
        pytest.param(b"one\r\ntwo\r\n", [(1, "one"), (2, "two")], id="crlf"),
        pytest.param(b"\n\nthree\n", [(1, ""), (2, ""), (3, "three")], id="empty-lines"),
        pytest.param(b"\x1b[31mred\x1b[0m\x1b]0;title\x07\n", [(1, "red")], id="colours"),
        pytest.param(b"\0\0\0\0after a hole\n", [(1, "after a hole")], id="zeros"),
        pytest.param(b"caf\xe9 \xff\n", [(1, "caf\ufffd \ufffd")], id="no-utf-8"),
        pytest.param(b"1%\r2%\r3%\nnext\n", [(1, "1%"), (1, "2%"), (1, "3%"), (2, "next")], id="progress"),
        pytest.param("a\u202eb\u2028c\x08\n".encode(), [(1, "abc")], id="controls"),
    ],
)
def test_what_a_short_log_becomes(tmp_path: Path, content: bytes, lines: list[tuple[int, str]]) -> None:
    """All of its lines, with their numbers, as a terminal would show them."""
    found = extract_of(tmp_path / "log", content)
    assert list(found.lines) == lines
    assert found.is_whole
    assert found.size == len(content)


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    """No message needs more."""
    (line,) = extract_of(tmp_path / "log", b"x" * 100_000, Bounds()).lines
    assert line.text == "x" * MAX_CHARACTERS


def test_of_a_bar_that_is_drawn_often_the_end_is_kept(tmp_path: Path) -> None:
    """The first and the last of ten thousand."""
    content = b"\r".join(b" %d%%|#| %d/10000 [" % (step // 100, step) for step in range(10_000))
    found = extract_of(tmp_path / "log", content, Bounds()).lines
    assert len(found) == 33
    assert "| 0/10000" in found[0].text
    assert "| 9999/10000" in found[-1].text


def test_a_long_log_is_its_head_its_tail_and_what_counts(tmp_path: Path) -> None:
    """A failure in the midst is found, and each line has its own number."""
    content = [b"line %d" % number for number in range(1, 20_001)]
    content[9_999] = b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
    content[14_999] = b" iteration      120/     500 | lm loss: 2.0 |"
    found = extract_of(tmp_path / "log", b"\n".join(content) + b"\n")
    assert not found.is_whole
    assert [line.number for line in found.lines[:5]] == [1, 2, 3, 4, 5]
    assert [line.number for line in found.lines[-5:]] == [19_996, 19_997, 19_998, 19_999, 20_000]
    assert {10_000, 9_995, 10_005, 15_000} <= {line.number for line in found.lines}
    assert len(found.lines) < 60
    assert all(line.text.encode() == content[(line.number or 0) - 1] for line in found.lines)


def test_of_what_there_is_too_much_the_first_and_the_last_are_kept(tmp_path: Path) -> None:
    """A flood of one message does not hide another, and does not fill the extract."""
    flood = [b"RuntimeError: CUDA error: out of memory number %d" % number for number in range(50_000)]
    flood[25_000] = b"Mar  4 02:12:31 n07 kernel: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."
    found = extract_of(tmp_path / "log", b"\n".join(flood) + b"\n")
    numbers = [line.number for line in found.lines]
    assert {1, 25_001, 50_000} <= set(numbers)
    assert len(numbers) < 300
    finding = Rules().analyse(found, ())
    assert (finding.category, finding.nodes) == ("xid-hardware", ("n07",))


def test_the_last_step_is_found_however_many_there_are(tmp_path: Path) -> None:
    """It stands in the midst, behind many and before much that says nothing."""
    steps = b"".join(b" iteration %8d/ 900000 | lm loss: 2.0 |\n" % step for step in range(1, 60_001))
    found = extract_of(tmp_path / "log", b"begin\n" * 5000 + steps + b"a usual line\n" * 200_000)
    finding = Rules().analyse(found, ())
    assert finding.step == 60_000
    assert len(found.lines) < 300


def test_a_log_that_was_emptied_under_its_writer_begins_with_a_hole(tmp_path: Path) -> None:
    """The hole is passed over, and one in the midst too; lines have the numbers that they have."""
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.seek(64 << 20)
        log.write(b"\nstep: 7 loss: 2\n" * 3)
        log.seek(128 << 20)
        log.write(b"\nsrun: error: Node failure on n3\n" + b"a usual line\n" * 100_000)
    os.truncate(path, 256 << 20)
    with opened(path) as descriptor:
        found = read(descriptor, SMALL)
    assert [line.text for line in found.lines if line.number in {6, 8}] == [
        "step: 7 loss: 2",
        "srun: error: Node failure on n3",
    ]
    finding = Rules().analyse(found, ())
    assert (finding.category, finding.step, finding.nodes) == ("node-failure", 7, ("n3",))


def test_a_failure_in_one_endless_line_is_found(tmp_path: Path) -> None:
    """Where a program prints no newline for a gigabyte, what it drew over is still searched."""
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.write(b"begin\n" + b"x" * (8 << 20))
        log.write(b"\rtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\r")
        log.write(b"y" * (8 << 20))
    with opened(path) as descriptor:
        found = read(descriptor)
    assert Rules().analyse(found, ()).category == "cuda-oom"
    assert sum(len(line.text) for line in found.lines) < 100_000


def test_a_line_that_begins_in_its_midst_is_the_beginning_of_no_message(tmp_path: Path) -> None:
    """What is cut off before may have been a comment."""
    message = b"CUDA out of memory. Tried to allocate 1.00 GiB"
    found = extract_of(tmp_path / "log", b"# " + b"z" * 500_000 + message, Bounds(1000, tail_bytes=len(message)))
    assert found.lines[-1].text == f"\N{HORIZONTAL ELLIPSIS}{message.decode()}"
    assert Rules().analyse(found, ()).action is Action.UNKNOWN


def test_when_the_time_is_over_the_end_is_read_all_the_same(tmp_path: Path) -> None:
    """Nothing was searched from the beginning: head and tail are there, the latter without numbers."""
    path = tmp_path / "log"
    path.write_bytes(b"usual line\n" * 500_000 + b"srun: error: Node failure on n3\n")
    seconds = iter([0.0, *[9.0] * 100])
    with opened(path) as descriptor:
        found = read(descriptor, Bounds(whole_bytes=1000, seconds=5), clock=lambda: next(seconds))
    assert found.lines[0].number == 1
    assert found.lines[-1] == (None, "srun: error: Node failure on n3")


def test_a_log_that_shrinks_meanwhile_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    """Somebody empties it while it is searched."""
    path = tmp_path / "log"
    path.write_bytes(b"usual line\n" * 500_000)

    def clock() -> float:
        os.truncate(path, 22)
        return 0.0

    with opened(path) as descriptor:
        found = read(descriptor, SMALL, clock)
    assert [line.text for line in found.lines] == ["usual line", "usual line"]


READS = """
import os, sys
from segment_health.attribution.analysers.reading import read
from segment_health.attribution.analysers.rules import Rules
finding = Rules().analyse(read(os.open(sys.argv[1], os.O_RDONLY)), ())
memory = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(finding.category, finding.step, *finding.nodes, int(memory.split()[1]) << 10)
"""
# Not getrusage(2): what it tells of a process begins with what its parent had when it was started.


def test_ten_gigabytes_are_read_in_under_300_mb(tmp_path: Path) -> None:
    """A log of 10 GiB, most of it a hole, with a training at either end: what ended it is found."""
    path = tmp_path / "log"
    steps = b"".join(
        b"7: [2026-01-01 10:00:00] iteration %8d/  500000 | lm loss: 2.1E+00 | grad norm: 0.3 |\n"
        b"n01:123:456 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC\n" % step
        for step in range(100_000, 200_000)
    )
    with path.open("wb") as log:
        log.write(steps)
        log.seek(10 * GIB)
        log.write(b"\n" + steps)
        log.write(b"Mar  4 02:12:31 n07 kernel: NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n")
        for rank in range(20_000):
            log.write(b"%d: [rank%d]: ncclRemoteError: a remote process exited\n" % (rank, rank))
    ended = subprocess.run(
        [sys.executable, "-c", READS, path], capture_output=True, text=True, check=True, timeout=240
    )
    *told, memory = ended.stdout.split()
    assert told == ["xid-hardware", "199999", "n07"]
    assert int(memory) < MAX_MEMORY

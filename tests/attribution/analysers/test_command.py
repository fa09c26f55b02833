"""`segment-health attribution analyse`: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.cli import main

from .logs import labelled

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CASES = {case.name: case for case in labelled()}


def analyse(*arguments: str) -> Result:
    """Call the command."""
    return CliRunner().invoke(main, ["attribution", "analyse", *arguments])


def logs_of(directory: Path, name: str) -> list[str]:
    """Write the logs of a labelled case as its launcher would; return their paths."""
    case = CASES[name]
    paths = []
    for cycle, log in enumerate((*case.earlier, case.log)):
        path = directory / f"train_cycle{cycle}.log"
        path.write_text(log.lstrip("\n"))
        paths.append(str(path))
    return paths


def test_it_tells_people_what_failed_and_where(tmp_path: Path) -> None:
    """Action, category, reason, the last step, whom it blames, and the lines with their numbers."""
    (path,) = logs_of(tmp_path, "timeout-after-a-lost-gpu")
    ended = analyse(path)
    assert ended.exit_code == 0
    first, *rest = ended.output.splitlines()
    assert first == f"{path}: RESTART (xid-hardware)"
    assert rest[0].startswith("  a GPU or its link failed (nccl-timeout followed from it)")
    assert rest[1:3] == ["  last step: 41230", "  blamed: gpu-a17"]
    assert rest[3].startswith("  line 3: Mar  4 02:12:31 gpu-a17 kernel: ")


def test_several_files_are_cycles_of_one_job(tmp_path: Path) -> None:
    """The same failure at the same step in the second is a STOP; each has an object, for programs."""
    paths = logs_of(tmp_path, "oom-at-the-same-step-again")
    ended = analyse("--format", "json", *paths)
    assert ended.exit_code == 0
    found = [json.loads(line) for line in ended.output.splitlines()]
    assert [(one["log"], one["action"], one["category"], one["step"]) for one in found] == [
        (paths[0], "RESTART", "cuda-oom", 5210),
        (paths[1], "STOP", "cuda-oom", 5210),
    ]
    assert found[1]["evidence"][0] == {
        "line": 7,
        "text": (tmp_path / "train_cycle1.log").read_text().splitlines()[6],
    }
    assert found[1]["source"] == "rules"
    assert [json.loads(analyse("--format", "json", paths[1]).output)["action"]] == ["RESTART"]


def test_what_a_log_holds_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Escapes in a log are not printed, and a name is escaped."""
    path = tmp_path / "a\x1b[2Jb.log"
    path.write_bytes(b"srun: error: Node failure on n1\x1b]0;x\x07 \x1b[31m\xff\n")
    for ended in (analyse(str(path)), analyse("--format", "json", str(path))):
        assert ended.exit_code == 0
        assert "node-failure" in ended.output
        assert "\x1b" not in ended.output
        assert "\x07" not in ended.output


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "forbidden-name"])
def test_what_is_no_log_is_told(tmp_path: Path, kind: str) -> None:
    """One line on stderr and status 3, without waiting for anybody."""
    path = tmp_path / kind
    if kind == "directory":
        path.mkdir()
    if kind == "fifo":
        os.mkfifo(path)
    ended = analyse(f"{path}\0" if kind == "forbidden-name" else str(path))
    assert ended.exit_code == 3
    assert ended.stdout == ""
    assert ended.stderr.startswith("segment-health: ")
    assert len(ended.stderr.splitlines()) == 1


def test_no_file_is_a_usage_error() -> None:
    """Status 2."""
    assert analyse().exit_code == 2

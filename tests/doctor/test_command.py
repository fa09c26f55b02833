"""`segment-health doctor` as people and programs read it, where there is no Slurm and where one is saved."""

from __future__ import annotations

import json
import os
from pathlib import Path

from click.testing import CliRunner, Result

from segment_health.cli import main

SAMPLES = Path(__file__).parents[1] / "data" / "samples" / "22.05"


def doctor(directory: Path, *options: str, **environ: str) -> Result:
    """Run it where no command of Slurm's is on PATH, and outside any job unless `environ` says so."""
    env: dict[str, str | None] = {**dict.fromkeys(os.environ), "PATH": "/nonexistent", **environ}
    return CliRunner().invoke(main, ["doctor", "--dir", str(directory), *options], env=env)


def checks(ended: Result) -> dict[str, dict[str, str | None]]:
    """Return what it says for programs, by the names of the checks."""
    return {check["name"]: check for check in json.loads(ended.stdout)["checks"]}


def test_without_slurm(tmp_path: Path) -> None:
    """One error with its remedy, what depends on it is skipped, the rest is looked at all the same; status 1."""
    ended = doctor(tmp_path, "--format", "json")
    assert (ended.exit_code, ended.stderr) == (1, "")
    told = checks(ended)
    assert told["slurm.answer"]["severity"] == "error"
    assert "command not found" in str(told["slurm.answer"]["detail"])
    assert "--slurm-bin-dir" in str(told["slurm.answer"]["remedy"])
    assert told["slurm.version"]["severity"] == "skipped"
    assert told["directory.replace"]["severity"] == "ok"
    assert os.listdir(tmp_path) == []  # no probe is left


def test_for_a_person(tmp_path: Path) -> None:
    """A line a check, a line a remedy, and how many there are of each kind."""
    lines = doctor(tmp_path).stdout.splitlines()
    (error,) = [line for line in lines if "slurm.answer" in line]
    assert error.startswith("error    slurm.answer            scontrol: command not found")
    assert lines[lines.index(error) + 1].strip().startswith("-> ")
    shown = [line.split(" ")[0] for line in lines[:-1] if not line.startswith(" ")]
    words = ("error", "warning", "ok", "skipped")
    assert lines[-1] == ", ".join(f"{shown.count(word)} {word}" for word in words)


def test_by_saved_answers(tmp_path: Path) -> None:
    """What was saved answers as Slurm would: its cluster's nodes and jobs are counted."""
    nodes, jobs = (str(SAMPLES / f"scontrol_show_{what}.txt") for what in ("nodes_oneline", "jobs"))
    saved = ["--nodes-from", nodes, "--jobs-from", jobs]
    told = checks(doctor(tmp_path, *saved, "--cluster", "lab", "--format", "json"))
    assert told["slurm.answer"]["severity"] == "ok"
    assert "nodes" in str(told["slurm.answer"]["detail"])


def test_inside_a_job(tmp_path: Path) -> None:
    """Slurm's commands do not answer, so of the job only what its environment tells is judged."""
    told = checks(doctor(tmp_path, "--format", "json", SLURM_JOB_ID="1", SLURM_PROCID="0"))
    outside = checks(doctor(tmp_path, "--format", "json"))
    assert told.keys() == outside.keys()
    assert any(told[name] != outside[name] for name in told if name.startswith("job."))


def test_names_that_move_a_cursor(tmp_path: Path) -> None:
    """The directory's name is somebody else's text: escaped in either form."""
    hostile = tmp_path / "a\x1b[2Jb"
    hostile.mkdir()
    for options in ((), ("--format", "json")):
        assert "\x1b" not in doctor(hostile, *options).stdout


def test_wrong_usage(tmp_path: Path) -> None:
    """Status 2 and a line: an unknown user, half of a source, a path that is none."""
    for options, told in (
        (("--job-user", "nobody-of-that-name"), "there is no user"),
        (("--nodes-from", "x"), "--jobs-from"),
        (("--interval", "0"), "--interval"),
    ):
        ended = doctor(tmp_path, *options)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert told in ended.stderr
    assert doctor(Path("relative")).exit_code == 2


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """An error that says that it is never created, and nothing is looked at in its place."""
    told = checks(doctor(tmp_path / "missing", "--format", "json"))
    assert told["directory.path"]["severity"] == "error"
    assert "No such file" in str(told["directory.path"]["detail"])
    assert told["directory.space"]["severity"] == "skipped"

"""`segment-health builtin`: one JSON object and a status that nvhcd can rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from segment_health.checks.builtin import NAMES, run
from segment_health.checks.builtin.answer import Verdict
from segment_health.checks.builtin.settings import Builtin
from segment_health.checks.health_check import Finding
from segment_health.cli import main

if TYPE_CHECKING:
    from click.testing import Result

JOB = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0"}
NAME = "segment_health_check.5.5"
HEALTHY = {"fail_count": 0, "failed_checks": []}


def clean(**environ: str) -> dict[str, str]:
    """Return this environment without a job and settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SEGMENT", "NVRX"))}
    return kept | environ


def call(tmp_path: Path, names: str, settings: dict[str, Any], **environ: str) -> Result:
    """Run the command in this process."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"timeout": 20, "builtin": settings}))  # JSON is YAML
    absent: dict[str, str | None] = dict.fromkeys(os.environ.keys() - clean().keys())
    return CliRunner().invoke(main, ["builtin", *names.split(), "--config", str(path)], env=absent | environ)


def test_healthy(tmp_path: Path) -> None:
    """Status 0 and nothing in the list, in a line of JSON and nothing else."""
    told = call(
        tmp_path, "paths storage segment", {"paths": ["/etc"], "segment_health_check_dir": "/no/such"}, **JOB
    )
    assert (told.exit_code, json.loads(told.stdout), told.stderr) == (0, HEALTHY, "")
    assert told.stdout.count("\n") == 1


def test_unhealthy(tmp_path: Path) -> None:
    """Status 1, each failure by its check, and beside them what is not known."""
    (tmp_path / NAME).write_text("x")
    settings = {"paths": ["/no/such", "/etc"], "segment_health_check_dir": str(tmp_path), "nhc": "/no/such"}
    told = call(tmp_path, "nhc paths segment paths", settings, **JOB)
    document = json.loads(told.stdout)
    assert told.exit_code == 1
    assert document["fail_count"] == 2
    assert [entry.split(":")[0] for entry in document["failed_checks"]] == ["segment", "paths"]
    assert document["remarks"] == ["nhc: /no/such cannot be started: No such file or directory (not known)"]
    assert told.stderr == "segment-health: nhc: /no/such cannot be started: No such file or directory\n"


@pytest.mark.parametrize(
    ("names", "environ", "said"),
    [
        ("nhc", {}, "nhc: /no/such cannot be started"),
        ("slurm", {}, "slurm: the state of "),
        ("slurm paths", {}, "slurm: the state of "),
        ("segment", {}, "segment: not in a job"),
        ("segment", {"SLURM_JOB_ID": "5"}, "segment: not in a job"),
        ("segment", {"SLURM_PROCID": "0"}, "segment: not in a job"),
    ],
    ids=["nhc", "slurm", "beside-a-healthy-one", "no-job", "no-process", "no-id"],
)
def test_unknown(tmp_path: Path, names: str, environ: dict[str, str], said: str) -> None:
    """Status 3, no answer, and a sentence."""
    settings = {
        "nhc": "/no/such",
        "slurm_bin_dir": "/no/such",
        "paths": ["/etc"],
        "segment_health_check_dir": str(tmp_path),
    }
    told = call(tmp_path, names, settings, **environ)
    assert (told.exit_code, told.stdout) == (3, "")
    assert told.stderr.startswith(f"segment-health: {said}")


@pytest.mark.parametrize(
    ("procid", "status"), [("0", 1), ("1", 0), ("15", 0)], ids=["process-0", "process-1", "process-15"]
)
def test_the_segment_counts_on_the_node_of_process_0(tmp_path: Path, procid: str, status: int) -> None:
    """One daemon a node of the job, and one of them says it."""
    (tmp_path / NAME).write_text("x")
    settings = {"segment_health_check_dir": str(tmp_path)}
    assert call(tmp_path, "segment", settings, SLURM_JOB_ID="5", SLURM_PROCID=procid).exit_code == status


@pytest.mark.parametrize(
    ("names", "settings", "said"),
    [
        ("paths", {}, "builtin.paths: `paths` has none to look at"),
        ("segment", {}, "builtin.segment_health_check_dir: `segment` needs"),
        ("slurm", {"policy": "/no/such"}, "builtin.policy: /no/such: the policy cannot be read"),
        ("slurm", {"paths": ["a"]}, "builtin.paths: not an absolute path"),
        ("slurm", {"pahts": ["a"]}, "the nearest known one is paths"),
        ("slrum", {}, "'slrum' is not one of"),
    ],
    ids=["no-paths", "no-directory", "policy", "relative", "key", "name"],
)
def test_a_mistake(tmp_path: Path, names: str, settings: dict[str, Any], said: str) -> None:
    """Status 2, before anything is checked."""
    told = call(tmp_path, names, settings)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in told.stderr


def test_a_check_that_fails_itself_knows_nothing() -> None:
    """A mistake of ours is no sick node, and ends no other check; each has what is left of the time."""
    had: list[float] = []

    def broken(seconds: float) -> Finding:
        had.append(seconds)
        raise RuntimeError("oops")

    def fine(seconds: float) -> Finding:
        had.append(seconds)
        return Finding()

    times = iter([0.0, 0.0, 8.0, 50.0])
    verdicts = run.run({"a": broken, "b": fine, "c": fine}, 10, lambda: next(times))
    assert verdicts == [
        Verdict("a", None, "the check itself failed: RuntimeError: oops"),
        Verdict("b", Finding()),
        Verdict("c", Finding()),
    ]
    assert had == [10, 2, 1]


def test_the_names_are_those_that_it_offers() -> None:
    """What the command and nvhcd's configuration take can be made."""
    told = Builtin(paths=("/",), segment_health_check_dir="/")
    assert set(run.prepared(NAMES, told, {}, "c.yaml")) == set(NAMES)


def test_sigterm_ends_it_and_what_it_started(tmp_path: Path) -> None:
    """Nvhcd may end before its check does, and while that is just being born: its first act is to say so."""
    nhc = tmp_path / "nhc"
    nhc.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid; kill -TERM $PPID; exec sleep 60\n")
    nhc.chmod(0o755)
    (tmp_path / "config.yaml").write_text(f"builtin: {{nhc: {nhc}}}")
    argv = [sys.executable, "-m", "segment_health", "builtin", "nhc", "--config", str(tmp_path / "config.yaml")]
    ended = subprocess.run(argv, env=clean(), stdout=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, b"")
    child = Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline"
    assert not child.exists() or not child.read_bytes()

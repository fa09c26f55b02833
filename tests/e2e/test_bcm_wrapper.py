"""The template bcm-wrapper on a node of a real Slurm: the check has what a real prolog had for the same job."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from slurm.sandbox.cluster import Sandbox

pytestmark = pytest.mark.slurm

SLEEP = "#!/bin/sh\nexec sleep 300\n"
LEFT_OUT = {
    "SLURM_JOB_WORK_DIR",  # text that users write
    "SLURM_JOB_STDIN",
    "SLURM_JOB_STDOUT",
    "SLURM_JOB_STDERR",
    "SLURM_JOB_CPUS_PER_NODE",  # what no check of a node asks for
    "SLURM_JOB_RESTART_COUNT",
    "SLURM_JOB_CORE_SPEC_COUNT",
    "SLURM_JOB_END_TIME",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_LICENSES",
    "SLURM_JOB_OVERSUBSCRIBE",
    "SLURM_JOB_RESERVATION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_ACCOUNT",
}
"""What slurmd of some version gives its prolog, and the wrapper does not."""
MORE = {"SLURM_JOB_NODELIST", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"}
"""What EpilogSlurmctld and its like have, and the wrapper gives too."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the prolog and the check leave their environment."""
    return tmp_path_factory.mktemp("wrapper")


@pytest.fixture(scope="module")
def site(run_cluster: Callable[..., AbstractContextManager[Sandbox]], directory: Path) -> Iterator[Sandbox]:
    """A cluster with a prolog that writes down its environment, and the wrapper with a check that does."""
    program(directory / "prolog", f"/usr/bin/env >{directory}/prolog.$SLURM_JOB_ID")
    program(directory / "check", f"/usr/bin/env >{directory}/check.env")
    text = CliRunner().invoke(main, ["template", "show", "bcm-wrapper"]).stdout
    (directory / "wrapper").write_text(
        text.replace("\ncheck=/path/to/bcm-healthcheck\n", f"\ncheck={directory}/check\n")
    )
    with run_cluster(nodes=3, extra_conf=[f"Prolog={directory}/prolog"]) as cluster:
        yield cluster


def program(path: Path, code: str) -> None:
    """Write a program."""
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


def slurm_of(path: Path) -> Mapping[str, str]:
    """Read Slurm's variables of an environment."""
    lines = path.read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines if line.startswith("SLURM"))


def run(cluster: Sandbox, directory: Path, node: str) -> tuple[object, str]:
    """Run the wrapper as nvhcd of a node would; return its answer, and stderr."""
    (directory / "check.env").unlink(missing_ok=True)
    ended = subprocess.run(
        ["sh", str(directory / "wrapper"), "--no-slurm"],
        env={**cluster.env, "SLURMD_NODENAME": node},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


@pytest.mark.parametrize("options", [(), ("--array=4",)], ids=["job", "array"])
def test_the_check_has_what_a_prolog_had(site: Sandbox, directory: Path, options: tuple[str, ...]) -> None:
    """Each variable of the real prolog that no user writes, with the same value."""
    job = site.submit(SLEEP, "--nodes=2", "--nodelist=n[1-2]", "--exclusive", *options)
    site.wait_running(job)
    told = directory / f"prolog.{job}"
    site.wait_until(told.exists, what="prolog")
    site.wait_until(lambda: "SLURM_SCRIPT_CONTEXT" in told.read_text(), what="the prolog's environment")
    for node in ("n1", "n2"):
        answer, said = run(site, directory, node)
        assert (answer, said) == ({"fail_count": 0, "failed_checks": []}, "")
        given, expected = slurm_of(directory / "check.env"), dict(slurm_of(told))
        expected["SLURMD_NODENAME"] = node
        assert {
            key: value for key, value in expected.items() if key not in LEFT_OUT and given.get(key) != value
        } == {}
        assert set(given) - set(expected) <= MORE
        assert given["SLURM_JOB_NODELIST"] == "n[1-2]"
        if options:
            assert (given["SLURM_ARRAY_JOB_ID"], given["SLURM_ARRAY_TASK_ID"]) == (job, "4")
    site.run("scancel", job)
    site.wait_until(lambda: site.node_state("n1") == site.node_state("n2") == "IDLE", what="idle nodes")


@pytest.mark.parametrize(("node", "said"), [("n3", "0 jobs run on n3"), ("n9", "Invalid node name")])
def test_a_node_without_a_job(site: Sandbox, directory: Path, node: str, said: str) -> None:
    """The check is not run, and the node stays in use."""
    answer, told = run(site, directory, node)
    assert answer == {
        "fail_count": 0,
        "failed_checks": [],
        "remarks": ["bcm_healthcheck was not run: see the log of nvhcd"],
    }
    assert said in told
    assert not (directory / "check.env").exists()


def test_a_slurmctld_that_does_not_answer(site: Sandbox, directory: Path) -> None:
    """Within its patience the wrapper gives up, and excludes nobody."""
    text = (directory / "wrapper").read_text()
    (directory / "wrapper").write_text(text.replace("\npatience=10\n", "\npatience=2\n"))
    site.pause_controller()
    try:
        answer, told = run(site, directory, "n1")
    finally:
        site.continue_controller()
    assert isinstance(answer, dict)
    assert "remarks" in answer
    assert "no answer within 2 s" in told

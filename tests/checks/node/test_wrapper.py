"""The template bcm-wrapper, under two shells: what it makes of a check's status, and which job it finds.

tests/e2e/test_bcm_wrapper.py asks a real Slurm, and compares with what a real prolog is given.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from segment_health.checks.health_check import Finding
from segment_health.checks.node import NodeHealthCheck
from segment_health.cli import main

if TYPE_CHECKING:
    from conftest import NvrxClient, Server  # type: ignore[import-not-found]  # pytest's own

ROW = "RUNNING|7|7|N/A|1000|1001|2|main|n[1-2]|alice"
HEALTHY = {"fail_count": 0, "failed_checks": []}
NOT_RUN = {**HEALTHY, "remarks": ["bcm_healthcheck was not run: see the log of nvhcd"]}
UNHEALTHY = {"fail_count": 1, "failed_checks": ["bcm_healthcheck"]}


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell that /bin/sh may be."""
    return str(request.param)


class Wrapper:
    """The template as a site has edited it, a squeue that prints what it is told, and a check."""

    def __init__(self, directory: Path, shell: str) -> None:
        self.directory = directory
        self.shell = shell
        self.edit()
        self.squeue(f"echo '{ROW}'")
        self.check("exit 0")

    def edit(self, **settings: str) -> None:
        """Write the template with other settings."""
        text = CliRunner().invoke(main, ["template", "show", "bcm-wrapper"]).stdout
        for name, value in {"check": f"{self.directory}/check", **settings}.items():
            (line,) = [line for line in text.splitlines() if line.startswith(f"{name}=")]
            text = text.replace(f"\n{line}\n", f"\n{name}={value}\n")
        (self.directory / "wrapper").write_text(text)

    def program(self, name: str, code: str) -> None:
        """Write a program."""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)

    def squeue(self, code: str) -> None:
        """Let squeue do so."""
        self.program("squeue", code)

    def check(self, code: str) -> None:
        """Let the check do so."""
        self.program("check", code)

    def command(self, *arguments: str) -> list[str]:
        """Return how it is called."""
        return [self.shell, str(self.directory / "wrapper"), *arguments]

    def environment(self, **environ: str) -> dict[str, str]:
        """Return an environment in which that squeue is found."""
        return {"PATH": f"{self.directory}:/usr/bin:/bin", "SLURMD_NODENAME": "n1", **environ}

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run it as nvhcd does."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(**environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def told(self, *arguments: str, **environ: str) -> tuple[int, object, str]:
        """Return its status, the one JSON object that it prints, and stderr."""
        ended = self.run(*arguments, **environ)
        return ended.returncode, json.loads(ended.stdout), ended.stderr

    def job(self, **environ: str) -> dict[str, str]:
        """Return the variables of Slurm that the check is given."""
        self.check(f"env >{self.directory}/env")
        (self.directory / "env").unlink(missing_ok=True)
        assert self.told(**environ)[:2] == (0, HEALTHY)
        lines = (self.directory / "env").read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines if line.startswith("SLURM"))


@pytest.fixture
def wrapper(tmp_path: Path, shell: str) -> Wrapper:
    """A wrapper on a node with one job, whose check finds nothing."""
    return Wrapper(tmp_path, shell)


@pytest.mark.wheel
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        pytest.param("exit 0", HEALTHY, id="healthy"),
        pytest.param("exit 1", UNHEALTHY, id="unhealthy"),
        pytest.param("exit 3", UNHEALTHY, id="any-status"),
        pytest.param("exit 255", UNHEALTHY, id="the-last-status"),
        pytest.param("kill -9 $$", UNHEALTHY, id="killed"),
        pytest.param("no-such-program", NOT_RUN, id="ends-with-what-is-missing"),
        pytest.param("/etc/passwd", NOT_RUN, id="ends-with-what-cannot-be-run"),
        pytest.param("echo '{\"fail_count\": 9}'; echo noise >&2; exit 0", HEALTHY, id="prints-json"),
        pytest.param("cat; exit 0", HEALTHY, id="reads-stdin"),
        pytest.param("printf 'no newline'; exit 1", UNHEALTHY, id="prints-half-a-line"),
    ],
)
def test_a_status_becomes_an_answer(
    wrapper: Wrapper, server: Server, nvrx: NvrxClient, code: str, answer: object
) -> None:
    """One JSON object on stdout, which each release of NVRx and we read alike, whatever the check prints."""
    wrapper.check(code)
    ended = wrapper.run()
    healthy = answer is not UNHEALTHY
    assert (ended.returncode, json.loads(ended.stdout)) == (0 if healthy else 1, answer)
    path = server.answers(
        success=ended.returncode == 0, exit_code=ended.returncode, output=ended.stdout, error=ended.stderr
    )
    assert nvrx.ask(path).healthy is healthy
    found = NodeHealthCheck(path).look()
    assert found.is_healthy is healthy
    if answer is NOT_RUN:
        assert found == Finding(remarks=("bcm_healthcheck was not run: see the log of nvhcd",))
    elif not healthy:
        assert "failed checks: bcm_healthcheck" in found.problems[0]


@pytest.mark.parametrize("name", ["missing", "directory", "not-executable", "no-interpreter", "as-it-comes"])
def test_a_check_that_cannot_be_run_excludes_nobody(wrapper: Wrapper, tmp_path: Path, name: str) -> None:
    """A wrong path, or a template that nobody edited: the node is healthy, with a remark, and stderr says why."""
    path = tmp_path / name
    if name == "directory":
        path.mkdir()
    elif name == "not-executable":
        path.write_text("#!/bin/sh\n")
    elif name == "no-interpreter":
        path.write_text("#!/no/such/interpreter\n")
        path.chmod(0o755)
    wrapper.edit(check="/path/to/bcm-healthcheck" if name == "as-it-comes" else str(path))
    status, answer, said = wrapper.told()
    assert (status, answer) == (0, NOT_RUN)
    assert "the node counts as healthy" in said


def test_arguments_are_handed_on(wrapper: Wrapper, tmp_path: Path) -> None:
    """As they are, blanks and all; and what the check prints goes to stderr."""
    wrapper.check(f'printf \'%s\\n\' "$#" "$@" >{tmp_path}/args; echo printed')
    arguments = ("--no-slurm", "--group", "a b", "", "$(id)", "*")
    status, answer, said = wrapper.told(*arguments)
    assert (status, answer, said) == (0, HEALTHY, "printed\n")
    assert (tmp_path / "args").read_text().split("\n") == ["6", *arguments, ""]


def test_the_job_of_the_node(wrapper: Wrapper, tmp_path: Path) -> None:
    """What slurmd gives a prolog; Slurm's configuration names the cluster, in its usual spelling or another."""
    (tmp_path / "slurm.conf").write_text("# ClusterName=no\n clustername = alpha-1 # ours\nSlurmctldHost=x\n")
    expected = {
        "SLURM_CLUSTER_NAME": "alpha-1",
        "SLURM_CONF": f"{tmp_path}/slurm.conf",
        "SLURMD_NODENAME": "n1",
        "SLURM_JOBID": "7",
        "SLURM_JOB_GID": "1001",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_PARTITION": "main",
        "SLURM_JOB_UID": "1000",
        "SLURM_JOB_USER": "alice",
        "SLURM_NODELIST": "n[1-2]",
        "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
        "SLURM_UID": "1000",
    }
    assert wrapper.job(SLURM_CONF=f"{tmp_path}/slurm.conf") == expected


def test_the_environment_is_not_believed(wrapper: Wrapper, tmp_path: Path) -> None:
    """A daemon that was started in another job's shell has that job's variables; squeue's are not used either."""
    old = {"SLURM_JOB_ID": "3", "SLURM_JOB_USER": "mallory", "SLURM_PROCID": "0", "SQUEUE_FORMAT": "%j"}
    wrapper.squeue(f"env >{tmp_path}/asked; echo '{ROW}'")
    found = wrapper.job(**old, SLURM_JOB_EXIT_CODE2="0:9")
    assert (found["SLURM_JOB_ID"], found["SLURM_JOB_USER"]) == ("7", "alice")
    assert "SLURM_PROCID" not in found
    assert "SLURM_JOB_EXIT_CODE2" not in found
    asked = (tmp_path / "asked").read_text()
    assert "SQUEUE" not in asked
    assert "SLURM_JOB" not in asked


@pytest.mark.parametrize(
    ("rows", "environ", "job"),
    [
        pytest.param([ROW, ROW.replace("RUNNING|7|7", "COMPLETING|6|6")], {}, "7", id="another-completes"),
        pytest.param([ROW.replace("RUNNING", "SUSPENDED")], {}, "7", id="suspended"),
        pytest.param([ROW, ROW.replace("7|7", "8|8")], {"SLURM_JOB_ID": "8"}, "8", id="the-daemon's-own"),
        pytest.param([ROW.replace("7|7|N/A", "9|7|4")], {}, "9", id="array"),
    ],
)
def test_which_job_it_is(wrapper: Wrapper, rows: list[str], environ: dict[str, str], job: str) -> None:
    """The one that runs; of several, the one that the daemon was started in."""
    wrapper.squeue("cat <<'EOF'\n" + "\n".join(rows) + "\nEOF")
    found = wrapper.job(**environ)
    assert found["SLURM_JOB_ID"] == job
    assert (found.get("SLURM_ARRAY_JOB_ID"), found.get("SLURM_ARRAY_TASK_ID")) == (
        ("7", "4") if job == "9" else (None, None)
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(":", "0 jobs run on n1", id="none"),
        pytest.param(f"echo '{ROW}'; echo '{ROW}'", "2 jobs run on n1", id="several"),
        pytest.param("exit 1", "or failed", id="fails"),
        pytest.param(f"echo '{ROW}'; exit 1", "or failed", id="fails-late"),
        pytest.param("exec sleep 60", "no answer within 1 s", id="hangs"),
        pytest.param("trap '' TERM; sleep 60 & wait; sleep 60", "no answer within 1 s", id="hangs-on"),
        pytest.param("echo 'RUNNING|7;id|7|N/A|1|1|1|m|n|u'", "what is no number", id="hostile-id"),
        pytest.param("echo 'RUNNING|7|7|N/A|1|1|1|m|n|$(id)'", "a name that is none", id="hostile-user"),
        pytest.param("echo 'RUNNING|7|7|N/A|1|1|1|m|n|a|b'", "a name that is none", id="a-field-more"),
        pytest.param("echo 'RUNNING|7|7|N/A|1|1|1|m'", "a name that is none", id="half-a-row"),
        pytest.param("echo 'slurm is down'", "what is no number", id="something-else"),
    ],
)
@pytest.mark.parametrize("without_job", ["skip", "run"])
def test_without_a_job(wrapper: Wrapper, code: str, said: str, without_job: str) -> None:
    """The check is not run, and the node healthy; or it is, with what is known of the node alone."""
    wrapper.edit(without_job=without_job, patience="1")
    wrapper.squeue(code)
    wrapper.check('[ -n "${SLURMD_NODENAME-}" ] && [ -z "${SLURM_JOB_ID-}${SLURM_JOB_USER-}" ] || exit 99; exit 1')
    status, answer, told = wrapper.told()
    assert (status, answer) == ((0, NOT_RUN) if without_job == "skip" else (1, UNHEALTHY))
    assert said in told


def test_a_node_name_that_is_none(wrapper: Wrapper) -> None:
    """It does not become a list of nodes, or an option."""
    wrapper.edit(without_job="skip")
    status, answer, told = wrapper.told(SLURMD_NODENAME="n1 --all")
    assert (status, answer) == (0, NOT_RUN)
    assert "no name that Slurm may know" in told


@pytest.mark.parametrize("where", ["squeue", "check"])
def test_it_dies_with_its_process_group(wrapper: Wrapper, tmp_path: Path, where: str) -> None:
    """Which nvhcd kills when the time is over: the check dies with it, and squeue when its own time is over."""
    wrapper.edit(patience="2")
    wrapper.program(where, f"echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 300")
    deadline = time.monotonic() + 60
    with subprocess.Popen(wrapper.command(), env=wrapper.environment(), start_new_session=True) as process:
        while not (tmp_path / "pid").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        pid = int((tmp_path / "pid").read_text())
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False

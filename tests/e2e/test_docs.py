"""Every command of README.md and docs/ is run here as it stands there, against a real Slurm.

Two things differ: `/shared/segment-health` is a directory of the test, and `pip install .` installs this tree.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.policy.file import parse
from segment_health.sources import node_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.sandbox.cluster import Sandbox

    from .conftest import Site, Slurmrestd

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STATUS = ROOT / "docs/status.md"
SCRIPTS = Path(sys.executable).parent


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page that are in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def localised(code: str, shared: Path) -> str:
    """Put the test's directory where the page says /shared."""
    return code.replace("/shared/segment-health", str(shared)).replace("pip install .", f"pip install -q {ROOT}")


def run(code: str, cluster: Sandbox, directory: Path, **environ: str) -> str:
    """Run shell code as a reader would, stopping at the first command that fails; return what it prints."""
    path = f"{SCRIPTS}:{cluster.env['PATH']}"
    home = {"HOME": str(directory), "LOGNAME": "root" if os.geteuid() == 0 else str(os.geteuid())}
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=directory,
        env=cluster.env | home | {"PATH": path} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_every_language_of_a_block_is_one_that_is_run() -> None:
    """A block in another language would be passed over, so there is none; ```json is for reading."""
    for page in PAGES:
        found = set(re.findall(r"^```(\S*)\n(?=.)", page.read_text(), re.MULTILINE))
        assert found <= {"bash", "cron", "python", "json", "toml"}, page


def test_the_make_commands_are_run_by_ci() -> None:
    """`make test` cannot run inside itself: the CI script runs it, and every other target that a page names."""
    ci = (ROOT / ".ci/run").read_text()
    named = {
        target
        for page in PAGES
        for code in blocks(page, "bash")
        for target in re.findall(r"^make (\w+)", code, re.MULTILINE)
    }
    assert named
    assert all(f"make {target}" in ci for target in named)


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_readme(cluster: Sandbox, tmp_path: Path) -> None:
    """Install, dry run, pass; the job script starts its launcher, which asks about its own segment."""
    shared = tmp_path / "shared"
    shared.mkdir()
    code = "\n".join(block for block in blocks(ROOT / "README.md", "bash") if not block.startswith("make"))
    output = run(localised(code, shared), cluster, tmp_path)
    assert "dry run: 8 nodes" in output
    assert "complete: 8 nodes" in output
    launcher = tmp_path / "ft_launcher"
    launcher.write_text(f'#!/bin/bash\necho "launched $*"\nexec {SCRIPTS}/segment-health check --dir "$2"\n')
    launcher.chmod(0o755)
    command = "sbatch --wait --output=out.%a --array=0-1 --nodes=2 train.sbatch; cat out.0 out.1"
    environ = {"PATH": f"{tmp_path}:{SCRIPTS}:{cluster.env['PATH']}", "SEGMENT_HEALTH_DIR": f"{shared}/decisions"}
    output = run(command, cluster, tmp_path, **environ)
    assert "complete: 8 nodes" in output
    assert f"launched --ft-segment-health-check-dir {shared}/decisions train.py" in output
    assert "healthy: " in output
    assert "starting all the same" not in output


@pytest.mark.slurm
def test_the_cron_lines(cluster: Sandbox, tmp_path: Path) -> None:
    """The command of each crontab line does what the page says of it."""
    (tmp_path / "decisions").mkdir()
    lines = [line for page in PAGES for block in blocks(page, "cron") for line in block.splitlines()]
    assert lines
    for line in lines:
        match = re.fullmatch(r"(?:@reboot|(?:[0-9*/]+ ){4}[0-9*/]+) (/shared/segment-health/venv/bin/.*)", line)
        assert match is not None, line
        command = (
            match[1].replace("/shared/segment-health/venv/bin", str(SCRIPTS)).replace("/var/log", str(tmp_path))
        )
        command = localised(command, tmp_path)
        if line.startswith("@reboot"):  # it runs until it is told to end
            log = tmp_path / "segment-health.log"
            log.unlink(missing_ok=True)  # an earlier line's
            waiting = f"until grep -q complete {log}; do sleep 0.1; done"
            run(f"{command} & {waiting}; kill -TERM $!; wait $!; ! grep Traceback {log}", cluster, tmp_path)
        else:  # what a command prints, cron mails
            assert run(command, cluster, tmp_path) == ""


@pytest.mark.slurm
def test_running_it(cluster: Sandbox, tmp_path: Path) -> None:
    """The loop starts, is poked and ends well; nothing is there to clear; the templates are printed."""
    code = "\n".join(blocks(ROOT / "docs/operations.md", "bash"))
    assert "nothing to clear: 999_7 not excluded" in run(localised(code, tmp_path), cluster, tmp_path)
    assert (tmp_path / "train-array.sbatch").read_text().startswith("#!/bin/bash\n#SBATCH")


@pytest.mark.slurm
def test_one_service_for_a_site(cluster: Sandbox, tmp_path: Path) -> None:
    """The directory that the page makes is one that --all accepts."""
    code = "\n".join(blocks(ROOT / "docs/site-wide.md", "bash"))
    assert run(localised(code, tmp_path), cluster, tmp_path).startswith("complete: 8 nodes")
    assert (tmp_path / "decisions").stat().st_mode & 0o7777 == 0o755


@pytest.mark.slurm
def test_the_sources(
    cluster: Sandbox, tmp_path: Path, slurmrestd_of: Callable[[Sandbox, str], Slurmrestd]
) -> None:
    """Each source sees the cluster, and so does whoever plays what was recorded of it."""
    (tmp_path / "decisions").mkdir()
    code = "\n".join(blocks(ROOT / "docs/sources.md", "bash"))
    with slurmrestd_of(cluster, "rest_auth/local") as slurmrestd:
        code = code.replace("/run/slurmrestd/slurmrestd.socket", str(slurmrestd.socket))
        output = run(localised(code, tmp_path), cluster, tmp_path)
    first, *others = output.splitlines()
    assert json.loads(first)["source"] == "text"
    told = [line for line in others if line.startswith(("dry run: ", "recorded: "))]
    expected = "dry run: 8 nodes, 0 unavailable; 0 units, 0 excluded; "
    recorded = "recorded: 8 nodes, 0 allocations of sandbox"
    assert [line[: len(expected)] for line in told] == [expected] * 3 + [recorded, expected]


@pytest.mark.slurm
def test_the_quick_start(cluster: Sandbox, tmp_path: Path) -> None:
    """What the page says one sees is what one sees."""
    for _ in range(3):  # task 1 of an array whose number is 1 would be told as `1`
        cluster.submit("#!/bin/sh\n", f"--chdir={tmp_path}", "--wait")
    code = "\n".join(blocks(ROOT / "docs/quickstart.md", "bash"))
    output = run(localised(code, tmp_path), cluster, tmp_path)
    expected = [
        r"; 3 units, 0 excluded",
        r"^exclude \d+_1 PreSeparateFault n\d ",
        r'^\{"schema": 1, .*"reason": "Xid 79"',
        r"^excluded: .*\.1 is not empty$",
        r"^segment 1: status 1$",
        r"^healthy: ",
        r"^clear \d+_1 PreSeparateFault n\d ",
        r"^retire \d+_1 ",
        r'^\{"time": .*"action": "retire"',
        r"^dry run: 8 nodes",
        r'^\{"pass": "complete"',
    ]
    at = 0
    for pattern in expected:
        match = re.compile(pattern, re.MULTILINE).search(output, at)
        assert match is not None, f"{pattern} is not in, or not behind the others in:\n{output}"
        at = match.end()


def installed(code: str, shared: Path) -> str:
    """Put the test's directory where the page says /shared, and this project's programs where it installs them."""
    return localised(code.replace("/shared/segment-health/venv/bin", str(SCRIPTS)), shared)


@pytest.mark.slurm
def test_the_quick_start_of_a_job(cluster: Sandbox, tmp_path: Path) -> None:
    """Ten lines publish for the job; what is written by hand refuses it, and its removal lets it in again."""
    launcher = tmp_path / "ft_launcher"
    launcher.write_text('#!/bin/bash\necho "launched $*"\nexec sleep 300\n')
    launcher.chmod(0o755)
    code = f"export PATH={tmp_path}:$PATH\n" + "\n".join(blocks(ROOT / "docs/quickstart-job.md", "bash"))
    output = run(installed(code, tmp_path), cluster, tmp_path)
    assert re.search(r"^complete: 8 nodes, 0 unavailable; 1 units, 0 excluded", output, re.MULTILINE)
    assert (
        f"launched --ft-segment-health-check-dir {tmp_path}/decisions train.py"
        in (tmp_path / "train.out").read_text()
    )
    told = [line.partition(":")[0] for line in output.splitlines()][-3:]
    assert told == ["excluded", "status 1", "healthy"]
    assert (tmp_path / "train-array.sbatch").read_text().startswith("#!/bin/bash\n#SBATCH")
    gone = ("squeue", "--noheader", "--me")
    cluster.wait_until(lambda: not cluster.run(*gone).stdout, what="end of the job")


@pytest.mark.slurm
def test_preflight(cluster: Sandbox, tmp_path: Path) -> None:
    """The launcher runs, and what is explained is what the file enables."""
    (tmp_path / "decisions").mkdir()
    output = run(localised("\n".join(blocks(ROOT / "docs/preflight.md", "bash")), tmp_path), cluster, tmp_path)
    first, *explained = output.splitlines()
    assert first == "the launcher runs"
    assert [re.split(r" \(|: not ", line.split(": ", 1)[1])[0] for line in explained] == [
        "Segment health check",
        "Distributed storage health check",
        "Storage path health check",
        "Node health check",
    ]
    assert ["not enabled" in line for line in explained] == [False, True, False, True]


def test_the_agent_of_the_preflight_page(tmp_path: Path) -> None:
    """An agent that checks before each rendezvous meets the others, and does so no longer when it is excluded."""
    (block,) = blocks(ROOT / "docs/preflight.md", "python")
    program = f"""
agent = CheckedAgent()
agent._rendezvous(None)
open("{tmp_path}/decisions/segment_health_check.5.5", "w").write("x")
try:
    agent._rendezvous(None)
except UnhealthyNodeException as error:
    print(error.message)
"""
    (tmp_path / "decisions").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", localised(block, tmp_path) + program],
        env=os.environ | {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout == "meets the others\nA node in the cluster is unhealthy\n"


@pytest.mark.slurm
def test_how_a_log_is_judged(cluster: Sandbox, tmp_path: Path) -> None:
    """What the page shows says what the page says of it."""
    code = "\n".join(blocks(ROOT / "docs/attribution-analysers.md", "bash"))
    output = run(localised(code, tmp_path), cluster, tmp_path)
    assert "train_cycle0.log: RESTART (node-failure)" in output
    assert "  blamed: n042\n" in output


@pytest.mark.slurm
def test_attribution_beside_a_launcher(cluster: Sandbox, tmp_path: Path) -> None:
    """Nobody listens at the page's endpoint: the launcher runs all the same, and that is all there is to see."""
    code = "\n".join(blocks(ROOT / "docs/attribution-watch.md", "bash"))
    output = run(localised(code, tmp_path), cluster, tmp_path)
    assert "the launcher runs" in output.splitlines()
    assert (tmp_path / "logs/train_cycle0.log").read_text() == "first\n"


@pytest.mark.slurm
def test_the_built_in_checks(cluster: Sandbox, tmp_path: Path) -> None:
    """The page's configuration is one that is understood, and an idle node is healthy."""
    code = "\n".join(blocks(ROOT / "docs/builtin.md", "bash"))
    assert json.loads(run(code, cluster, tmp_path)) == {"fail_count": 0, "failed_checks": []}


@pytest.mark.slurm
def test_the_quick_start_of_a_launcher(cluster: Sandbox, tmp_path: Path) -> None:
    """Its launcher leaves when a node of its job was drained, and takes the step along."""
    code = "\n".join(blocks(ROOT / "docs/quickstart-launcher.md", "bash"))
    output = run(installed(code, tmp_path), cluster, tmp_path)
    assert re.search(r"^exclude \d+ PreSeparateFault n\d ", output, re.MULTILINE)
    assert "leaving: Slurm allocation unit" in output.splitlines()[-1]
    idle = dict.fromkeys(cluster.nodes, "IDLE")
    cluster.wait_until(
        lambda: {name: cluster.node_state(name) for name in cluster.nodes} == idle, what="idle nodes"
    )


@pytest.mark.slurm
def test_the_doctor(cluster: Sandbox, tmp_path: Path) -> None:
    """It looks at the directory and at this Slurm; as root it finds that pytest's own is closed to others."""
    code = "\n".join(blocks(ROOT / "docs/doctor.md", "bash"))
    output = run(localised(code, tmp_path), cluster, tmp_path)
    assert re.search(rf"^ok +directory\.path +{tmp_path}/decisions$", output, re.MULTILINE)
    assert re.search(r"^ok +slurm\.answer +8 nodes", output, re.MULTILINE)
    assert ("status 1: something needs a person" in output) == (os.geteuid() == 0)


@pytest.mark.slurm
def test_the_status_page(cluster: Sandbox, site: Site, tmp_path: Path) -> None:
    """A running unit is excluded: status, its JSON, the history and what a monitor runs say so."""
    job = site.submit("--exclusive", "--nodelist=n2")
    cluster.set_node("n2", "drain", "Xid 79")
    code = "\n".join(blocks(STATUS, "bash"))
    lines = run(localised(code, tmp_path), cluster, tmp_path).splitlines()
    assert "OK: 1 publisher, 1 unit, 1 excluded" in lines
    plugins = re.findall(r"(?:command_line +|\]=)/shared/segment-health/venv/bin/(.*)", STATUS.read_text())
    assert len(plugins) == 2
    for plugin in plugins:
        assert run(localised(plugin, tmp_path), cluster, tmp_path).startswith(
            "OK: 1 publisher, 1 unit, 1 excluded\n"
        )
    (document,) = [json.loads(line) for line in lines if line.startswith('{"publishers"')]
    (shown,) = map(json.loads, blocks(STATUS, "json"))
    for key in ("publishers", "units"):
        assert list(document[key][0]) == list(shown[key][0])
    assert list(document) == list(shown)
    assert re.fullmatch(
        rf"\S+  exclude  {job} +PreSeparateFault n2  by all@sandbox: Xid 79 \(state:DRAIN\)", lines[-1]
    )


@pytest.mark.slurm
def test_the_metrics_page(cluster: Sandbox, tmp_path: Path) -> None:
    """A single pass leaves its figures where the page says, and the templates are printed."""
    code = "\n".join(blocks(ROOT / "docs/metrics.md", "bash"))
    output = run(localised(code, tmp_path), cluster, tmp_path)
    assert 'segment_health_passes_total{result="complete",scope="all"} 1.0' in output
    for name in ("segment-health-alerts.yml", "segment-health-dashboard.json"):
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.slurm
def test_the_node_check(cluster: Sandbox, tmp_path: Path) -> None:
    """Where no daemon runs the service is unavailable, which is no failure; the wrapper is a script."""
    code = "\n".join(blocks(ROOT / "docs/nodecheck.md", "bash"))
    output = run(localised(code.replace("/run/nvhcd", f"{tmp_path}"), tmp_path), cluster, tmp_path)
    text, document = output.splitlines()
    assert text.startswith(f"unavailable: no socket {tmp_path}/nvhcd.sock")
    assert json.loads(document)["args"] == ["--group", "gpu"]
    assert (tmp_path / "nvrx-bcm-healthcheck-wrapper.sh").read_text().startswith("#!/bin/sh\n")


@pytest.mark.slurm
def test_the_policy_page(cluster: Sandbox, site: Site, tmp_path: Path) -> None:
    """A policy is checked, shown and tried; a drained node is explained, living and from a recording."""
    code = "\n".join(blocks(ROOT / "docs/policy.md", "bash"))
    site.start(("--exclusive", "--nodelist=n2"))
    cluster.set_node("n2", "drain", "Maintenance on Monday")
    output = run(localised(code, tmp_path), cluster, tmp_path)
    assert "planned maintenance" in output
    assert "dry run: 8 nodes, 0 unavailable; 1 units, 0 excluded; " in output
    before, told = output.split("recorded: 8 nodes, 1 allocations of sandbox")
    assert "node n2: fit" in before
    assert "by rule 'planned maintenance' (policy.toml:1)" in before
    document = json.loads(told.splitlines()[-1])
    assert [unit["excluded"] for unit in document["units"]] == [False]
    assert {word["rule"] for word in document["node"]["words"]} == {None, "planned maintenance"}


TOML = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "toml"))
]


def test_there_is_toml_to_read() -> None:
    """The page about policies is among those that are read."""
    assert len(TOML) > 10


@pytest.mark.parametrize("code", TOML)
def test_a_toml_block_is_a_policy(code: str) -> None:
    """Whoever copies it has a policy that is in force, and that says something."""
    policy = parse(code.encode(), "page.md", node_names)
    assert policy != parse(b"# nothing", "page.md", node_names)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_blocks(page: Path, tmp_path: Path) -> None:
    """Each block runs as a program of its own, outside any job."""
    for code in blocks(page, "python"):
        ended = subprocess.run(
            [sys.executable, "-c", localised(code, tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert ended.returncode == 0, ended.stderr

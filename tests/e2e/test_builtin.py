"""`segment-health builtin` on a real Slurm: what a node asks about itself, and who answers for a segment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Site

pytestmark = pytest.mark.slurm


def requests(site: Site) -> dict[str, int]:
    """Count what slurmctld was asked, by kind."""
    told = site.cluster.run("sdiag").stdout
    kinds = told[told.index("by message type") : told.index("by user")]
    return {kind: int(count) for kind, count in re.findall(r"(REQUEST_\w+)\s*\(\s*\d+\) count:(\d+)", kinds)}


def ask(site: Site, tmp_path: Path, **settings: Any) -> tuple[int, Any, str]:
    """Ask about n2; return the status, the answer and what was said."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"timeout": 20, "builtin": {"node_name": "n2"} | settings}))
    ended = site.call("builtin", "slurm", "--config", str(path))
    return ended.returncode, json.loads(ended.stdout or "null"), ended.stderr


def test_a_node_that_is_drained(site: Site, tmp_path: Path) -> None:
    """Healthy before, unhealthy with its reason, healthy after; another node's drain is not ours."""
    healthy = (0, {"fail_count": 0, "failed_checks": []}, "")
    site.cluster.set_node("n1", "drain", "elsewhere")
    assert ask(site, tmp_path) == healthy
    site.cluster.set_node("n2", "drain", "Xid 79|\nn2|idle|Unknown|Unknown|none|")
    status, document, said = ask(site, tmp_path)
    assert (status, document["fail_count"], said) == (1, 1, "")
    assert document["failed_checks"][0].startswith("slurm: n2 is IDLE+DRAIN, PreSeparateFault by state:DRAIN; ")
    assert "Xid 79" in document["failed_checks"][0]
    assert ask(site, tmp_path, publish_at="SeparateFault") == healthy
    site.resume("n2")
    assert ask(site, tmp_path) == healthy


def test_one_question_about_one_node(site: Site, tmp_path: Path) -> None:
    """A thousand nodes may ask at once: none of them fetches the table of all."""
    before = requests(site)
    assert ask(site, tmp_path)[0] == 0
    after = requests(site)
    asked = {kind: count - before.get(kind, 0) for kind, count in after.items() if count != before.get(kind, 0)}
    assert asked.pop("REQUEST_STATS_INFO") == 1  # our own
    assert asked == {"REQUEST_NODE_INFO_SINGLE": 1, "REQUEST_PARTITION_INFO": 1}


@pytest.mark.parametrize("name", ["no-such-node", "n[1-2]"])
def test_a_node_that_slurm_does_not_know(site: Site, tmp_path: Path, name: str) -> None:
    """It is not known, or refused: nothing is said of anybody."""
    path = tmp_path / "config.yaml"
    path.write_text("{}")
    ended = site.call("builtin", "slurm", "--config", str(path), env={"SLURMD_NODENAME": name})
    assert (ended.returncode, ended.stdout) == (3, "")
    assert name in ended.stderr


def test_a_controller_that_does_not_answer(site: Site, tmp_path: Path) -> None:
    """A question without an answer excludes nobody, whatever was drained before."""
    site.cluster.set_node("n2", "drain", "Xid 79")
    site.cluster.pause_controller()
    path = tmp_path / "config.yaml"
    path.write_text("timeout: 3\nbuiltin: {node_name: n2}")
    ended = site.call("builtin", "slurm", "--config", str(path))
    site.cluster.continue_controller()
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "slurm: the state of n2: sinfo" in ended.stderr
    assert "no answer within 2." in ended.stderr


def test_a_segment_is_told_of_by_process_0(site: Site, tmp_path: Path) -> None:
    """Of the two tasks of a step, and in the batch script, it is the one whose SLURM_PROCID is 0."""
    path = tmp_path / "config.yaml"
    path.write_text(f"builtin: {{segment_health_check_dir: {site.directory}}}")
    check = f"{site.command} builtin segment --config {path} > /dev/null 2>&1; echo"
    script = f"""#!/bin/sh
echo x > {site.directory}/segment_health_check.$SLURM_JOB_ID.$SLURM_JOB_ID
({check} batch $?) > {site.work}/batch
srun --ntasks-per-node=1 sh -c '({check} $SLURM_PROCID $?) > {site.work}/task.$SLURM_PROCID'
"""
    site.cluster.submit(script, "--nodes=2", "--wait", f"--chdir={site.work}")
    told = {name: (site.work / name).read_text().strip() for name in ("batch", "task.0", "task.1")}
    assert told == {"batch": "batch 1", "task.0": "0 1", "task.1": "1 0"}


LAUNCHER = """#!/bin/sh
segment-health nodecheck "$2"
echo x > {0}/segment_health_check.$SLURM_JOB_ID.$SLURM_JOB_ID
segment-health nodecheck "$2" || exit 0  # sbatch --wait would end as the job does
"""


def test_a_daemon_of_the_job(site: Site, short_path: Path) -> None:
    """The script of the page on built-in checks: the launcher meets a daemon that knows the job's decision."""
    page = Path(__file__).parents[2].joinpath("docs/builtin.md").read_text()
    script = page[page.index("    #SBATCH --nodes=18") : page.index("\nThe socket has to be there")]
    script = "\n".join(line.removeprefix("    ") for line in script.splitlines())
    for theirs, ours in {
        "--nodes=18": "--nodes=1",
        "/tmp/nvhcd-": f"{short_path}/",
        "/shared/segment-health/decisions": str(site.directory),
    }.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    launcher = site.work / "ft_launcher"
    launcher.write_text(LAUNCHER.format(site.directory))
    launcher.chmod(0o755)
    script = f"#!/bin/bash\nPATH={site.work}:{Path(site.command).parent}:$PATH\n{script}"
    site.cluster.submit(script, "--wait", f"--chdir={site.work}", f"--output={site.work}/out")
    told = [
        line for line in (site.work / "out").read_text().splitlines() if line.startswith(("healthy", "unhealthy"))
    ]
    assert [line.partition(":")[0] for line in told] == ["healthy", "unhealthy"]
    assert "failed checks: segment: Slurm allocation unit job_id=" in told[1]

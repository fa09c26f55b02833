"""What a step of a real job does when its launcher asks the consumer before every rendezvous."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Site

pytestmark = pytest.mark.slurm

LAUNCHER = """\
import os, sys, time
from segment_health import ensure_segment_is_healthy

unit = os.environ.get("SLURM_ARRAY_TASK_ID", "job")
for rendezvous in ("first", "second"):
    while not os.path.exists(rendezvous):
        time.sleep(0.05)
    ensure_segment_is_healthy(sys.argv[1])
    open(f"{rendezvous}.{unit}.{os.environ['SLURM_PROCID']}", "x").close()
while not os.path.exists("end"):
    time.sleep(0.05)
"""


def test_a_step_of_an_excluded_unit_ends_at_its_next_rendezvous(site: Site) -> None:
    """Process 0 refuses and takes its step along; running work, process 1 and the neighbours are left alone."""
    launcher = site.work / "launcher.py"
    launcher.write_text(LAUNCHER)
    script = (
        "#!/bin/sh\n"
        "unit=${SLURM_ARRAY_TASK_ID-job}\n"
        "srun --ntasks=2 --nodes=2 --kill-on-bad-exit=1 --output=out.$unit.%t "
        f"{sys.executable} {launcher} {site.directory}\n"
        "echo $? > code.$unit.part && mv code.$unit.part code.$unit\n"
    )
    layout = ("--nodes=2", "--ntasks=2", "--exclusive")
    array, _ = site.start(("--array=0-2", *layout), layout, script=script)
    units = ("0", "1", "2", "job")

    def passed(rendezvous: str) -> set[str]:
        return {path.name.partition(".")[2] for path in site.work.glob(f"{rendezvous}.*")}

    def code(unit: str) -> int:
        return int((site.work / f"code.{unit}").read_text())

    (site.work / "first").touch()
    everyone = {f"{unit}.{process}" for unit in units for process in (0, 1)}
    site.cluster.wait_until(lambda: passed("first") == everyone, what="first rendezvous")
    site.cluster.set_node(min(site.nodes_of()[f"{array}.1"]), "drain")
    site.publish("--job", array)
    assert not list(site.work.glob("code.*"))  # what runs goes on
    (site.work / "second").touch()
    site.cluster.wait_until((site.work / "code.1").exists, what="end of the excluded unit's step")
    site.cluster.wait_until(lambda: passed("second") >= everyone - {"1.0", "1.1"}, what="second rendezvous")
    assert "1.0" not in passed("second")
    assert code("1") != 0
    output = (site.work / "out.1.0").read_text()
    assert f"UnhealthyNodeException: Slurm allocation unit job_id={array} task_id=1 is excluded" in output
    assert "UnhealthyNodeException" not in (site.work / "out.1.1").read_text()
    assert [path.name for path in site.work.glob("code.?*")] == ["code.1"]  # the neighbours go on
    (site.work / "end").touch()
    site.cluster.wait_until(
        lambda: all((site.work / f"code.{unit}").exists() for unit in units), what="their ends"
    )
    assert [code(unit) for unit in ("0", "2", "job")] == [0, 0, 0]

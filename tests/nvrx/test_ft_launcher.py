"""NVIDIA's own ft_launcher, unmodified, obeys what our publisher says about nodes that Slurm really drained.

The evidence is what the launcher itself logs. Nothing here waits for a time to pass: a test waits for a line of a
log, for steps that are trained, or for Slurm's word that the job is over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Lab

pytestmark = pytest.mark.slurm

INSTALLED = "Segment health check installed directory={decisions} job_id={job} task_id={task}"
REFUSED = "Segment health check failed for node "  # process 0 of an excluded unit, as it finds a round open
MARKED = "Marked replacement group unhealthy: round={round} group_id={unit} "  # and tells the others, in an array
WAITS = "attempts to join the next round"  # a spare, once a process

FINE = "COMPLETED 0"


def lines(log: str, process: int, text: str) -> list[str]:
    """Return the lines of one process that hold a text."""
    return [line for line in log.splitlines() if line.startswith(f"{process}: ") and text in line]


def failed(end: str) -> bool:
    """Tell whether a unit FAILED, with a status that is not 0."""
    return re.fullmatch(r"FAILED [1-9]\d*", end) is not None


def submit_array(lab: Lab, *, nnodes: str, units: int = 3, nodes: int = 1, **env: str) -> None:
    """Submit an array of `units` segments of `nodes` nodes."""
    lab.submit(f"--array=0-{units - 1}", f"--nodes={nodes}", nnodes=nnodes, units=units, **env)


def train_with_spare(lab: Lab, *, rejoin: str = "") -> None:
    """Submit three segments of one node, and let 0 and 1 train while 2 waits.

    Who joins first trains, so the spare's gate opens when the others do.
    """
    submit_array(lab, nnodes="2:3", REJOIN=rejoin)
    lab.open("start.0", "start.1")
    lab.wait_log("0", "TRAIN begins")
    lab.wait_log("1", "TRAIN begins")
    lab.open("start.2")
    lab.wait_log("2", WAITS)


def test_a_job_on_fit_nodes_trains(lab: Lab) -> None:
    """The directory is there and no decision in it: process 0, and no other, installs the check, and it passes."""
    lab.submit("--nodes=2", nnodes="2")
    lab.open("start.job")
    lab.wait_log("job", "TRAIN begins", 2)
    lab.open("stop")
    assert lab.wait_end() == {"job": FINE}
    log = lab.log("job")
    installed = INSTALLED.format(decisions=lab.decisions, job=lab.job, task=lab.job)
    assert len(lines(log, 0, installed)) == 1
    assert "check installed" not in log.replace(installed, "")
    assert log.count("LAUNCH nvidia-resiliency-ext 0.7.0\n") == 2


def test_a_job_with_a_drained_node_does_not_start(lab: Lab) -> None:
    """Process 0 refuses though it is the other node that was drained, and the step ends, non-zero, with it."""
    lab.submit("--nodes=2", nnodes="2")
    lab.drain("job", process=1)
    lab.open("start.job")
    # srun returns the highest status: 143, of process 1 that it ended. Where that one comes to end by itself, 1.
    assert lab.wait_end()["job"] in {"FAILED 143", "FAILED 1"}
    log = lab.log("job")
    assert lines(log, 0, REFUSED)
    assert lines(log, 0, "Agent .run() raised UnhealthyNodeException")
    assert lines(log, 0, "Single job deployment: exiting with code 1 for policy handling")
    assert "task 0: Exited with exit code 1" in log
    assert "TRAIN" not in log


def test_the_spare_replaces_a_segment_that_is_excluded_before_the_start(lab: Lab) -> None:
    """Its group of two nodes is marked unhealthy, and the round forms of the others, the spare among them."""
    submit_array(lab, nodes=2, nnodes="4:6")
    lab.drain("1", process=1)
    lab.open("start.0", "start.1")
    lab.wait_log("1", "STEP ended")
    assert "TRAIN" not in lab.log("0")  # which has waited for a segment that is fit
    lab.open("start.2")
    lab.wait_log("0", "TRAIN begins", 2)
    lab.wait_log("2", "TRAIN begins", 2)
    lab.open("stop")
    end = lab.wait_end()
    assert (end["0"], end["2"], failed(end["1"])) == (FINE, FINE, True)
    assert lines(lab.log("1"), 0, REFUSED)
    assert lines(lab.log("1"), 0, MARKED.format(round=0, unit=1))
    assert lines(lab.log("1"), 0, "Job array deployment: exiting with code 1 for replacement")
    assert "TRAIN" not in lab.log("1")
    formed = r"Constraint ok: 4 participants, .*unhealthy_replacement_groups=\['1'\], min=4 "
    assert any(re.search(formed, line) for line in lines(lab.log("0"), 0, "Constraint ok"))


def test_without_a_spare_the_rendezvous_times_out(lab: Lab) -> None:
    """Nothing is weakened: the segments that are left do not train without, and the excluded one not at all."""
    submit_array(lab, units=2, nnodes="2:2", JOIN_TIMEOUT="8")
    lab.drain("1")
    lab.open("start.0", "start.1")
    assert lab.wait_end() == {"0": "FAILED 1", "1": "FAILED 1"}
    assert lines(lab.log("1"), 0, REFUSED)
    assert lines(lab.log("1"), 0, MARKED.format(round=0, unit=1))
    assert re.search(r"rendezvous has timed out after 8\.\d+ seconds \(timeout: 8\.0s\)", lab.log("0"))
    assert "RendezvousTimeoutError" in lab.log("0")
    assert "Constraint ok" not in lab.log("0")
    assert "TRAIN" not in lab.log("0") + lab.log("1")


def test_a_drain_during_training_waits_for_the_next_restart(lab: Lab) -> None:
    """Training goes on over it; when another segment crashes, the excluded one leaves and the spare takes over."""
    train_with_spare(lab)
    lab.drain("1")
    lab.wait_trained("0", 20)
    lab.wait_trained("1", 5)
    assert [unit for unit in "012" if REFUSED in lab.log(unit) or "STEP ended" in lab.log(unit)] == []
    assert "TRAIN" not in lab.log("2")
    lab.open("crash.0")
    lab.wait_log("2", "TRAIN begins")
    lab.wait_log("1", "STEP ended")
    lab.open("stop")
    end = lab.wait_end()
    assert (end["0"], end["2"], failed(end["1"])) == (FINE, FINE, True)
    assert lab.log("0").count("TRAIN begins") == 2
    assert lines(lab.log("0"), 0, "Worker group FAILED")
    assert lines(lab.log("1"), 0, REFUSED)
    assert lines(lab.log("1"), 0, MARKED.format(round=1, unit=1))
    assert lab.log("1").count("TRAIN begins") == 1
    assert "Assigned active rank 1 (round=1)" in lab.log("2")


def test_a_segment_that_is_resumed_before_the_crash_stays(lab: Lab) -> None:
    """Nobody saw the decision while it stood: after the crash the same segments train, and the spare waits on."""
    train_with_spare(lab)
    lab.drain("1")
    assert lab.resume(lab.node("1")) == "1"
    lab.open("crash.0")
    lab.wait_log("1", "TRAIN begins", 2)
    lab.open("stop")
    assert lab.wait_end() == {"0": FINE, "1": FINE, "2": FINE}
    for unit in "01":
        assert re.search(r"Assigned active rank \d \(round=1\)", lab.log(unit))
    assert "Assigned active" not in lab.log("2")
    assert "TRAIN" not in lab.log("2")
    assert not any(REFUSED in lab.log(unit) for unit in "012")


def test_a_segment_that_is_resumed_after_the_crash_trains_again(lab: Lab) -> None:
    """A new step of its allocation waits as the spare, and takes over from the next segment that is excluded."""
    train_with_spare(lab, rejoin="1")
    node = lab.node("1")
    lab.drain("1")
    lab.open("crash.0")
    lab.wait_log("2", "TRAIN begins")
    lab.wait_log("1", "STEP ended")
    assert lab.resume(node) == "1"
    joined = lab.log("1").count(WAITS)
    lab.open("again.1")
    lab.wait_log("1", WAITS, joined + 1)
    lab.drain("2")
    lab.open("crash.0")
    lab.wait_log("1", "TRAIN begins", 2)
    lab.wait_log("2", "STEP ended")
    lab.open("stop")
    end = lab.wait_end()
    assert (end["0"], end["1"], failed(end["2"])) == (FINE, FINE, True)
    assert lines(lab.log("1"), 0, MARKED.format(round=1, unit=1))
    assert lines(lab.log("2"), 0, MARKED.format(round=2, unit=2))
    assert "Assigned active rank 1 (round=2)" in lab.log("1")


def test_excluding_the_segment_that_hosts_the_store_ends_the_job(lab: Lab) -> None:
    """The rendezvous is lost with the store of unit 0: the spare replaces it in vain."""
    train_with_spare(lab)
    lab.drain("0")
    lab.open("crash.1")
    end = lab.wait_end()
    assert {unit for unit in end if failed(end[unit])} == {"0", "1", "2"}
    assert lines(lab.log("0"), 0, REFUSED)
    assert lines(lab.log("0"), 0, "Store host waiting ")
    assert "DistNetworkError" in lab.log("1")
    assert "DistNetworkError" in lab.log("2")


def test_an_excluded_spare_leaves_at_the_next_restart(lab: Lab) -> None:
    """A launcher asks only when it finds a round open; for a spare that waits, that is when something crashes."""
    train_with_spare(lab)
    lab.drain("2")
    lab.wait_trained("0", 20)
    assert REFUSED not in lab.log("2")
    assert "STEP ended" not in lab.log("2")
    lab.open("crash.0")
    lab.wait_log("2", "STEP ended")
    lab.wait_log("0", "TRAIN begins", 2)
    lab.wait_log("1", "TRAIN begins", 2)
    lab.open("stop")
    end = lab.wait_end()
    assert (end["0"], end["1"], failed(end["2"])) == (FINE, FINE, True)
    assert lines(lab.log("2"), 0, REFUSED)
    assert lines(lab.log("2"), 0, MARKED.format(round=1, unit=2))


def test_without_kill_on_bad_exit_an_excluded_segment_holds_its_nodes(lab: Lab) -> None:
    """Process 0 has left, and process 1 keeps the step, and both nodes, until the job is over."""
    submit_array(lab, nodes=2, nnodes="4:6", KILL_ON_BAD_EXIT="0")
    lab.drain("1")
    lab.open("start.0", "start.1")
    lab.wait_log("1", "task 0: Exited with exit code 1")
    lab.open("start.2")
    lab.wait_log("0", "TRAIN begins", 2)
    lab.wait_log("2", "TRAIN begins", 2)
    lab.wait_trained("0", 20)
    assert "STEP ended" not in lab.log("1")
    assert lab.cluster.job_states(f"{lab.job}_1") == ["RUNNING"]
    lab.open("stop")
    end = lab.wait_end()
    assert (end["0"], end["2"], failed(end["1"])) == (FINE, FINE, True)

"""The chain: its order, that the first failure ends it, and what its first check makes of a decision directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segment_health.checks.chain import Step, segment_finding, steps, walk
from segment_health.checks.health_check import Finding
from segment_health.checks.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0"}
NAME = "segment_health_check.5.5"


def step(title: str, finding: Finding | None, calls: list[str]) -> Step:
    """A check that answers, or is not enabled, and tells that it was asked."""

    def look() -> Finding:
        calls.append(title)
        assert finding is not None
        return finding

    return Step(title, f"--{title}", None if finding is None else title, look)


def test_the_first_failure_ends_the_chain() -> None:
    """What comes before it was checked, what comes after it was not, and what is not enabled is passed over."""
    calls: list[str] = []
    fine, sick = Finding(remarks=("odd",)), Finding(("broken",))
    chain = (step("a", fine, calls), step("b", None, calls), step("c", sick, calls), step("d", fine, calls))
    times = iter([1.0, 3.0, 10.0, 10.5])
    results = list(walk(chain, lambda: next(times)))
    assert calls == ["a", "c"]
    assert [(r.step.title, r.finding, r.seconds) for r in results] == [
        ("a", fine, 2.0),
        ("b", None, 0.0),
        ("c", sick, 0.5),
        ("d", None, 0.0),
    ]


def test_the_order_is_that_of_nvrx() -> None:
    """The segment first, then storage, then paths, and what nvhcd says last."""
    chain = steps(Wanted("/d", storage=True, storage_paths=("/a", "/b"), endpoint="/s"), {})
    assert [step.flag.split()[0] for step in chain] == [
        "--ft-segment-health-check-dir",
        "--ft-enable-dist-storage-healthcheck",
        "--ft-storage-health-check-path",
        "--ft-node-health-check-endpoint",
    ]
    assert [step.about for step in chain][2:] == ["/a, /b", "/s"]
    assert [step.about for step in steps(Wanted(), {})] == [None] * 4


@pytest.mark.wheel
def test_nvrx_has_that_order() -> None:
    """The wheel's own file runs its checks in the order that the chain has."""
    wheel = Path(__file__).parents[2] / ".cache/nvrx/nvidia_resiliency_ext-0.7.0/nvidia_resiliency_ext"
    text = (wheel / "fault_tolerance/ft_rendezvous_barrier.py").read_text()
    text = text[text.index("def ensure_node_is_healthy") :]
    names = (
        "_segment_health_checker",
        "_dist_storage_state_checker",
        "_storage_path_checker",
        "get_node_health_check",
    )
    places = [text.index(name) for name in names]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("environ", "make", "problem", "remark"),
    [
        pytest.param(JOB, Path.exists, "", "", id="missing"),
        pytest.param(JOB, lambda path: path.write_text(""), "", "", id="empty"),
        pytest.param(JOB, lambda path: path.write_text("x"), "job_id=5 task_id=5 is excluded", "", id="excluded"),
        pytest.param(JOB | {"SLURM_PROCID": "1"}, lambda path: path.write_text("x"), "", "", id="process-1"),
        pytest.param({}, lambda path: path.write_text("x"), "", "", id="no-job"),
        pytest.param(JOB, lambda path: path.mkdir(), "", "not a regular file", id="directory"),
        pytest.param(JOB, lambda path: path.symlink_to(path), "", "Too many levels", id="loop"),
        pytest.param(JOB | {"SLURM_JOB_ID": "x"}, Path.exists, "", "not 1 to 20 decimal digits", id="no-id"),
    ],
)
def test_the_segment(
    tmp_path: Path, environ: dict[str, str], make: Callable[[Path], object], problem: str, remark: str
) -> None:
    """As the consumer says: an artifact with something in it is a problem, and what cannot be read is ignored."""
    make(tmp_path / NAME)
    finding = segment_finding(str(tmp_path), environ)
    assert (bool(finding.problems), bool(finding.remarks)) == (bool(problem), bool(remark))
    assert problem in "".join(finding.problems)
    assert remark in "".join(finding.remarks)


def test_a_relative_directory_is_a_mistake() -> None:
    """Of every process, not of process 0 alone."""
    with pytest.raises(ValueError, match="not an absolute path"):
        segment_finding("shared", {})

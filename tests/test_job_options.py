"""How one job was submitted, by fake commands; tests/e2e/test_doctor.py asks a real Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segment_health import sources
from slurm.commands.job import options_of, parse_requeue
from slurm.errors import SlurmProtocolError, SlurmUnavailable
from slurm.reader import Access

if TYPE_CHECKING:
    from .conftest import FakeSlurm


@pytest.mark.parametrize(
    ("output", "requeue"),
    [
        pytest.param(b"12|1|\n", True, id="a job"),
        pytest.param(b"12|0|\n13|1|\n", False, id="an array: its last task has the array's id"),
    ],
)
def test_the_row_of_the_job_counts(output: bytes, requeue: bool) -> None:
    """Asked for an array's id squeue lists every task."""
    assert parse_requeue(output, "12") is requeue


@pytest.mark.parametrize(
    "output", [b"", b"13|1|\n", b"12|1\n", b"12|yes|\n", b"12|0|x|\n", b"12|0|\n12|1|\n", b"\xff"]
)
def test_what_is_no_answer_is_an_error(output: bytes) -> None:
    """No row, two rows, or a word where 0 or 1 stands: nothing is made up."""
    with pytest.raises(SlurmProtocolError):
        parse_requeue(output, "12")


def test_a_script_that_is_not_shown_is_none(fake_slurm: FakeSlurm) -> None:
    """An interactive job has none, and Slurm refuses to show another user's; Requeue is known all the same."""
    fake_slurm.answers("jobs", b"12|1|\n")
    told = options_of("12", fake_slurm.commands(timeout=30))
    assert (told.requeue, told.script) == (True, None)
    assert fake_slurm.calls() == [
        ["scontrol", "--local", "write", "batch_script", "12", "-"],
        ["squeue", "--all", "--local", "--noheader", "--Format=JobID:|,Requeue:|", "--jobs=12"],
    ]


def test_a_silent_slurm_is_unknown(fake_slurm: FakeSlurm) -> None:
    """A query that fails is no answer, by this package's own word."""
    fake_slurm.does("jobs", "exit 1")
    commands = fake_slurm.commands(timeout=30)
    with pytest.raises(SlurmUnavailable):
        options_of("12", commands)
    with pytest.raises(sources.SourceUnknown):
        sources.ask_job("12", Access(timeout=30, environ=commands.environ))

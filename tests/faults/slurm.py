"""Faults of Slurm: it does not answer, answers half, answers late, or has just started."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import EVERYONE, fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory


def _short_timeout(lab: Laboratory) -> None:
    lab.options += ["--timeout", "1"]


@fault(
    "slurmctld hangs",
    attacks="while Slurm cannot be asked every decision stays",
    how="SIGSTOP to slurmctld: connections are accepted and not answered",
    holds=EVERYONE,
    before=_short_timeout,
    seconds=2.0,
    says="Slurm's state is unknown",
    slurm_answers=False,
)
@contextmanager
def hangs(lab: Laboratory) -> Iterator[None]:
    """Stop slurmctld in its tracks."""
    lab.cluster.pause_controller()
    try:
        yield
    finally:
        lab.cluster.continue_controller()

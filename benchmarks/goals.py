"""What a pass, the consumer and the loop may cost: the goals, and the looser limits that a guard in CI holds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Results = dict[str, Any]
    """What the modules of benchmarks measured, each under its name."""


class Goal(NamedTuple):
    """A figure and what it should be: at most `limit`, or at least, where `least` is set.

    `question` is the module that measures it. `why` says, of a goal that is not met, what stands in the way.
    """

    name: str
    question: str
    text: str
    limit: float
    unit: str
    take: Callable[[Results], float]
    least: bool = False
    why: str = ""

    def met(self, results: Results) -> bool:
        """Tell whether what was measured is good enough."""
        found = self.take(results)
        return found >= self.limit if self.least else found <= self.limit


def _queries(results: Results) -> float:
    return max(
        float(sum(door["per_pass"].values())) for door in results["rpcs"]["doors"] if door["door"] == "text"
    )


def _thousand(results: Results) -> float:
    return next(float(size["over_bare"]) for size in results["exclusions"]["sizes"] if size["count"] == 1000)  # noqa: PLR2004 - the goal's


def _growth(results: Results) -> float:
    """Return the worst step from one size to the next: growth of the added time over growth of the size.

    What adds nothing that could be measured, in one of the two, is no step.
    """
    return max(
        (later[1] / earlier[1]) / (later[0] / earlier[0])
        for line in series(results["growth"]).values()
        for earlier, later in itertools.pairwise(line)
        if earlier[1] > 0
    )


def series(growth: Results) -> dict[str, list[tuple[int, float]]]:
    """Return sizes and added seconds, one line for each thing that grows, by what it is."""
    return {name: sorted(line) for name, line in _lines(growth) if len(line) > 1}


def _lines(growth: Results) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    for door in sorted({row["door"] for row in growth["fleet"]}):
        rows = [row for row in growth["fleet"] if row["door"] == door]
        added = [(row["nodes"], row["tasks"], row["publish"] - row["bare"]) for row in rows]
        yield f"nodes, 100 tasks, {door}", [(nodes, more) for nodes, tasks, more in added if tasks == 100]  # noqa: PLR2004 - see growth.py
        most = max(nodes for nodes, _, _ in added)
        yield f"tasks, {most:,} nodes, {door}", [(tasks, more) for nodes, tasks, more in added if nodes == most]
    yield "nodes, saved answers", [(row["nodes"], row["publish"]) for row in growth["saved"]]


GOALS = (
    Goal(
        "steady pass in the loop",
        "steady",
        "over the bare queries",
        1.25,
        "times",
        lambda found: found["steady"]["over_bare"],
        why="asking and reading take hardly longer than the bare queries; the rest is the child that touches the "
        "directory: a fork, the state and the artifacts read anew, the decision. What of them is the same as in "
        "the last pass would have to be known without reading it again",
    ),
    Goal(
        "one-shot process, large tasks",
        "one_shot",
        "over the bare queries",
        2.5,
        "times",
        lambda found: found["one_shot"]["shapes"][0]["over_bare"],
    ),
    Goal(
        "shell loop, large tasks",
        "one_shot",
        "over the one-shot process",
        15,
        "times",
        lambda found: found["one_shot"]["shapes"][0]["shell_loop_over_publish"],
        least=True,
        why="this loop is a lean one, of one grep a task, and takes 4 ms a task; nearly half of a pass is the "
        "start of Python and of click, before Slurm is asked",
    ),
    Goal(
        "one-shot process, one-node tasks",
        "one_shot",
        "over the bare queries",
        1.5,
        "times",
        lambda found: found["one_shot"]["shapes"][1]["over_bare"],
        why="two cores are busy with slurmctld, scontrol and squeue as long as they work, so that what is read "
        "meanwhile costs time; Python and click start before, and thousands of units are remembered and read back",
    ),
    Goal(
        "shell loop, one-node tasks",
        "one_shot",
        "over the one-shot process",
        100,
        "times",
        lambda found: found["one_shot"]["shapes"][1]["shell_loop_over_publish"],
        least=True,
        why="as above: the loop takes 4 ms a task",
    ),
    Goal("drain to artifact, poked", "poked", "median", 0.5, "s", lambda found: found["poked"]["median"]),
    Goal("queries a pass, text", "rpcs", "RPCs, the most of all shapes", 4, "RPCs", _queries),
    Goal(
        "1,000 exclusions in one pass",
        "exclusions",
        "over a bare loop of writes",
        1.5,
        "times",
        _thousand,
        why="the disk decides, whose fsync takes half a millisecond to two: beside a slow one a pass is little",
    ),
    Goal(
        "consumer check",
        "consumer",
        "over `os.stat`, the worst artifact",
        1.2,
        "times",
        lambda found: max(row["over_stat"] for row in found["consumer"]["check"]),
        why="the call of a method, half a microsecond: from run to run a fifth of the stat, or a little more",
    ),
    Goal(
        "`import segment_health`",
        "consumer",
        "added to `python -c pass`",
        0.010,
        "s",
        lambda found: found["consumer"]["import_added"],
    ),
    Goal(
        "`segment-health check`",
        "consumer",
        "added to `python -c pass`",
        0.050,
        "s",
        lambda found: found["consumer"]["check_process_added"],
    ),
    Goal("memory of the loop", "memory", "peak", 60, "MiB", lambda found: found["memory"]["peak_mib"]),
    Goal(
        "memory of the loop, growth",
        "memory",
        "last fifth over second fifth of the passes",
        1,
        "MiB",
        lambda found: found["memory"]["growth_mib"],
    ),
    Goal("growth", "growth", "of the added time over that of the size, worst step", 1, "times", _growth),
)


class Guarded(NamedTuple):
    """A limit that CI holds, looser than the goal where a small fleet or a busy machine needs it: `why`."""

    limit: float
    why: str
    least: bool = False

    def holds(self, figure: float) -> bool:
        """Tell whether a figure is within."""
        return figure >= self.limit if self.least else figure <= self.limit


BUSY = "a busy machine delays short things by more than they take"

GUARDED = {
    "steady pass over the bare queries": Guarded(1.8, BUSY),
    "one-shot process over the bare queries": Guarded(4.0, BUSY),
    "shell loop over the one-shot process": Guarded(5.0, BUSY, least=True),
    "200 exclusions over a bare loop": Guarded(2.5, "what a pass costs of itself weighs more; " + BUSY),
    "consumer check over os.stat": Guarded(1.4, BUSY),
    "import segment_health, added, over python's start": Guarded(1.0, BUSY),
}

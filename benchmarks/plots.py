"""The plots of docs/performance.md, the same bytes for the same results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.goals import series

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.goals import Results


def draw(results: Results, directory: Path) -> None:
    """Write performance-*.svg, one for each question that was measured."""
    mpl.rcParams.update({"svg.hashsalt": "segment-health", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    for question, plot in PLOTS.items():
        if question in results:
            figure = Figure(figsize=(7, 3), layout="constrained")
            plot(figure.subplots(), results[question])
            name = f"performance-{question.replace('_', '-')}.svg"
            figure.savefig(directory / name, metadata={"Date": None})


def _bars(axes: Any, values: Mapping[str, float], label: str, *, log: bool = False) -> None:
    bars = axes.barh(list(values), list(values.values()), color="#4878a8", log=log)
    axes.bar_label(bars, fmt="%.3g", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.margins(x=0.15)


def _one_shot(axes: Any, found: Results) -> None:
    names = {"bare": "bare queries", "publish": "publish --once", "shell_loop": "shell loop"}
    values = {
        f"{name}, {shape['tasks']:,} x {shape['nodes_per_task']}": shape[key]
        for shape in found["shapes"]
        for key, name in names.items()
    }
    _bars(axes, values, "seconds", log=True)


def _steady(axes: Any, found: Results) -> None:
    _bars(axes, {"bare queries": found["bare"], "steady pass": found["steady"]}, "seconds")


def _poked(axes: Any, found: Results) -> None:
    axes.plot(range(1, len(found["seconds"]) + 1), found["seconds"], "o")
    axes.set(xlabel="round", ylabel="seconds", ylim=(0, None))


def _memory(axes: Any, found: Results) -> None:
    axes.plot(*zip(*found["rss_mib"], strict=True))
    axes.set(xlabel="pass", ylabel="MiB resident", ylim=(0, None))


def _exclusions(axes: Any, found: Results) -> None:
    counts = [size["count"] for size in found["sizes"]]
    for key, name in (("bare", "bare loop"), ("publish", "publish")):
        axes.loglog(counts, [size[key] for size in found["sizes"]], "o-", label=name)
    axes.set(xlabel="exclusions", ylabel="seconds")
    axes.legend()


def _consumer(axes: Any, found: Results) -> None:
    values = {
        f"{name}, {row['artifact']}": row[name] * 1e6 for row in found["check"] for name in ("stat", "check")
    }
    _bars(axes, values, "microseconds a call")


def _rpcs(axes: Any, found: Results) -> None:
    values = {
        f"{row['door']}, {row['tasks']} tasks, {row['excluded']} excluded": sum(row["per_pass"].values())
        for row in found["doors"]
    }
    _bars(axes, values, "RPCs a pass")


def _growth(axes: Any, found: Results) -> None:
    for name, line in series(found).items():
        axes.loglog(*zip(*line, strict=True), "o-", label=name)
    axes.set(xlabel="nodes or tasks", ylabel="added seconds")
    axes.legend()


PLOTS: dict[str, Callable[[Any, Results], None]] = {
    "one_shot": _one_shot,
    "steady": _steady,
    "poked": _poked,
    "memory": _memory,
    "exclusions": _exclusions,
    "consumer": _consumer,
    "rpcs": _rpcs,
    "growth": _growth,
}

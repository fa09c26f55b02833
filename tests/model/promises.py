"""What the contract promises (docs/contract.md), one function a sentence. Each looks at one step of the world.

A promise never asks the decider: a Step says what happened, what Slurm's whole answer showed, and what lay in the
directory before and after it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from segment_health.consumer import SegmentHealthCheck
from segment_health.level import FaultLevel
from slurm import hostlist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from .slurm import Unit

KEYS = ["schema", "job_id", "task_id", "level", "nodes", "unavailable", "generation", "first_published", "updated",
        "publisher"]  # fmt: skip
TEMPORARY = ".segment-health.tmp."


@dataclass(frozen=True)
class Directory:
    """What lies in a decision directory: artifacts by unit, and every other file by path."""

    artifacts: dict[str, bytes] = field(default_factory=dict)
    others: dict[str, bytes] = field(default_factory=dict)

    def excludes(self, unit: str) -> bool:
        """Whether a launcher of this unit is turned away."""
        return bool(self.artifacts.get(unit))


def look(path: Path | str) -> Directory:
    """Read a directory whole; of each artifact the project's consumer is asked too."""
    found = Directory({}, {})
    for folder, _, names in os.walk(path):
        for name in names:
            with open(f"{folder}/{name}", "rb") as file:
                content, mode = file.read(), os.fstat(file.fileno()).st_mode
            ids = re.fullmatch(r"segment_health_check\.(\d+)\.(\d+)", name)
            if ids is None:
                found.others[os.path.relpath(f"{folder}/{name}", path)] = content
                continue
            job, task = ids.groups()
            found.artifacts[job if job == task else f"{job}_{task}"] = content
            assert SegmentHealthCheck(path, job, task)() is (content == b""), name
            assert mode & 0o7777 == 0o644, name
    return found


@dataclass(frozen=True)
class Step:
    """One step: what was there before and after it, and what would justify the difference.

    `scope` made a pass by Slurm's whole answer `view`; `units` are those of its scope there, with what the scope
    knows of them. None is that there was no pass, `outdated` that there was one without an answer, or by an old
    one. `finished` says that it came to its end, but for the units that it `failed` to write; `clean` that nothing
    befell it. `newer` are units of which another host has written for this scope since it asked, `gone` are units
    that two whole answers in a row did not show, `dead` scopes whose publishers do not live, `overridden` units
    that a person wants used. `told` are exclusions that something else than a pass is to lift (a person,
    staleness, prune), `allowed` those that it may. `strangers` are artifacts that somebody else wrote, `said` all
    that ever stood in one.
    """

    before: Directory
    after: Directory
    scope: str = ""
    publish_at: FaultLevel = FaultLevel.PreSeparateFault
    outdated: bool = False
    view: Mapping[str, Unit] | None = None
    units: Mapping[str, Unit] = field(default_factory=dict)
    finished: bool = False
    clean: bool = False
    failed: frozenset[str] = frozenset()
    newer: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    overridden: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    strangers: Mapping[str, bytes] = field(default_factory=dict)
    said: frozenset[bytes] = frozenset()

    def settled(self) -> Iterator[tuple[str, Unit]]:
        """Go through the units that the pass judged, and did what it wanted to."""
        if self.finished:
            yield from (
                (u, unit)
                for u, unit in self.units.items()
                if unit.understood and u not in self.failed | self.newer
            )

    def ours(self, directory: Directory) -> dict[str, dict[str, Any]]:
        """Return the exclusions that publishers of this project wrote, whichever."""
        return {
            unit: json.loads(content)
            for unit, content in directory.artifacts.items()
            if content and unit not in self.strangers
        }

    def is_fit(self, unit: str) -> bool:
        """Whether every node of a unit is explicitly fit, by the acting scope's own bar."""
        return not self.units[unit].unclear and self.units[unit].level < self.publish_at


def run_of(artifact: Mapping[str, Any]) -> tuple[int, int]:
    """Return the generation of which an artifact speaks."""
    return artifact["generation"]["restart_count"], artifact["generation"]["start_time"]


def recovery_needs_evidence(step: Step) -> None:
    """Keep an exclusion until a whole answer shows every node fit, the generation new, or the unit gone (twice).

    "An exclusion is lifted by the scope that wrote it; by another scope that covers the unit only when the
    writer's heartbeat is dead, or when the artifact's generation is older than the unit's."
    """
    for unit, artifact in step.ours(step.before).items():
        if step.after.excludes(unit) or unit in step.allowed:
            continue
        assert step.view is not None, f"{unit} was lifted, and nobody had asked Slurm"
        writer = artifact["publisher"]["scope"]
        if unit not in step.view:
            assert unit in step.gone, f"{unit} was retired after one miss"
            assert writer in {step.scope, *step.dead}, f"{unit} was retired, and {writer} lives"
            continue
        if run_of(artifact)[1] < step.view[unit].run[1]:
            continue
        assert unit in step.units, f"{unit} was lifted, and is not in this scope"
        assert step.units[unit].understood, f"{unit} was lifted in a state that nobody understands"
        assert step.is_fit(unit) or unit in step.overridden, f"{unit} was lifted without evidence"
        assert writer in {step.scope, *step.dead}, f"{unit} was lifted, and {writer} lives"


def unknown_is_never_no_bad_nodes(step: Step) -> None:
    """Change nothing, byte for byte, when a query failed: "nothing is written, cleared or retired".

    Nor by a view that another host's is newer than, or that is older than shared storage may take.
    """
    if step.outdated:
        assert step.after == step.before, "something was changed without an answer of Slurm"


def a_bad_node_excludes_its_unit(step: Step) -> None:
    """Publish "a unit at PreSeparateFault or above"; one failed unit blocks no other."""
    for unit, now in step.settled():
        if now.level >= step.publish_at and unit not in step.overridden:
            assert step.after.excludes(unit), f"{unit} has {now.faults} and is not excluded"


def a_fit_unit_is_not_excluded(step: Step) -> None:
    """Lift when one complete pass finds every node explicitly fit: "one such pass is enough by default"."""
    exclusions = step.ours(step.after)
    for unit, _ in step.settled():
        if (step.is_fit(unit) or unit in step.overridden) and unit in exclusions:
            assert exclusions[unit]["publisher"]["scope"] != step.scope, (
                f"{unit} is fit and {step.scope} excludes it"
            )


def nothing_false_is_told(step: Step) -> None:
    """Name in a new artifact what the whole answer shows, and all of it; an unexpected flag "is ignored".

    "A node without a verdict: its part of the last decision stays."
    """
    known = step.ours(step.before)
    for unit, artifact in step.ours(step.after).items():
        if step.after.artifacts[unit] == step.before.artifacts.get(unit):
            continue
        writer = artifact["publisher"]["scope"]
        if writer != step.scope:  # it had raised another living scope's exclusion, and hands that back
            assert step.scope, f"{unit}: {writer} said nothing"
            assert step.after.artifacts[unit] in step.said, f"{unit}: {writer} never said that"
            assert writer not in step.dead, f"{unit}: handed back to {writer}, which is dead"
            assert unit not in step.units or run_of(artifact) == step.units[unit].run, f"{unit}: of another run"
            continue
        assert unit in step.units, f"{unit} was excluded, and {step.scope} does not see it in its scope"
        now, last = step.units[unit], known.get(unit)
        named = frozenset(hostlist.expand(artifact["unavailable"]))
        stays = {*(now.had - now.nodes)}
        if last is not None and run_of(last) == now.run and last["publisher"]["scope"] == step.scope:
            stays |= {*hostlist.expand(last["unavailable"])}
        assert run_of(artifact) == now.run, f"{unit}: another generation"
        assert now.faults.keys() <= named <= now.faults.keys() | (now.unclear & stays), f"{unit}: {named}"
        level = FaultLevel[artifact["level"]]
        assert level >= max(now.level, step.publish_at), f"{unit}: {level}"
        assert level == now.level or now.unclear & named, f"{unit}: {level}"


def a_new_generation_never_inherits(step: Step) -> None:
    """Leave no exclusion of an older run: "a new one never inherits its predecessor's decision"."""
    exclusions = step.ours(step.after)
    for unit, now in step.settled():
        assert unit not in exclusions or run_of(exclusions[unit])[1] >= now.run[1], f"{unit} inherited"


def what_is_told_is_lifted(step: Step) -> None:
    """Clear what a person, staleness or prune was told to clear."""
    for unit in step.told:
        assert step.after.artifacts.get(unit) != step.before.artifacts[unit], f"{unit} was to be lifted"


def what_others_wrote_is_left_alone(step: Step) -> None:
    """Leave a non-empty artifact of anyone else as it is: "reported (`foreign`) and left alone"."""
    for unit, content in step.strangers.items():
        assert step.after.artifacts.get(unit) == content, f"{unit} was a stranger's"


def a_newer_word_stands(step: Step) -> None:
    """Leave what another host wrote for this scope since this one asked: its view may be the newer one."""
    for unit in step.newer:
        assert step.after.artifacts.get(unit) == step.before.artifacts[unit], f"{unit}: a newer word"


def every_artifact_is_whole(step: Step) -> None:
    """Show readers zero bytes or one JSON object on one line, whenever the publisher was killed."""
    for unit, artifact in step.ours(step.after).items():
        assert list(artifact) == KEYS, unit
        assert step.after.artifacts[unit].endswith(b"}\n"), unit
        assert step.after.artifacts[unit].count(b"\n") == 1, unit


def nothing_else_lies_there(step: Step) -> None:
    """Keep all else in `.segment-health/`; "temporaries of dead publishers are removed in the next pass"."""
    for path in step.after.others:
        allowed = path.startswith(".segment-health") and (TEMPORARY not in path or not step.clean)
        assert allowed, f"{path} lies there"


PROMISES: tuple[Callable[[Step], None], ...] = (
    recovery_needs_evidence,
    unknown_is_never_no_bad_nodes,
    a_bad_node_excludes_its_unit,
    a_fit_unit_is_not_excluded,
    nothing_false_is_told,
    a_new_generation_never_inherits,
    what_is_told_is_lifted,
    what_others_wrote_is_left_alone,
    a_newer_word_stands,
    every_artifact_is_whole,
    nothing_else_lies_there,
)

"""What a soak holds against the publisher: its own reading of Slurm, and bounds. Pure.

Nothing here comes from segment_health or slurm: a mistake that both made would not be seen.
"""

from __future__ import annotations

import calendar
import json
import re
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

PREFIX, OURS = "segment_health_check.", ".segment-health"
TEMPORARY, HEARTBEATS = ".segment-health.tmp.", f"{OURS}/heartbeat/"
JOBS = ("squeue", "--all", "--noheader", "--array", "--format=%F|%K|%A|%T|%S|%N")
NODES = ("scontrol", "show", "nodes", "--oneliner")
HOLDING = {"RUNNING", "CONFIGURING", "SUSPENDED"}
BAD = {"DOWN", "DRAIN", "ERROR", "FAIL", "INVALID_REG", "NOT_RESPONDING", "POWER_DOWN", "REBOOT_ISSUED"}
"""Words of a node's state that exclude (contract, Levels); of the others a fleet that stays powered shows none."""

GRACE = 60.0
"""Seconds for what the next passes must have dealt with: an interval of 5 s, a publisher that was killed, another
that waits for its lock, a slurmctld that comes back with nodes of which it knows nothing."""
LEDGER_BYTES = 40 << 20
"""What `.segment-health` may hold: two halves of the history, 8 MiB each, the largest state, and room."""
WARM_UP, ENOUGH = 30.0, 15
"""Seconds of a process's life that do not count: it grows to what its passes need. And how many
samples it takes to say anything."""


def expand(hostlist: str) -> frozenset[str]:
    """Name the nodes of `c[00001-00018,00020],c00031`."""
    names: set[str] = set()
    for prefix, ranges in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", hostlist):
        if not ranges:
            names.add(prefix)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            names |= {f"{prefix}{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)}
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Unit:
    """A running unit: its nodes, and when it began (seconds since the epoch)."""

    nodes: frozenset[str]
    start: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What Slurm says: units by the end of their artifact's name (`123.7`), bad nodes, and whether it knows all.

    `waiting` counts jobs that hold no nodes yet, or no longer.
    """

    units: Mapping[str, Unit]
    bad: frozenset[str]
    is_settled: bool
    waiting: int

    def excluded(self, overrides: Mapping[str, tuple[int, frozenset[str]]]) -> dict[str, frozenset[str]]:
        """Return the bad nodes of each unit that has any, and of which no person has said otherwise."""
        found = {name: unit.nodes & self.bad for name, unit in self.units.items() if unit.nodes & self.bad}
        return {name: bad for name, bad in found.items() if overrides.get(name) != (self.units[name].start, bad)}


def truth_of(nodes: str, jobs: str) -> Truth:
    """Read the rows of NODES (which may be none: then no node is bad) and JOBS, both in UTC."""
    units, others = {}, []
    for row in jobs.splitlines():
        array, task, job, state, start, held = row.split("|")
        if state not in HOLDING:
            others.append(state)
            continue
        began = calendar.timegm(time.strptime(start, "%Y-%m-%dT%H:%M:%S"))
        units[f"{job}.{job}" if task == "N/A" else f"{array}.{task}"] = Unit(expand(held), began)
    states = {
        row.split(" ", 1)[0].removeprefix("NodeName="): set(row.split(" State=", 1)[1].split(" ", 1)[0].split("+"))
        for row in nodes.splitlines()
    }
    bad = frozenset(name for name, words in states.items() if words & BAD)
    unclear = any("UNKNOWN" in words for words in states.values()) or not set(others) <= {"PENDING"}
    return Truth(units, bad, not unclear, len(others))


def overrides_in(files: Mapping[str, bytes]) -> dict[str, tuple[int, frozenset[str]]]:
    """Return what people overrode: of which generation, and which bad nodes."""
    told = {path: json.loads(text) for path, text in files.items() if path.startswith(f"{OURS}/override/")}
    return {
        path.rpartition("/")[2].removesuffix(".json"): (word["start_time"], expand(word["unavailable"]))
        for path, word in told.items()
    }


def wrong(files: Mapping[str, bytes], truth: Truth) -> list[str]:
    """Say what is wrong with a directory (all files by relative path) when Slurm has long been as in `truth`."""
    artifacts = {path.removeprefix(PREFIX): content for path, content in files.items() if path.startswith(PREFIX)}
    temporary = [path for path in files if TEMPORARY in path]
    said = [f"left over: {path}" for path in temporary]
    wanted = truth.excluded(overrides_in({path: files[path] for path in files.keys() - set(temporary)}))
    said += [f"left over: the artifact of {unit}, which is gone" for unit in artifacts.keys() - truth.units.keys()]
    for unit in truth.units:
        content = artifacts.get(unit, b"")
        if bool(content) != (unit in wanted):
            found = "non-empty" if content else "empty" if unit in artifacts else "missing"
            said.append(f"{unit}: the artifact is {found}, its bad nodes are {sorted(wanted.get(unit, ()))}")
        elif content and _named(content) != wanted[unit]:
            said.append(f"{unit}: the artifact does not name {sorted(wanted[unit])}: {content!r}")
    return sorted(said) + wrong_ledger(files)


def wrong_ledger(files: Mapping[str, bytes]) -> list[str]:
    """Say what is wrong with what lies beside the artifacts."""
    size = sum(len(content) for path, content in files.items() if path.startswith(f"{OURS}/"))
    said = [f"{OURS} holds {size} bytes"] if size > LEDGER_BYTES else []
    for path, content in files.items():
        if path.startswith(f"{OURS}/history.jsonl"):
            said += [
                f"{path}: not a line of the history: {line[:80]!r}"
                for line in content.splitlines()
                if _broken(line)
            ]
    return said


def _named(content: bytes) -> frozenset[str] | None:
    try:
        return expand(json.loads(content)["unavailable"])
    except ValueError:
        return None


def _broken(line: bytes) -> bool:
    try:
        return not isinstance(json.loads(line), dict)
    except ValueError:
        return True


def left_over(files: Mapping[str, float], last_seen: Mapping[str, float], now: float) -> list[str]:
    """Name the artifacts of units that ended long ago, and old temporaries; say when no pass is complete.

    `files` are paths with the time of their last change, `last_seen` says when units last ran; all in seconds.
    """
    heartbeat = max((changed for path, changed in files.items() if path.startswith(HEARTBEATS)), default=0.0)
    said = [f"no complete pass for {now - heartbeat:.0f} s"] if now - heartbeat > GRACE else []
    for path, changed in files.items():
        ran = max(changed, last_seen.get(path.removeprefix(PREFIX), 0.0))
        if path.startswith(PREFIX) and now - ran > GRACE:
            said.append(f"left over: {path}, whose unit ended {now - ran:.0f} s ago")
        if TEMPORARY in path and now - changed > GRACE:
            said.append(f"left over: {path}, {now - changed:.0f} s old")
    return said


def unexplained(lifts: Iterable[tuple[float, str]], acts: Mapping[str, Collection[float]]) -> list[str]:
    """Name the exclusions that went away (when, which unit) and that nothing done just before can have lifted.

    A flash (excluded, not, excluded) begins with one of these. `acts` are the times at which something was done
    to a unit that may lift an exclusion: a node resumed, the unit cancelled, requeued, cleared.
    """
    return [
        f"{unit}: its exclusion went away, and nothing had been done to lift it"
        for when, unit in lifts
        if not any(when - GRACE <= act <= when for act in acts.get(unit, ()))
    ]


@dataclass(slots=True)
class Life:
    """One publisher process: samples of (seconds of its life, resident KiB, descriptors)."""

    pid: int
    samples: list[tuple[float, int, int]] = field(default_factory=list)

    def counted(self) -> list[tuple[float, int, int]]:
        """Return the samples after the warm-up; none where they are too few to say anything."""
        counted = [sample for sample in self.samples if sample[0] >= WARM_UP]
        return counted if len(counted) >= ENOUGH else []


def thirds(values: list[int]) -> tuple[int, int]:
    """Return the medians of the first third and of the last."""
    third = max(1, len(values) // 3)
    return int(statistics.median(values[:third])), int(statistics.median(values[-third:]))


def growth(lives: list[Life]) -> list[str]:
    """Say what grew within a life, and from the first lives to the last."""
    judged = [(life, life.counted()) for life in lives if life.counted()]
    if not judged:
        return ["no publisher lived long enough for its memory to be judged"]
    said = []
    for life, samples in judged:
        first, last = thirds([resident for _, resident, _ in samples])
        if _grew(first, last):
            said.append(f"process {life.pid}: memory grew from {first} to {last} KiB in {samples[-1][0]:.0f} s")
        first, last = thirds([descriptors for _, _, descriptors in samples])
        if last > first:
            said.append(f"process {life.pid}: descriptors grew from {first} to {last}")
    typical = [thirds([resident for _, resident, _ in samples])[1] for _, samples in judged]
    first, last = thirds(typical)
    if _grew(first, last):
        said.append(f"the last publishers need {last} KiB, the first needed {first}")
    return said


def _grew(first: int, last: int) -> bool:
    """Tell growth from an allocator's noise: a leak of 10 bytes a node and pass is 10 MB after 100 passes."""
    return last > first * 1.08 + 2048

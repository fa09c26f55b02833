"""What a soak does, at random, to a cluster, its jobs and the publisher; and which of it can lift an exclusion."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.soak.judgement import GRACE
from tests.soak.lab import kill

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable

    from tests.soak.lab import Fleet, Publisher, Reader

MAX_BAD = 0.03
"""Part of the nodes that are bad at a time: a new unit gets none of them, and there are few to spare."""
RACK = 36


class Driver:
    """Does one thing after another, and remembers what it did. `violations` is what it met on the way."""

    def __init__(self, fleet: Fleet, publisher: Publisher, reader: Reader, seed: int) -> None:
        self._fleet, self._publisher, self._reader = fleet, publisher, reader
        self._random = random.Random(seed)
        self._names = [f"c{number:05}" for number in range(1, fleet.nodes + 1)]
        self._bad: set[str] = set()
        self._beside: list[tuple[subprocess.Popen[bytes], str, float]] = []
        self._last: dict[str, float] = {}
        self.truth = fleet.jobs()
        self.last_seen: dict[str, float] = {}
        self.acts: dict[str, list[float]] = defaultdict(list)
        """When something was done to a unit that may lift its exclusion, by time.monotonic()."""
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def step(self, *, quiet: bool) -> None:
        """Do one thing; `quiet` leaves the publisher alone."""
        self.refresh()
        weights: dict[Callable[[], None], int] = {
            self.drain: 10, self.drain_rack: 2, self.fail: 2, self.down: 1, self.resume: 10, self.cancel: 5,
            self.requeue: 2, self.poke: 4, self.clear: 3, self.one_shot: 2,
        }  # fmt: skip
        if not quiet:
            weights |= {self.kill: 6, self.terminate: 1}
        if len(self._bad) > max(2 * RACK, MAX_BAD * len(self._names)):
            weights = {self.resume: 1}
        (act,) = self._random.choices(list(weights), list(weights.values()))
        act()
        self.counts[act.__name__] += 1
        time.sleep(self._random.expovariate(1.5))

    def refresh(self) -> None:
        """See which units run, start what is missing, and let the reader look at those that are excluded."""
        self.truth = self._fleet.jobs()
        units = self.truth.units
        self.last_seen.update(dict.fromkeys(units, time.time()))
        lack = self._fleet.tasks - len(units) - self.truth.waiting
        if lack > 1:
            first = self._random.choice((0, 7, 4000))
            self._fleet.submit(f"--array={first}-{first + lack - 1}")
        elif lack == 1:
            self._fleet.submit()
        self.counts["submitted units"] += max(0, lack)
        excluded = self._excluded()
        others = [unit for unit in units if unit not in set(excluded)]
        self._reader.watch([*self._some(excluded, 60), *self._random.sample(others, min(40, len(others)))])
        self.reap()

    def reap(self, *, all_of_them: bool = False) -> None:
        """Judge how those ended that ran beside the loop."""
        still = []
        for process, what, begun in self._beside:
            status = process.wait(GRACE) if all_of_them else process.poll()
            if status is None:
                still.append((process, what, begun))
                continue
            allowed = {0, -signal.SIGKILL}
            if self._last.get("slurmctld", 0.0) > begun - GRACE:
                allowed |= {3}
            # Each refuses what another has just changed, and waits for one whose pass outlived its parent.
            if max(self._last.get("clear", 0.0), self._last.get("kill", 0.0)) > begun - GRACE:
                allowed |= {1}
            self.counts[f"{what} ended with {status}"] += 1
            if status not in allowed:
                self.violations.append(f"{what} ended with status {status}")
        self._beside = still

    # ── to nodes and jobs ──────────────────────────────────────────────────────────────────────────────────

    def drain(self) -> None:
        """Drain one node or some, anywhere."""
        self._spoil(self._some(self._names, len(self._names) // 250), "drain")

    def drain_rack(self) -> None:
        """Drain neighbours."""
        first = self._random.randrange(len(self._names) - RACK)
        self._spoil(self._names[first : first + RACK], "drain")

    def fail(self) -> None:
        """Say of a node that it is about to fail."""
        self._spoil(self._some(self._names, 2), "fail")

    def down(self) -> None:
        """Set a node down, which requeues its unit; the fleet answers for it, so it is back with the next ping."""
        name = self._random.choice(self._names)
        self._lifting(self._holding({name}))
        self._spoil([name], "down")

    def resume(self) -> None:
        """Resume one node, some, or all."""
        names = self._some(sorted(self._bad), self._random.choice((1, 20, len(self._bad))))
        if names:
            self._lifting(self._holding(set(names)))
            self._fleet.set_nodes(names, "resume", check=False)  # one that was down may be back
            self._bad -= set(names)

    def cancel(self) -> None:
        """Cancel some units."""
        units = self._some(sorted(self.truth.units), 1 + len(self.truth.units) // 40)
        self._lifting(units)
        self._fleet.run("scancel", *map(job_of, units), check=False)  # one may have ended a moment ago

    def requeue(self) -> None:
        """Requeue some units: they come back after two minutes, in another generation."""
        units = self._some(sorted(self.truth.units), 3)
        self._lifting(units)
        self._fleet.run("scontrol", "requeue", ",".join(map(job_of, units)), check=False)

    def restart_slurmctld(self) -> None:
        """Restart slurmctld: for some seconds it knows of no node how it is."""
        self._fleet.restart()
        self._last["slurmctld"] = time.monotonic()

    # ── to the publisher ───────────────────────────────────────────────────────────────────────────────────

    def poke(self) -> None:
        """Ask for a pass now."""
        self._publisher.send(signal.SIGUSR1)

    def clear(self) -> None:
        """Have a person use a unit that is excluded."""
        for unit in self._some(self._excluded(), 1):
            self._lifting([unit])
            self._run("clear", job_of(unit), "--reason=soak")

    def one_shot(self) -> None:
        """Make a single pass beside the loop."""
        self._run("publish", "--once", "--all", "--wait")

    def kill(self) -> None:
        """Kill the publisher, mostly in the middle of a pass that has something to write, and begin anew."""
        if self._random.random() < 0.8:  # else while it starts, or waits
            self._random.choice((self.drain, self.drain_rack, self.resume, self.cancel))()
            self.poke()
        time.sleep(self._random.uniform(0, 0.3 + self._fleet.nodes / 10_000))
        self._publisher.kill(group=self._random.random() < 0.5)
        self._last["kill"] = time.monotonic()
        time.sleep(self._random.choice((0, 0, 2)))
        self._publisher.start()

    def terminate(self) -> None:
        """End the publisher in order, and begin anew."""
        if status := self._publisher.terminate():
            self.violations.append(f"SIGTERM ended a publisher with status {status}")
        self._publisher.start()

    # ── with what ──────────────────────────────────────────────────────────────────────────────────────────

    def _spoil(self, names: list[str], state: str) -> None:
        self._bad |= set(names)
        self._fleet.set_nodes(names, state)

    def _some(self, names: list[str], most: int) -> list[str]:
        return self._random.sample(names, min(len(names), self._random.randint(1, max(1, most))))

    def _excluded(self) -> list[str]:
        return sorted(self._holding(self._bad))

    def _holding(self, names: set[str]) -> list[str]:
        return [unit for unit, held in self.truth.units.items() if held.nodes & names]

    def _lifting(self, units: Iterable[str]) -> None:
        for unit in units:
            self.acts[unit].append(time.monotonic())

    def _run(self, what: str, *arguments: str) -> None:
        self._last[what] = time.monotonic()
        process = self._publisher.beside(what, *arguments)
        self._beside.append((process, what, time.monotonic()))
        if self._random.random() < 0.3:
            time.sleep(self._random.uniform(0.2, 1.0))
            if process.poll() is None:
                kill(process, group=self._random.random() < 0.5)
            self._last["kill"] = time.monotonic()


def job_of(unit: str) -> str:
    """Name a unit as Slurm's commands and ours do: `123_7`, or `123` for a job that is no array task."""
    job, _, task = unit.partition(".")
    return job if job == task else f"{job}_{task}"

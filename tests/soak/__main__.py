"""Lets a publisher run for long on a large cluster that changes at random, and kills it at random.

A real slurmctld with simulated nodes, on fixed ports; as root. Prints what was done and seen, minute by minute;
status 1 says that something was violated, and then what is left stays for a look.

    python -m tests.soak [--minutes 5] [--nodes 10000] [--tasks 550] [--seed NUMBER]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from tests.soak import judgement
from tests.soak.driver import Driver
from tests.soak.lab import Fleet, Publisher, Reader, files_below, wait_until

SLURMCTLD_ENDS = (0.25, 0.6)
"""When slurmctld is restarted, as parts of the whole time."""
QUIET = (0.3, 0.75)
"""When the publisher is left alone, so that one lives for long."""


def soak(driver: Driver, publisher: Publisher, reader: Reader, seconds: float) -> None:
    """Do things for so long, and look at the files every minute."""
    began, minute = time.monotonic(), 1
    restarts = list(SLURMCTLD_ENDS)
    while (passed := time.monotonic() - began) < seconds:
        driver.step(quiet=QUIET[0] < passed / seconds < QUIET[1])
        if restarts and passed / seconds > restarts[0]:
            restarts.pop(0)
            driver.restart_slurmctld()
        if passed > minute * 60:
            driver.violations += look(driver, publisher, reader, f"minute {minute}")
            minute += 1
    driver.violations += look(driver, publisher, reader, "the end")


def look(driver: Driver, publisher: Publisher, reader: Reader, when: str) -> list[str]:
    """Print a line of figures, and return what is left over."""
    driver.refresh()
    files = files_below(publisher.directory)
    sizes = {path: len(content) for path, (_, content) in files.items()}
    artifacts = [size for path, size in sizes.items() if path.startswith(judgement.PREFIX)]
    _, resident, descriptors = (publisher.lives[-1].samples or [(0.0, 0, 0)])[-1]
    temporaries = sum(judgement.TEMPORARY in path for path in files)
    beside = sum(size for path, size in sizes.items() if path.startswith(judgement.OURS))
    print(
        f"{when}: {len(driver.truth.units)} units, {len(artifacts)} artifacts, "
        f"{sum(map(bool, artifacts))} excluded; {temporaries} temporaries, {beside >> 10} KiB beside; "
        f"process {len(publisher.lives)}: {resident >> 10} MiB, {descriptors} descriptors; "
        f"{len(reader.lifts)} lifts seen",
        flush=True,
    )
    changed = {path: changed for path, (changed, _) in files.items()}
    return judgement.left_over(changed, driver.last_seen, time.time())


def settle(fleet: Fleet, publisher: Publisher) -> list[str]:
    """Make two passes on a cluster that changes no more; return what is then wrong with the directory."""
    deadline, statuses = time.monotonic() + 180, [0]
    while time.monotonic() < deadline:
        before = fleet.truth()
        if before.is_settled and not before.waiting:
            statuses = [publisher.beside("publish", "--once", "--all").wait(judgement.GRACE) for _ in range(2)]
            if fleet.truth() == before and not any(statuses):
                files = files_below(publisher.directory)
                return judgement.wrong({path: content for path, (_, content) in files.items()}, before)
        time.sleep(0.5)
    return [f"the cluster never came to rest, or passes never succeeded (the last ones: status {statuses})"]


def judge(driver: Driver, fleet: Fleet, publisher: Publisher, reader: Reader) -> list[str]:
    """Bring all to its end: the cluster as it is, and then with nothing that runs; return the violations."""
    driver.reap(all_of_them=True)
    if status := publisher.terminate():
        driver.violations.append(f"SIGTERM ended the last publisher with status {status}")
    fleet.run("scancel", "--state=PENDING", "--user=root")
    said = [*driver.violations, *judgement.unexplained(reader.lifts, driver.acts)]
    said += judgement.growth(publisher.lives)
    said += ["a traceback in the log"] if "Traceback" in publisher.log.read_text() else []
    said += settle(fleet, publisher)
    fleet.run("scancel", "--user=root")
    wait_until(lambda: not fleet.jobs().units and not fleet.jobs().waiting, "the end of all jobs", 120)
    said += settle(fleet, publisher)
    return said


def report(driver: Driver, publisher: Publisher, reader: Reader) -> None:
    """Print the figures of the whole run."""
    print("done:", json.dumps(dict(sorted(driver.counts.items()))))
    print(f"seen: {reader.looks} looks of the reader, {len(reader.lifts)} exclusions that went away")
    for life in publisher.lives:
        if samples := life.counted():
            memory = judgement.thirds([resident for _, resident, _ in samples])
            descriptors = judgement.thirds([count for _, _, count in samples])
            print(
                f"process {life.pid}: {samples[-1][0]:.0f} s, memory {memory[0]} to {memory[1]} KiB, "
                f"descriptors {descriptors[0]} to {descriptors[1]}, at most {max(count for *_, count in samples)}"
            )


def end(number: int, _frame: object) -> NoReturn:
    """End by a signal through every `finally`: nothing that was started may stay."""
    raise SystemExit(128 + number)


def main() -> int:
    """Start everything, soak, judge, end everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="two at the least: memory takes time")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=550)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    told = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("the simulated nodes need root")
    signal.signal(signal.SIGTERM, end)
    top = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"seed {told.seed}, in {top}", flush=True)
    directory = top / "decisions"
    directory.mkdir()
    with (
        Fleet(top / "fleet", told.nodes, told.tasks) as fleet,
        Publisher(fleet, directory, top / "publisher.log") as publisher,
        Reader(publisher) as reader,
    ):
        driver = Driver(fleet, publisher, reader, told.seed)
        soak(driver, publisher, reader, told.minutes * 60)
        violations = judge(driver, fleet, publisher, reader)
    report(driver, publisher, reader)
    for said in violations:
        print("VIOLATION:", said)
    if violations:
        print(f"failed; what is left stays in {top}")
        return 1
    shutil.rmtree(top)
    print("no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())

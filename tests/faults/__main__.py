"""`make test-faults`: plays every fault, pairs of them, and kills; says what was found.

python -m tests.faults [--only NAME] ...
"""

from __future__ import annotations

import argparse
import sys

from . import clock, content, process, slurm, storage
from .fault import FAULTS
from .laboratory import laboratory
from .scenario import play

KINDS = (storage, content, process, clock, slurm)


def main() -> int:
    """Play what is asked for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="make test-faults")
    parser.add_argument("--only", action="append", help="only the faults whose name has this text")
    told = parser.parse_args()
    broken = 0
    with laboratory() as lab:
        for fault in FAULTS.values():
            if told.only and not any(text in fault.name for text in told.only):
                continue
            try:
                report = play(lab, [fault])
            except AssertionError as failure:
                print(f"{fault.name:30} FAILED {failure}")
                broken += 1
                continue
            print(
                f"{fault.name:30} {report.in_force:6.1f} s in force, {report.lag:6.2f} s old, "
                f"{report.recovery:6.2f} s to recover, {report.looks} looks, {report.transitions} transitions"
            )
            for violation in report.violations:
                print(f"    VIOLATION {violation}")
            broken += len(report.violations)
            if report.violations:
                print("\n".join(f"      {line}" for line in report.log))
    print(f"{len(FAULTS)} faults, {broken} violations")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

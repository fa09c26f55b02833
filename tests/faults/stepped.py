"""Runs a Python program whose clock a file steps.

    python -I stepped.py FILE PROGRAM ARGUMENT ...

FILE holds seconds, which are added to what time.time() says; it is read at every call, so that the clock jumps in
the middle of a pass. What the program starts, Slurm's commands too, has the true clock, and so have the times of
files: these are another host's. libfaketime, which would go further, breaks clock_nanosleep(2) with a true
monotonic clock.
"""

from __future__ import annotations

import runpy
import sys
import time


def step(file: str) -> None:
    """Let time.time() be off by what a file says."""
    true = time.time

    def stepped() -> float:
        with open(file, encoding="ascii") as told:
            return true() + float(told.read())

    time.time = stepped


if __name__ == "__main__":
    step(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")

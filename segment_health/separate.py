"""The site's own command for units that are surely lost (`--on-separate`)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import Artifact
    from .publish import Pass

COMMAND_SECONDS = 60.0
"""How long the commands of a pass may take together; the next pass waits for them."""


def run_on_separate(command: str, done: Pass) -> list[str]:
    """Run the site's command for each unit that has just reached SeparateFault; return what failed, a line each.

    All run side by side with one deadline. That they were run is in the state, on disk, before: whatever happens
    here, it is at most once per generation. Where the state could not be written nothing is run.
    """
    if not done.remembered:
        return ["--on-separate was not run: that it was could not be remembered"]
    deadline = time.monotonic() + COMMAND_SECONDS
    started = [(artifact, _start(shlex.split(command), artifact)) for artifact in done.outcome.separated]
    failures = []
    for artifact, process in started:
        cause = process if isinstance(process, str) else _end(process, deadline)
        if cause is not None:
            failures.append(f"--on-separate for {artifact.unit}: {cause}")
    return failures


def _start(argv: list[str], artifact: Artifact) -> subprocess.Popen[bytes] | str:
    environ = os.environ | {
        "SEGMENT_JOB_ID": artifact.unit.job_id,
        "SEGMENT_TASK_ID": artifact.unit.task_id,
        "SEGMENT_NODES": artifact.unavailable,
        "SEGMENT_NODELIST": artifact.nodelist,
        "SEGMENT_LEVEL": artifact.level.name,
    }
    try:
        # What it prints goes to stderr: stdout is for `--format json`.
        return subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    except OSError as error:
        return f"cannot be started: {error.strerror}"


def _end(process: subprocess.Popen[bytes], deadline: float) -> str | None:
    """Wait for a command, or kill its process group at the deadline; return why it failed, or None."""
    try:
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"no end within {COMMAND_SECONDS:g} s; killed"
    return None if status == 0 else f"ended with status {status}"

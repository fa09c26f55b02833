"""The demo: a node is drained, its segment refused, the spare takes its place; on a private, real Slurm.

Every line goes to the callable `say`. What follows a `$` is run as it stands, and what is shown as its output is
its output; a command that does not answer as the story goes on to tell is an error. Where Slurm cannot run, a
recording of the same is told.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, final

from slurm.errors import SlurmUnavailable
from slurm.sandbox.cluster import Sandbox

from . import lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Say = Callable[[str], None]

_PATIENCE = 60.0  # seconds, for what takes one on an idle machine
_NODE_FAULT = "Xid 79: GPU has fallen off the bus"

_TITLE = "segment-health demo: a node of a training job goes bad"
_STARTING = "Starting a private Slurm of eight nodes on this machine; it ends with this story."
_READ_ON = """\
Read on, in the project's directory:
  docs/quickstart.md    the same by hand, on a test cluster of yours
  docs/contract.md      the file, who may write and lift it, exit codes
  segment-health publish --help                  one pass, or a publisher that stays
  segment-health template show sbatch-array      a job script to begin with"""

# `check` stands where ft_launcher would: it asks what ft_launcher --ft-segment-health-check-dir asks.
_JOB_SCRIPT = """\
#!/bin/bash
#SBATCH --array=0-3 --nodes=2 --ntasks-per-node=1 --exclusive --output=segment-%a.log
for round in 1 2; do
    until [ -e rendezvous-$round ]; do sleep 0.1; done
    srun --label --kill-on-bad-exit=1 segment-health check  # where ft_launcher would stand
done
"""


class StoryError(Exception):
    """Slurm runs here, but something did not go as the story tells. The message says what."""


@final
class Terminal:
    """A shell on the cluster; what is typed and what comes back is said as it is."""

    def __init__(self, cluster: Sandbox, say: Say) -> None:
        self.cluster = cluster
        self.say = say
        self.work = cluster.directory / "work"

    def run(self, command: str, expect: str = "") -> str:
        """Say a command, run it, say its output and return it.

        Raises StoryError unless it ends with 0 and its output has a line in which the pattern `expect` is found.
        """
        self.say(f"$ {command}")
        done = self.cluster.run("sh", "-c", f"exec 2>&1; {command}", check=False, timeout=_PATIENCE)
        for line in done.stdout.splitlines():
            self.say(line.rstrip())
        if done.returncode or not re.search(expect, done.stdout, re.MULTILINE):
            raise StoryError(f"{command}: ended with {done.returncode}, and {expect!r} was to be in its output")
        return done.stdout

    def wait_for_logs(self, pattern: str, segments: Iterable[int], count: int = 1) -> None:
        """Wait until the log of each of these segments has `count` lines that match."""

        def complete() -> bool:
            paths = [self.work / f"segment-{segment}.log" for segment in segments]
            logs = [path.read_text("utf-8") if path.exists() else "" for path in paths]
            return all(len(re.findall(pattern, log, re.MULTILINE)) >= count for log in logs)

        self.cluster.wait_until(complete, _PATIENCE, f"{pattern!r} in the segments' logs")


def play(say: Say, settle: Callable[[], None]) -> str | None:
    """Tell the story; return the version of the Slurm it ran on, or None if it was the recording.

    However it ends, no process, file or lock is left: by a StoryError, by what `say` raises, or by what the caller
    makes of a signal. `settle` is called before the cleaning up, during which a signal must not raise any more.
    """
    directory = Path(tempfile.gettempdir()) / f"demo-{secrets.token_hex(4)}"  # named here, so it can be removed
    cluster = Sandbox(8, directory=directory, extra_conf=["FirstJobId=4711"])
    version = obstacle = None
    try:
        try:
            say(_TITLE)
            say(_STARTING)
            try:
                version = _start(cluster)
            except (SlurmUnavailable, OSError) as error:
                obstacle = str(error)
            else:
                _tell(Terminal(cluster, say))
        except SlurmUnavailable as error:
            raise StoryError(str(error)) from error
        finally:
            settle()  # a signal that comes before has raised out of here, and is the last to do so
    finally:
        _clean_up(cluster, directory)
    if obstacle is None:
        say("The private Slurm is gone, and so are its files.")
        say("")
        for line in _READ_ON.splitlines():
            say(line)
    else:
        _replay(say, obstacle)
    return version


def record(version: str, date: str, lines: Iterable[str]) -> str:
    """Return a recording, for recordings/demo.txt, of what a live story said."""
    story = [line for line in lines if line not in {_TITLE, _STARTING}]
    return "\n".join((f"recorded on {date} with {version}", *story, ""))


def _replay(say: Say, obstacle: str) -> None:
    recording = (resources.files(__package__) / "recordings" / "demo.txt").read_text("utf-8")
    origin, _, story = recording.partition("\n")
    say("")
    say("Slurm cannot run here:")
    for line in obstacle.splitlines():
        say(f"  {line}")
    say(f"So this is a RECORDING, {origin}; nothing that follows happens on this machine.")
    for line in story.splitlines():
        say(line)


def _start(cluster: Sandbox) -> str:
    """Start the cluster, see that it runs jobs, and make the story's files; return Slurm's version."""
    cluster.__enter__()
    for name in [name for name in cluster.env if name.startswith(("SEGMENT_HEALTH_", "NVRX_"))]:
        del cluster.env[name]  # the reader's own settings
    folders = {name: cluster.directory / name for name in ("bin", "run", "decisions")}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    command = folders["bin"] / "segment-health"  # by that name, wherever it is installed
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m segment_health "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    cluster.env |= {
        "PATH": f"{folders['bin']}{os.pathsep}{cluster.env['PATH']}",
        "SEGMENT_HEALTH_DIR": str(folders["decisions"]),
        "XDG_RUNTIME_DIR": str(folders["run"]),  # where an ordinary user's publisher has its lock
    }
    (cluster.directory / "work" / "train.sbatch").write_text(_JOB_SCRIPT, encoding="utf-8")
    cluster.run("srun", "--nodes=1", "segment-health", "--version", timeout=_PATIENCE)  # else it shows too late
    cluster.wait_until(lambda: not cluster.run("squeue", "--noheader").stdout, _PATIENCE, "end of a first job")
    return cluster.run("slurmctld", "-V").stdout.strip()


def _tell(terminal: Terminal) -> None:
    job = _submit(terminal)
    node, state = _drain(terminal, job)
    _exclude(terminal, job, node)
    _refuse(terminal, node)
    _resume(terminal, job, node, state)


def _submit(terminal: Terminal) -> str:
    terminal.say("")
    terminal.say(
        "When training crashes, ft_launcher restarts it on the nodes it has. That a node went bad in between,"
    )
    terminal.say(
        "Slurm may know; ft_launcher does not. Here the job is an array: segments of two nodes, one to spare."
    )
    terminal.run("cat train.sbatch")
    submitted = terminal.run("sbatch train.sbatch", r"^Submitted batch job \d+$")
    job = submitted.split()[-1]
    running = ["RUNNING"] * 4
    terminal.cluster.wait_until(lambda: terminal.cluster.job_states(job) == running, _PATIENCE, "four segments")
    terminal.run("squeue --array --noheader --format='%8i %9T %N'", rf"^{job}_3 +RUNNING")
    return job


def _drain(terminal: Terminal, job: str) -> tuple[str, str]:
    cluster = terminal.cluster
    segment = cluster.run("squeue", "--noheader", f"--jobs={job}_1", "--format=%N").stdout.strip()
    node = cluster.run("scontrol", "show", "hostnames", segment).stdout.split()[0]
    state = cluster.node_state(node)
    terminal.say("")
    terminal.say(
        f"Say a GPU of {node} fails, in segment 1. The site drains the node, so that no new job starts there."
    )
    terminal.run(f"scontrol update nodename={node} state=drain reason='{_NODE_FAULT}'")
    terminal.run("sinfo --list-reasons --noheader --format='%N %T %E'", rf"^{node} drain\S+ {_NODE_FAULT}$")
    return node, state


def _exclude(terminal: Terminal, job: str, node: str) -> None:
    terminal.say("")
    terminal.say(
        "This job keeps the node. segment-health asks Slurm, and leaves a file for each segment that must"
    )
    terminal.say("not be reused, in a directory that all nodes share.")
    terminal.run("segment-health publish --once --all", rf"^exclude {job}_1 PreSeparateFault {node} ")
    terminal.say("People read in it why. To a launcher it matters only that the file is not empty.")
    terminal.run(f"fold -s -w 130 $SEGMENT_HEALTH_DIR/segment_health_check.{job}.1", r"^\{")


def _refuse(terminal: Terminal, node: str) -> None:
    terminal.say("")
    terminal.say(
        "Nothing that runs was touched. Now training crashes, and every segment wants to join a new rendezvous."
    )
    terminal.run("touch rendezvous-1")
    terminal.wait_for_logs("^0: ", range(4))
    terminal.wait_for_logs(r"^srun: error: .*Exited with exit code 1$", [1])
    terminal.say("Before it joins, its process 0 looks for its file.")
    told = terminal.run("grep ^0: segment-*.log", r"^segment-1.log:0: excluded: ")
    passed = re.findall(r"^segment-(\d)\.log:0: healthy: ", told, re.MULTILINE)
    if passed != ["0", "2", "3"]:
        raise StoryError(f"segments {passed} passed")
    terminal.run("grep 'task 0' segment-1.log", rf"{node}: task 0: Exited with exit code 1$")
    terminal.say(
        "Segment 1 is out, and srun ends it as a whole. Segments 0, 2 and the spare go on without the bad node."
    )


def _resume(terminal: Terminal, job: str, node: str, state: str) -> None:
    terminal.say("")
    terminal.say("The GPU is replaced, and the site resumes the node. The next pass lifts the exclusion.")
    terminal.run(f"scontrol update nodename={node} state=resume")
    # It has to register first; until then Slurm may show it as not responding.
    terminal.cluster.wait_until(
        lambda: terminal.cluster.node_state(node) == state, _PATIENCE, f"{node} in service"
    )
    terminal.run("segment-health publish --once --all", rf"^clear {job}_1 ")
    terminal.run("touch rendezvous-2")
    terminal.wait_for_logs("^0: ", range(4), count=2)
    terminal.run("grep ^0: segment-1.log", r"^0: excluded: .*\n0: healthy: ")
    terminal.say("At the second rendezvous segment 1 is back.")


def _clean_up(cluster: Sandbox, directory: Path) -> None:
    try:
        if hasattr(cluster, "conf"):
            _kill_commands(cluster.conf)
            _remove_lock(cluster, directory)
    finally:
        cluster.close()  # once more, if it was closed: a signal may have come in between
        shutil.rmtree(directory, ignore_errors=True)


def _kill_commands(conf: Path) -> None:
    """Kill every process of this cluster, the commands too that a signal cut loose as they started."""
    ours = b"SLURM_CONF=" + os.fsencode(conf)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        alive = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if ours in (folder / "environ").read_bytes().split(b"\0"):
                    alive.append(int(folder.name))
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _remove_lock(cluster: Sandbox, directory: Path) -> None:
    """Remove the publisher's lock, which root has outside `directory`: the file outlives its holder."""
    decisions = directory / "decisions"
    if not decisions.exists():  # nothing was published yet
        return
    env = {**cluster.env, "XDG_RUNTIME_DIR": str(directory / "run")}
    with contextlib.suppress(OSError, lock.LockError):
        path = lock.path_of(lock.PASS, str(decisions), os.path.realpath(cluster.conf), "all", env)
        for name in (path, f"{path}.pid"):
            Path(name).unlink(missing_ok=True)
        Path(path).parent.rmdir()  # unless others have theirs in it

"""A private, real Slurm cluster on this machine, for the demo and the tests.

No root service, munge, cgroup or database: each daemon is a child of the calling process, listens on a free
port, and keeps its files in the cluster's directory. Works for root and for ordinary users, and with several
clusters at once; tried on Slurm 22.05 and 24.11.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, final

from slurm.errors import SlurmUnavailable

from .conf import slurm_conf, wants_cgroup_conf
from .processes import free_ports, is_listening, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel", "srun")
_PACKAGES = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
_FOREIGN = ("SLURM", "SALLOC_", "SBATCH_", "SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_", "SRUN_")
_START_SECONDS = 60.0  # 200 nodes need 3 s on two idle cores
_END_SECONDS = 15.0
_LONGEST_DIRECTORY = 60  # bytes: a step's UNIX socket, at most 108, adds /spool/NODE/NODE_JOB.STEP


@final
class Sandbox:
    """A cluster of `nodes` nodes n1, n2, ... of `cpus` CPUs each, in one partition `main`; up inside `with`.

    `user` owns the daemons and jobs: the caller unless given, another name only if the caller is root.
    `directory` is made and, at exit, removed with all in it; by default a new one among the temporary files.
    `return_to_service` is Slurm's ReturnToService: with 2 a node set DOWN whose slurmd lives is idle again
    within a second, with 0 it stays DOWN. `extra_conf` holds lines of slurm.conf; `Keyword=value` replaces
    what the sandbox would say, nodes and partitions are added.

    Entering raises SlurmUnavailable if Slurm is not installed or a daemon does not come up (with the end of
    its log), FileExistsError if `directory` exists. Leaving by return or exception ends all daemons and jobs;
    only a process that cleared its environment and outlived its job's step is beyond reach, of Slurm too. A
    caller who may be ended by SIGTERM must turn it into an exception; nothing helps against SIGKILL.
    """

    env: dict[str, str]  #: the caller's environment, less its Slurm variables, with SLURM_CONF and sbin in PATH
    directory: Path
    conf: Path
    nodes: tuple[str, ...]

    def __init__(  # noqa: PLR0913 -- a cluster has this many independent traits, all with defaults
        self,
        nodes: int = 8,
        cpus: int = 2,
        *,
        user: str | None = None,
        directory: Path | None = None,
        return_to_service: int = 2,
        extra_conf: Iterable[str] = (),
        cluster_name: str = "sandbox",
    ) -> None:
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self._hardware = f"CPUs={cpus} RealMemory=2000"
        self._extra = (f"ClusterName={cluster_name}", f"ReturnToService={return_to_service}", *extra_conf)
        self._account = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
        self._other = self._account if self._account.pw_uid != os.geteuid() else None
        self._wanted = directory
        self._port = 0
        self._daemons: dict[str, subprocess.Popen[str]] = {}
        self._sessions: set[int] = set()
        self._scripts = 0

    def __enter__(self) -> Sandbox:
        try:
            self._start()
        except BaseException:  # an interrupt too: no daemon may outlive a start that failed
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every daemon and job, then remove the directory; does nothing the second time.

        Raises SlurmUnavailable, and leaves the directory, if a process survives SIGKILL (in the kernel).
        """
        try:
            self._clear()
        except (KeyboardInterrupt, SystemExit):  # a second Ctrl-C or SIGTERM must leave no daemon behind
            self._clear()
            raise

    def run(
        self, *argv: str, timeout: float = 30, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the cluster's user in `directory`/work, with `env` added to the cluster's own.

        Raises SlurmUnavailable after `timeout` seconds, having killed the command's process group, and, if
        `check`, when it exits other than 0, with what it said.
        """
        process = self._popen(argv, env or {}, subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a child outside the group may hold the pipe
                process.communicate(timeout=1)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SlurmUnavailable(f"{' '.join(argv)}: no end within {timeout:g} s") from error
            raise
        if check and process.returncode:
            raise SlurmUnavailable(f"{' '.join(argv)}: exit {process.returncode}: {(err or out).strip()}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def wait_until(self, predicate: Callable[[], object], timeout: float = 30, what: str = "condition") -> None:
        """Return once `predicate` is true; raise SlurmUnavailable, naming `what`, after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not predicate():
            if time.monotonic() > deadline:
                raise SlurmUnavailable(f"{what}: not within {timeout:g} s{self._log_end('slurmctld')}")
            time.sleep(0.05)

    def node_state(self, name: str) -> str:
        """Return a node's State as scontrol says it, such as ALLOCATED+DRAIN or DOWN."""
        return self._node_states(name)[name]

    def set_node(self, name: str, state: str, reason: str = "test") -> None:
        """Set the state of a node or hostlist: drain, down, fail, resume, ...; resume takes no reason."""
        why = [] if state.lower() in {"resume", "undrain"} else [f"reason={reason}"]
        self.run("scontrol", "update", f"nodename={name}", f"state={state}", *why)

    def submit(self, script: str, *options: str) -> str:
        """Submit the text of a batch script, with options of sbatch; return the job's id.

        It runs, and unless told otherwise logs (slurm-ID.out), in `directory`/work.
        """
        self._scripts += 1
        path = self.directory / "work" / f"script-{self._scripts}.sh"
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
        return self.run("sbatch", "--parsable", *options, str(path)).stdout.strip().partition(";")[0]

    def job_states(self, job: str) -> list[str]:
        """Return the state, such as RUNNING, of each task of JOB or JOB_TASK; empty once Slurm forgot it."""
        query = ("squeue", "--noheader", "--array", "--states=all", "--format=%T", f"--jobs={job}")
        return self.run(*query, check=False).stdout.split()

    def wait_running(self, job: str, count: int = 1, timeout: float = 30) -> None:
        """Wait until at least `count` tasks of a job are RUNNING."""
        what = f"{count} running tasks of job {job}"
        self.wait_until(lambda: self.job_states(job).count("RUNNING") >= count, timeout, what)

    def requeue(self, job: str, timeout: float = 30) -> None:
        """Requeue a running job or array task, and wait until as many of its tasks as before run again.

        Slurm would let it wait 121 s. An earlier start time shortens that, but only once the job is PENDING:
        an update while it is COMPLETING succeeds and is lost. It must not be the second of the job's end: a
        slurmd refuses a credential that is no younger than the one it revoked, and the job would FAIL.
        """
        running = self.job_states(job).count("RUNNING")
        self.run("scontrol", "requeue", job)
        what = f"job {job} pending after its requeue"
        self.wait_until(lambda: self.job_states(job).count("PENDING") >= running, timeout, what)
        self.run("scontrol", "update", f"jobid={job}", "starttime=now+1")
        self.wait_running(job, running, timeout)

    def pause_controller(self) -> None:
        """Stop slurmctld in its tracks: the kernel accepts connections, and nothing answers them."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def continue_controller(self) -> None:
        """Let a paused slurmctld go on."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def stop_controller(self, *, kill: bool = False) -> None:
        """End slurmctld, which saves its state first unless `kill`; jobs and slurmds go on."""
        process = self._daemons["slurmctld"]
        if kill:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a paused one acts on SIGTERM only after this
        self.wait_until(lambda: process.poll() is not None, _END_SECONDS, "end of slurmctld")
        del self._daemons["slurmctld"]

    def start_controller(self, *options: str) -> None:
        """Start slurmctld, with the jobs and node states it had, and wait until it answers.

        Nodes are then UNKNOWN for some seconds, until each slurmd has registered again.
        """
        self._spawn("slurmctld", "slurmctld", "-D", *options, "-f", str(self.conf))
        self._wait_up(lambda: is_listening(self._port), "slurmctld")
        # If another sandbox took the port meanwhile, that one's slurmctld would answer: ask whose it is.
        mine = f"{self.directory}/state\n"
        self._wait_up(lambda: mine in self.run("scontrol", "show", "config", check=False).stdout, "slurmctld")

    def kill_slurmd(self, name: str) -> None:
        """Kill a node's slurmd; its steps live on, and Slurm notices within SlurmdTimeout (300 s)."""
        self._daemons[name].kill()
        self._daemons.pop(name).wait(_END_SECONDS)

    def start_slurmd(self, name: str) -> None:
        """Start a node's slurmd and wait until it listens; it registers about a second later."""
        self._spawn(name, "slurmd", "-D", "-N", name, "-f", str(self.conf))
        self._wait_up(lambda: is_listening(self._port + 1 + self.nodes.index(name)), f"slurmd of {name}")

    def _start(self) -> None:
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        self.env["PATH"] = os.pathsep.join((self.env.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
        missing = [program for program in _PROGRAMS if not shutil.which(program, path=self.env["PATH"])]
        if missing:
            raise SlurmUnavailable(f"not installed: {', '.join(missing)}; Debian has them in {_PACKAGES}")
        if self._other and os.geteuid():
            raise SlurmUnavailable(f"only root can run a cluster as another user ({self._account.pw_name})")
        self._make_directory()
        self.env["SLURM_CONF"] = str(self.conf)
        if self._other:
            self.env |= {"HOME": f"{self.directory}/work", "USER": self._other.pw_name}
        for last_try in (False, False, False, True):
            self._write_conf(free_ports(1 + len(self.nodes)))
            try:
                self._start_daemons()
            except SlurmUnavailable as error:
                # Between _free_ports and now, another sandbox or program took a port.
                if last_try or "Address already in use" not in str(error):
                    raise
                self._end_processes()
            else:
                return

    def _start_daemons(self) -> None:
        self.start_controller("-c")
        for name in self.nodes:
            self._spawn(name, "slurmd", "-D", "-N", name, "-f", str(self.conf))
        idle = dict.fromkeys(self.nodes, "IDLE")
        self._wait_up(lambda: self._node_states() == idle, f"{len(self.nodes)} idle nodes")

    def _make_directory(self) -> None:
        if self._wanted:
            self._wanted.mkdir()
        self.directory = (self._wanted or Path(tempfile.mkdtemp(prefix="slurm-"))).resolve()
        self.conf = self.directory / "slurm.conf"
        if len(os.fsencode(self.directory)) > _LONGEST_DIRECTORY:
            raise SlurmUnavailable(f"{self.directory}: too long for the UNIX sockets in it, give another one")
        parts = ("", "state", "log", "work", "spool", *(f"spool/{name}" for name in self.nodes))
        for path in (self.directory / part for part in parts):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
            if self._other:
                os.chown(path, self._other.pw_uid, self._other.pw_gid)

    def _write_conf(self, port: int) -> None:
        self._port = port
        text = slurm_conf(
            host=socket.gethostname().partition(".")[0],
            user=self._account.pw_name,
            directory=self.directory,
            port=port,
            nodes=len(self.nodes),
            hardware=self._hardware,
            extra=self._extra,
        )
        self.conf.write_text(text, encoding="utf-8")
        if wants_cgroup_conf(self.run("slurmctld", "-V").stdout):
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n", encoding="utf-8")

    def _wait_up(self, predicate: Callable[[], object], what: str) -> None:
        def up() -> bool:
            for name, process in self._daemons.items():
                if process.poll() is not None:
                    raise SlurmUnavailable(f"{name} ended with {process.returncode}{self._log_end(name)}")
            return bool(predicate())

        self.wait_until(up, _START_SECONDS, what)

    def _spawn(self, name: str, *argv: str) -> None:
        if name in self._daemons:
            raise RuntimeError(f"{name} is started already")
        with (self.directory / "log" / f"{name}.err").open("ab") as log:
            self._daemons[name] = self._popen(argv, {}, log.fileno())
        self._sessions.add(self._daemons[name].pid)

    def _popen(self, argv: tuple[str, ...], env: Mapping[str, str], output: int) -> subprocess.Popen[str]:
        other = self._other
        return subprocess.Popen(
            argv,
            cwd=self.directory / "work",
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,  # a terminal's Ctrl-C must reach the caller alone
            user=other.pw_uid if other else None,
            group=other.pw_gid if other else None,
            extra_groups=[] if other else None,  # not even an empty list: setgroups() is root's
        )

    def _node_states(self, *names: str) -> dict[str, str]:
        text = self.run("scontrol", "show", "nodes", "-o", *names).stdout
        return dict(re.findall(r"^NodeName=(\S+) .*?\sState=(\S+)", text, re.MULTILINE))

    def _log_end(self, name: str) -> str:
        try:
            text = (self.directory / "log" / f"{name}.err").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "; its log ends:\n" + "\n".join(text.splitlines()[-8:])

    def _clear(self) -> None:
        if hasattr(self, "conf"):
            self._end_processes()
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.directory)

    def _end_processes(self) -> None:
        # SIGKILL to all at once, not scancel first: that needs a slurmctld that answers, and nothing is kept.
        deadline = time.monotonic() + _END_SECONDS
        while alive := processes(self.conf, self._sessions):
            if time.monotonic() > deadline:
                raise SlurmUnavailable(f"processes {sorted(alive)} of {self.directory} survive SIGKILL")
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self._daemons.values():
            process.wait(_END_SECONDS)
        self._daemons.clear()

"""`python -I -S reaper.py`: runs one program, and leaves nothing of it. Standard library only, as it starts often.

Whatever the program starts, and however that detaches itself, becomes a child of this process when its own parent
is gone (PR_SET_CHILD_SUBREAPER of prctl(2)). So when the program has ended, when its time is over, or when nvhcd
is no more, all that is left is killed, again and again until this process has no child.

Standard input: a line of JSON (see Order), and then nothing; its end means that nobody wants the answer any more.
Standard output: a line of JSON (see Report), then the bytes of the program's standard output and error. Then it is
closed; a process that the kernel does not let go is waited for, for as long as it takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CHUNK = 1 << 16
_TERM_SECONDS = 1.0
"""From SIGTERM, which a program may tidy up at, to SIGKILL."""
_KILL_SECONDS = 3.0
"""How long killed processes may take to disappear, before the answer is given without them."""
_LEFT_SECONDS = 0.5
"""How often what the kernel did not let go is looked for after that."""

# Order: {"argv": [...], "timeout": seconds, "stdout": bytes kept at most, "stderr": bytes kept at most}
# Report: {"errno": why it could not be started, else null; "status": its exit status, -N for a signal, null where
#          it is still there; "late": whether its time was over; "stdout", "stderr": bytes that follow;
#          "cut": whether stdout was longer; "left": processes that could not be killed}


def become_subreaper() -> None:
    """Take the children of those of our descendants that end."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(top: int, spared: frozenset[int] = frozenset()) -> list[int]:
    """Return the processes below `top`, without those that are `spared` and all below these."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]  # its name may hold anything
            if state != b"X":  # a zombie may be the first thread of a process that others of it keep alive
                below.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    waiting = [top]
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in spared:
                found.append(child)
                waiting.append(child)
    return found


def kill(processes: list[int]) -> None:
    """Kill processes, as far as we may."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


class Output:
    """One of the program's streams, kept up to a limit and read on beyond it."""

    def __init__(self, limit: int) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.kept = bytearray()
        self.cut = False
        self.open = True
        self._limit = limit

    def read(self) -> bool:
        """Read some of what is there; False where there is nothing more."""
        try:
            data = os.read(self.reading, _CHUNK)
        except BlockingIOError:
            return False
        self.open = bool(data)
        room = self._limit - len(self.kept)
        self.kept += data[:room]
        self.cut |= len(data) > room
        return self.open


class Run:
    """One program, from its start to the end of all that it started."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._deadline = time.monotonic() + float(order["timeout"])
        self.out, self.err = Output(order["stdout"]), Output(order["stderr"])
        self.status: int | None = None
        self.late = False
        self.wanted = True
        self._bell, ring = os.pipe()
        for end in (self._bell, ring):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        failed, failing = os.pipe()
        self._program = os.fork()
        if self._program == 0:
            _become([word.encode() for word in order["argv"]], self.out.writing, self.err.writing, failing)
        for end in (failing, self.out.writing, self.err.writing):
            os.close(end)
        self.errno = self._begin(failed)
        os.close(failed)

    def wait(self) -> None:
        """Read what the program writes until it has ended, its time is over, or nobody wants to know."""
        self._watch(self._deadline)
        if self.status is None and self.wanted:
            self.late = True
            self._signal_group(signal.SIGTERM)
            self._watch(time.monotonic() + _TERM_SECONDS)

    def sweep(self) -> list[int]:
        """Kill all that is left, and take the rest of the output; return what could not be killed."""
        self._signal_group(signal.SIGKILL)
        deadline = time.monotonic() + _KILL_SECONDS
        pause = 0.001
        left: list[int] = []
        while self._reap() and time.monotonic() < deadline:
            left = descendants(os.getpid())
            kill(left)
            select.select([self._bell], [], [], pause)
            pause = min(pause * 2, 0.05)
        for output in (self.out, self.err):
            # Nobody is left to write, or somebody whom nothing stops: then what a pipe holds is enough.
            for _ in range(64):
                if not output.open or not output.read():
                    break
        return left if self._reap() else []

    def wait_for_the_rest(self) -> None:
        """Wait until the kernel has let go of everything."""
        while self._reap():
            kill(descendants(os.getpid()))
            time.sleep(_LEFT_SECONDS)

    def _begin(self, failed: int) -> int | None:
        """Wait until the program begins; return why it cannot. On storage that hangs it does neither."""
        while self.wanted and (left := self._deadline - time.monotonic()) > 0:
            ready = select.select([0, failed], [], [], left)[0]
            if failed in ready:
                told = os.read(failed, 16)  # its end comes with the program
                return int(told) if told else None
            if 0 in ready and not os.read(0, _CHUNK):
                self.wanted = False
        return None

    def _watch(self, deadline: float) -> None:
        while self.status is None and self.wanted and (left := deadline - time.monotonic()) > 0:
            outputs = {output.reading: output for output in (self.out, self.err) if output.open}
            ready = select.select([0, self._bell, *outputs], [], [], left)[0]
            if 0 in ready and not os.read(0, _CHUNK):
                self.wanted = False
            for number in ready:
                if number in outputs:
                    outputs[number].read()
            self._reap()

    def _reap(self) -> bool:
        """Take note of children that have ended; tell whether there are any others."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, _CHUNK)
        try:
            while True:
                ended, status = os.waitpid(-1, os.WNOHANG)
                if not ended:
                    return True
                if ended == self._program:
                    self.status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def _signal_group(self, number: int) -> None:
        """Signal the program's session; once it has been waited for its number may be somebody else's."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program, number)


def main() -> None:
    """Do what standard input orders."""
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # they are for nvhcd
        signal.signal(number, signal.SIG_IGN)
    order = bytearray()
    while not order.endswith(b"\n"):
        data = os.read(0, _CHUNK)
        if not data:
            return
        order += data
    run = Run(json.loads(order))
    if run.errno is None:
        run.wait()
    left = run.sweep()
    if run.wanted:
        _report(run, left)
    os.close(1)
    run.wait_for_the_rest()


def _report(run: Run, left: list[int]) -> None:
    told = {
        "errno": run.errno,
        "status": run.status,
        "late": run.late,
        "stdout": len(run.out.kept),
        "stderr": len(run.err.kept),
        "cut": run.out.cut,
        "left": left,
    }
    rest = memoryview(json.dumps(told).encode() + b"\n" + run.out.kept + run.err.kept)
    with contextlib.suppress(BrokenPipeError):  # nvhcd is gone
        while rest:
            rest = rest[os.write(1, rest) :]


def _become(argv: list[bytes], out: int, err: int, failing: int) -> NoReturn:
    """Be the program: in its own session, as any service would start it, and gone should this reaper be killed."""
    try:
        parent = os.getppid()
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, os.environb)  # noqa: S606 - a shell is what nobody wants here
    except OSError as error:
        os.write(failing, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
    sys.exit(0)

"""Has failed cycles analysed beside a launcher, which never waits for it.

Whatever is sent or asked is sent and asked by a thread, every 2 s; a launcher leaves a word for it and reads what
it has found, both in microseconds. A verdict counts whenever it comes, though the job is some cycles on by then.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from . import wire
from .analysis import Analysis
from .client import TIMEOUT, Client, ServiceError
from .metadata import is_requeued, job_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .analysis import Note, StopAction

INTERVAL = 2.0
"""Seconds from one question for a verdict to the next, as NVRx has them."""
_LOG = logging.getLogger("nvrx")


class Attribution:
    """Has the cycles of a job analysed by the service at `endpoint`, and collects its verdicts.

    `stop_action` is `log` (each STOP is an ERROR of the logger `nvrx`, and counted) or `no-restart` (the first
    STOP makes stop_requested() true, for good). User and job are those of `environ`.

    What is not `http://` or `https://` is kept as `endpoint`, said in a warning once, and never asked; so is
    `localhost`, for which a launcher has to start a service first. A service that is slow, hangs or is dead
    delays nothing and ends nothing. ValueError where the endpoint is no URL, or the stop action none.

    Make it in the process that uses it: its thread starts with the first cycle, and a fork does not take it along.
    Beside the names that are its own it has those by which NVRx calls its AttributionService.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        stop_action: StopAction = "log",
        environ: Mapping[str, str] = os.environ,
        interval: float = INTERVAL,
        seconds: float = TIMEOUT,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._analysis = Analysis(stop_action)
        self._client: Client | None = None
        self._interval = interval
        self._is_requeued = is_requeued(environ)
        self._lock = threading.Lock()  # of _analysis and _last; nobody waits for the network under it
        self._last: str | None = None
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._silent = False
        if wire.base_url(endpoint) is None:
            _LOG.warning(
                "Attribution: %s is asked by nobody here: only http:// and https:// are", wire.shown(endpoint)
            )
        else:
            self._client = Client(endpoint, job_metadata(environ), seconds=seconds, environ=environ)

    def cycle_began(self, log_path: str | os.PathLike[str]) -> None:
        """Say that a cycle began, whose log is (or will be) at this absolute path. Returns at once."""
        path = os.fsdecode(log_path)
        if self._client is None or self._closing:
            return
        with self._lock:
            self._last = path
            self._analysis.began(path)
        self._be_awake()

    def cycle_failed(self, log_path: str | os.PathLike[str]) -> None:
        """Say that a cycle failed, so that its log is analysed unless another is already. Returns at once."""
        path = os.fsdecode(log_path)
        if self._client is None or self._closing:
            return
        with self._lock:
            note = self._analysis.failed(path)
        _say(note)
        self._be_awake()

    def stop_requested(self) -> bool:
        """Tell whether the job is to end now: there was a STOP, and the stop action is `no-restart`."""
        return self._analysis.is_over

    def stop_verdict_observed(self) -> bool:
        """Tell whether there was a STOP, enforced or not."""
        return self._analysis.stop_count > 0

    def stop_verdict_count(self) -> int:
        """Tell how many verdicts were STOP."""
        return self._analysis.stop_count

    def close(self, timeout: float = 5.0) -> None:
        """End the thread, waiting so many seconds at most. What is not sent yet is sent before."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():  # it ends with its question, or with this process
                return
        if self._client is not None:
            self._client.close()

    def request_terminal_analysis(self) -> None:
        """Say that the cycle which began last has failed; where none began, nothing."""
        with self._lock:
            log_path = self._last
        if log_path is not None:
            self.cycle_failed(log_path)

    def start_poller(self, node_id: object = None) -> None:
        """Do nothing: the thread starts by itself. NVRx's launcher calls this."""

    __call__ = request_terminal_analysis
    _submit_log = cycle_began
    stop_poller = close

    def _be_awake(self) -> None:
        """Start the thread, or wake it."""
        assert self._client is not None
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="attribution", args=(self._client,), daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no memory, or too many threads: the next cycle tries again
                    _LOG.warning("Attribution: no cycle is analysed: %s", error)
                    return
                self._thread = thread
        self._wake.set()

    def _run(self, client: Client) -> None:
        """Send what is to be sent, and ask for the verdict, until closed or over.

        One thing is sent at a time, and then asked if it is time to: cycles that begin faster than a slow service
        accepts them keep nobody from hearing a verdict.
        """
        due: float | None = None
        while not self._analysis.is_over:
            self._wake.clear()
            closing = self._closing
            sent = self._submit(client)
            now = time.monotonic()
            if self._analysis.pending is None:
                due = None
            elif due is None:
                due = now + self._interval
            elif now >= due:
                self._ask(client, self._analysis.pending)
                due = time.monotonic() + self._interval
            if closing:  # an analysis, if one was wanted, has been sent first
                return
            if not sent:
                self._wake.wait(None if due is None else max(0.0, due - time.monotonic()))

    def _submit(self, client: Client) -> bool:
        """Send one thing; tell whether there was one."""
        with self._lock:
            submission = self._analysis.next_submission()
        if submission is None:
            return False
        refused = said_before = None
        try:
            if self._is_requeued and submission.intent is wire.Intent.TERMINAL:
                said_before = client.ask(submission.log_path)
            client.submit(submission.log_path, submission.intent)
        except ServiceError as error:
            refused = str(error)
        with self._lock:
            note = self._analysis.submitted(refused, said_before)
        _say(note)
        return True

    def _ask(self, client: Client, log_path: str) -> None:
        """Ask for the verdict once; that nobody answers is said once, and that somebody does again."""
        try:
            answer = client.ask(log_path)
        except ServiceError as error:
            if not self._silent:
                self._silent = True
                _LOG.warning("Attribution: no answer, the verdict is waited for: %s", error)
            return
        if self._silent:
            self._silent = False
            _LOG.info("Attribution: the service answers again")
        with self._lock:
            note = self._analysis.heard(answer, time.monotonic())
        _say(note)


def _say(note: Note | None) -> None:
    if note is not None:
        _LOG.log(getattr(logging, note.level), "Attribution: %s", note.text)

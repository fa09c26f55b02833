"""The publisher that a loop drives: its settings, its source, its place among other publishers."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import lock
from .atomic import host_name
from .bounded import bounded
from .sources import SourceUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeVar

    from .memory import Heartbeat
    from .observe import Observation
    from .publication import Holder, Publication, Reporting, Reports
    from .publish import Pass
    from .reload import PolicyFile
    from .scope import Scope
    from .sources import Source
    from .store import Change

    Result = TypeVar("Result")

_WRITE_SECONDS = 5.0
"""How long a pass waits for what is left of a killed publisher to end its writing."""
_SHARE = 0.25
"""The part of the time for storage that a source may take without which a pass goes on, and is not too late."""
PASS_SECONDS = 60.0
"""How long a loop's pass waits for another one of its scope, a single one by cron or by hand."""


def prepare() -> None:
    """Load what a pass needs once Slurm has answered: while Slurm is at work, that costs a single pass nothing."""
    from . import observe, publish  # noqa: F401, PLC0415


@dataclass(slots=True)
class Plan:
    """What a publisher is to do; a reload makes a new one. Times are in seconds, `stale_after` None is never.

    `lock_name` is what tells this cluster from another one of this host, before the first answer. `policy_file` is
    where the policy comes from, None for the default. `lock_directory` is the real path of the decision directory,
    as far as it is known.
    """

    publication: Publication
    source: Source
    stale_after: float | None
    standby: bool
    on_separate: str | None
    lock_name: str = ""
    policy_file: PolicyFile | None = None
    lock_directory: str = ""


class Service:
    """Drives passes by a plan (see watch.Publishing). `clock` gives seconds since the epoch.

    `reread` makes the plan anew, or returns the one it is given; `say` is told what became of a changed policy:
    a level ("INFO", "ERROR") and a sentence.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Callable[[], float],
        reread: Callable[[Plan], Plan] = lambda plan: plan,
        say: Callable[[str, str], None] = lambda _level, _sentence: None,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._reread = reread
        self._say = say
        self._cluster: str | None = None
        self._asked_before: dict[str, tuple[int, int]] = {}

    @property
    def interval(self) -> float:
        """Seconds from pass to pass."""
        return self._plan.publication.interval

    @property
    def stale_after(self) -> float | None:
        """Seconds without a complete pass after which exclusions are lifted; None for never."""
        return self._plan.stale_after

    @property
    def scope(self) -> Scope:
        """Whose units it publishes for."""
        return self._plan.publication.scope

    @property
    def policy_error(self) -> str | None:
        """Why the newest policy is not the one in force; None if it is."""
        return self._plan.publication.policy_error

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Return how many questions Slurm was asked by this process, and bytes of answers, by door."""
        counted = dict(self._asked_before)
        for door, traffic in self._plan.source.traffic.items():
            queries, received = counted.get(door, (0, 0))
            counted[door] = (queries + traffic.queries, received + traffic.received)
        return counted

    def age(self) -> float:
        """Return how many seconds ago this scope's last complete pass was, by whomever; 0 if there was none."""
        beat = self._last_heartbeat()
        return 0.0 if beat is None else max(0.0, self._clock() - beat.last_complete_pass)

    def company(self) -> str | None:
        """Name a publisher of any scope that lives in the directory; None if nobody does."""
        living = [beat.publisher for beat in self._heartbeats() if beat.is_alive(self._clock())]
        return f"{living[0].scope} by process {living[0].pid} on {living[0].host}" if living else None

    def stands_by(self) -> bool:
        """Whether another process publishes for this scope, and we only offer to."""
        if not self._plan.standby:
            return False
        me, now = (host_name(), os.getpid()), self._clock()
        return any(
            beat.loop and beat.is_alive(now) and (beat.publisher.host, beat.publisher.pid) != me
            for beat in self._own_heartbeats()
        )

    def attempt(self, *, wait: float = PASS_SECONDS) -> Pass:
        """Make a pass, alone of its scope on this host: one that is under way may take `wait` seconds to end.

        Slurm is asked here, and whatever touches shared storage is done in a child (see bounded).

        Raises SourceUnknown or OSError, and lock.AlreadyRunning or lock.LockError.
        """
        self._follow_policy()
        publication = self._plan.publication
        with self._alone(wait):
            began = int(self._clock())
            snapshot = self._plan.source.observe()
            prepare()
            from .observe import consult, saw  # noqa: PLC0415 - as that

            observation = saw(snapshot, publication, self._plan.source, began, int(self._clock()))
            self._cluster = observation.snapshot.cluster
            observation = consult(observation, publication.reports, self._read)
            done = self._touch(lambda: self._write(observation), also=_WRITE_SECONDS)
        self._plan.publication = self._plan.publication._replace(device=done.device)
        if publication.portray:
            self._portray(observation, done)
        if self._plan.on_separate is not None and done.outcome.separated and not publication.dry_run:
            from .separate import run_on_separate  # noqa: PLC0415 - hardly ever

            done.failures += run_on_separate(self._plan.on_separate, done)
        return done

    def _alone(self, wait: float) -> contextlib.AbstractContextManager[None]:
        if self._plan.publication.dry_run:  # it touches nothing, the lock included
            return contextlib.nullcontext()
        return self._hold(lock.PASS, wait)

    def _hold(self, what: str, wait: float) -> contextlib.AbstractContextManager[None]:
        plan = self._plan
        where = (plan.lock_directory or plan.publication.directory, plan.lock_name, str(plan.publication.scope))
        return lock.hold(what, *where, os.environ, wait=wait)

    def _read(self, one: Reporting, nodes: Mapping[str, Collection[Holder]], now: int) -> Reports:
        """Ask a source beside Slurm, in a child; what it learned is kept, as if it had been read here.

        The pass goes on without one that is not essential, so that one may have a part of the time only. Raises
        SourceUnknown.
        """
        publication = self._plan.publication
        seconds = publication.storage_timeout * (1 if one.is_essential else _SHARE)

        def work() -> tuple[Reports, Reporting]:
            return one.read(nodes, now), one

        try:
            told, learned = bounded(work, seconds, one.path)
        except OSError as error:
            raise SourceUnknown(error.strerror) from error
        kept = tuple(learned if before is one else before for before in publication.reports)
        self._plan.publication = publication._replace(reports=kept)
        return told

    def _write(self, observation: Observation) -> Pass:
        """Publish, in a child: alone, unless nothing is written."""
        from .publish import publish  # noqa: PLC0415 - as prepare() does

        publication = self._plan.publication
        if publication.dry_run:
            return publish(observation, publication, self._clock)
        try:
            with self._hold(lock.WRITE, _WRITE_SECONDS):
                done = publish(observation, publication, self._clock)
        except lock.AlreadyRunning as hanging:
            raise TimeoutError(errno.ETIMEDOUT, f"an earlier pass still waits for it: {hanging}") from hanging
        done.outcome.forget_units()  # thousands, all of which would have to be sent
        return done

    def _portray(self, observation: Observation, done: Pass) -> None:
        """Have the pass's picture made, which is no part of it: without one the page shows an older one."""
        from .page.portrait import portrait_of_pass  # noqa: PLC0415 - 0.1 s that only a page's publisher pays

        publication = self._plan.publication
        try:
            done.picture = self._touch(lambda: portrait_of_pass(observation, publication, done.outcome.seen))
        except OSError as error:
            done.remarks.append(f"no picture of this pass for the page: {error.strerror or error}")

    def _touch(self, work: Callable[[], Result], *, also: float = 0.0) -> Result:
        """Do what touches the decision directory, within the time that storage may take, and `also` some seconds.

        Raises OSError, TimeoutError above all, and what `work` raises.
        """
        publication = self._plan.publication
        return bounded(work, publication.storage_timeout + also, publication.directory)

    def lift_stale(self) -> list[Change] | None:
        """Clear what this scope published; None when another process has confirmed it since. Raises OSError."""
        publication, beat = self._plan.publication, self._last_heartbeat()
        if beat is None:  # nobody ever published, or it is not clear for which cluster
            return None

        age = self._clock() - beat.last_complete_pass
        if (
            -beat.interval <= age < (self._plan.stale_after or 0)
        ):  # from the future: written by a clock set back since
            return None
        from .heartbeats import lift  # noqa: PLC0415 - hardly ever

        return lift(beat.publisher.cluster, publication, int(self._clock()))

    def retire(self) -> None:
        """Say in the heartbeat that nobody makes the next pass, so that a standby takes over at once."""
        from .heartbeats import retire  # noqa: PLC0415 - when it ends

        retire(self._own_heartbeats(), self._plan.publication)

    def reload(self) -> None:
        """Go on by the plan that the settings make now, or by the old one if they are wrong."""
        before, asked = self._plan, self.traffic()
        self._plan = self._reread(before)
        self._plan.publication = self._plan.publication._replace(device=before.publication.device)
        if before.source is not self._plan.source:
            self._asked_before = asked
            before.source.close()

    def is_outdated(self) -> bool:
        """Whether the policy file has changed since it was read."""
        return self._plan.policy_file is not None and self._plan.policy_file.has_changed()

    def _follow_policy(self) -> None:
        """Go on by what the policy file says now; where that is wrong by the last good one, and say so."""
        file, publication = self._plan.policy_file, self._plan.publication
        if file is None or not file.has_changed():
            return
        from .policy.content import PolicyError  # noqa: PLC0415 - only where there is a file

        try:
            policy = file.read()
        except PolicyError as error:
            self._say("ERROR", f"the policy in force stays: {error}")
            self._plan.publication = publication._replace(policy_error=str(error))
            return
        self._say("INFO", f"policy {policy}: {len(policy.rules)} rules, in force from this pass on")
        self._plan.publication = publication._replace(policy=policy, policy_error=None)

    def close(self) -> None:
        """Let go of what the source keeps."""
        self._plan.source.close()

    def _own_heartbeats(self) -> list[Heartbeat]:
        """Return this scope's heartbeats; of every cluster, until the first answer tells which one ours is."""
        publication = self._plan.publication
        return [
            beat
            for beat in self._heartbeats()
            if beat.publisher.scope == str(publication.scope) and self._cluster in {None, beat.publisher.cluster}
        ]

    def _heartbeats(self) -> list[Heartbeat]:
        from .heartbeats import heartbeats  # noqa: PLC0415 - a single pass does not ask

        return heartbeats(self._plan.publication)

    def _last_heartbeat(self) -> Heartbeat | None:
        """Return this scope's heartbeat, or None while it is not clear which cluster's is ours."""
        beats = self._own_heartbeats()
        return beats[0] if len(beats) == 1 else None

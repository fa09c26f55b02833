"""The analyser that needs no network: a table of failures, and what it makes of those in a log. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from .events import Account, Event, account_of
from .finding import Action, Extract, Finding
from .history import settle
from .kind import Blame, Role
from .likeness import masked
from .spoken import MAX_NODES, node_named
from .table import FOREIGN, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .finding import Line

SOURCE = "rules"
_MAX_EVIDENCE = 5
_GENERATED = re.compile(r"^/(?:tmp|var/tmp|dev/shm)/|^<|cache|torchinductor|torch_extensions", re.IGNORECASE)
"""Files that a program wrote, or that every job of a site has: half of one is the node's fault."""
_BY_SIGNAL = re.compile(r"exitcode: -(?:[346789]|11)\b|\b(?:Killed|Aborted)\b")
"""How an end is told that no exception made."""
_TASKS_OF = re.compile(r"srun: error: ([A-Za-z0-9.-]+): tasks? ")


class Rules:
    """Finds the cause in an extract by the table of failures, and settles it with the job's earlier cycles."""

    def analyse(self, extract: Extract, earlier: Sequence[Finding]) -> Finding:
        """Find out what failed, and what to do."""
        return settle(self.found(extract, earlier), earlier)

    def found(self, extract: Extract, earlier: Sequence[Finding]) -> Finding:
        """Find out what failed by this log alone; `earlier` says whether the script did ever get further."""
        account = account_of(extract.lines)
        live = [event for event in account.events if not event.is_over and not account.survived(event)]
        cause = min(live, key=lambda event: (event.kind.role, event.index), default=None)
        if cause is None or (cause.kind.repeats is None and cause.kind.role is Role.CONSEQUENCE):
            return _unknown(account, live)
        kind = cause.kind
        is_placed = bool(account.steps) or not (account.has_trained or account.loop.is_seen)
        signature = _signature(cause, account) if is_placed else ""
        action, what = Action.RESTART, _why_restart(cause)
        if kind.category == "cancelled":
            action, what = Action.UNKNOWN, "who did so knows whether it is to start again"
        elif _is_certain(cause, live, account, extract, [finding.signature for finding in earlier]):
            action, what = Action.STOP, "it came before any step of training, and comes again with the same script"
        after = sorted({event.kind.category for event in live if event.kind.role > kind.role} - {"ended"})
        follows = f" ({', '.join(after)} followed from it)" if after else ""
        return Finding(
            category=kind.category,
            action=action,
            reason=f"{kind.meaning}{follows}: {what}",
            source=SOURCE,
            signature=signature,
            evidence=_evidence(cause, live),
            nodes=_nodes(cause, live, {speaker.host for speaker in account.speakers}),
            step=account.step,
        )


def _unknown(account: Account, live: Sequence[Event]) -> Finding:
    told = "the ranks were ended, and nothing says why" if live else "nothing in the log is recognised"
    evidence = tuple(event.line for event in live[:_MAX_EVIDENCE])
    return Finding(UNKNOWN, Action.UNKNOWN, told, SOURCE, evidence=evidence, step=account.step)


def _why_restart(cause: Event) -> str:
    if cause.kind.category in FOREIGN:
        return "nothing in the job failed"
    if cause.kind.repeats is None or cause.kind.is_outage:
        return "it may well work next time"
    return "once says little; again at the same step it would be a reason to stop"


def _is_certain(
    cause: Event, live: Sequence[Event], account: Account, extract: Extract, before: Sequence[str]
) -> bool:
    """Tell whether starting again is in vain for sure, by this one log."""
    if not cause.kind.is_certain or account.has_trained or account.has_loose_quote:
        return False
    same = [event for event in live if event.kind is cause.kind]
    others = [event for event in live if event.kind is not cause.kind]
    if any(event.kind.category != "ended" or _BY_SIGNAL.search(event.said.text) for event in others):
        return False  # the script may be all right, and what it stands on not
    if any(index > same[-1].index for index in account.usual) or _GENERATED.search(cause.path):
        return False  # somebody went on; or it is no script of people's
    if any(signature != _signature(cause, account) for signature in before):
        return False  # it got further once, with the same script
    if not _all_say_so(same, others, account):
        return False  # perhaps it is their node's
    return _is_without_gap(extract.lines[: cause.index + 1])


def _is_without_gap(head: Sequence[Line]) -> bool:
    """Tell whether lines are all from the first on; what was drawn over one another has one number."""
    before = 0
    for line in head:
        if line.number is None or line.number > before + 1:
            return False
        before = line.number
    return True


def _all_say_so(events: Sequence[Event], others: Sequence[Event], account: Account) -> bool:
    """Tell whether a failure is not that of few of several ranks, or of one of several hosts."""
    ended = {found[1] for event in others if (found := _TASKS_OF.match(event.said.text))}
    if len(events) < len(ended):
        return False  # on some hosts that Slurm names nobody says so
    ranks = {speaker.rank for speaker in account.speakers if speaker.rank is not None}
    hosts = {speaker.host for speaker in account.speakers if speaker.host is not None}
    of_ranks = {event.said.rank for event in events}
    of_hosts = {event.said.host for event in events}
    if len(ranks) > 1 and (len(of_ranks) == 1 or len(of_ranks) * 2 < len(ranks)):
        return False
    return len(hosts) < 2 or len(of_hosts) > 1  # noqa: PLR2004 - one host is no witness


def _signature(cause: Event, account: Account) -> str:
    """Return what two failures have in common that are alike: no numbers, addresses, hosts, ranks, times.

    Among another number of ranks it is another failure. So it is, before any step, from another checkpoint, and
    where much more or much less was said before it: it came after another time.
    """
    among = f" among {account.world}" if account.world else ""
    epoch = f" in epoch {account.epoch}" if account.epoch else ""
    resumed = f" from {account.resumed}" if account.resumed is not None and not account.steps else ""
    said = bisect_left(account.usual, cause.index).bit_length() // 2
    after = f" behind 4^{said} lines" if said > 1 and not account.steps else ""
    return f"{cause.kind.category}: {masked(cause.said.text)}{among}{epoch}{resumed}{after}"


def _evidence(cause: Event, live: Sequence[Event]) -> tuple[Line, ...]:
    """Return the cause's line, then others of its kind, then one of each other kind."""
    chosen = [cause, *(event for event in live if event.kind is cause.kind and event is not cause)][
        : _MAX_EVIDENCE - 2
    ]
    seen = {cause.kind.category}
    for event in live:
        if event.kind.category not in seen and len(chosen) < _MAX_EVIDENCE:
            seen.add(event.kind.category)
            chosen.append(event)
    return tuple(event.line for event in chosen)


def _nodes(cause: Event, live: Sequence[Event], hosts: set[str | None]) -> tuple[str, ...]:
    """Return whom the log blames, where that is hardware: few, or nobody."""
    same = [event for event in live if event.kind is cause.kind]
    if cause.kind.blame is Blame.PEERS:
        return _blamed_by_peers(same)
    if cause.kind.blame is Blame.NAMED:
        return _few(event.named for event in same)
    if cause.kind.blame is Blame.ODD:
        of_hosts = {event.said.host for event in same}
        return _few(of_hosts) if {host for host in hosts if host is not None} - of_hosts else ()
    return _few(event.said.host for event in same) if cause.kind.blame is Blame.SPEAKER else ()


def _blamed_by_peers(events: Sequence[Event]) -> tuple[str, ...]:
    """Blame a node that several others cannot reach, or the only one that cannot reach several others."""
    pairs = {(event.said.host, event.peer) for event in events if event.said.host and event.peer}
    peers = {peer for _, peer in pairs}
    hosts = {host for host, _ in pairs}
    if len(peers) == 1 and len(hosts) > 1:
        return _few(peers)
    return _few(hosts) if len(hosts) == 1 and len(peers) > 1 else ()


def _few(names: Iterable[str | None]) -> tuple[str, ...]:
    nodes = sorted({name for name in names if name is not None and node_named(name) is not None})
    return tuple(nodes) if len(nodes) <= MAX_NODES else ()

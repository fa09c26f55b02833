"""The messages of failure in a log: which there are, which count, and how far the training was. Pure.

What a program printed is told from what it quoted by how the line begins. An exception counts where a traceback
leads to it, and where whoever raised it did not go on.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from .expression import Expression, any_of
from .kind import Kind, Role
from .likeness import Loop
from .spoken import Spoken, spoken
from .steps import bar_of, epoch_of, is_training, resumed_at, step_of
from .table import KINDS, MARKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .finding import Line

_GOES_ON = Expression(
    r"(?i)\bretry|\bretries in|attempt \d|f[ae]ll(?:s|ing)? ?back|\bignor(?:ed|ing)|\bskipp(?:ed|ing)|\bcontinuing"
    r"|\binstead\b|\bdisabl(?:ed|ing)|\btrying\b|\brecover(?:ed|ing)|^\W{0,4}using\b|\bnot available|does not fit"
    r"|\bwithout (?:it|them)\b|\boptional\b"
)
_SAYS_SO = Expression(
    r"(?i)\bretrying|will retry|\bignor(?:ed|ing)|\bskipp(?:ed|ing)|fall(?:s|ing)? ?back|non-fatal"
)
_WORLD = Expression(r"(?i)\bworld[_ -]?size['\"]?[ :=.]{1,40}(\d{1,7})\b")
_FILE = Expression(r"\s*File \"([^\"]+)\", line \d")
_REPLACED = "During handling of the above exception"
_OF_ANOTHER = Expression(
    r"(?i)\b(?:previous|earlier|last|other|another|preceding|parent)\b(?: \w+){0,2} (?:job|run|attempt|cycle|task)"
)
_ITS_WORDS = Expression(
    r"(?i)\blogs?\b|stderr|stdout|output|tail|errors?\b|failure|ended|died|report|post-?mortem"
)
_RULE = Expression(r"\s*[=\-*#_~<>]{3,}|.*[=\-*#_~<>]{3,}\s*$")
_QUOTE_ENDS = Expression(r"(?i)\W{0,12}(?:end|</|eof)\b|[=\-*#_~<>]{5,}\s*$")
_MAX_QUOTE = 400
"""Lines of a quotation; what goes on for longer is none."""
_SUMMARY = Expression(
    r"[=\-*#_~<>^~ ]{3,}$|\[\d{1,6}\]:$|(?:Other )?Failures:|Root Cause|\s*<NO_OTHER_FAILURES>|\S+ FAILED$"
    r"|During handling of|The above exception|Traceback \(most recent|For debugging consider|Compile with `TORCH"
    r"|CUDA kernel errors might|usage: |Search for `cuda|If you suspect|wandb: "
    r"|.*(?:TCPStore|destroy_process_group)"
    r"|slurmstepd: |srun: "
)
_FOLLOWING = 3
"""Lines behind an exception that may say that somebody went on."""
_LOOKED_AT = 500
"""Lines behind it that are looked at for that: each of thousands of messages may be followed by thousands."""
_GONE_ON = 3
"""Usual lines of a rank behind its exception, of which one that ended says none."""
_GONE_ON_UNLABELLED = 5
"""The same where nobody says who speaks, and the others may still do so."""


@dataclass(frozen=True, slots=True)
class Event:
    """A message of failure: where it is among the lines, of what kind it is, who says it, whom it names.

    `path` is the last file that its traceback names. `is_over`: who said it went on, or another replaced it.
    """

    index: int
    line: Line
    kind: Kind
    said: Spoken
    named: str | None = None
    peer: str | None = None
    path: str = ""
    is_over: bool = False


class Speaker(NamedTuple):
    """Who says a line, as far as it tells."""

    rank: str | None
    host: str | None


@dataclass
class Account:
    """What a log tells: its events in their order, its steps (index, step), and who speaks in it."""

    events: list[Event] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    speakers: set[Speaker] = field(default_factory=set)
    usual: list[int] = field(default_factory=list)
    """Where lines are that belong to no failure, and to no end."""
    longest_bar: int = 0
    """Of how many steps the longest progress bar is."""
    epoch: str = ""
    """That of the last step, as it is printed."""
    loop: Loop = field(default_factory=Loop)
    """Whether something came again and again."""
    world: str = ""
    """How many ranks there are, as it is printed."""
    resumed: int | None = None
    """The step of the checkpoint that was gone on from."""
    has_trained: bool = False
    """Whether something in it only a training prints, be its steps legible or not."""
    has_loose_quote: bool = False
    """Whether it quotes something of which nobody can say where it ends."""

    @property
    def step(self) -> int | None:
        """The last step that it tells, counted from the beginning of the job.

        A step before that of the checkpoint was counted from there.
        """
        if not self.steps:
            return None
        step = self.steps[-1][1]
        return step + self.resumed if self.resumed is not None and step < self.resumed else step

    def survived(self, event: Event) -> bool:
        """Tell whether the training got on after an event: at least two steps that it had not told before.

        One alone may have been made before, and written late.
        """
        return len(self._new_at) - bisect_right(self._new_at, event.index) > 1

    @cached_property
    def _new_at(self) -> list[int]:
        """Where steps are that were not told before."""
        first: dict[int, int] = {}
        for index, step in self.steps:
            first.setdefault(step, index)
        return list(first.values())


_marks = Expression(any_of(MARKS))


def kind_of(text: str) -> Kind | None:
    """Return the kind of failure with which a message begins."""
    if not _marks.finds(text):
        return None
    return next((kind for kind in KINDS if kind.message.begins(text)), None)


def account_of(lines: Sequence[Line]) -> Account:
    """Go through the lines of a log."""
    told = [spoken(line.text) for line in lines]
    account = Account(speakers={Speaker(said.rank, said.host) for said in told})
    quoted = _quoted(told, account)
    before: dict[str | None, str] = {}
    paths: dict[str | None, str] = {}
    for index, (line, said) in enumerate(zip(lines, told, strict=True)):
        text = said.text
        if index in quoted or not text.strip():
            continue
        if (step := step_of(text)) is not None and (
            bar := bar_of(text) or account.longest_bar
        ) >= account.longest_bar:
            account.longest_bar = bar
            account.steps.append((index, step))
            account.epoch = epoch_of(text)
        account.has_trained = account.has_trained or step is not None or is_training(text)
        if (file := _FILE.match(text)) is not None:
            paths[said.rank] = file[1]
        event = _event_of(index, line, said, before.get(said.rank, ""), paths.get(said.rank, ""))
        if event is not None:
            account.events.append(event)
        elif text[0] not in " \t" and not _SUMMARY.begins(text):
            account.usual.append(index)
        before[said.rank] = text
        if event is None:
            _note_surroundings(account, said)
    found = {event.index for event in account.events}
    account.events = [_with_what_follows(event, told, found) for event in account.events]
    return account


def _note_surroundings(account: Account, said: Spoken) -> None:
    text = said.text
    account.loop.see(said.rank, text)
    if not account.world and (world := _WORLD.search(text)) is not None:
        account.world = world[1]
    if not account.steps and (resumed := resumed_at(text)) is not None:
        account.resumed = resumed


def _event_of(index: int, line: Line, said: Spoken, before: str, path: str) -> Event | None:
    kind = kind_of(said.text)
    if kind is None or (said.is_quiet and kind.role is not Role.LOST):
        return None
    if kind.needs_traceback and not (before[:1] in {" ", "\t"} or before.startswith("Traceback (")):
        return None
    match = kind.message.match(said.text)
    groups = {} if match is None else match.groupdict()
    is_over = kind.role is not Role.LOST and _SAYS_SO.finds(said.text)
    return Event(index, line, kind, said, groups.get("node"), groups.get("peer"), path, is_over)


def _with_what_follows(event: Event, told: Sequence[Spoken], found: set[int]) -> Event:
    """Look at what the same rank says behind an event."""
    if event.is_over or (event.kind.role is not Role.CAUSE and event.kind.role is not Role.DOUBTFUL):
        return event
    usual = looked = 0
    is_labelled = event.said.rank is not None
    for index in range(event.index + 1, min(len(told), event.index + _LOOKED_AT)):
        said = told[index]
        if said.rank != event.said.rank or not said.text.strip():
            continue
        looked += 1
        if looked <= _FOLLOWING and said.text.startswith(_REPLACED):
            return _over(event)
        if index in found or said.text[0] in " \t":
            continue
        if looked <= _FOLLOWING and _GOES_ON.finds(said.text):
            return _over(event)
        usual += not _SUMMARY.begins(said.text)
        if usual >= (_GONE_ON if is_labelled else _GONE_ON_UNLABELLED):
            return _over(event)
    return event


def _over(event: Event) -> Event:
    return replace(event, is_over=True)


def _quoted(told: Sequence[Spoken], account: Account) -> set[int]:
    """Return which lines quote the log of something else, and note a quotation without an end."""
    quoted: set[int] = set()
    begin: int | None = None
    for index, said in enumerate(told):
        if begin is not None:
            if _QUOTE_ENDS.begins(said.text):
                quoted.update(range(begin, index + 1))
                begin = None
            elif index - begin > _MAX_QUOTE:
                account.has_loose_quote, begin = True, None
        elif _announces_a_quotation(said.text):
            begin = index
    account.has_loose_quote = account.has_loose_quote or begin is not None
    return quoted


def _announces_a_quotation(text: str) -> bool:
    return (
        _RULE.begins(text) and _OF_ANOTHER.finds(text) and _ITS_WORDS.finds(text) and not _QUOTE_ENDS.begins(text)
    )

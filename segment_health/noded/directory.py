"""A directory with NodeD's reports and configuration, as one more source of what is known of nodes.

No report is health: NodeD takes a report away when there is nothing to report. So whatever else may look like that
is kept apart: a directory that cannot be read, or has nothing of NodeD's in it, tells nothing of any node, and a
report that is damaged, old or not understood tells nothing of its node, which keeps its part of the last decision.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING

from segment_health.atomic import open_directory
from segment_health.level import FaultLevel
from segment_health.policy.assess import worse
from segment_health.sources import SourceUnknown

from . import codes as own
from . import config, files, report, wire
from .grade import grade, no_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from segment_health.policy.assess import Assessment

MAX_REMARKS = 50
"""How many remarks a pass makes; what follows is counted."""
_NAMED = 3
_BRACKETS = re.compile(r" \(.*\)")
_FUTURE_SECONDS = 60
"""How far clocks may be apart: a report from later than that has no age."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A report as it was found: `age` in seconds, None where nobody can tell; `report` None where there is none.

    `remarks` say what is wrong with it, without the node's name.
    """

    node: str
    assessment: Assessment
    report: report.Report | None = None
    age: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reports:
    """What NodeD says: `assessments` by Slurm's name of each node with a report; `remarks` are for a person."""

    assessments: Mapping[str, Assessment]
    remarks: list[str] = field(default_factory=list)


class NodeReports:
    """Reads the directory `path` at every pass.

    `max_age` is how many seconds old a report may be, None for any age; NodeD itself repeats an unchanged report
    every 30 minutes only. `unknown_level` is the least for fault codes in no list (see grade).
    """

    mark = "noded:"
    is_essential = True

    def __init__(
        self, path: str, max_age: int | None, unknown_level: FaultLevel = FaultLevel.PreSeparateFault
    ) -> None:
        self.path = path
        self._max_age = max_age
        self._unknown_level = unknown_level
        self._codes: Mapping[str, FaultLevel] | None = None
        self._origin = ""

    def check(self) -> None:
        """Read the configuration, as a start needs it.

        Raises ConfigurationError where it is bad, SourceUnknown where the directory cannot be read.
        """
        with self._opened() as (directory, names):
            self._configure(directory, names)

    def read(self, node_names: Collection[str], now: int) -> Reports:
        """Return what the reports say of these nodes; `now` is in seconds since the epoch.

        Raises SourceUnknown where the directory cannot be read or has nothing of NodeD's in it, or where the
        configuration is bad and there was no good one before; else the last good one stays in force.
        """
        known = _Names(node_names)
        try:
            entries, strangers, remarks = self._read(lambda name: bool(known.of(name)), now)
        except config.ConfigurationError as error:
            raise SourceUnknown(f"NodeD's configuration: {error}") from error
        assessments: dict[str, Assessment] = {}
        troubles: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            meant = known.of(entry.node)
            told, said = entry.assessment, entry.remarks
            if len(meant) > 1:
                told, said = no_verdict("ambiguous"), (f"may be of any of {_listed(meant)}: no verdict",)
            for name in meant:
                assessments[name] = worse(assessments.get(name), told) or told
            for remark in said:
                troubles[_BRACKETS.sub("", remark)].append(replace(entry, remarks=(remark,)))
        remarks += [_remark(trouble, of) for trouble, of in sorted(troubles.items())]
        if strangers:
            remarks.append(
                f"NodeD: {len(strangers)} reports of nodes that Slurm does not list: {_listed(strangers)}"
            )
        if len(remarks) > MAX_REMARKS:
            remarks[MAX_REMARKS:] = [f"NodeD: {len(remarks) - MAX_REMARKS} more remarks"]
        return Reports(assessments, remarks)

    def survey(self, now: int) -> tuple[list[Entry], list[str]]:
        """Return every report, by node, and what is to be said of the configuration. Raises as check()."""
        entries, _, remarks = self._read(lambda _: True, now)
        return entries, remarks

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, list[str]]]:
        """Open the directory and list it. Raises SourceUnknown."""
        with contextlib.ExitStack() as stack:
            try:
                directory = stack.enter_context(open_directory(self.path))
                names = os.listdir(directory)
            except (OSError, ValueError) as error:  # ValueError: a NUL byte
                raise SourceUnknown(f"NodeD's directory {self.path!a}: {_cause(error)}") from error
            if not any(map(_is_nodeds, names)):
                raise SourceUnknown(
                    f"NodeD's directory {self.path!a} has nothing of NodeD's, as one that is not mounted; "
                    f"put a {config.FILE} there"
                )
            yield directory, sorted(names)

    def _read(self, is_wanted: Callable[[str], bool], now: int) -> tuple[list[Entry], list[str], list[str]]:
        """Return the reports of nodes that are wanted, the names of other nodes with one, and remarks."""
        with self._opened() as (directory, names):
            codes, remarks = self._configure(directory, names)
            nodes = [name.removeprefix(report.PREFIX) for name in names if name.startswith(report.PREFIX)]
            found = [self._entry(directory, node, codes, now) for node in nodes if is_wanted(node)]
        return [entry for entry in found if entry], [node for node in nodes if not is_wanted(node)], remarks

    def _entry(self, directory: int, node: str, codes: Mapping[str, FaultLevel], now: int) -> Entry | None:
        """Read and grade one report; None for a mounted ConfigMap that is not there."""
        try:
            text = files.read_report(directory, report.PREFIX + node)
            if text is None:
                return None
            told = report.decode(text.content)
        except OSError as error:
            return Entry(
                node, no_verdict("unreadable"), remarks=(f"cannot be read ({_cause(error)}): no verdict",)
            )
        except ValueError as error:
            return Entry(node, no_verdict("unreadable"), remarks=(f"{error}: no verdict",))
        age, trouble = self._age(text, now)
        if trouble is not None:
            return Entry(node, no_verdict("stale"), told, age, (trouble,))
        graded = grade(told, codes, self._unknown_level)
        return Entry(node, graded.assessment, told, age, graded.remarks)

    def _age(self, text: files.Text, now: int) -> tuple[int | None, str | None]:
        """Return the age of a report, and what is wrong with it."""
        try:
            age = now - (text.written if text.told is None else report.time_of(text.told))
        except ValueError as error:
            return None, None if self._max_age is None else f"{error}: no verdict"
        if self._max_age is None:
            return age, None
        if age > self._max_age:
            return age, f"is stale ({age} s old, {self._max_age} are allowed): no verdict"
        if age < -_FUTURE_SECONDS:
            return age, f"is from the future ({-age} s ahead; compare the clocks): no verdict"
        return age, None

    def _configure(self, directory: int, names: Collection[str]) -> tuple[Mapping[str, FaultLevel], list[str]]:
        """Return the codes in force and what is to be said of them. Raises ConfigurationError."""
        try:
            origin, codes = _configuration(directory, names, self.path)
        except config.ConfigurationError as error:
            if self._codes is None:
                raise
            return self._codes, [f"NodeD: {error}; what {self._origin} said stays in force"]
        before, self._origin, self._codes = self._origin, origin, codes
        if before in {"", origin}:
            return codes, []
        return codes, [f"NodeD: the configuration is now {origin}, and no longer {before}"]


def _is_nodeds(name: str) -> bool:
    """Tell whether an entry shows that this is the directory; what lies in a bare mount point does not."""
    return name.startswith(report.PREFIX) or name in {config.FILE, config.OVERRIDE, own.MARKER}


class _Names:
    """Slurm's names of nodes, by those that reports have: Kubernetes knows lower-case letters only."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._folded: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._names):
            self._folded[name.lower()].append(name)

    def of(self, reported: str) -> list[str]:
        """Return the nodes that a report may be of: more than one if their names differ in case only."""
        return [reported] if reported in self._names else self._folded.get(reported.lower(), [])


def _configuration(directory: int, names: Collection[str], path: str) -> tuple[str, Mapping[str, FaultLevel]]:
    """Return the configuration in force and where it stands: the override, else the file, else the shipped one."""
    for name in (config.OVERRIDE, config.FILE):
        if name in names:
            origin = os.path.join(path, name)
            try:
                content = files.read_configuration(directory, name, config.FILE)
            except OSError as error:
                raise config.ConfigurationError(origin, _cause(error)) from error
            return origin, config.parse(content, origin)
    shipped = (resources.files(__package__) / config.FILE).read_bytes()
    return "the one that segment-health ships", config.parse(shipped, config.FILE)


def _remark(trouble: str, entries: list[Entry]) -> str:
    """Say what is wrong with one or with many reports, whose remarks differ between brackets only."""
    said = entries[0].remarks[0] if len(entries) == 1 else trouble
    return f"NodeD: report of {_listed([entry.node for entry in entries])}: {said}"


def _listed(nodes: list[str]) -> str:
    named = ", ".join(wire.shown(node) for node in nodes[:_NAMED])
    return named if len(nodes) <= _NAMED else f"{named} and {len(nodes) - _NAMED} more"


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

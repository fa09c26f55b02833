"""The policy file: what a site writes, made into a Policy; or refused whole, with the line that is wrong."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NoReturn

from segment_health import toml
from segment_health.level import FaultLevel

from . import schema
from .assess import Policy
from .content import MAX_CONTENT, PolicyError, content_of
from .lines import lines_of
from .pattern import Pattern
from .rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .lines import Lines
    from .schema import Row

MAX_NODES = 1 << 18
"""Names of nodes in all rules together, each time that it is named: so many take some 50 MiB."""
_ANY_REASON = "[Xid 79] GPU #3: fell off the bus, n1; root"
"""What no expression finds that somebody wrote for a certain reason."""


def load(path: str, expand: Callable[[str], Iterable[str]]) -> Policy:
    """Read a policy file; `expand` names the nodes of a hostlist or raises ValueError. Raises PolicyError."""
    return parse(content_of(path), path, expand)


def parse(content: bytes, path: str, expand: Callable[[str], Iterable[str]]) -> Policy:
    """Make a Policy of a policy file's content. Raises PolicyError."""
    if len(content) > MAX_CONTENT:
        raise PolicyError(path, None, f"larger than {MAX_CONTENT} bytes")
    if not content.strip():  # what an editor leaves for a moment
        raise PolicyError(path, None, "empty: a policy that says nothing; a comment makes it one on purpose")
    try:
        document = toml.read(content)
        lines = lines_of(content.decode().replace("\r\n", "\n"))
    except toml.NotToml as error:
        raise PolicyError(path, error.line, str(error)) from error
    rules = document.get("rule")
    if isinstance(rules, list) and len(rules) > schema.MAX_RULES:
        raise PolicyError(path, lines.of("rule", schema.MAX_RULES), f"more than {schema.MAX_RULES} rules")
    try:
        told = schema.validated(document)
    except schema.Refused as error:
        raise PolicyError(path, lines.of(*error.location), str(error)) from error
    reading = _Reading(path, lines, expand)
    read = tuple(reading.rule(index, row) for index, row in enumerate(told.rule))
    reading.refuse_rules_without_a_say(read)
    return Policy(
        publish_at=FaultLevel[told.publish_at],
        name=path,
        rules=read,
        clear_after=told.clear_after,
        max_new_exclusions=told.max_new_exclusions,
        hold_passes=told.hold_passes,
        digest=hashlib.sha256(content).hexdigest()[:12],
    )


class _Reading:
    """One file on its way to a Policy: knows where in it everything stands."""

    def __init__(self, path: str, lines: Lines, expand: Callable[[str], Iterable[str]]) -> None:
        self._path = path
        self._lines = lines
        self._expand = expand
        self._named = 0
        """Nodes named so far."""

    def rule(self, index: int, row: Row) -> Rule:
        def refuse(problem: str, *key: str) -> NoReturn:
            self._refuse(f"rule {row.name!r}: {problem}", "rule", index, *key)

        level = None if row.level == schema.NO_VERDICT else FaultLevel[row.level]
        if row.reason is not None and row.reason_literal is not None:
            refuse("reason and reason_literal exclude each other", "reason_literal")
        if row.min_duration and not level:
            refuse(f"min_duration has nothing to wait for: the level is {row.level}", "min_duration")
        if not (row.state or row.reason or row.reason_literal or row.reason_user or row.node or row.partition):
            refuse("it asks for nothing, so would decide everything: give state, reason, node or partition")
        reason = None
        key = "reason" if row.reason is not None else "reason_literal"
        try:
            if row.reason is not None or row.reason_literal is not None:
                reason = Pattern(row.reason or row.reason_literal or "", literal=row.reason is None)
                if reason.found_in(None) and reason.found_in(_ANY_REASON):
                    refuse("the expression is found in every reason, so asks for nothing", key)
        except ValueError as error:
            refuse(f"{key}: {error}", key)
        try:
            nodes = frozenset(name for hostlist in row.node for name in self._names(hostlist))
        except ValueError as error:
            refuse(f"node: {error}", "node")
        return Rule(
            name=row.name,
            level=level,
            states=frozenset(row.state),
            reason=reason,
            reason_users=frozenset(row.reason_user),
            nodes=nodes,
            hostlist=",".join(row.node),
            partitions=frozenset(row.partition),
            min_duration=row.min_duration,
            place=f"{self._path}:{self._lines.of('rule', index) or 0}",
        )

    def _names(self, hostlist: str) -> tuple[str, ...]:
        names = tuple(self._expand(hostlist))
        if not names:
            raise ValueError(f"{hostlist!a} names no node")  # and a rule without nodes is about all of them
        self._named += len(names)
        if self._named > MAX_NODES:
            raise ValueError(f"the rules name more than {MAX_NODES} nodes")
        return names

    def refuse_rules_without_a_say(self, rules: tuple[Rule, ...]) -> None:
        for index, later in enumerate(rules):
            for earlier in rules[:index]:
                if earlier.name == later.name:
                    self._refuse(
                        f"a second rule {later.name!r}; the first: {earlier.place}", "rule", index, "name"
                    )
                if earlier.hides(later):
                    by = f"rule {earlier.name!r} ({earlier.place})"
                    self._refuse(
                        f"rule {later.name!r} never has a say: {by} comes first and matches all that it would",
                        "rule",
                        index,
                    )

    def _refuse(self, problem: str, *location: str | int) -> NoReturn:
        raise PolicyError(self._path, self._lines.of(*location), problem)

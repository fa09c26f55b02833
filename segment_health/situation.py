"""What a pass knows, and what it decided: the values that go into and come out of decide(). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from slurm.snapshot import Snapshot

    from .contract import Artifact, Content, Generation, Publisher, UnitId
    from .level import FaultLevel
    from .policy.assess import Policy
    from .scope import Scope


class Action(Enum):
    """What happens to an artifact. The values are public: `publish --format json` prints them."""

    EXCLUDE = "exclude"
    UPDATE = "update"
    CLEAR = "clear"
    RETIRE = "retire"
    FOREIGN = "foreign"
    """Nothing happens: it is somebody else's, and is reported."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One unit's change.

    `artifact` is what to write, for exclude and update. `level` and `nodes` (a hostlist) are what the artifact
    says after an exclusion, or said before it was lifted.
    """

    action: Action
    unit: UnitId
    artifact: Artifact | None = None
    level: FaultLevel | None = None
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a scope knows of a unit from earlier passes.

    `nodelist` is the unit's node list as it was when `generation` began; `misses` counts complete passes in a
    row that did not list the unit; `published` says whether an artifact of it may still lie on disk;
    `separated` that the site's own command has been told of a SeparateFault in this generation.
    """

    generation: Generation
    nodelist: str
    user_id: str = ""
    misses: int = 0
    published: bool = False
    separated: bool = False


@dataclass(frozen=True, slots=True)
class Override:
    """A person's word that a unit is to be used although these of its nodes (a hostlist) are bad.

    It holds for this generation and this set of nodes, whichever scope looks. `who` and `reason` are free text,
    `since` is in seconds since the epoch, UTC.
    """

    generation: Generation
    unavailable: str
    reason: str
    who: str
    since: int


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a pass knows: `now` is in seconds since the epoch, UTC.

    `published` holds the non-empty artifacts of the directory, every scope's. `living` names the (cluster,
    scope) pairs whose publishers are alive; None is not known, so nobody counts as dead. `adopt` takes foreign
    artifacts for our own.
    """

    snapshot: Snapshot
    published: Mapping[UnitId, Artifact | Content]
    memory: Mapping[UnitId, Remembered]
    scope: Scope
    policy: Policy
    publisher: Publisher
    now: int
    living: Collection[tuple[str, str]] | None = ()
    overrides: Mapping[UnitId, Override] = field(default_factory=dict)
    adopt: bool = False


@dataclass(slots=True)
class Outcome:
    """What a pass decided. `memory` is the whole of what the scope is to remember next time.

    `excluded` counts the scope's units whose artifacts are non-empty once the decisions are carried out.
    `unknown_flags` maps flags that no rule knows to a node that shows each; `no_verdict` names nodes of units
    that are neither fit nor faulty, and `not_understood` units in a job state that we do not know. `overridden`
    are units that a person wants used; `void_overrides` those whose override no longer holds. `separated` are
    exclusions of units that reach SeparateFault for the first time in their generation.
    """

    decisions: list[Decision] = field(default_factory=list)
    memory: dict[UnitId, Remembered] = field(default_factory=dict)
    units: int = 0
    excluded: int = 0
    unavailable_nodes: int = 0
    unknown_flags: dict[str, str] = field(default_factory=dict)
    no_verdict: set[str] = field(default_factory=set)
    not_understood: list[UnitId] = field(default_factory=list)
    overridden: list[UnitId] = field(default_factory=list)
    void_overrides: list[UnitId] = field(default_factory=list)
    separated: list[Artifact] = field(default_factory=list)

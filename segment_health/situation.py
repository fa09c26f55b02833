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
    from .policy import Policy
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
    row that did not list the unit; `published` says whether an artifact of it may still lie on disk.
    """

    generation: Generation
    nodelist: str
    user_id: str = ""
    misses: int = 0
    published: bool = False


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
    adopt: bool = False


@dataclass(slots=True)
class Outcome:
    """What a pass decided. `memory` is the whole of what the scope is to remember next time.

    `excluded` counts the scope's units whose artifacts are non-empty once the decisions are carried out.
    `unknown_flags` maps flags that no rule knows to a node that shows each; `no_verdict` names nodes of units
    that are neither fit nor faulty, and `not_understood` units in a job state that we do not know.
    """

    decisions: list[Decision] = field(default_factory=list)
    memory: dict[UnitId, Remembered] = field(default_factory=dict)
    units: int = 0
    excluded: int = 0
    unavailable_nodes: int = 0
    unknown_flags: dict[str, str] = field(default_factory=dict)
    no_verdict: set[str] = field(default_factory=set)
    not_understood: list[UnitId] = field(default_factory=list)

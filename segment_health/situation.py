"""What a pass knows, and what it decided: the values that go into and come out of decide(). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from slurm.snapshot import Snapshot

    from .contract import Artifact, Content, Generation, Publisher, UnitId
    from .level import FaultLevel
    from .policy.assess import Assessment, Policy
    from .scope import Scope


NEWS_SECONDS = 120
"""How far after our own view another host's may lie: until we write, and by what clocks differ."""


class Action(Enum):
    """What happens to an artifact. The values are public: `publish --format json` prints them."""

    EXCLUDE = "exclude"
    UPDATE = "update"
    CLEAR = "clear"
    RETIRE = "retire"
    PRECREATE = "precreate"
    """A zero-byte artifact, so that a later exclusion changes a file that readers' hosts know already."""
    FOREIGN = "foreign"
    """Nothing happens: it is somebody else's, and is reported."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One unit's change.

    `artifact` is what to write, for exclude and update. `level` and `nodes` (a hostlist) are what the artifact
    says after an exclusion, or said before it was lifted; `lifted` is that whole artifact, if it was ours.
    """

    action: Action
    unit: UnitId
    artifact: Artifact | None = None
    level: FaultLevel | None = None
    nodes: str = ""
    lifted: Artifact | None = None


class Remembered(NamedTuple):
    """What a scope knows of a unit from earlier passes.

    `nodelist` is the unit's node list as it was when `generation` began; `misses` counts complete passes in a
    row that did not list the unit; `published` says whether an artifact of it may still lie on disk;
    `separated` that the site's own command has been told of a SeparateFault in this generation. `fit_passes`
    counts passes in a row that found every node of an excluded unit fit, the first of them at `fit_since`.
    `over` is another scope's exclusion that this scope replaced by a higher one, to be put back in its place.
    `held` says that its exclusion was held back in the last pass. A tuple: thousands are made and compared a pass.
    """

    generation: Generation
    nodelist: str
    user_id: str = ""
    misses: int = 0
    published: bool = False
    separated: bool = False
    fit_passes: int = 0
    fit_since: int = 0
    over: Artifact | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What a scope knows from earlier passes.

    `seen` says since when a node, by name, shows a word of its state, in seconds since the epoch (see
    Policy.first_seen). `held` counts the passes in a row that were held because
    of their many new exclusions.
    """

    units: Mapping[UnitId, Remembered] = field(default_factory=dict)
    seen: Mapping[tuple[str, str], int] = field(default_factory=dict)
    held: int = 0


@dataclass(frozen=True, slots=True)
class Override:
    """A person's word that a unit is to be used although these of its nodes (a hostlist) are bad.

    It holds for this generation and this set of nodes, whichever scope looks. `who` and `reason` are free text,
    `since` is in seconds since the epoch, UTC. `scope` is that of the exclusion it was said of (see writer); empty
    is not known.
    """

    generation: Generation
    unavailable: str
    reason: str
    who: str
    since: int
    scope: str = ""


def writer(publisher: Publisher) -> str:
    """Name whose opinion something is, in one word: `job:123@cluster`."""
    return f"{publisher.scope}@{publisher.cluster}"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a pass knows: `now` and `began`, when Slurm was first asked, are in seconds since the epoch, UTC.

    `published` holds the non-empty artifacts of the directory, every scope's, and `empty` those of no bytes, and
    whether they are our user's. `living` names the (cluster, scope) pairs whose publishers are alive; None is not
    known, so nobody counts as dead. `previous_pass` is when the scope's last complete pass was, `previous_asked`
    when that began to ask and `previous_host` where; None if nobody knows of one. `reports` is what other sources
    than Slurm say of nodes, by name, and `asked` which those are, by how their rules begin. `adopt` takes foreign
    artifacts for our own; `precreate` leaves an empty artifact for units that have none; `force` publishes
    whatever the number of new exclusions.
    """

    snapshot: Snapshot
    published: Mapping[UnitId, Artifact | Content]
    memory: Memory
    scope: Scope
    policy: Policy
    publisher: Publisher
    now: int
    began: int
    living: Collection[tuple[str, str]] | None = ()
    previous_pass: int | None = None
    previous_asked: int | None = None
    previous_host: str | None = None
    overrides: Mapping[UnitId, Override] = field(default_factory=dict)
    reports: Mapping[str, Assessment] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    adopt: bool = False
    force: bool = False
    precreate: bool = False
    empty: Mapping[UnitId, bool] = field(default_factory=dict)

    def is_alive(self, prior: Artifact) -> bool:
        """Whether who wrote an artifact counts as alive, as everybody does where nobody can tell."""
        return self.living is None or (prior.publisher.cluster, prior.publisher.scope) in self.living

    def is_superseded(self) -> bool:
        """Whether another host has made a pass of this scope that began to ask after we did.

        Of two that overlap nobody knows whose answer is newer; that the later beginner counts is a rule that both
        know, so that one of them always goes on.
        """
        asked = self.previous_asked
        elsewhere = self.previous_host != self.publisher.host  # two passes on one host cannot overlap: see lock
        # What seems to come from later still was written by a clock that has been set back since.
        return asked is not None and elsewhere and self.began <= asked <= self.now + NEWS_SECONDS

    def may_be_news(self, prior: Artifact) -> bool:
        """Whether another host wrote this after we began to ask: perhaps by a newer view than ours."""
        elsewhere = prior.publisher.host != self.publisher.host
        return elsewhere and self.began <= prior.updated <= self.now + NEWS_SECONDS


@dataclass(slots=True)
class Outcome:
    """What a pass decided. `memory`, `seen` and `held_passes` are what the scope is to remember (see Memory).

    `excluded` counts the scope's units whose artifacts are non-empty once the decisions are carried out.
    `unknown_flags` maps flags that no rule knows to a node that shows each; `no_verdict` names nodes of units
    that are neither fit nor faulty, and `not_understood` units in a job state that we do not know. `unsettled`
    names nodes that are not fit either, each with why: a rule waits or says so, or a source was not asked.
    `overridden` are units that a person wants used; `void_overrides` those whose override no longer holds.
    `separated` are exclusions of units that reach SeparateFault for the first time in their generation.
    `clearing` are units that are fit, though not yet for as long as `clear_after` wants. `held` are new exclusions
    that are not published: more than the policy allows at once. `nodes_of` counts the nodes of units,
    `nodes_by_level` those of the cluster, None being those without a verdict.
    `superseded_by` is the host that has decided by a newer view meanwhile: then nothing is to be changed.
    """

    decisions: list[Decision] = field(default_factory=list)
    memory: dict[UnitId, Remembered] = field(default_factory=dict)
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    held_passes: int = 0
    units: int = 0
    excluded: int = 0
    unavailable_nodes: int = 0
    nodes_by_level: dict[FaultLevel | None, int] = field(default_factory=dict)
    unknown_flags: dict[str, str] = field(default_factory=dict)
    no_verdict: set[str] = field(default_factory=set)
    not_understood: list[UnitId] = field(default_factory=list)
    overridden: list[UnitId] = field(default_factory=list)
    void_overrides: list[UnitId] = field(default_factory=list)
    separated: list[Artifact] = field(default_factory=list)
    unsettled: dict[str, str] = field(default_factory=dict)
    clearing: list[UnitId] = field(default_factory=list)
    held: list[Decision] = field(default_factory=list)
    nodes_of: dict[UnitId, int] = field(default_factory=dict)
    superseded_by: str | None = None

    def blast_radius(self) -> tuple[int, int]:
        """Return how many units, and nodes of them, the new exclusions take, published or held."""
        new = [*self.held, *(decision for decision in self.decisions if decision.action is Action.EXCLUDE)]
        return len(new), sum(self.nodes_of.get(decision.unit, 0) for decision in new)

    def forget_units(self) -> None:
        """Keep of units that are not news no more than their number: who is told of a pass needs nothing else."""
        news = {decision.unit for decision in (*self.held, *self.decisions)}
        self.memory = {}
        self.nodes_of = {unit: count for unit, count in self.nodes_of.items() if unit in news}

    def remembered(self) -> Memory:
        """Return what the scope is to remember."""
        return Memory(self.memory, self.seen, self.held_passes)

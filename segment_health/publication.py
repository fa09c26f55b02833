"""What stays the same from pass to pass. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .policy.assess import Assessment, Policy
    from .scope import Scope


class Reports(Protocol):
    """What another source than Slurm says of nodes."""

    @property
    def assessments(self) -> Mapping[str, Assessment]:
        """What it says, by Slurm's name of the node; a node of which it says nothing is not in it."""

    @property
    def remarks(self) -> list[str]:
        """What is worth a person's look."""


class Holder(NamedTuple):
    """A job that holds a node now: its id, an array's for all tasks, and its user's, as Slurm tells them."""

    job_id: str
    user_id: str


class Reporting(Protocol):
    """A source of node faults beside Slurm; picklable, for it is read in a child process (see bounded)."""

    path: str
    """Where it is."""

    @property
    def mark(self) -> str:
        """How its rules begin (see judge.REPORTERS)."""

    @property
    def is_essential(self) -> bool:
        """Whether nothing is known while it is silent; else no node is fit then, and Slurm's faults count."""

    def read(self, nodes: Mapping[str, Collection[Holder]], now: int) -> Reports:
        """Return what it says of these nodes, each with who holds it. Raises SourceUnknown where it is silent."""


class Publication(NamedTuple):
    """Where to publish, for whom, by which policy.

    `interval` is in seconds: how soon the next pass is promised, by which others judge whether we live; `loop`
    says that this very process will make it. A `replay` is of some other time: it leaves no heartbeat, since that
    would vouch for now.
    `own_job` is the job in which this process runs, None outside one: if its scope covers that job, an answer
    without it is not the truth.
    `guarded` refuses a directory in which somebody else may decide. `storage_timeout` is how many seconds shared
    storage may take, and how old an observation may be that is acted on. `precreate` leaves an empty artifact for
    units that have none. `host` is the name of the host that publishes, its own if empty. `device` is the file
    system (st_dev) in which the directory was in this process's last pass, None before the first.
    `policy_error` says why the newest policy is not the one in force. `reports` are asked beside Slurm. `force`
    publishes whatever the number of new exclusions. `portray` has a picture made of each pass, for its page.
    """

    directory: str
    scope: Scope
    policy: Policy
    version: str
    interval: float
    own_job: str | None = None
    loop: bool = False
    replay: bool = False
    adopt: bool = False
    dry_run: bool = False
    policy_error: str | None = None
    reports: tuple[Reporting, ...] = ()
    force: bool = False
    guarded: bool = False
    storage_timeout: float = 60.0
    precreate: bool = False
    host: str = ""
    portray: bool = False
    device: int | None = None

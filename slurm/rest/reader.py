"""Asks slurmrestd, Slurm's REST API: for hosts that have a token or a socket, and none of Slurm's commands."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from slurm.commands.config import CLUSTER_NAME
from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable
from slurm.fields import shown
from slurm.nodes import existing
from slurm.snapshot import Snapshot

from .api import Questions, negotiate
from .http import Server
from .token import read_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.commands.config import Config
    from slurm.json.answer import JsonAnswer

    from .api import Answer, Terms
    from .http import Session
    from .token import Token

_SEES_EVERYTHING = "root"
"""On every cluster; SlurmUser does too, and may be anybody."""
_NOBODY = "unknown"
"""Stands for a user whose id cannot be found out: it is no id, so that it is nobody's."""


class RestReader:
    """Asks a slurmrestd for nodes and jobs, side by side, all within `timeout` seconds.

    An unchanged cluster costs it nothing: it is told when the rows that are kept here were made (update_time), and
    answers 304. slurmctld says so only if nothing changed in that second or since. The rows are let go when a
    pass fails, when the token is another user's, and after a quarter of an hour.

    slurmrestd does not tell PrivateData, nor as whom it asks slurmctld: `meta.client.user` is who connected, or
    root. So `visible_user` of a Snapshot is None only where a token of root lets us in. slurmrestd may let us in
    anyway, as itself: by local auth behind a UNIX socket, and everywhere if it lacks SLURM_JWT=daemon in its
    environment. So it is asked once with the token spoilt, and slurmctld must refuse; else the token is nobody's.
    The user of any other token is taken to see no jobs but their own, as with PrivateData=jobs, and without a
    token slurmrestd's own account.
    """

    def __init__(
        self, url: str, *, timeout: float, cluster: str | None, token_file: str | None, environ: Mapping[str, str]
    ) -> None:
        self._server = Server(url, environ)
        self._timeout = timeout
        self._cluster = cluster
        self._token_file = token_file
        self._environ = environ
        self._identity: str | None = None
        self._terms: Terms | None = None
        self._kept: dict[str, Answer] = {}
        self._said: set[str] = set()
        self.config: Config | None = None  # slurmrestd does not tell it
        self.traffic = {"rest": self._server.traffic}
        self.remarks: list[str] = []

    def read(self) -> Snapshot:
        """Ask slurmrestd once; raises SlurmUnavailable or SlurmProtocolError, and no token is in their words."""
        self.remarks = []
        with self._server.session(self._timeout) as session:
            # In a thread: a file system that hangs must not hold us up.
            (token,) = session.side_by_side(lambda: read_token(self._token_file, self._environ))
            try:
                return self._ask(session, token)
            except SlurmError as error:
                self._terms, self._kept = None, {}
                text = str(error)
                if token is None or token.hide(text) == text:
                    raise
                raise type(error)(token.hide(text)) from None

    def close(self) -> None:
        """Let go of what was answered; no connection is open between two passes."""
        self._kept = {}

    def _ask(self, session: Session, token: Token | None) -> Snapshot:
        identity = (token.user or token.text) if token else None
        if identity != self._identity:
            self._identity, self._terms, self._kept = identity, None, {}
        terms = self._terms
        if terms is None:
            (terms,) = session.side_by_side(lambda: negotiate(session, token, is_socket=self._server.is_socket))
        asking = Questions(session, terms.version, token)
        kept = self._kept
        nodes, jobs = session.side_by_side(
            lambda: asking.rows("nodes", kept.get("nodes")), lambda: asking.rows("jobs", kept.get("jobs"))
        )
        (visible,) = session.side_by_side(lambda: self._visible_user(terms, token, jobs.rows))
        self._cluster = self._name_of(token, nodes.rows.cluster, jobs.rows.cluster)
        self._terms, self._kept = terms, {"nodes": nodes, "jobs": jobs}
        self._remark(terms, token, visible)
        said = (*nodes.rows.remarks, *jobs.rows.remarks)
        self.remarks += [token.hide(remark) if token else remark for remark in said]
        version = nodes.rows.version or jobs.rows.version
        allocations = tuple(jobs.rows.allocations.values())
        return Snapshot(
            cluster=self._cluster,
            slurm_version=None if token and version and token.is_in(version) else version,
            nodes=existing(nodes.rows.nodes, allocations),
            allocations=allocations,
            visible_user=visible,
        )

    def _name_of(self, token: Token | None, *told: str | None) -> str:
        """Return the cluster's name: the one that is wanted, where none was told."""
        wanted = self._cluster
        for name in filter(None, told):
            if token and token.is_in(name):
                raise SlurmProtocolError(f"{self._server.url}: not the name of a cluster: our token")
            if CLUSTER_NAME.fullmatch(name) is None:
                raise SlurmProtocolError(f"{self._server.url}: not the name of a cluster: {shown(name)}")
            if wanted not in {None, name}:
                raise SlurmUnavailable(f"asked for cluster {wanted}, and {name} answered at {self._server.url}")
            wanted = name
        if wanted is None:
            raise SlurmProtocolError(
                f"{self._server.url}: the answer does not name its cluster (before 23.11 only jobs do): "
                "give --cluster NAME"
            )
        return wanted

    def _visible_user(self, terms: Terms, token: Token | None, jobs: JsonAnswer) -> str | None:
        if not terms.token_counts:
            # Behind a socket it lets in its own account, whose id we then have, and root, who is not it.
            return str(os.geteuid()) if terms.is_local and os.geteuid() else _NOBODY
        user = token.user if token else None
        if user == _SEES_EVERYTHING:
            return None
        for allocation in jobs.allocations.values():
            if allocation.user == user:
                return allocation.user_id
        try:
            return str(pwd.getpwnam(user or "").pw_uid)
        except KeyError:
            return _NOBODY

    def _remark(self, terms: Terms, token: Token | None, visible: str | None) -> None:
        """Say, once, what is worth a person's look."""
        remarks = []
        if token is not None and token.is_open:
            remarks.append(f"{token.origin}: everybody on this host can read it; chmod 600 would end that")
        if token is not None and self._server.is_overheard:
            remarks.append(f"{self._server.url}: the token crosses the network in clear; https:// would end that")
        if visible is not None:
            whose = "no decision is" if visible == _NOBODY else f"decisions for jobs of uid {visible} alone are"
            wanted = "with a token of root all of them would be"
            if token is not None and not (terms.token_counts or terms.is_local):
                wanted = (
                    "our token proves nothing, for one that is spoilt was not refused: is SLURM_JWT=daemon in "
                    "slurmrestd's environment?"
                )
            remarks.append(
                f"{self._server.url}: it does not tell whether we see every user's jobs (PrivateData), so {whose} "
                f"retired when a job is gone; {wanted}"
            )
        self.remarks += [remark for remark in remarks if remark not in self._said]
        self._said.update(remarks)

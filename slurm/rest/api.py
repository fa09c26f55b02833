"""How slurmrestd is asked, version by version of its API, and what its refusals mean.

The rows of every version are read alike, by slurm.json.answer. What differs is how a question is put, and what
comes instead of an answer: found out on 22.05, 24.11, 25.11 and 26.05, and in the source of those between.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from http import HTTPStatus
from typing import TYPE_CHECKING

from slurm.errors import SlurmError, SlurmProtocolError, SlurmUnavailable
from slurm.fields import shown
from slurm.json.answer import JsonAnswer

if TYPE_CHECKING:
    from .http import Session
    from .token import Token

VERSIONS = tuple(f"v0.0.{number}" for number in (42, 43, 44, 45, 41, 40, 39, 38))
"""In the order in which they are tried: 42 is spoken by 24.11 to 26.05, and the newer ones by what comes then."""
_WITH_FLAGS = "v0.0.40"
"""The first version whose nodes can be asked for with flags."""
_NODE_FLAGS = "flags=ALL&flags=DETAIL&flags=MIXED&flags=FUTURE"
"""slurmrestd's own, and FUTURE: a machine that is gone, while an allocation still holds its name."""
_TRUSTED_SECONDS = 900.0
"""How long "nothing changed" is believed: by slurmctld's clock, and a backup that takes over has another one."""
_CREDENTIALS = frozenset({401, 403, 511})
"""What is wrong is who we are; 511 is what slurmctld's own refusal becomes since 24.05."""
_REFUSED_BY_SLURMCTLD = frozenset({500, 511})
"""What a token that is not signed with the cluster's key gets, where one that is gets 200."""
_AWAY = frozenset({502, 504})
"""slurmctld does not answer, since 24.05: slurmrestd has waited ten seconds, which need not be waited twice."""
_SILENT = {304: "nothing was asked for that may be unchanged", 204: "that is no answer"}
"""What there is to say of a status that comes without a text."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was found out about a server: the API's version, and as whom it asks slurmctld.

    `token_counts`: as whoever our token names; `is_local`: as its own account, because its socket knows us.
    """

    version: str
    token_counts: bool
    is_local: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Whole rows, slurmctld's time of them if told, and ours."""

    rows: JsonAnswer
    update_time: int | None
    since: float

    @classmethod
    def of(cls, rows: JsonAnswer, wanted: str) -> Answer:
        """End an answer; raises as JsonAnswer.close()."""
        rows.close(wanted)
        told = rows.members.get("last_update")
        if isinstance(told, Mapping):
            told = told.get("number") if told.get("set") is True else None
        return cls(rows, told if isinstance(told, int) and told > 0 else None, time.monotonic())


def negotiate(session: Session, token: Token | None, *, is_socket: bool) -> Terms:
    """Find out which version is spoken. Raises SlurmUnavailable or, if none is, SlurmProtocolError."""
    for version in VERSIONS:
        if Questions(session, version, token).is_there():
            if token is None:
                return Terms(version, token_counts=False, is_local=is_socket)
            return _test(session, version, token, is_socket=is_socket)
    raise SlurmProtocolError(
        f"{session.url}: it speaks none of {min(VERSIONS)} to {max(VERSIONS)} (Slurm 22.05 to 26.05); "
        "is it slurmrestd that listens there?"
    )


def _test(session: Session, version: str, token: Token, *, is_socket: bool) -> Terms:
    """Find out whether it is by our token that we are let in: then slurmctld must refuse it when it is spoilt.

    A slurmrestd without SLURM_JWT=daemon in its environment takes any token, and local auth looks at none.
    """
    good, spoilt = (Questions(session, version, sent).diag() for sent in (token, token.spoilt))
    counts = good == HTTPStatus.OK and spoilt in _REFUSED_BY_SLURMCTLD
    is_anybody = is_socket and good == spoilt == HTTPStatus.OK
    return Terms(version, counts, is_local=is_anybody and Questions(session, version, None).lets_in())


class Questions:
    """What is asked in one version of the API, by whoever the token names."""

    def __init__(self, session: Session, version: str, token: Token | None) -> None:
        self._session = session
        self._version = version
        self._token = token
        self._headers: dict[str, str] = {}
        if token is not None:
            self._headers["X-SLURM-USER-TOKEN"] = token.text
            if token.user is not None:
                self._headers["X-SLURM-USER-NAME"] = token.user  # 22.05 takes no token without

    def is_there(self) -> bool:
        """Whether this version is spoken. Raises SlurmUnavailable if that cannot be told."""
        path, status, said = self._ping()
        if status in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
            return status == HTTPStatus.OK
        raise self._refusal(path, status, said)

    def lets_in(self) -> bool:
        """Whether an answer is to be had at all, as whoever we are."""
        return self._ping()[1] not in _CREDENTIALS

    def diag(self) -> int:
        """Return the status of what only slurmctld can answer, which a ping is not. Raises SlurmUnavailable."""
        path = f"/slurm/{self._version}/diag/"
        status, said = self._session.get(path, lambda _: None, headers=self._headers)
        if status in _AWAY:
            raise self._refusal(path, status, said)
        return status

    def rows(self, wanted: str, kept: Answer | None) -> Answer:
        """Return the rows that are `wanted`, nodes or jobs; the ones that are kept, if nothing changed since.

        A question with a time that fails is put again without: until 26.05.3 one for nodes does (500) if no
        partition changed as well. For jobs "nothing changed" is 304 up to 23.02, then 200 with no jobs and a
        warning, which must not be read as no jobs.
        """
        if kept is not None and kept.update_time is not None and time.monotonic() - kept.since < _TRUSTED_SECONDS:
            path, status, said, rows = self._get(wanted, kept.update_time)
            if status == HTTPStatus.NOT_MODIFIED:
                return kept
            if status == HTTPStatus.OK:
                with contextlib.suppress(SlurmError):
                    answer = Answer.of(rows, wanted)
                    if answer.update_time is not None:
                        return answer
                    unchanged = f"No job changes since update_time[{kept.update_time}]"
                    if not rows.allocations and any(unchanged in remark for remark in rows.remarks):
                        return kept
            elif status != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise self._refusal(path, status, said)
        path, status, said, rows = self._get(wanted, None)
        if status != HTTPStatus.OK:
            raise self._refusal(path, status, said)
        return Answer.of(rows, wanted)

    def _ping(self) -> tuple[str, int, bytes]:
        path = f"/slurm/{self._version}/ping/"
        return path, *self._session.get(path, lambda _: None, headers=self._headers)

    def _get(self, wanted: str, update_time: int | None) -> tuple[str, int, bytes, JsonAnswer]:
        path = f"/slurm/{self._version}/{wanted}/"
        query = [] if update_time is None else [f"update_time={update_time}"]
        if wanted == "nodes" and self._version >= _WITH_FLAGS:
            query.append(_NODE_FLAGS)
        rows = JsonAnswer(self._session.name(path))
        return path, *self._session.get(path, rows.feed, query="&".join(query), headers=self._headers), rows

    def _refusal(self, path: str, status: int, said: bytes) -> SlurmUnavailable:
        """Say why it was refused, and what a person can do."""
        what = self._session.name(path)
        told, silent = _told(said), _SILENT.get(status, "not a word why")
        words = [f"{what}: {status}{f' {told}' if told else f', and {silent}'}"]
        token = self._token
        if token is not None and token.expires is not None and token.expires < time.time():
            end = datetime.fromtimestamp(token.expires, timezone.utc).isoformat(timespec="seconds")
            words.append(
                f"{token.origin} holds a token that expired at {end}; make a new one with `scontrol token`"
            )
        elif token is None and status in _CREDENTIALS:
            words.append(
                "it wants a token (--rest-jwt-file, or SLURM_JWT), or to be asked by root or its own account "
                "on its UNIX socket"
            )
        elif token is not None and status in _CREDENTIALS:
            words.append(f"it does not take {_signed(token)}")
        elif status == HTTPStatus.INTERNAL_SERVER_ERROR and self._version <= _WITH_FLAGS:  # 22.05 to 23.11
            also = f", or it does not take {_signed(token)}" if token else ""
            words.append(f"Slurm before 24.05 says so when slurmctld does not answer{also}")
        return SlurmUnavailable("; ".join(words))


def _signed(token: Token) -> str:
    whose = f"of {token.user} from {token.origin}" if token.user else f"from {token.origin}, which names no user"
    return f"the token {whose}: not signed with this cluster's key, or for another user"


def _told(said: bytes) -> str:
    """Return the errors of an answer that is none, or the beginning of whatever else it is."""
    answer = JsonAnswer("")
    answer.feed(said)
    try:
        answer.close("nodes")
    except SlurmUnavailable as error:
        return str(error).removeprefix(": ")
    except SlurmError:
        pass
    return shown(said.decode("utf-8", "backslashreplace").strip()) if said.strip() else ""

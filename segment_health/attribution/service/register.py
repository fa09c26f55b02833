"""The register: what was accepted and what was found, in one file of SQLite that outlives the service.

A submission is acknowledged once it is on disk (synchronous=FULL), so a service that is killed at any moment knows
at its next start what it owes: every log that is in flight. The journal is the plain one and not a write-ahead
log, whose shared memory does not work on NFS (sqlite.org/wal.html). The file stays locked for as long as it is
open, by which two services of one file are kept apart.

One thread uses it: that which opened it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

from . import results
from .attempt import Attempt, Status
from .confine import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


APPLICATION, VERSION = 0x53486174, 1
"""What marks a file as ours, and its form."""
_BUSY_SECONDS = 2.0
_TABLES = """
CREATE TABLE logs (
    path BLOB PRIMARY KEY, given BLOB NOT NULL, user TEXT NOT NULL, job_id TEXT NOT NULL, cycle INTEGER,
    registered REAL NOT NULL, status TEXT NOT NULL, sequence INTEGER NOT NULL, state TEXT
) WITHOUT ROWID;
CREATE TABLE findings (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB NOT NULL, user TEXT NOT NULL, job_id TEXT NOT NULL,
    cycle INTEGER, sequence INTEGER NOT NULL, state TEXT, finding TEXT, failure TEXT NOT NULL,
    completed REAL NOT NULL, exported INTEGER NOT NULL
);
CREATE INDEX findings_of_path ON findings (path, sequence);
CREATE INDEX findings_to_export ON findings (id) WHERE exported = 0;
"""


class Change(NamedTuple):
    """What became of a log: accepted, or judged; and logs that are forgotten for it."""

    attempt: Attempt
    forgotten: Sequence[str] = ()


class RegisterError(Exception):
    """The register cannot be used, or could not be written: a sentence that names the file."""


class Register:
    """Opens, or makes, the register at an absolute path. Raises RegisterError.

    `keep` is how many findings are kept; of more the oldest go, and what is known of their logs. `exports` says
    whether findings wait to be exported (see unexported); ten times as many are kept for those that do.
    """

    def __init__(self, path: str, *, keep: int, exports: bool = False) -> None:
        self._path = path
        self._keep = keep
        self._exports = exports
        with self._told("cannot be opened"):
            # Made by us, so that it is nobody else's to read; sqlite3 follows the mode for its journal.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
            self._file = os.stat(path)
            self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            with self._told("cannot be opened"):
                self._open()
        except BaseException:
            self._connection.close()
            raise

    def attempts(self) -> list[Attempt]:
        """Return every log that is known, with what was found in it last. Raises RegisterError."""
        columns = "l.path, l.given, l.user, l.job_id, l.cycle, l.registered, l.status, l.sequence, l.state"
        query = (
            f"SELECT {columns}, f.finding, f.failure, f.completed, f.state FROM logs l "  # noqa: S608 - names of ours
            "LEFT JOIN findings f ON f.path = l.path AND f.sequence = l.sequence AND l.sequence > 0"
        )
        with self._told("cannot be read"):
            return [self._attempt(row) for row in self._connection.execute(query)]

    def judged(self) -> list[Attempt]:
        """Return every finding with what it is of, the latest last; of one log there may be several."""
        query = "SELECT path, user, job_id, cycle, sequence, state, finding, completed FROM findings ORDER BY id"
        with self._told("cannot be read"):
            return [
                Attempt(
                    os.fsdecode(path), "", user, job_id, cycle, 0.0, Status.COMPLETED, sequence,
                    _state(state), results.finding_of(json.loads(finding)), "", completed,
                )
                for path, user, job_id, cycle, sequence, state, finding, completed in self._rows(query)
                if finding is not None
            ]  # fmt: skip

    def write(self, changes: Sequence[Change]) -> list[str]:
        """Write changes, all or none; return the logs that are forgotten for them. Raises RegisterError."""
        with self._told("cannot be written"), self._transaction():
            self._check_place()
            for change in changes:
                if change.attempt.is_done:
                    self._finish(change.attempt)
                else:
                    self._put(change.attempt)
                forgotten = [(_blob(path),) for path in change.forgotten]
                self._connection.executemany("DELETE FROM logs WHERE path = ?", forgotten)
            return self._forget() if any(change.attempt.is_done for change in changes) else []

    def unexported(self, limit: int) -> list[tuple[int, Attempt]]:
        """Return findings that wait to be exported, with their numbers, the oldest first. Raises RegisterError."""
        query = (
            "SELECT path, path, user, job_id, cycle, completed, CASE WHEN finding IS NULL THEN 'failed' ELSE "
            "'completed' END, sequence, NULL, finding, failure, completed, state, id FROM findings "
            "WHERE exported = 0 ORDER BY id LIMIT ?"
        )
        with self._told("cannot be read"):
            return [(row[-1], self._attempt(row[:-1])) for row in self._connection.execute(query, (limit,))]

    def exported(self, numbers: Sequence[int]) -> None:
        """Note that these findings are exported. Raises RegisterError."""
        with self._told("cannot be written"), self._transaction():
            self._connection.executemany(
                "UPDATE findings SET exported = 1 WHERE id = ?", [(number,) for number in numbers]
            )

    def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _check_place(self) -> None:
        """See that the file is still where the next start looks for it. Raises RegisterError."""
        try:
            is_there = os.path.samestat(os.stat(self._path), self._file)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise RegisterError(
                f"{self._path}: was removed or replaced while in use: put it back, or start the service again"
            )

    def _open(self) -> None:
        execute = self._connection.execute
        # What a file holds is data: it defines no functions for us (sqlite.org/security.html).
        execute("PRAGMA trusted_schema = OFF")
        execute("PRAGMA cell_size_check = ON")
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = TRUNCATE")
        execute("PRAGMA synchronous = FULL")
        with self._transaction():
            application, version = (
                execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
            is_new = not execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] and not application
            if is_new:
                for statement in filter(str.strip, _TABLES.split(";")):
                    execute(statement)
                execute(f"PRAGMA application_id = {APPLICATION}")
                execute(f"PRAGMA user_version = {VERSION}")
            elif application != APPLICATION:
                raise RegisterError(f"{self._path}: is a database of something else; nothing was changed")
            elif version != VERSION:
                raise RegisterError(
                    f"{self._path}: has form {version}, and this version writes form {VERSION}: "
                    "name another file; nothing was changed"
                )
        found = execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise RegisterError(
                f"{self._path}: is damaged ({found}): move it away; a new one is made at the next start"
            )

    def _rows(self, query: str, *told: int) -> Iterator[Sequence[Any]]:
        return self._connection.execute(query, told)

    def _attempt(self, row: Sequence[Any]) -> Attempt:
        (
            path,
            given,
            user,
            job_id,
            cycle,
            registered,
            status,
            sequence,
            state,
            finding,
            failure,
            completed,
            judged,
        ) = row
        found = None if finding is None else results.finding_of(json.loads(finding))
        status = Status(status)
        if status in {Status.COMPLETED, Status.FAILED}:
            state = judged
        return Attempt(
            os.fsdecode(path), os.fsdecode(given), user, job_id, cycle, registered, status, sequence,
            _state(state), found, failure or "", completed or 0.0,
        )  # fmt: skip

    def _finish(self, attempt: Attempt) -> None:
        query = "SELECT 1 FROM logs WHERE path = ? AND sequence > ?"  # it may have been submitted anew meanwhile
        if self._connection.execute(query, (_blob(attempt.path), attempt.sequence)).fetchone() is None:
            self._put(attempt)
        finding = None if attempt.finding is None else json.dumps(results.told(attempt.finding))
        row = (
            _blob(attempt.path), attempt.user, attempt.job_id, attempt.cycle, attempt.sequence,
            _written(attempt.state), finding, _text(attempt.failure), attempt.completed, int(not self._exports),
        )  # fmt: skip
        self._connection.execute("INSERT INTO findings VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _put(self, attempt: Attempt) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                _blob(attempt.path), _blob(attempt.given), attempt.user, attempt.job_id, attempt.cycle,
                attempt.registered, attempt.status.value, attempt.sequence, _written(attempt.state),
            ),
        )  # fmt: skip

    def _forget(self) -> list[str]:
        """Remove the oldest findings beyond those that are kept, and logs of which nothing is left."""
        execute = self._connection.execute
        newest = execute("SELECT max(id) FROM findings").fetchone()[0] or 0
        execute(
            "DELETE FROM findings WHERE (id <= ? AND exported != 0) OR id <= ?",
            (newest - self._keep, newest - 10 * self._keep),
        )
        gone = execute(
            "SELECT path FROM logs WHERE status IN ('completed', 'failed') AND NOT EXISTS "
            "(SELECT 1 FROM findings WHERE findings.path = logs.path AND findings.sequence = logs.sequence)"
        ).fetchall()
        self._connection.executemany("DELETE FROM logs WHERE path = ?", gone)
        return [os.fsdecode(path) for (path,) in gone]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled it back already
                self._connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn what goes wrong into a sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise RegisterError(f"{self._path}: another service uses it; nothing was changed") from error
            raise RegisterError(f"{self._path}: {what}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise RegisterError(f"{self._path}: {what}: {error}: move it away if it is damaged") from error
        except OSError as error:
            raise RegisterError(f"{self._path}: {what}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RegisterError(f"{self._path}: {what}: holds what no service wrote ({error})") from error


def _blob(path: str) -> bytes:
    return os.fsencode(path)


def _text(said: str) -> str:
    """Return a text as a database can hold it: what a message quotes need be no UTF-8."""
    return said.encode("utf-8", "backslashreplace").decode()


def _written(state: FileState | None) -> str | None:
    return None if state is None else json.dumps(state)


def _state(written: str | None) -> FileState | None:
    return None if written is None else FileState(*json.loads(written))

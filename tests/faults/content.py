"""Faults of what lies in the directory: names that are taken, modes, and a ledger that is lost or garbled."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fault import fault
from .storage import without_privilege

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .laboratory import Laboratory

_ONE = "one unit that cannot be written is reported, and no other waits for it"
_GOES_ON = "what lies under an artifact's name is replaced, never followed, opened or waited for"
_LEDGER = "exclusions do not depend on what is remembered: a lost ledger costs a report"
_MODES = "artifacts are readable by every job, whatever the umask"


@fault(
    "name is a directory",
    attacks=_ONE,
    how="a directory under the artifact's name of one unit",
    holds=frozenset({"worsening"}),
    says="Is a directory",
)
@contextmanager
def name_is_directory(lab: Laboratory) -> Iterator[None]:
    """Put a directory where one unit's artifact goes."""
    lab.artifact("worsening").unlink(missing_ok=True)
    lab.artifact("worsening").mkdir()
    try:
        yield
    finally:
        lab.artifact("worsening").rmdir()


@fault("name is a fifo", attacks=_GOES_ON, how="a fifo that nobody writes to, under a unit's name")
@contextmanager
def name_is_fifo(lab: Laboratory) -> Iterator[None]:
    """Put a fifo where an artifact goes."""
    lab.artifact("worsening").unlink(missing_ok=True)
    os.mkfifo(lab.artifact("worsening"))
    yield


@fault("name is a socket", attacks=_GOES_ON, how="a listening socket under a unit's name")
@contextmanager
def name_is_socket(lab: Laboratory) -> Iterator[None]:
    """Put a socket where an artifact goes."""
    lab.artifact("worsening").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        # By a name below an open directory: a socket's path has at most 107 bytes.
        directory = os.open(lab.storage, os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{directory}/{lab.artifact('worsening').name}")
        finally:
            os.close(directory)
        listening.listen()
        yield


@fault("name is a symbolic link", attacks=_GOES_ON, how="a link to a file elsewhere, which must stay as it is")
@contextmanager
def name_is_link(lab: Laboratory) -> Iterator[None]:
    """Put a link to an empty file elsewhere where an artifact goes."""
    elsewhere = lab.work / "elsewhere"
    elsewhere.touch()
    lab.artifact("worsening").unlink(missing_ok=True)
    lab.artifact("worsening").symlink_to(elsewhere)
    yield
    assert elsewhere.stat().st_size == 0, "the link was followed"


@fault(
    "artifact unreadable",
    attacks="an exclusion that cannot be read is somebody's: it is reported and stays",
    how="mode 000 on one exclusion, for a publisher without privilege",
    holds=frozenset({"recovering"}),
    before=without_privilege,
    says="foreign",
)
@contextmanager
def artifact_unreadable(lab: Laboratory) -> Iterator[None]:
    """Take the mode bits of one exclusion."""
    lab.artifact("recovering").chmod(0)
    try:
        yield
    finally:
        lab.artifact("recovering").chmod(0o644)


def _umask(mask: str) -> list[str]:
    return ["sh", "-c", f'umask {mask}; exec "$0" "$@"']


def _umask_077(lab: Laboratory) -> None:
    lab.prefix += _umask("077")


def _umask_000(lab: Laboratory) -> None:
    lab.prefix += _umask("000")


def _modes_are_right(lab: Laboratory) -> bool:
    kept = lab.storage / ".segment-health"
    writable = any(path.stat().st_mode & 0o022 for path in (kept, *kept.rglob("*")) if path.exists())
    return stat.S_IMODE(lab.artifact("worsening").stat().st_mode) == 0o644 and not writable


@fault("umask 077", attacks=_MODES, how="a publisher that was started with it", before=_umask_077)
@contextmanager
def umask_077(lab: Laboratory) -> Iterator[None]:
    """Look at the modes of what was written."""
    yield
    lab.afterwards("modes", lambda: _modes_are_right(lab))


@fault("umask 000", attacks="nothing that is kept can be written by others", how="the same", before=_umask_000)
@contextmanager
def umask_000(lab: Laboratory) -> Iterator[None]:
    """Look at the modes of what was written."""
    yield
    lab.afterwards("modes", lambda: _modes_are_right(lab))


@fault("setgid directory", attacks=_MODES, how="mode 2755 and another group, from before the first pass on")
@contextmanager
def setgid(lab: Laboratory) -> Iterator[None]:
    """Give the directory another group, which new files then take."""
    os.chown(lab.storage, 0, 65534)
    lab.storage.chmod(0o2755)
    yield
    lab.afterwards("the group of the directory", lambda: lab.artifact("worsening").stat().st_gid == 65534)
    lab.afterwards("modes", lambda: _modes_are_right(lab))


@fault("ledger lost", attacks=_LEDGER, how=".segment-health removed again and again")
@contextmanager
def ledger_lost(lab: Laboratory) -> Iterator[None]:
    """Remove the ledger, also while it is being written."""
    for _ in range(5):
        shutil.rmtree(lab.storage / ".segment-health", ignore_errors=True)
        lab.until((lab.storage / ".segment-health" / "state" / "all@sandbox.json").exists, "a new ledger")
    shutil.rmtree(lab.storage / ".segment-health", ignore_errors=True)
    yield


@fault("ledger is a file", attacks=_LEDGER, how="a file under the name .segment-health", says="Not a directory")
@contextmanager
def ledger_is_file(lab: Laboratory) -> Iterator[None]:
    """Put a file where the ledger is."""
    ledger, aside = lab.storage / ".segment-health", lab.disk / "aside"
    ledger.rename(aside)
    ledger.touch()
    try:
        yield
    finally:
        ledger.unlink()
        aside.rename(ledger)


@fault("state garbled", attacks=_LEDGER, how="bytes of another kind in state/, between two passes", says="garbled")
@contextmanager
def state_garbled(lab: Laboratory) -> Iterator[None]:
    """Garble what the scope remembers."""
    (lab.storage / ".segment-health/state/all@sandbox.json").write_bytes(b"\0\xff{")
    yield


@fault("heartbeat garbled", attacks=_LEDGER, how="half a heartbeat, again and again")
@contextmanager
def heartbeat_garbled(lab: Laboratory) -> Iterator[None]:
    """Garble the heartbeat; each pass writes a new one."""
    path = lab.storage / ".segment-health/heartbeat/all@sandbox.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    lab.until(lambda: path.read_bytes().endswith(b"}\n"), "a new heartbeat")
    path.write_bytes(b"")
    yield


@fault("history cannot be written", attacks=_LEDGER, how="history.jsonl is a directory", says="the history")
@contextmanager
def history_fails(lab: Laboratory) -> Iterator[None]:
    """Put a directory where the history is."""
    history = lab.storage / ".segment-health/history.jsonl"
    history.unlink()
    history.mkdir()
    try:
        yield
    finally:
        history.rmdir()


@fault("history is full", attacks="the history is bounded, and turns over", how="9 MB of it, sparse")
@contextmanager
def history_full(lab: Laboratory) -> Iterator[None]:
    """Let the next line be one too many."""
    history = lab.storage / ".segment-health/history.jsonl"
    os.truncate(history, 9 << 20)
    yield
    lab.afterwards("a history that turned over", history.with_name("history.jsonl.1").exists)

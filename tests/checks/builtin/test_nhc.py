"""`nhc`: what is made of how NHC ends, and that it neither drains a node nor leaves anything behind.

The program here does what nhc 1.4 does around its checks, in its order: command line, site file, checks, mark.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from segment_health.checks.builtin import nhc
from segment_health.checks.builtin.answer import Unknown
from segment_health.checks.health_check import Finding

NHC = r"""#!/bin/bash
nhcmain_load_sysconfig() { . "$SYSCONFIGDIR/$NAME"; }
log() { [[ $SILENT != 0 ]] || echo "$@"; }
mark() { [[ $MARK_OFFLINE -ne 1 ]] || eval $1 "'$HOSTNAME'" "'$2'"; }
die() {
    log "ERROR:  $NAME:  Health check failed:  $2"
    mark "$OFFLINE_NODE" "$2"
    exit $1
}
NAME=nhc SYSCONFIGDIR=${0%/*} SILENT=1
for word; do eval "$word"; done
nhcmain_load_sysconfig
if [[ $DETACHED_MODE == 1 ]]; then touch "${0%/*}/detached"; exit 0; fi
if [[ $LOGFILE != - ]]; then exec >>"${0%/*}/log"; fi
check() { [[ $VERBOSE != 1 ]] || log "Running check:  \"$1\""; }
. "${0%/*}/checks"
mark "$ONLINE_NODE"
"""
SITE = (
    "MARK_OFFLINE=1 OFFLINE_NODE='touch {0}/marked #' ONLINE_NODE='touch {0}/marked #' DETACHED_MODE=1 SILENT=1\n"
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in a directory of its own, with a site file that wants it all otherwise."""
    path = tmp_path / "nhc.sh"
    path.write_text(NHC)
    path.chmod(0o755)
    (tmp_path / "nhc").write_text(SITE.format(tmp_path))
    return path


def look(program: Path, checks: str, seconds: float = 30) -> Finding:
    """Run it with these checks."""
    (program.parent / "checks").write_text(checks)
    try:
        return nhc.look(str(program), dict(os.environ), seconds)
    finally:
        assert not {"marked", "detached", "log"} & set(os.listdir(program.parent))


@pytest.mark.parametrize(
    ("checks", "finding"),
    [
        pytest.param("check a", Finding(), id="healthy"),
        pytest.param("check a; die 1 'a:  no /x'", Finding(("a:  no /x",)), id="unhealthy"),
        pytest.param(
            "for i in a b a; do log ERROR:  nhc:  Health check failed:  $i; done; exit 2",
            Finding(("a", "b")),
            id="several",
        ),
        pytest.param("check a; sleep 60 & true", Finding(), id="leaves-a-child-that-holds-its-output"),
        pytest.param("check a; exec >&- 2>&-; sleep 0.2; exit 0", Finding(), id="closes-its-output"),
        pytest.param("yes | head -c 9999999; die 1 'behind it all'", None, id="endless"),
    ],
)
def test_what_is_made_of_it(program: Path, checks: str, finding: Finding | None) -> None:
    """Its failures are ours, in its words; of what it writes 64 KiB are kept."""
    if finding is None:
        with pytest.raises(Unknown, match="named no check that failed: y"):
            look(program, checks)
    else:
        assert look(program, checks) == finding


def test_no_checks_are_remarked(program: Path) -> None:
    """Without lines for this node NHC is content; that is no all-clear that nobody should know of."""
    assert "made no checks" in look(program, "").remarks[0]


@pytest.mark.parametrize(
    ("checks", "why"),
    [
        ("exit 7", "ended with status 7 and named no check that failed: no output"),
        ("echo oops; exit 1", "named no check that failed: oops"),
        ("kill -SEGV $$", "ended with status -11"),
        ("trap '' TERM; while :; do sleep 60; done", "did not end within 1 s, and was killed"),
    ],
    ids=["status", "output", "signal", "hangs"],
)
def test_what_is_not_understood_is_unknown(program: Path, checks: str, why: str) -> None:
    """It excludes nobody."""
    with pytest.raises(Unknown, match=why):
        look(program, checks, 1)


@pytest.mark.parametrize(
    ("path", "why"),
    [("/no/such/nhc", "No such file"), ("/etc/passwd", "Permission denied")],
    ids=["missing", "mode"],
)
def test_what_cannot_be_started_is_unknown(path: str, why: str) -> None:
    """A site without NHC is no sick site."""
    with pytest.raises(Unknown, match=f"{path} cannot be started: {why}"):
        nhc.look(path, dict(os.environ), 10)


def test_nothing_is_left_behind(program: Path) -> None:
    """What it started in process groups of its own, as NHC's watchdog is, ends with it."""
    pids = program.parent / "pids"
    checks = f"set -m; sleep 60 & echo $! >> {pids}; (sleep 61; :) & echo $! >> {pids}; set +m; check a; sleep 62"
    with pytest.raises(Unknown):
        look(program, checks, 2)
    deadline = time.monotonic() + 10
    for pid in pids.read_text().split():
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert len(pids.read_text().split()) == 2

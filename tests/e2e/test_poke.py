"""`segment-health poke` against publishers that run: on this host, and as if from another one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Running, Site

pytestmark = pytest.mark.slurm

ELSEWHERE = 'mount -t tmpfs none /run && hostname elsewhere && exec "$0" "$@"'
"""Another host, as far as names and local sockets go; the decision directory is shared."""


def drained(site: Site) -> str:
    """Run a job, drain its node, and return the unit that the next pass excludes."""
    job = site.submit("--nodes=1", "--exclusive")
    unit = f"{job}.{job}"
    site.cluster.set_node(min(site.nodes_of()[unit]), "drain", "bad")
    return unit


def test_a_publisher_of_this_host_is_asked(site: Site, start: Callable[..., Running]) -> None:
    """It makes a pass at once, long before its interval is over; a second asking waits its time, and is served."""
    publisher = start("--all", "--interval", "3600")
    first = drained(site)
    told = site.call("poke", "--dir", str(site.directory))
    assert (told.returncode, told.stdout, told.stderr) == (0, "asked for a pass: 1 on this host\n", "")
    publisher.until(lambda: site.excluded() == {first})
    second = drained(site)
    assert site.call("poke", "-q", "--dir", str(site.directory)).stdout == ""
    publisher.until(lambda: site.excluded() == {first, second})
    assert publisher.end() == 0
    assert site.call("poke", "--dir", str(site.directory)).returncode == 3


@pytest.mark.root
def test_a_publisher_of_another_host_is_asked(site: Site, start: Callable[..., Running]) -> None:
    """By a file on shared storage, which the publisher sees although nothing else tells it."""
    publisher = start("--all", "--interval", "3600")
    unit = drained(site)
    argv = ["unshare", "--uts", "--mount", "sh", "-c", ELSEWHERE, site.command]
    told = site.cluster.run(*argv, "poke", "--dir", str(site.directory), check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == f"asked for a pass: all on {os.uname().nodename}\n"
    began = time.monotonic()
    publisher.until(lambda: site.excluded() == {unit})
    assert time.monotonic() - began < 60  # an interval is an hour


def test_nobody_is_there_to_be_asked(site: Site) -> None:
    """Exit status 3 where no publisher lives, and 2 where there is no directory; nothing is left behind."""
    told = site.call("poke", "--dir", str(site.directory))
    assert told.returncode == 3
    assert "nobody was asked" in told.stderr
    assert site.files().keys() == {"."}
    assert site.call("poke", "--dir", str(site.directory / "missing")).returncode == 2


@pytest.mark.root
def test_a_ledger_that_is_not_ours_to_write_to(site: Site, start: Callable[..., Running]) -> None:
    """Another user's poke is refused with what to do; no pass comes of it."""
    publisher = start("--all", "--interval", "3600")
    drained(site)
    # What it may read is not in question: the command itself lies where nobody else may look.
    nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    nobody += ["--ambient-caps=+dac_read_search", "--inh-caps=+dac_read_search"]
    told = site.cluster.run(*nobody, site.command, "poke", "--dir", str(site.directory), check=False)
    assert told.returncode == 1
    assert "run it as the publisher's user" in told.stderr
    assert publisher.process.poll() is None
    assert site.excluded() == set()

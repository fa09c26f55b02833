"""Many exclusions in one pass, against a bare loop that writes, syncs and renames as many files of the same bytes.

What is timed of the pass is all that follows the answers: reading the directory, deciding, writing, the history,
the state and the heartbeat. Both begin with an empty directory, both sync it once, at the end.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segment_health.observe import observe
from segment_health.policy.assess import Policy
from segment_health.publication import Publication
from segment_health.publish import publish
from segment_health.scope import EVERYTHING
from segment_health.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZES = (1, 10, 100, 1000, 2000)
_SHORT_SIZES = (1, 10, 200)
_LARGE = 1000
"""Exclusions from which on fewer rounds do, since each takes seconds."""
_FIRST_JOB = 1000


def measure(short: bool) -> dict[str, Any]:
    """Return medians in seconds and their ratio, by the number of exclusions."""
    with tempfile.TemporaryDirectory(prefix="exclusions-") as temporary:
        place = Path(temporary)
        sizes = [_measured(count, place) for count in (_SHORT_SIZES if short else _SIZES)]
        return {"file_system": file_system(place), "sizes": sizes}


def _measured(count: int, place: Path) -> dict[str, Any]:
    cluster = FakeCluster(f"n[1-{count}]")
    for number in range(1, count + 1):
        cluster.run(str(_FIRST_JOB + number), f"n{number}")
        cluster.set_node(f"n{number}", "ALLOCATED+DRAIN", "benchmark")
    bare, ours = [], []
    _, artifacts = _published(cluster, place, count)  # which does not count
    for _ in range(3 if count >= _LARGE else 5):
        bare.append(_bare(artifacts, place))
        ours.append(_published(cluster, place, count)[0])
    took = {"bare": statistics.median(bare), "publish": statistics.median(ours)}
    return {
        "count": count,
        **{name: round(seconds, 5) for name, seconds in took.items()},
        "over_bare": round(took["publish"] / took["bare"], 3),
    }


def _published(cluster: FakeCluster, place: Path, count: int) -> tuple[float, dict[str, bytes]]:
    """Make a first pass; return how long it took, and what it left."""
    directory = Path(tempfile.mkdtemp(dir=place))
    publication = Publication(str(directory), EVERYTHING, Policy(), "0.1.0", interval=300.0)
    observation = observe(publication, cluster.source, time.time)
    began = time.perf_counter()
    done = publish(observation, publication, time.time)
    took = time.perf_counter() - began
    assert len(done.changes) == count
    assert done.wrote_everything
    artifacts = {path.name: path.read_bytes() for path in directory.glob("segment_health_check.*")}
    shutil.rmtree(directory)
    return took, artifacts


def _bare(artifacts: Mapping[str, bytes], place: Path) -> float:
    """Write the same files and no more; return how long it took."""
    directory = tempfile.mkdtemp(dir=place)
    descriptor = os.open(directory, os.O_RDONLY)
    began = time.perf_counter()
    for name, content in artifacts.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file = os.open(".temporary", flags, 0o644, dir_fd=descriptor)
        os.write(file, content)
        os.fsync(file)
        os.close(file)
        os.rename(".temporary", name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    os.fsync(descriptor)
    took = time.perf_counter() - began
    os.close(descriptor)
    shutil.rmtree(directory)
    return took


def file_system(place: Path) -> str:
    """Name the kind of file system that a place is in: ext4, tmpfs ..."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [(len(at), kind) for _, at, kind, *_ in mounts if place.resolve().is_relative_to(at)]
    return max(inside)[1]

"""Differential: NVRx 0.7.0's own storage_probe.py, unmodified, and ours, on the same paths.

They must agree on which paths are well. Three differences are wanted, and docs/storage.md has them: a path that is
not absolute is refused by us before anything is looked at; of a directory we ask for the first entries, not for
all; and each path has its own time, where theirs share one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.checks import probe
from segment_health.checks.storage import StoragePathHealthCheck
from tests.attacks.conftest import Person, as_person

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
THEIRS = ROOT / ".cache/nvrx/nvidia_resiliency_ext-0.7.0/nvidia_resiliency_ext/shared_utils/storage_probe.py"
NAMES = [
    "file", "empty", "full", "none", "secret", "shut", "shut/below", "passable", "passable/below", "unlistable",
    "to file", "to dir", "dangling", "chain", "loop", "fifo", "socket", "no", "no/such", "file/x", "full/",
    "file/", "full/../file", "no/../file", "to dir/../file", "./file", "/file", "x" * 255, "x" * 256,
    "é☃", "new\nline", "\udcff", "file ", " file",
]  # fmt: skip
OURS = """
import json, sys
from segment_health.checks.storage import StoragePathHealthCheck
print(json.dumps([bool(StoragePathHealthCheck([path]).look().problems) for path in sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Some of everything, some of it closed to an ordinary user."""
    with tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp") as directory:
        path = Path(directory)
        path.chmod(0o755)
        for name in ("full/below", "none", "shut/below", "passable/below", "unlistable", "é☃"):
            (path / name).mkdir(parents=True)
        for name in ("file", "empty", "secret", "new\nline", "\udcff"):
            (path / name).write_bytes(b"" if name == "empty" else b"x" * 5000)
        links = {"to file": "file", "to dir": "full/below", "dangling": "no", "chain": "dangling", "loop": "loop"}
        for name, target in links.items():
            (path / name).symlink_to(target)
        os.mkfifo(path / "fifo")
        for name, mode in {"secret": 0, "shut": 0o600, "passable": 0o711, "unlistable": 0o311}.items():
            (path / name).chmod(mode)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path / "socket"))
            yield path
        for name in ("secret", "shut", "passable", "unlistable"):
            (path / name).chmod(0o755)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Their probe as a module."""
    spec = importlib.util.spec_from_file_location("storage_probe", THEIRS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output_of(*command: str) -> str:
    """Run Python as an ordinary user and return what it prints; a status of 1 is theirs for a problem."""
    somebody = as_person(Person("nobody")) if os.geteuid() == 0 else []
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        [*somebody, sys.executable, *command], capture_output=True, check=False, cwd="/", env=environ, timeout=120
    )
    assert ended.returncode in {0, 1}, ended.stderr
    return ended.stdout.decode()


def test_both_agree_as_an_ordinary_user(place: Path) -> None:
    """Of all that there is, both as programs, by somebody whom modes bind."""
    paths = [*(f"{place}/{name}" for name in NAMES), "/", "/dev/null", "/dev/full", "/proc/self/status", "//etc"]
    told = json.loads(output_of(str(THEIRS), *paths))
    assert told["invalid"] == []
    theirs = {one.rpartition(" (")[0] for one in told["missing"]}
    theirs |= {one.partition(" (list error")[0].partition(" (read error")[0] for one in told["unreadable"]}
    ours = dict(zip(paths, json.loads(output_of("-c", OURS, *paths)), strict=True))
    assert {os.path.normpath(path) for path, has_problem in ours.items() if has_problem} == theirs
    assert 10 < len(theirs) < len(paths) - 10  # each answer is given often


@given(st.lists(st.sampled_from([*NAMES, "..", ".", "", "below"]), max_size=4))
def test_both_agree_on_any_way(place: Path, theirs: Any, parts: list[str]) -> None:
    """Whatever way is taken, through links, files, and back."""
    path = os.path.normpath("/".join([str(place), *parts]))
    if not path.startswith(str(place)):
        return
    told = theirs._storage_path_probe(["/".join([str(place), *parts])])
    number, _ = probe.answer("use", os.fsencode(path))
    assert bool(number) == any(told.values())


@pytest.mark.parametrize("path", ["data", "./data", " /data", "~"])
def test_a_relative_path_is_refused_before(theirs: Any, path: str) -> None:
    """They find it invalid at every check; we do when the check is made, as the settings of their launcher do."""
    assert theirs._storage_path_probe([path])["invalid"]
    with pytest.raises(ValueError, match="not an absolute path"):
        StoragePathHealthCheck([path])


@pytest.mark.parametrize("paths", [[], [""], ["", ""]])
def test_nothing_is_well(theirs: Any, paths: list[str]) -> None:
    """Empty paths are passed over by both."""
    assert not any(theirs._storage_path_probe(paths).values())
    assert StoragePathHealthCheck(paths).look().problems == ()

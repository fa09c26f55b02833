"""Differential: NVRx's own consumer, from the wheel nvidia-resiliency-ext 0.7.0, and ours.

They must agree on every environment and every file, in what is installed, derived, decided and logged. One
difference is wanted: an id that is not decimal digits becomes a path there and a warning here.
"""

from __future__ import annotations

import ast
import importlib
import json
import logging
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from segment_health import UnhealthyNodeException, consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parent.parent
WHEEL = ROOT / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
PACKAGE = "nvidia_resiliency_ext"
CASES = json.loads((ROOT / "tests/data/cases/consumer.json").read_text())
NAME = "segment_health_check.123.7"
NOBODY = 65534


class Seen(NamedTuple):
    """What one consumer made of an environment and a directory."""

    path: str | None
    healthy: bool
    log: list[tuple[str, str]]


class Log(logging.Handler):
    """Collects (level, text) of what is logged on ``nvrx``."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append((record.levelname, record.getMessage()))


@pytest.fixture(scope="module")
def wheel() -> Path:
    """Give the unzipped wheel."""
    if not (WHEEL / PACKAGE / "fault_tolerance/segment_health_check.py").is_file():
        pytest.fail(f"{WHEEL} is missing: `make test` fetches it (or: sh tests/nvrx_wheel.sh)", pytrace=False)
    return WHEEL


@pytest.fixture(scope="module")
def nvrx(wheel: Path) -> Iterator[Any]:
    """Give NVRx's segment_health_check module, its own file and its own imports, unmodified.

    Only the packages' ``__init__`` are left out, as they import torch: bare packages stand for them.
    """
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for name in (PACKAGE, f"{PACKAGE}.fault_tolerance", f"{PACKAGE}.shared_utils"):
            package = ModuleType(name)
            package.__path__ = [str(wheel.joinpath(*name.split(".")))]
            patch.setitem(sys.modules, name, package)
        module = importlib.import_module(f"{PACKAGE}.fault_tolerance.segment_health_check")
        assert Path(str(module.__file__)).is_relative_to(wheel)
        yield module
    for name in set(sys.modules) - before:
        if name.startswith(PACKAGE):
            del sys.modules[name]


@contextmanager
def environment(env: dict[str, str]) -> Iterator[Log]:
    """Be a process with these SLURM_* variables and no other; give what it logs.

    Not the fixtures monkeypatch and caplog: one test function runs many examples.
    """
    log, logger, level = Log(), logging.getLogger("nvrx"), logging.getLogger("nvrx").level
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    try:
        with mock.patch.dict(os.environ, {**kept, **env}, clear=True):
            yield log
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)


def ask(module: Any, env: dict[str, str], directory: str) -> Seen:
    """Install one consumer's check, as a launcher does, and call it."""
    with environment(env) as log:
        check = module.get_segment_health_check(directory)
        if check is None:
            return Seen(None, healthy=True, log=log.lines)
        path = check.path if module is consumer else check._path
        return Seen(os.fspath(path), healthy=check(), log=log.lines)


LINKS = {"device": "/dev/null", "dangling": "nothing-here", "loop": NAME, "symlink_to_directory": "."}
ELSEWHERE = {"nodir": "none", "notdir": "file", "toolong": "x" * 300}


def place(base: Path, name: str, artifact: Any) -> Path:
    """Put what a case calls ``artifact`` below ``base``; return the directory to configure."""
    directory = base / "shared"
    path = directory / name
    directory.mkdir()
    (base / "file").write_text("x")
    if isinstance(artifact, dict):
        if "symlink_to_file" in artifact:
            path.symlink_to("elsewhere")
        for kind, where in (("symlink_to_file", "elsewhere"), ("file", artifact.get("other", name))):
            if kind in artifact:
                (directory / where).write_text(artifact[kind])
    elif artifact in LINKS:
        path.symlink_to(LINKS[artifact].replace(NAME, name))
    elif artifact in ELSEWHERE:
        directory = base / ELSEWHERE[artifact]
    elif artifact == "directory":
        path.mkdir()
    elif artifact == "fifo":
        os.mkfifo(path)
    elif artifact == "eacces":
        path.write_text("x")
        directory.chmod(0)
    else:
        assert artifact == "missing"
    return directory


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Have an ordinary user's rights, whoever runs the suite: for root no directory is unsearchable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def placed(name: str, artifact: Any) -> Iterator[Path]:
    """Give the directory to configure, where every user can enter; remove it again."""
    with tempfile.TemporaryDirectory() as made:
        base = Path(made)
        base.chmod(0o755)
        try:
            yield place(base, name, artifact)
        finally:
            (base / "shared").chmod(0o755)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_agree_on_the_case(case: dict[str, Any], nvrx: Any) -> None:
    """Both install, derive, decide and log alike, except that we refuse ids that are not digits."""
    with placed(case["expected_name"] or NAME, case["artifact"]) as directory, ordinary_user():
        theirs = ask(nvrx, case["env"], str(directory))
        ours = ask(consumer, case["env"], str(directory))
    assert (ours.path is not None, ours.healthy) == (case["installed"], case["healthy"])
    if case["id"] == "traversal":
        assert theirs.path is not None
        assert ours == Seen(
            None,
            healthy=True,
            log=[
                (
                    "WARNING",
                    "Ignoring segment health decision: job id is not 1 to 20 decimal digits: '../../etc'",
                )
            ],
        )
    else:
        assert ours == theirs
        assert any(level == "WARNING" for level, _ in theirs.log) is case["warns"]


IDS = st.sampled_from(["", "0", "7", "123", "007", " 7", "x", "-1", "1.2", "../1", "\uff11", "\u00b2"])
ENVIRONMENTS = st.fixed_dictionaries(
    {"SLURM_PROCID": st.just("0")} | {"SLURM_JOB_ID": st.just("123")},
    optional={"SLURM_ARRAY_JOB_ID": IDS, "SLURM_ARRAY_TASK_ID": IDS},
) | st.fixed_dictionaries(
    {},
    optional={
        "SLURM_PROCID": st.sampled_from(["", "0", "1", "00", " 0"]),
        "SLURM_JOB_ID": IDS,
        "SLURM_ARRAY_JOB_ID": IDS,
        "SLURM_ARRAY_TASK_ID": IDS,
    },
)
CONTENTS = st.text(max_size=3)
ARTIFACTS = st.one_of(
    st.sampled_from(["missing", "nodir", "directory", "fifo", "device", "dangling", "loop"]),
    st.sampled_from(["symlink_to_directory", "notdir", "toolong", "eacces"]),
    st.fixed_dictionaries({"file": CONTENTS}),
    st.fixed_dictionaries({"symlink_to_file": CONTENTS}),
    st.fixed_dictionaries({"other": st.just("segment_health_check.123.17"), "file": CONTENTS}),
)


def derived_name(env: dict[str, str]) -> tuple[str, bool]:
    """Return the name that NVRx derives, if it can be a file's, and whether its ids are digits."""
    job_id = env.get("SLURM_ARRAY_JOB_ID") or env.get("SLURM_JOB_ID") or "123"
    task_id = env.get("SLURM_ARRAY_TASK_ID") or job_id
    digits = all(set(text) <= set("0123456789") for text in (job_id, task_id))
    return (f"segment_health_check.{job_id}.{task_id}" if digits else NAME), digits


@settings(deadline=None)  # a busy file system is no failure
@given(env=ENVIRONMENTS, artifact=ARTIFACTS, slash=st.sampled_from(["", "/"]))
@example(env={"SLURM_PROCID": "0", "SLURM_JOB_ID": "123"}, artifact={"file": "x"}, slash="")
@example(env={"SLURM_PROCID": "0", "SLURM_JOB_ID": "123"}, artifact="eacces", slash="/")
@example(env={"SLURM_PROCID": "0", "SLURM_ARRAY_TASK_ID": "7", "SLURM_JOB_ID": "1"}, artifact="fifo", slash="")
@example(env={"SLURM_PROCID": "0", "SLURM_JOB_ID": "../1"}, artifact="missing", slash="")
def test_agree_on_anything(nvrx: Any, env: dict[str, str], artifact: Any, slash: str) -> None:
    """Whatever the environment and the artifact: the same, down to the words in the log, or a refused id."""
    name, digits = derived_name(env)
    with placed(name, artifact) as directory, ordinary_user():
        theirs = ask(nvrx, env, f"{directory}{slash}")
        ours = ask(consumer, env, f"{directory}{slash}")
    if theirs.path is not None and not digits:
        assert (ours.path, ours.healthy) == (None, True)
        ((level, text),) = ours.log
        assert (level, text.partition(": ")[0]) == ("WARNING", "Ignoring segment health decision")
    else:
        assert ours == theirs


def test_raise_their_exception(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we raise is caught by NVRx's handlers, and has the default message of the wheel's own class.

    The class is taken out of launcher.py as it stands there, for the module imports torch.
    """
    source = (wheel / PACKAGE / "fault_tolerance/launcher.py").read_text()
    name = UnhealthyNodeException.__name__
    (found,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    launcher = ModuleType(f"{PACKAGE}.fault_tolerance.launcher")
    exec(compile(ast.Module([found], []), "launcher.py", "exec"), vars(launcher))  # the wheel's own code
    monkeypatch.setitem(sys.modules, launcher.__name__, launcher)
    (tmp_path / NAME).write_text("x")

    with pytest.raises(launcher.UnhealthyNodeException) as caught:
        consumer.SegmentHealthCheck(tmp_path, "123", "7").ensure_healthy()

    assert isinstance(caught.value, UnhealthyNodeException)
    assert str(tmp_path / NAME) in caught.value.message
    assert UnhealthyNodeException().message == launcher.UnhealthyNodeException().message

"""The worker and its confinement, in this process: real files, links and descriptors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.attribution.analysers.finding import Action, Finding
from segment_health.attribution.service import confine, results, worker
from segment_health.attribution.service.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PATIENCE = 60.0
EARLIER = Finding("x", Action.RESTART, "before", "tests")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The root, with a log, and a secret beside it."""
    (tmp_path / "secret").write_text("s3cret")
    made = tmp_path.resolve() / "logs"
    (made / "sub").mkdir(parents=True)
    (made / "sub/a.log").write_text("a log")
    return made


def to_link(logs: Path) -> None:
    """Put a link to a secret in the log's place."""
    (logs / "sub/a.log").unlink()
    (logs / "sub/a.log").symlink_to(logs.parent / "secret")


def directory_to_link(logs: Path) -> None:
    """Put a link to elsewhere in the place of the log's directory."""
    (logs / "sub").rename(logs.parent / "aside")
    (logs / "sub").symlink_to(logs.parent / "aside")


def to_fifo(logs: Path) -> None:
    """Put a fifo in the log's place: whoever opened it would wait."""
    (logs / "sub/a.log").unlink()
    os.mkfifo(logs / "sub/a.log")


def to_hard_link(logs: Path) -> None:
    """Give a secret the log's name."""
    (logs / "sub/a.log").unlink()
    (logs / "sub/a.log").hardlink_to(logs.parent / "secret")


def to_nothing(logs: Path) -> None:
    """Remove the log and its directory."""
    (logs / "sub/a.log").unlink()
    (logs / "sub").rmdir()


@pytest.mark.parametrize(
    ("swap", "codes"),
    [
        (to_link, {"outside_root"}),
        (directory_to_link, {"invalid_path", "outside_root"}),
        (to_fifo, {"not_regular"}),
        (to_hard_link, {"outside_root"}),
        (to_nothing, {"not_found"}),
    ],
)
@pytest.mark.parametrize("does", [confine.look, confine.open_log])
def test_what_is_swapped_after_a_path_was_resolved(
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    does: Callable[[str, str], object],
    swap: Callable[[Path], None],
    codes: set[str],
) -> None:
    """Between resolving a name and opening it everything may change; nothing outside is opened."""
    path = str(logs / "sub/a.log")
    resolved = os.path.realpath(path)

    def then_swapped(_path: str) -> str:
        swap(logs)
        return resolved

    monkeypatch.setattr(os.path, "realpath", then_swapped)
    with pytest.raises(Refusal) as refused:
        does(str(logs), path)
    assert refused.value.code in codes


@pytest.mark.parametrize("name", ["logs2/a.log", "logs.old/a.log", "logs", "secret"])
def test_what_only_begins_like_the_root(logs: Path, name: str) -> None:
    """A directory beside the root is not below it, whatever its name."""
    (logs.parent / name).parent.mkdir(exist_ok=True)
    if name != "logs":
        (logs.parent / name).write_text("x")
    with pytest.raises(Refusal) as refused:
        confine.look(str(logs), str(logs.parent / name))
    assert refused.value.code == "outside_root"


def test_no_descriptor_is_left(logs: Path) -> None:
    """Whatever is looked at, everything is closed again."""
    before = os.listdir("/proc/self/fd")
    (logs / "link").symlink_to("/etc/passwd")
    for name in ("sub/a.log", "sub", "none.log", "none/none.log", "link", "sub/a.log/x"):
        try:
            confine.look(str(logs), str(logs / name))
        except Refusal:
            continue
    os.close(confine.open_log(str(logs), str(logs / "sub/a.log")))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.root
def test_what_the_services_user_may_not_read(logs: Path, short_path: Path) -> None:
    """A log of somebody else is refused as such, as is one in a directory of somebody else."""
    short_path.chmod(0o755)
    root = short_path.resolve()
    (root / "a.log").write_text("x")
    (root / "a.log").chmod(0o600)
    (root / "dir").mkdir(mode=0o700)
    (root / "dir/b.log").write_text("x")
    del logs
    os.seteuid(65534)
    try:
        for name in ("a.log", "dir/b.log", "dir/none.log"):
            with pytest.raises(Refusal) as refused:
                confine.look(str(root), str(root / name))
            assert refused.value.code == "not_readable"
    finally:
        os.seteuid(0)


def found(log: int, earlier: Sequence[Finding]) -> Finding:
    """Find what a log says."""
    text = os.read(log, 100).decode()
    if text == "raise":
        raise KeyError("odd\x1b")
    return Finding("x", Action.STOP, f"{text} after {len(earlier)}", "tests")


@pytest.mark.parametrize(
    ("does", "name", "text", "told"),
    [
        ("look", "b.log", "", {"found": {"path": "{logs}/b.log", "state": None}}),
        ("look", "../secret", "", {"refused": ["outside_root", "log_path leads outside the allowed root"]}),
        ("preview", "a.log", "x" * 5000, {"text": "x" * 4096}),
        ("preview", "b.log", "", {"refused": ["not_found", "log_path does not exist"]}),
        ("analyse", "a.log", "raise", {"failed": "KeyError: 'odd\\x1b'"}),
    ],
)
def test_a_worker_answers(logs: Path, does: str, name: str, text: str, told: dict[str, Any]) -> None:
    """Each task has one answer, a failure too."""
    (logs / "a.log").write_text(text)
    task = {"do": does, "path": str(logs / name), "earlier": []}
    answer = worker.answer_to(task, str(logs), found)
    assert json.loads(json.dumps(answer).replace(str(logs), "{logs}")) == told


def test_a_worker_analyses_with_what_was_found_earlier(logs: Path) -> None:
    """The finding comes with the state of the log in which it was read."""
    task = {"do": "analyse", "path": str(logs / "sub/a.log"), "earlier": [results.told(EARLIER)]}
    answer = worker.answer_to(task, str(logs), found)
    assert answer["finding"]["reason"] == "a log after 1"
    assert answer["state"] == confine.look(str(logs), str(logs / "sub/a.log")).state


def test_a_worker_ends_with_its_input_and_with_who_started_it(logs: Path) -> None:
    """Without a service there is no worker: a parent that is another one, or an input that ends, ends it."""
    command = [sys.executable, "-m", "segment_health.attribution.service.worker"]
    order = {"parent": os.getpid(), "root": str(logs), "analyser": {"name": "rules"}}
    task = {"do": "look", "path": str(logs / "sub/a.log")}
    lines = f"{json.dumps(order)}\n{json.dumps(task)}\n"
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert json.loads(ended.stdout)["found"]["path"] == task["path"]
    other = json.dumps({**order, "parent": 1}) + "\n"
    began = time.monotonic()
    refused = subprocess.run(command, input=other, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert time.monotonic() - began < PATIENCE

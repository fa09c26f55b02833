"""What flags and NVRx's file say of the checks: every word of theirs, and what is refused."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from segment_health import ft_cfg
from segment_health.checks import wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WHEEL = Path(__file__).parents[2] / ".cache/nvrx/nvidia_resiliency_ext-0.7.0"
PACKAGE = "nvidia_resiliency_ext"


@pytest.mark.parametrize("word", ["true", "TRUE", " Yes ", "1", True, 1], ids=repr)
def test_yes(word: object) -> None:
    """What enables a check."""
    assert wanted.is_yes(word) is True


@pytest.mark.parametrize("word", ["false", "No", "0", "", " ", False, 0, None], ids=repr)
def test_no(word: object) -> None:
    """What leaves it out."""
    assert wanted.is_yes(word) is False


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        pytest.param("/a,/b", ("/a", "/b"), id="two"),
        pytest.param(" /a b , ,/c,", ("/a b", "/c"), id="blanks"),
        pytest.param(["/a,b", None, "", " /c "], ("/a,b", "/c"), id="list"),
        pytest.param("", (), id="nothing"),
        pytest.param(None, (), id="null"),
    ],
)
def test_paths(value: object, paths: tuple[str, ...]) -> None:
    """Commas stand between paths in a text, and are part of one in a list."""
    assert wanted.paths_of(value) == paths


@pytest.mark.parametrize(
    ("read", "value", "complaint"),
    [
        (wanted.is_yes, "maybe", "not one of true"),
        (wanted.is_yes, ["true"], "not one of true"),
        (wanted.is_yes, 2, "not one of true"),
        (wanted.paths_of, "/a,b", "not an absolute path: 'b'"),
        (wanted.paths_of, ["a"], "not an absolute path: 'a'"),
        (wanted.paths_of, [1], "not a path: 1"),
        (wanted.paths_of, {"a": "/a"}, "neither a text"),
        (wanted.paths_of, "/a\0b", "not a path"),
        (wanted.directory_of, "shared", "not an absolute path: 'shared'"),
        (wanted.directory_of, 7, "not a path: 7"),
    ],
    ids=str,
)
def test_what_is_refused(read: Callable[[object], Any], value: object, complaint: str) -> None:
    """A value that cannot be meant so is a ValueError that quotes it."""
    with pytest.raises(ValueError, match=complaint):
        read(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "fault_tolerance:\n  segment_health_check_dir: /d\n  enable_dist_storage_healthcheck: true\n"
            "  storage_healthcheck_path: '/a,/b'\n  rank_heartbeat_timeout: 60\n",
            {"segment_dir": "/d", "storage": True, "storage_paths": ("/a", "/b")},
            id="all",
        ),
        pytest.param(
            "a:\n  - b: {fault_tolerance: {segment_health_check_dir: /d}}\n", {"segment_dir": "/d"}, id="deep"
        ),
        pytest.param("fault_tolerance: {segment_health_check_dir: null}", {"segment_dir": ""}, id="null"),
        pytest.param("fault_tolerance: {other: 1}", {}, id="none-of-ours"),
        pytest.param("fault_tolerance:\nb: 1", None, id="empty-section"),
        pytest.param("a: {fault_tolerance: }\nb: {fault_tolerance: {x: 1}}", {}, id="first-that-says-something"),
        pytest.param("a: 1", None, id="no-section"),
        pytest.param("", None, id="empty-file"),
        pytest.param("a: &a [*a, {b: *a}]\n", None, id="without-end"),
    ],
)
def test_a_file(text: str, told: dict[str, Any] | None) -> None:
    """The section is found wherever it is, and what is not asked for is passed over."""
    assert ft_cfg.told_by(text.encode(), "ft.yaml", wanted.KEYS) == told


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "fault_tolerance: {segment_health_check_dir: shared}",
            "fault_tolerance.segment_health_check_dir: not an",
        ),
        (
            "fault_tolerance: {enable_dist_storage_healthcheck: 2}",
            "fault_tolerance.enable_dist_storage_healthcheck: ",
        ),
        ("fault_tolerance: {storage_healthcheck_path: 'a'}", "fault_tolerance.storage_healthcheck_path: not an"),
        ("fault_tolerance: [1]", "no mapping"),
        ("a: [\n", ":2: not YAML"),
        ("[" * 5000, "not YAML"),
        ("a: !!python/object/apply:os.system [true]", ":1: not YAML"),
    ],
    ids=["directory", "word", "paths", "list", "syntax", "depth", "tag"],
)
def test_a_wrong_file(text: str, complaint: str) -> None:
    """Who reads the error knows the file, and the key or the line."""
    with pytest.raises(ft_cfg.FtCfgError) as raised:
        ft_cfg.told_by(text.encode(), "ft.yaml", wanted.KEYS)
    assert str(raised.value).startswith("ft.yaml")
    assert complaint in str(raised.value)


def test_aliases_are_looked_at_once() -> None:
    """Fifty lines of aliases would be 2**50 lists: they are searched at once, and what is behind them is found."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 50)]
    lines += ["z: {fault_tolerance: {segment_health_check_dir: /d}}"]
    assert ft_cfg.told_by("\n".join(lines).encode(), "ft.yaml", wanted.KEYS) == {"segment_dir": "/d"}


@pytest.fixture(scope="module")
def find() -> Iterator[Callable[[object], object]]:
    """NVRx's own search for the section, its file unmodified; bare packages stand for those that import torch."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for name in (PACKAGE, f"{PACKAGE}.fault_tolerance", f"{PACKAGE}.shared_utils"):
            package = ModuleType(name)
            package.__path__ = [str(WHEEL.joinpath(*name.split(".")))]
            patch.setitem(sys.modules, name, package)
        config = importlib.import_module(f"{PACKAGE}.fault_tolerance.config")
        yield config.FaultToleranceConfig._find_fault_tol_section
    for name in set(sys.modules) - before:
        if name.startswith(PACKAGE):
            del sys.modules[name]


@pytest.mark.wheel
@pytest.mark.parametrize(
    "text",
    [
        "fault_tolerance: {a: 1}",
        "x: {y: [{fault_tolerance: {a: 1}}, {fault_tolerance: {b: 2}}]}",
        "x: {fault_tolerance: {}}\ny: {fault_tolerance: {b: 2}}",
        "x: {fault_tolerance: , z: {fault_tolerance: {a: 1}}}\ny: {fault_tolerance: {b: 2}}",
        "- 1\n- [[{fault_tolerance: {a: 1}}]]",
        "fault_tolerance: {}",
        "plain",
    ],
    ids=range(7),
)
def test_the_section_is_the_one_that_nvrx_finds(find: Callable[[object], object], text: str) -> None:
    """Of several sections, at several depths, the same one counts; one that says nothing is none."""
    document = yaml.safe_load(text)
    assert (ft_cfg._section_of(document) or None) == (find(document) or None)

"""The tree keeps its shape: small modules, one configuration file, one home for each dependency."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import tomli

import segment_health

PROJECT = Path(__file__).parents[2]
PACKAGES = ("segment_health", "slurm")
MODULES = sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))

# A module over 300 lines is asked why; the answers, by path.
LONG = {
    "slurm/sandbox/cluster.py": "the life of one cluster is one object; half of its lines say what its methods do",
}

IMPORTED_AS = {"PyYAML": "yaml", "google-re2": "re2", "grpcio": "grpc", "protobuf": "google"}
"""Distributions whose module has another name."""

OTHER_CONFIGURATION = [
    ".coveragerc", ".flake8", ".importlinter", ".mypy.ini", ".pylintrc", ".pytest.ini", ".ruff.toml",
    "conftest.py", "mypy.ini", "noxfile.py", "pytest.ini", "requirements.txt", "ruff.toml", "setup.cfg",
    "setup.py", "tox.ini",
]  # fmt: skip


def name_of(module: Path) -> str:
    """The dotted name of a module of ours."""
    parts = module.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(module: Path) -> set[str]:
    """The top-level names that a module imports, at its top or late."""
    names = set[str]()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name.partition(".")[0] for alias in aliases}
            case ast.ImportFrom(module=str(origin), level=0):
                names.add(origin.partition(".")[0])
            case _:
                pass
    return names


def dependencies() -> list[tuple[str, str]]:
    """Each dependency in pyproject.toml, extras too, with the homes that the comment beside it names."""
    text = (PROJECT / "pyproject.toml").read_text()
    project = tomli.loads(text)["project"]
    tables = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    rows: list[tuple[str, str]] = []
    for name, wanted in tables.items():
        (table,) = re.findall(rf"^{name} = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        found = re.findall(r'^ *"([A-Za-z0-9_-]+)[^"]*", *# ([a-z_., ]+): ', table, re.MULTILINE)
        assert len(found) == len(wanted), "each dependency names its home"
        rows += found
    return rows


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_module_is_small(module: Path) -> None:
    """A module has at most 300 lines, or a reason in LONG, which goes when the module shrinks."""
    lines = len(module.read_text().splitlines())
    reason = LONG.get(module.relative_to(PROJECT).as_posix())
    assert (lines > 300) == (reason is not None), f"{lines} lines"


def test_every_long_module_exists() -> None:
    """LONG speaks of modules that are there."""
    assert all((PROJECT / path).is_file() for path in LONG)


def test_tests_are_no_package() -> None:
    """A folder of tests that is a package would shadow the one that it is named after."""
    assert list((PROJECT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("name", OTHER_CONFIGURATION)
def test_pyproject_is_the_only_configuration(name: str) -> None:
    """No tool is configured elsewhere (mkdocs.yml is the exception: mkdocs reads nothing else)."""
    assert not (PROJECT / name).exists()


@pytest.mark.parametrize(("distribution", "home"), dependencies())
def test_dependency_has_the_home_that_it_names(distribution: str, home: str) -> None:
    """The module named beside a dependency in pyproject.toml imports it, and no other does."""
    imported = IMPORTED_AS.get(distribution, distribution)
    importers = {name_of(module) for module in MODULES if imported in imported_by(module)}
    assert importers
    assert all(f"{importer}.".startswith(tuple(f"{one}." for one in home.split(", "))) for importer in importers)


def test_init_of_slurm_is_a_docstring() -> None:
    """A distribution on PyPI owns the name `slurm` too: nothing of ours lives in the file that may be its."""
    (only,) = ast.parse((PROJECT / "slurm" / "__init__.py").read_text()).body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)
    assert isinstance(only.value.value, str)


def test_changelog_begins_with_this_version() -> None:
    """The newest heading of the changelog is this version's, or that of what is not released yet."""
    newest = re.search(r"^## \[?([^\]\s]+)", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] in {"Unreleased", segment_health.__version__}

"""The wheel holds both packages whole, and nothing else; installed alone, its command runs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import segment_health

PROJECT = Path(__file__).parents[2]
DIST_INFO = f"segment_health-{segment_health.__version__}.dist-info"


def run(*command: str | Path, cwd: Path) -> str:
    """Run `command`, which must succeed, and answer what it printed."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=PROJECT)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The names of all files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_name_and_tags(wheel: Path) -> None:
    """One wheel serves every Python and every machine."""
    assert wheel.name == f"segment_health-{segment_health.__version__}-py3-none-any.whl"


def test_top_level_is_the_two_packages(names: set[str]) -> None:
    """An installation adds two names to site-packages, and no `tests` or `docs` of ours."""
    assert {name.partition("/")[0] for name in names} == {"segment_health", "slurm", DIST_INFO}


@pytest.mark.parametrize("package", ["segment_health", "slurm"])
def test_package_is_whole(package: str, names: set[str]) -> None:
    """Every file of the package is in the wheel, its types and its templates too, and none that it lacks."""
    sources = {
        path.relative_to(PROJECT).as_posix()
        for path in (PROJECT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{package}/py.typed" in sources
    assert {name for name in names if name.startswith(f"{package}/")} == sources


def test_license_and_script(wheel: Path, names: set[str]) -> None:
    """The licence travels along, and the commands are `segment-health` and `nvhcd`."""
    assert f"{DIST_INFO}/licenses/LICENSE" in names
    with zipfile.ZipFile(wheel) as archive:
        scripts = archive.read(f"{DIST_INFO}/entry_points.txt").decode()
    assert scripts.splitlines() == [
        "[console_scripts]",
        "nvhcd = segment_health.cli.nvhcd:nvhcd",
        "segment-health = segment_health.cli:main",
    ]


def test_installed_alone_the_command_runs(wheel: Path, tmp_path: Path) -> None:
    """In an environment without this tree the command answers, and what is imported is the wheel's own."""
    environment = tmp_path / "venv"
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    into = ("-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet")
    run(sys.executable, *into, wheel, cwd=tmp_path)
    # The dependencies are lent by this environment: a line in a .pth file adds their folder last, and leaves
    # unread the .pth file in it by which this tree is installed.
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    assert "publish" in run(environment / "bin" / "segment-health", "--help", cwd=tmp_path)
    where = "import segment_health, slurm; print(segment_health.__file__, slurm.__file__)"
    imported = run(python, "-c", where, cwd=tmp_path).split()
    assert [Path(name).parent.parent for name in imported] == [site, site]


def test_version_is_one() -> None:
    """What the package says of itself is what was installed."""
    assert importlib.metadata.version("segment-health") == segment_health.__version__

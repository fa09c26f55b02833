"""A test that CI passes over is one that nobody runs: where CI=true, a skip is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "in_a_test": "import pytest\n\ndef test_it(): pytest.skip('no Slurm here')\n",
    "by_mark": "import pytest\n\n@pytest.mark.skipif(True, reason='no Slurm here')\ndef test_it(): pass\n",
    "in_a_fixture": (
        "import pytest\n\n@pytest.fixture\ndef it(): pytest.skip('no Slurm here')\n\ndef test_it(it): pass\n"
    ),
    "of_a_file": "import pytest\n\npytest.importorskip('no_such_module', reason='no Slurm here')\n",
}


def run_pytest(directory: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    """Run one file of tests under this project's conftest.py."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", directory)
    (directory / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", directory, directory],
        cwd=directory,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("how", SKIPS)
def test_a_skip_fails_in_ci(how: str, tmp_path: Path) -> None:
    """However a test is skipped, CI fails, and says for what reason it was."""
    result = run_pytest(tmp_path, SKIPS[how], ci="true")
    assert result.returncode in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}, result.stdout
    assert "a skip in CI is a failure" in result.stdout
    assert "no Slurm here" in result.stdout


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    """Someone without the real thing may run what remains."""
    result = run_pytest(tmp_path, SKIPS["in_a_test"], ci="")
    assert result.returncode == pytest.ExitCode.OK, result.stdout
    assert "1 skipped" in result.stdout


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    """A strict xfail is run, and pytest judges it: CI has nothing to add."""
    result = run_pytest(
        tmp_path, "import pytest\n\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert 0\n", ci="true"
    )
    assert result.returncode == pytest.ExitCode.OK, result.stdout
    assert "1 xfailed" in result.stdout

"""What every test may use, and the rule that CI runs them all."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from slurm.commands.run import Commands

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

FAKE = """\
#!/bin/sh
[ -z "$SQUEUE_FORMAT$SLURM_TIME_FORMAT$SLURM_CLUSTERS" ] && [ "$TZ" = UTC ] || exit 99
printf '%s\\n' "${0##*/}" "$@" > "$FAKE/calls/$$"
case "${0##*/} $*" in
    *' show nodes '* | sinfo*) what=nodes ;;
    *' show config') what=config ;;
    *' --version') what=version ;;
    squeue*) what=jobs ;;
    *) exit 98 ;;
esac
[ ! -e "$FAKE/$what.sh" ] || . "$FAKE/$what.sh"
exec cat "$FAKE/$what"
"""


class FakeSlurm:
    """Commands `scontrol`, `sinfo` and `squeue` on PATH that print files and record how they were called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("bin", "calls"):
            (directory / name).mkdir()
        for name in ("scontrol", "sinfo", "squeue"):
            path = directory / "bin" / name
            path.write_text(FAKE)
            path.chmod(0o755)

    def answers(self, what: str, answer: bytes) -> None:
        """Print `answer` when asked for nodes, jobs, config or version."""
        (self.directory / what).write_bytes(answer)

    def does(self, what: str, command: str) -> None:
        """Run a shell command before that answer."""
        (self.directory / f"{what}.sh").write_text(command + "\n")

    def calls(self) -> list[list[str]]:
        """Return how the commands were called since this was last asked, sorted."""
        files = list((self.directory / "calls").iterdir())
        calls = sorted(path.read_text().splitlines() for path in files)
        for path in files:
            path.unlink()
        return calls

    def commands(self, timeout: float) -> Commands:
        """Return these commands, in an environment that would spoil what they say."""
        path = f"{self.directory}/bin{os.pathsep}{os.environ['PATH']}"
        spoilt = {
            "SQUEUE_FORMAT": "%i",
            "SLURM_TIME_FORMAT": "relative",
            "SLURM_CLUSTERS": "other",
            "TZ": "Asia/Tokyo",
        }
        return Commands(timeout=timeout, environ={"PATH": path, "FAKE": str(self.directory), **spoilt})


@pytest.fixture
def own_signals() -> Iterator[None]:
    """The handlers of this process, put back whatever a test leaves."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    """Commands of Slurm that answer nothing yet."""
    return FakeSlurm(tmp_path)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for UNIX sockets, whose paths must be shorter than a test's own directory may be."""
    with tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's directory."""
    return Path(__file__).parent.parent


# In CI the same examples every time, so that a change alone decides; other runs draw anew.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI") == "true":
    hypothesis.settings.load_profile("ci")


def pytest_configure() -> None:
    """Take signals as from a terminal: the background of a shell ignores SIGINT and SIGQUIT, nohup SIGHUP.

    Whatever the tests start would ignore them too.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs root where we are not: .ci/run runs all as root, and the rest as somebody else too."""
    if os.geteuid() == 0:
        return
    needs_root = [item for item in items if item.get_closest_marker("root")]
    config.hook.pytest_deselected(items=needs_root)
    items[:] = [item for item in items if item not in needs_root]


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where CI=true: what CI passes over, nobody runs."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped, and a skip in CI is a failure. {reason}"


# Outermost (tryfirst), so that xfail has had its word before.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge each test."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge each file: pytest.importorskip at its top passes over all of it."""
    report = yield
    _fail_if_skipped(report)
    return report

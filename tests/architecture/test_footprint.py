"""What a launcher pays for the consumer, and a single pass before it asks: which modules, and where it runs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSUMER = ROOT / "segment_health/consumer.py"
# The standard library's slow ones, and everything that some other part of the project uses.
FORBIDDEN = {
    "ClusterShell",
    "asyncio",
    "click",
    "collections",
    "dataclasses",
    "enum",
    "grpc",
    "httpx",
    "inspect",
    "json",
    "logging",
    "pathlib",
    "pydantic",
    "pyslurm",
    "re",
    "slurm",
    "subprocess",
    "tempfile",
    "threading",
    "tomli",
    "tomllib",
    "torch",
    "typing",
    "yaml",
}


def run(python: str, *arguments: str, **env: str) -> str:
    """Run Python away from the project and its environment, and return what it printed."""
    command = [python, "-I", *arguments]
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(statement: str, *options: str, **env: str) -> set[str]:
    """Return the modules that a statement loads beyond those of `python -c pass`."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); {statement}; "
        "print(*set(sys.modules) - before)"
    )
    return set(run(sys.executable, *options, "-c", program, **env).split())


def test_import_loads_two_modules() -> None:
    """`import segment_health` loads itself and the consumer, and nothing else."""
    assert loaded_by("import segment_health") == {"segment_health", "segment_health.consumer"}


def test_import_needs_the_standard_library_only() -> None:
    """Nor does it lean on what an environment loads at start: without site, it is os and its kin."""
    loaded = loaded_by("import segment_health", "-S") - {"segment_health", "segment_health.consumer"}
    assert {name.partition(".")[0] for name in loaded} <= sys.stdlib_module_names
    assert not loaded & FORBIDDEN


SHARED = "/shared/nvrx"
ASK = f"import segment_health; segment_health.ensure_segment_is_healthy({SHARED!r})"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, False),
        ({"SLURM_JOB_ID": "1", "SLURM_PROCID": "1"}, False),
        ({"SLURM_PROCID": "0"}, False),
        ({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}, True),
        ({"SLURM_JOB_ID": "x", "SLURM_PROCID": "0"}, True),
    ],
    ids=["no-job", "process-1", "no-id", "installed", "warning"],
)
def test_logging_is_for_those_who_have_something_to_say(env: dict[str, str], expected: bool) -> None:
    """Only a process that installs a check, or must warn, loads logging; others load nothing at all."""
    loaded = loaded_by(ASK, **env)
    assert ("logging" in loaded) is expected
    if not expected:
        assert loaded == {"segment_health", "segment_health.consumer"}


@pytest.mark.parametrize("command", ["check", "path"])
def test_a_shell_scripts_command_loads_little(command: str, tmp_path: Path) -> None:
    """`check` and `path`, which run before every rendezvous, load click and little of ours."""
    ask = f"main([{command!r}, '--dir', {str(tmp_path)!r}], standalone_mode=False)"
    program = (
        "import sys, click; before = set(sys.modules); from segment_health.cli import main; "
        f"{ask}; print(*set(sys.modules) - before)"
    )
    env = {"SLURM_JOB_ID": "55", "SLURM_PROCID": "0", "PYTHONPATH": str(ROOT)}
    command_line = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command_line, cwd="/", env=env, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"json", "signal", "pickle", "logging", "dataclasses"}
    assert {name for name in loaded if name.startswith(("segment_health", "slurm"))} == {
        "segment_health",
        "segment_health.cli",
        "segment_health.cli.check",
        "segment_health.cli.command",
        "segment_health.cli.failure",
        "segment_health.consumer",
        "segment_health.record",
    }


def test_consumer_is_one_file() -> None:
    """The consumer imports three modules at its top, logging later, and nothing of ours."""
    tree = ast.parse(CONSUMER.read_text())
    at_the_top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert at_the_top == {"os", "stat", "sys"}
    everywhere = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert everywhere == at_the_top | {"logging"}
    typed = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert typed == {"collections.abc"}  # under TYPE_CHECKING, which the two-modules test holds it to


def test_python_3_10_parses_the_consumer() -> None:
    """Training containers have Python 3.10."""
    ast.parse(CONSUMER.read_text(), feature_version=(3, 10))


def interpreters() -> list[str]:
    """Return this Python, and 3.10 where the machine has one that starts (pyenv leaves shims that do not)."""
    found = [sys.executable]
    if old := shutil.which("python3.10"):
        command = [old, "-c", "import sys; print(sys.executable)"]
        started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        found += started.stdout.split()
    return found


@pytest.mark.parametrize("python", interpreters(), ids=["this", "3.10"][: len(interpreters())])
def test_vendored_consumer_runs(python: str, tmp_path: Path) -> None:
    """A copy of the file alone installs, decides and raises on each Python of this machine."""
    shutil.copy(CONSUMER, tmp_path / "vendored_check.py")
    (tmp_path / "segment_health_check.55.55").write_text("x")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from vendored_check import UnhealthyNodeException, ensure_segment_is_healthy
try:
    ensure_segment_is_healthy({str(tmp_path)!r})
except UnhealthyNodeException as error:
    print(error.message)
"""
    said = run(python, "-S", "-c", program, SLURM_JOB_ID="55", SLURM_PROCID="0")
    assert str(tmp_path / "segment_health_check.55.55") in said


# What a single pass must not pay for: each costs more than all that it does between its start and asking Slurm.
NOT_OF_A_PASS = {
    "asyncio",
    "filelock",
    "google",
    "grpc",
    "httpx",
    "logging",
    "prometheus_client",
    "pydantic",
    "re2",
    "rich",
    "starlette",
    "uvicorn",
    "yaml",
}


@pytest.mark.parametrize("options", [("--dry-run",), ()], ids=["dry-run", "for-good"])
def test_a_single_pass_loads_no_more_than_it_uses(options: tuple[str, ...], tmp_path: Path) -> None:
    """What only a page, a policy file, metrics, another door or a mistake needs is loaded by whoever has one."""
    decisions = tmp_path / "decisions"
    decisions.mkdir()
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    samples = ROOT / "tests/data/samples/25.11"
    nodes = tmp_path / "nodes"  # healthy ones: names are folded only of others
    nodes.write_text(
        re.sub(r" State=\S+", " State=IDLE", (samples / "scontrol_show_nodes_oneline.txt").read_text())
    )
    arguments = [
        "publish", "--once", "--all", "--allow-shared-dir", "--cluster", "c", "--dir", str(decisions),
        "--nodes-from", str(nodes), "--jobs-from", str(samples / "scontrol_show_jobs.txt"), *options,
    ]  # fmt: skip
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv[1:] = {arguments!r}
from segment_health.cli import main
try:
    main()
finally:
    print("loaded:", *sys.modules)
"""
    said = run(sys.executable, "-c", program, XDG_RUNTIME_DIR=str(runtime))
    said, _, loaded = said.partition("loaded:")
    assert "units" in said
    assert set(loaded.split()) & NOT_OF_A_PASS == set()
    assert {"segment_health.service", "slurm.saved"} <= set(loaded.split())
    ours = {
        "segment_health.lift", "segment_health.metrics", "segment_health.noded", "segment_health.page",
        "segment_health.policy.file", "segment_health.reload", "segment_health.toml",
        "segment_health.watch",
    }  # fmt: skip
    assert set(loaded.split()) & ours == set()

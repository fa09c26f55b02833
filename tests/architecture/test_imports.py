"""Imports point down, and each third party has one home: the contracts, and that each can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

PROJECT = Path(__file__).parents[2]

# One row a contract: the module that breaks it, and by what line.
BREACHES = {
    "segment-health-layers": ("segment_health/level.py", "import segment_health.policy"),
    "policy-layers": ("segment_health/policy/states.py", "import segment_health.policy.rule"),
    "noded-layers": ("segment_health/noded/wire.py", "import segment_health.noded.report"),
    "metrics-layers": ("segment_health/metrics/figures.py", "import segment_health.metrics.textfile"),
    "doctor-layers": ("segment_health/doctor/check.py", "import segment_health.doctor.visibility"),
    "checks-layers": ("segment_health/checks/health_check.py", "import segment_health.checks.nvhcd"),
    "attribution-layers": ("segment_health/attribution/metadata.py", "import segment_health.attribution.poller"),
    "llm-layers": (
        "segment_health/attribution/analysers/llm/prompt.py",
        "import segment_health.attribution.analysers.llm.answer",
    ),
    "blame-layers": (
        "segment_health/attribution/blame/record.py",
        "import segment_health.attribution.blame.directory",
    ),
    "attribution-service-layers": (
        "segment_health/attribution/service/drain.py",
        "import segment_health.attribution.service.server",
    ),
    "analysers-layers": (
        "segment_health/attribution/analysers/table.py",
        "import segment_health.attribution.analysers.rules",
    ),
    "builtin-layers": ("segment_health/checks/builtin/answer.py", "import segment_health.checks.builtin.run"),
    "nvhcd-layers": ("segment_health/checks/nvhcd/config.py", "import segment_health.checks.nvhcd.server"),
    "page-layers": ("segment_health/page/render.py", "import segment_health.page.board"),
    "slurm-layers": ("slurm/job.py", "import slurm.node"),
    "commands-layers": ("slurm/commands/run.py", "import slurm.commands.text"),
    "rest-layers": ("slurm/rest/token.py", "import slurm.rest.http"),
    "pyslurm-layers": ("slurm/pyslurm/worker.py", "import slurm.pyslurm.reader"),
    "slurm-stands-alone": ("slurm/node.py", "import segment_health.level"),
    "consumer-stands-alone": ("segment_health/consumer.py", "from segment_health import __version__"),
    "home-of-slurm": ("segment_health/policy/rule.py", "from slurm.node import Node"),
    "home-of-click": ("segment_health/watch.py", "import click"),
    "home-of-pydantic": ("segment_health/decide.py", "from pydantic import BaseModel"),
    "home-of-pyslurm": ("slurm/reader.py", "import pyslurm"),
    "home-of-tomli": ("segment_health/settings.py", "import tomli"),
    "home-of-prometheus-client": ("segment_health/metrics/figures.py", "import prometheus_client"),
    "home-of-re2": ("segment_health/decide.py", "import re2"),
    "home-of-rich": ("segment_health/cli/status.py", "import rich"),
    "home-of-clustershell": ("slurm/reader.py", "from ClusterShell.NodeSet import NodeSet"),
    "home-of-httpx": ("slurm/reader.py", "import httpx"),
    "home-of-yaml": ("segment_health/settings.py", "import yaml"),
    "home-of-protobuf": ("segment_health/checks/health_check.py", "import google.protobuf"),
    "home-of-grpc": ("segment_health/checks/message.py", "import grpc"),
    "home-of-starlette": ("segment_health/page/door.py", "import starlette"),
    "home-of-uvicorn": ("segment_health/page/door.py", "import uvicorn"),
}


def lint_imports(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run lint-imports on the packages in `directory`, which stand before the installed ones on its path."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache", "--no-logo", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages and of the contracts, to break."""
    for package in ("segment_health", "slurm"):
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_is_kept() -> None:
    """The code as it stands keeps every contract."""
    result = lint_imports(PROJECT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"Contracts: {len(BREACHES)} kept, 0 broken." in result.stdout


def test_every_contract_has_a_breach_here() -> None:
    """A contract that this file does not break has not been shown to be able to fail."""
    settings = tomli.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert [contract["id"] for contract in settings["contracts"]] == list(BREACHES)


@pytest.mark.parametrize("contract", BREACHES)
def test_a_forbidden_import_breaks_its_contract(contract: str, copy: Path) -> None:
    """One forbidden line, and its contract is broken."""
    path, line = BREACHES[contract]
    module = copy / path
    assert module.is_file()
    module.write_text(f"{module.read_text()}\n{line}\n")
    result = lint_imports(copy, "--contract", contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Contracts: 0 kept, 1 broken." in result.stdout


@pytest.mark.parametrize(
    ("package", "contract"),
    [("segment_health", "segment-health-layers"), ("slurm", "slurm-layers")],
)
def test_a_module_without_a_layer_breaks_the_layers(package: str, contract: str, copy: Path) -> None:
    """A new module cannot stand beside the plan: it is given a layer, or the contract is broken."""
    (copy / package / "annexe.py").write_text('"""Nobody planned this."""\n')
    result = lint_imports(copy, "--contract", contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "annexe" in result.stdout

"""What decides is pure: no clock, no files, no processes, no printing; time and facts are arguments."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "segment_health"
# The shell, which does what the core decides; every other module is pure, a new one too until it is named here.
SHELL = {
    "__init__", "__main__", "atomic", "attribution.analysers.llm.analyser",
    "attribution.analysers.llm.endpoint", "attribution.analysers.llm.key",
    "attribution.analysers.llm.spending", "attribution.analysers.reading",
    "attribution.analysers.search", "attribution.blame.directory", "attribution.child",
    "attribution.client", "attribution.ends", "attribution.http", "attribution.leash",
    "attribution.managed", "attribution.observer", "attribution.poller", "attribution.port",
    "attribution.relay", "attribution.service.analyses", "attribution.service.app",
    "attribution.service.blame", "attribution.service.blaming", "attribution.service.confine",
    "attribution.service.worker_pool", "attribution.service.disk_thread", "attribution.service.export",
    "attribution.service.journal", "attribution.service.analyser", "attribution.service.register",
    "attribution.service.server", "attribution.service.storage", "attribution.service.worker",
    "attribution.stop", "bounded", "checks.asking", "checks.builtin.nhc", "checks.builtin.own_state",
    "checks.builtin.run", "checks.builtin.settings", "checks.chain", "checks.health_check",
    "checks.node", "checks.nvhcd.daemon", "checks.nvhcd.place", "checks.nvhcd.program",
    "checks.nvhcd.reaper", "checks.nvhcd.relay", "checks.nvhcd.server", "checks.nvhcd.service",
    "checks.probe", "checks.probing", "checks.storage", "consumer", "demo", "doctor.facts",
    "doctor.surroundings", "heartbeats", "history", "ledger", "lift", "listening", "lock", "metrics.textfile",
    "noded.directory", "noded.export", "noded.files", "notify", "observe", "page.__main__",
    "page.answers", "page.door", "page.listening", "page.portrait", "page.server", "page.sheet",
    "page.token", "poke", "publish", "readable", "reload", "separate", "service", "serving", "settings",
    "signals", "sockets", "sources", "store", "survey", "toml", "trust", "watch",
}  # fmt: skip
FOLDERS = ("cli", "templates")
"""Folders of which nothing is pure."""
PURE = sorted(
    {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in FOLDERS
    }
    - SHELL
)

IMPURE_MODULES = {
    "asyncio", "builtins", "glob", "importlib", "io", "logging", "os", "pathlib", "random", "secrets",
    "select", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time",
}  # fmt: skip
IMPURE_CALLS = {"__import__", "eval", "exec", "input", "open", "print"}
# On whatever object: datetime.now, date.today, path.read_text, path.stat ...
IMPURE_METHODS = {
    "exists", "is_dir", "is_file", "lstat", "now", "open", "read_bytes", "read_text", "stat", "today",
    "unlink", "utcnow", "write_bytes", "write_text",
}  # fmt: skip


def impurities(source: str) -> Iterator[str]:
    """Every import and call in `source` that reaches out of the program, as 'line: what'."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.partition(".")[0] in IMPURE_MODULES:
                        yield f"{node.lineno}: import {name.name}"
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in IMPURE_MODULES:
                yield f"{node.lineno}: from {module} import"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"{node.lineno}: {name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_METHODS:
                yield f"{node.lineno}: .{name}()"
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in IMPURE_MODULES:
                yield f"{node.lineno}: {name}.{attribute}"
            case _:
                pass


def test_the_core_is_there() -> None:
    """The modules that the plan calls pure are among those looked at."""
    assert {"contract", "decide", "level", "policy.assess", "scope"} <= set(PURE)


@pytest.mark.parametrize("module", PURE)
def test_module_is_pure(module: str) -> None:
    """Neither at its top nor in a function does the module reach for the world outside."""
    assert list(impurities((PACKAGE / f"{module.replace('.', '/')}.py").read_text())) == []


@pytest.mark.parametrize(
    "breach",
    [
        "import os",
        "import os.path",
        "import time as clock",
        "from pathlib import Path",
        "def late():\n    import logging",
        "def late():\n    from subprocess import run",
        "text = open('/etc/hosts')",
        "print('decided')",
        "from datetime import datetime\nnow = datetime.now()",
        "import datetime\nnow = datetime.datetime.now(datetime.timezone.utc)",
        "def late(path):\n    return path.stat()",
        "def late(time):\n    return time.monotonic()",
    ],
)
def test_a_breach_is_seen(breach: str) -> None:
    """The same module with one impure line more is not pure: the check above can fail."""
    source = (PACKAGE / "decide.py").read_text()
    assert list(impurities(f"{source}\n{breach}\n"))

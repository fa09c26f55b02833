"""NVRx's own clients of nvhcd, unmodified, from the wheels 0.6.0 and 0.7.0: what each makes of each answer.

The last column of tests/data/cases/nvhcd.json is the rule of the seed, which is ours: test_answer.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.checks.node import DEFAULT_ARGS, NodeHealthCheck

if TYPE_CHECKING:
    from conftest import NvrxClient, Server  # type: ignore[import-not-found]  # pytest's own

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "tests/data/cases/nvhcd.json").read_text())
HEALTHY = '{"fail_count": 0, "failed_checks": []}'


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_a_release_makes_of_an_answer(nvrx: NvrxClient, server: Server, case: Any) -> None:
    """Healthy or not, as the table says, which docs/nodecheck.md shows."""
    seen = nvrx.ask(server.answers(**case["answer"]))
    assert seen.healthy is case[nvrx.release], seen.log


def test_the_page_shows_what_was_tried() -> None:
    """Each row of the table in docs/nodecheck.md is one of those above."""
    page = (ROOT / "docs/nodecheck.md").read_text()
    rows = re.findall(
        r"^\| `(true|false)` \| (?:`(.*)`|nothing) \| (\w+) \| (\w+) \| (\w+) \|$", page, re.MULTILINE
    )
    assert len(rows) > 15
    shown = {(success == "true", output): words for success, output, *words in rows}
    tried = {
        (case["answer"]["success"], case["answer"].get("output", "").strip()): [
            "healthy" if case[column] else "unhealthy" for column in ("0.6.0", "0.7.0", "seed")
        ]
        for case in CASES
        if isinstance(case["answer"].get("output", ""), str)
    }
    assert {key: tried.get(key) for key in shown} == shown


@pytest.mark.parametrize(
    "answer",
    [
        {"abort": "UNAVAILABLE"},
        {"abort": "FAILED_PRECONDITION"},
        {"abort": "UNIMPLEMENTED"},
        {"abort": "RESOURCE_EXHAUSTED"},
        {"raw": "ff"},
        {"messages": 0, "size": 0},
        {"messages": 1, "size": 5 << 20},
        {"wait": True},
    ],
    ids=str,
)
def test_an_error_excludes_nobody(nvrx: NvrxClient, server: Server, answer: Any) -> None:
    """A service that cannot answer leaves the node healthy, with a warning, in each release and with us."""
    path = server.answers(**answer)
    seen = nvrx.ask(path, seconds=1)
    assert seen.healthy
    assert [level for level, _ in seen.log][-1] == "WARNING"
    assert NodeHealthCheck(path, request_timeout_sec=1).look().is_healthy


@pytest.mark.parametrize(
    ("endpoint", "ours"),
    [
        pytest.param("/no/such", "no socket", id="missing"),
        pytest.param("unix:///no/such", "no socket", id="missing-uri"),
        pytest.param("localhost:50051", "is no UNIX socket", id="tcp"),
        pytest.param("", "no endpoint is set", id="none"),
    ],
)
def test_where_there_is_nobody_to_ask(nvrx: NvrxClient, endpoint: str, ours: str) -> None:
    """Healthy everywhere. NVRx says so to those who debug it alone; we warn."""
    seen = nvrx.ask(endpoint)
    assert seen.healthy
    assert {level for level, _ in seen.log} <= {"DEBUG"}
    (remark,) = NodeHealthCheck(endpoint).look().remarks
    assert ours in remark


def test_what_a_release_asks_for(nvrx: NvrxClient, server: Server) -> None:
    """0.7.0 sends what we send; 0.6.0 the first of it alone."""
    path = server.answers(output=HEALTHY)
    assert nvrx.ask(path).healthy
    assert server.calls() == [list(DEFAULT_ARGS) if nvrx.release == "0.7.0" else ["--no-slurm"]]


def test_the_oldest_release_asks_nobody() -> None:
    """0.5.0 has neither this client nor its flag: nothing of nvhcd stands in its wheel."""
    wheel = ROOT / ".cache/nvrx/nvidia_resiliency_ext-0.5.0"
    sources = list(wheel.rglob("*.py"))
    assert (wheel / "nvidia_resiliency_ext/shared_utils/health_check.py") in sources
    assert not list(wheel.rglob("*nvhcd*"))
    for word in ("nvhcd", "NodeHealthCheck", "node-health-check-endpoint", "node_health_check_endpoint"):
        assert [path for path in sources if word in path.read_text("utf-8")] == []

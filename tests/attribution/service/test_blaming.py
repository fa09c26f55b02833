"""A service that blames: what it found is left where a publisher looks; what hinders that hinders nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner

from segment_health.attribution.blame.record import decode
from segment_health.attribution.service.blaming import Blaming
from segment_health.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import House, Served


@pytest.fixture
def blames(tmp_path: Path) -> Path:
    """A directory that is the service's alone."""
    path = tmp_path / "blame"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    return path


def left(path: Path) -> list[tuple[str, str, int | None, int | None]]:
    """Return what was left: node, job, cycle and owner of each."""
    found = (decode(file.read_bytes(), file.name) for file in path.glob("*.blame"))
    return sorted((one.node, one.job_id, one.cycle, one.owner) for one in found)


async def said(house: House, count: int) -> None:
    """Wait until so many lines were said of blame: a verdict is told before it is written."""
    deadline = time.monotonic() + 60
    while len(of_blame(house)) < count:
        assert time.monotonic() < deadline, house.said
        await asyncio.sleep(0.02)


def of_blame(house: House) -> list[str]:
    """Return what was said of blame."""
    return [line for line in house.said if line.startswith("blame: ")]


def test_a_verdict_that_names_a_node_is_left(house: House, blames: Path) -> None:
    """With whose log it was; other verdicts leave nothing, and a second analysis adds nothing."""

    async def live() -> None:
        blaming = Blaming(str(blames), house._say, time.time)
        await blaming.begin(10)
        async with house.open() as client:
            client.analyses.listeners.append(blaming.heard)
            await client.judge(house.log("a_cycle3.log", "xid n7"), job_id="11")
            await client.judge(house.log("b_cycle3.log", "STOP"), job_id="11")
            await said(house, 1)
            await client.judge(house.log("a_cycle3.log", "xid n7 once more"), job_id="11")
            await said(house, 2)
        await blaming.end()

    asyncio.run(live())
    assert left(blames) == [("n7", "11", 3, os.geteuid())]
    assert of_blame(house) == [f"blame: {house.logs}/a_cycle3.log: blamed for xid-hardware by job 11: n7"] * 2


def test_what_cannot_be_written_costs_no_verdict(house: House, blames: Path) -> None:
    """The directory is gone: a line says so, and the answer is as ever."""

    async def live() -> None:
        blaming = Blaming(str(blames), house._say, time.time)
        await blaming.begin(10)
        shutil.rmtree(blames)
        async with house.open() as client:
            client.analyses.listeners.append(blaming.heard)
            told = await client.judge(house.log("a_cycle3.log", "xid n7"), job_id="11")
            assert told["recommendation"]["action"] == "RESTART"
            await said(house, 1)
        await blaming.end()

    asyncio.run(live())
    assert of_blame(house) == [
        f"blame: {house.logs}/a_cycle3.log: no node could be blamed: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("mode", "name", "why"),
    [
        pytest.param(0o777, "blame", "everybody may write to", id="everybodys"),
        pytest.param(0o755, "none", "No such file or directory", id="not-there"),
    ],
)
def test_a_directory_that_is_refused(tmp_path: Path, blames: Path, mode: int, name: str, why: str) -> None:
    """At the start, with exit status 2 and the flag's name."""
    blames.chmod(mode)
    (tmp_path / "logs").mkdir()
    command = [
        "attribution",
        "serve",
        "--listen",
        f"unix:{tmp_path / 's'}",
        "--allowed-root",
        str(tmp_path / "logs"),
    ]
    command += ["--state", str(tmp_path / "state.db"), "--blame-dir", str(tmp_path / name)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "--blame-dir" in done.stderr
    assert why in done.stderr


def test_it_is_one_flag(served: Callable[..., Served], blames: Path) -> None:
    """A service in a process of its own, told of the directory, leaves a blame there; its end is a good one."""
    service = served(blame=str(blames))
    body = {"log_path": service.log("train_cycle0.log", "xid n3"), "analysis_intent": "terminal", "job_id": "5"}
    assert httpx.post(f"{service.url}/logs", json=body, trust_env=False, timeout=60).is_success
    deadline = time.monotonic() + 60
    while not left(blames):
        assert time.monotonic() < deadline, service.stderr.read_text()
        time.sleep(0.05)
    assert left(blames) == [("n3", "5", 0, os.geteuid())]
    assert service.end() == 0

"""A directory that others may write to, by --allow-shared-dir: what they may forge there, and what it does.

docs/site-wide.md lists what this costs; these tests say how far it goes: a unit whose artifact is forged, until
the next pass or until somebody removes it, and never the publisher or another unit.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Jobs, Person, Service

pytestmark = [pytest.mark.root, pytest.mark.slurm]


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).isoformat()


def _publisher(**told: Any) -> dict[str, Any]:
    return {"host": "h", "pid": 1, "version": "0.1.0", "cluster": "sandbox", "scope": "all", **told}


def _artifact(unit: str, **told: Any) -> dict[str, Any]:
    """An artifact of a unit as we might have written it, but for what is told."""
    job, task = unit.split(".")
    publisher = told.pop("publisher", _publisher())
    generation = {"restart_count": 0, "start_time": 1, "nodelist": "n3"}
    now = _utc(time.time())
    return {
        "schema": 1, "job_id": job, "task_id": task, "level": "SeparateFault", "nodes": [], "unavailable": "n3",
        "generation": generation, "first_published": now, "updated": now, "publisher": publisher, **told,
    }  # fmt: skip


def _generation(service: Service, unit: str) -> dict[str, Any]:
    """Return the generation that stands in an artifact of ours: everybody may read it there."""
    document: dict[str, Any] = json.loads(service.path(unit).read_bytes())
    generation: dict[str, Any] = document["generation"]
    return generation


@pytest.fixture
def plant(attacker: Person) -> Callable[[Path, object], None]:
    """Write something as the attacker, in the place of whatever the attacker may remove."""

    def put(path: Path, content: object) -> None:
        def act() -> None:
            path.unlink(missing_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))

        attacker.does(act)

    return put


def test_a_strangers_artifact_excludes_until_it_is_removed(
    shared: Service, jobs: Jobs, plant: Callable[[Path, object], None]
) -> None:
    """That is the price: each pass names it, serves everybody else, and takes it away if told to adopt it."""
    plant(shared.path(jobs.good), "mine, all mine")
    done = shared.publish()
    assert f"foreign {jobs.good}" in done.changes()
    assert shared.is_excluded(jobs.good)
    assert shared.is_excluded(jobs.bad)
    shared.publish("--adopt")
    assert not shared.is_excluded(jobs.good)


def test_an_exclusion_that_is_emptied_comes_back(shared: Service, jobs: Jobs, attacker: Person) -> None:
    """In a sticky directory it cannot be; in an open one it lasts until the next pass."""
    shared.publish()
    path = shared.path(jobs.bad)

    def empty() -> None:
        path.unlink()
        path.touch()

    if shared.directory.stat().st_mode & 0o1000:
        with pytest.raises(PermissionError):
            attacker.does(empty)
        assert shared.is_excluded(jobs.bad)
    else:
        attacker.does(empty)
        assert shared.publish().changes() == [f"exclude {jobs.bad}"]
        assert shared.is_excluded(jobs.bad)


def test_being_first_with_nothing_un_excludes_nobody(
    shared: Service, jobs: Jobs, plant: Callable[[Path, object], None]
) -> None:
    """An empty artifact of the attacker's is replaced by ours, in a sticky directory too: it belongs to us."""
    plant(shared.path(jobs.bad), "")
    assert f"exclude {jobs.bad}" in shared.publish().changes()
    assert shared.path(jobs.bad).stat().st_uid == shared.uid


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"generation": {"restart_count": 10**400, "start_time": -(10**400), "nodelist": "n[0-99999999]"}},
        {"generation": {"restart_count": 0, "start_time": 1, "nodelist": "@all,n[1-3]&n*"}},
        {"updated": "9999-12-31T23:59:59-23:59"},
        {"first_published": "0001-01-01T00:00:00+23:59"},
        {"level": "NotHandleFault"},
        {"nodes": [{"name": "\x1b[2J", "state": ["\ud800"], "reason": "\n\x1b[2J", "reason_user": None,
                    "reason_since": None, "level": "SeparateFault", "rule": "noded:x"}] * 2000},
        {"publisher": _publisher(scope="../../x", cluster="../x")},
        {"publisher": _publisher(scope="job:\n1", host="\x1b]0;x\x07")},
    ],
    ids=["ours", "endless numbers", "a hostile list", "the end of time", "its beginning", "no fault",
         "hostile text", "a path for a scope", "hostile names"],
)  # fmt: skip
def test_a_forgery_of_ours(
    shared: Service, jobs: Jobs, plant: Callable[[Path, object], None], told: dict[str, Any]
) -> None:
    """Whatever it says it breaks no pass and no explanation; what seems to be ours is judged as ours."""
    for unit in (jobs.bad, jobs.good):
        plant(shared.path(unit), _artifact(unit, **told))
    done = shared.publish()
    assert shared.is_excluded(jobs.other)
    assert shared.is_excluded(jobs.bad)
    foreign = f"foreign {jobs.good}" in done.changes()
    assert shared.is_excluded(jobs.good) == foreign
    for unit in (jobs.bad, jobs.good):
        for form in ("text", "json"):
            explained = shared.call(
                "explain", unit.split(".")[0], "--dir", str(shared.directory), "--format", form
            )
            assert explained.code == 0, explained
            assert "\x1b" not in explained.out + explained.err
            assert "\x1b" not in done.out + done.err


def test_a_forged_heartbeat_keeps_no_unit_for_ever(
    shared: Service, jobs: Jobs, plant: Callable[[Path, object], None]
) -> None:
    """An artifact of a scope that seems alive is respected, and lifted when nobody renews that life."""
    shared.publish()
    scope = f"job:{jobs.good.split('.')[0]}"
    shared.ledger.chmod(0o777)
    (shared.ledger / "heartbeat").chmod(0o777)
    beat = shared.ledger / "heartbeat" / f"{scope}@sandbox.json"
    forged = {**_publisher(scope=scope), "schema": 1, "policy": "x", "loop": True, "policy_error": None}
    state = json.loads((shared.ledger / "state" / "all@sandbox.json").read_bytes())
    (known,) = [unit for unit in state["units"] if unit["job_id"] == jobs.good.split(".")[0]]
    generation = {name: known[name] for name in ("restart_count", "start_time", "nodelist")}
    for interval in ("1e999", "NaN", "300"):
        text = json.dumps({**forged, "last_complete_pass": _utc(time.time() - 999_999), "interval": 0})
        plant(beat, text.replace('"interval": 0', f'"interval": {interval}'))
        plant(
            shared.path(jobs.good), _artifact(jobs.good, generation=generation, publisher=_publisher(scope=scope))
        )
        assert shared.publish().changes() == [f"clear {jobs.good}"], interval
        shared.path(jobs.good).unlink()
    plant(beat, {**forged, "last_complete_pass": _utc(time.time()), "interval": 300.0})
    plant(shared.path(jobs.good), _artifact(jobs.good, generation=generation, publisher=_publisher(scope=scope)))
    assert shared.publish().changes() == []


def test_a_forged_word_lifts_nothing(shared: Service, jobs: Jobs, plant: Callable[[Path, object], None]) -> None:
    """Only root, the directory's owner and the service use a unit by hand, whoever the file names."""
    shared.publish()
    generation = _generation(shared, jobs.bad)
    folder = shared.ledger / "override"
    folder.mkdir()
    folder.chmod(0o777)
    word = {"schema": 1, "restart_count": generation["restart_count"], "start_time": generation["start_time"],
            "unavailable": "n1", "reason": "I am root", "who": "root@x", "since": _utc(time.time())}  # fmt: skip
    plant(folder / f"{jobs.bad}.json", word)
    assert shared.publish().changes() == []
    assert shared.is_excluded(jobs.bad)


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[" * 100_000, '{"units": [{}]}', '{"units": [], "held": ' + "9" * 4000 + "}", "\x00" * 100],
    ids=["nothing", "no state", "deep", "no unit", "a number without end", "zeros"],
)
def test_a_garbled_state(shared: Service, jobs: Jobs, plant: Callable[[Path, object], None], content: str) -> None:
    """It is set aside, and the pass goes on as a first one."""
    shared.publish()
    state = shared.ledger / "state" / "all@sandbox.json"
    (shared.ledger / "state").chmod(0o777)
    plant(state, content)
    shared.publish()
    assert shared.publish().changes() == []
    assert shared.is_excluded(jobs.bad)
    assert not shared.is_excluded(jobs.good)


@pytest.mark.parametrize("minutes", [-10, 0, 10, 10**6])
def test_a_pass_that_somebody_else_claims_to_have_made(
    shared: Service, jobs: Jobs, plant: Callable[[Path, object], None], minutes: int
) -> None:
    """A forged newer view of our scope stops no pass of ours: only who may speak for the scope is believed."""
    shared.publish()
    shared.path(jobs.bad).unlink()
    (shared.ledger / "heartbeat").chmod(0o777)
    beat = {**_publisher(host="elsewhere"), "schema": 1, "policy": "x", "loop": True, "policy_error": None}
    when = _utc(min(time.time() + 30 + 60 * minutes, 253402300000))
    for name in ("all@sandbox.json", "zzz.json"):
        plant(shared.ledger / "heartbeat" / name, {**beat, "last_complete_pass": when, "interval": 300.0})
    shared.publish(code=None)
    assert shared.is_excluded(jobs.bad)


def test_a_forged_state_loses_no_node(shared: Service, jobs: Jobs, plant: Callable[[Path, object], None]) -> None:
    """A state that says that a unit once had more nodes is not believed, unless ours or root's."""
    shared.publish()
    state = shared.ledger / "state" / "all@sandbox.json"
    (shared.ledger / "state").chmod(0o777)
    document = json.loads(state.read_bytes())
    for unit in document["units"]:
        unit["nodelist"] = "n[1-6]"
    plant(state, document)
    shared.publish(code=None)
    assert not shared.is_excluded(jobs.good)


def test_temporaries_that_count_along(shared: Service, jobs: Jobs, attacker: Person, place: Path) -> None:
    """Names that a running loop would take next are no obstacle."""
    loop = shared.loop()
    loop.until(lambda: loop.lines("complete"))
    host = os.uname().nodename
    shared.path(jobs.bad).unlink()

    def sit() -> None:
        for pid in range(loop.process.pid, loop.process.pid + 20):
            for number in range(50):
                name = shared.directory / f".segment-health.tmp.{host}.{pid}.{number}"
                name.symlink_to(place / "trap")

    attacker.does(sit)
    loop.poked_until(lambda: shared.is_excluded(jobs.bad))
    assert loop.end() == 0
    assert not (place / "trap").exists()
    shutil.rmtree(shared.ledger)

"""Each promise complains when it is broken: a promise that nothing can break promises nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from segment_health.contract import Artifact, Generation, Publisher, UnitId, encode

from . import promises
from .promises import PROMISES, Directory, Step
from .slurm import PRE, SEPARATE, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from segment_health.level import FaultLevel


def says(
    level: FaultLevel = PRE, unavailable: str = "n1", scope: str = "all", run: tuple[int, int] = (0, 5)
) -> bytes:
    """Write an artifact of job 8, as a publisher of ours does."""
    publisher = Publisher("host", 1, "0.1.0", "fake", scope)
    return encode(Artifact(UnitId("8", "8"), level, (), unavailable, Generation(*run), "n[1-2]", 9, 9, publisher))


def unit(run: tuple[int, int] = (0, 5), **facts: Any) -> Unit:
    """Job 8 on n1 and n2, with nothing wrong."""
    nodes = frozenset({"n1", "n2"})
    return Unit(run, nodes, nodes, **{"faults": {}, **facts})


def a_pass(before: bytes | None, after: bytes | None, seen: Unit | None, **facts: Any) -> Step:
    """Return a clean pass of the scope `all`, over a directory with the one artifact of job 8, or none."""
    view = {} if seen is None else {"8": seen}
    was, now = (Directory({} if content is None else {"8": content}) for content in (before, after))
    usual: dict[str, Any] = {"scope": "all", "view": view, "units": view, "finished": True, "clean": True}
    return Step(was, now, **(usual | facts))


BAD = unit(faults={"n1": PRE})
BROKEN = {
    "lifted while a node is not understood": (
        promises.recovery_needs_evidence,
        a_pass(says(), b"", unit(unclear=frozenset({"n2"}))),
    ),
    "lifted while a node is bad": (promises.recovery_needs_evidence, a_pass(says(), b"", BAD)),
    "lifted without an answer": (promises.recovery_needs_evidence, Step(Directory({"8": says()}), Directory())),
    "lifted over a living scope": (promises.recovery_needs_evidence, a_pass(says(scope="user:bob"), b"", unit())),
    "lifted in a state of a newer Slurm": (
        promises.recovery_needs_evidence,
        a_pass(says(), b"", unit(understood=False)),
    ),
    "retired after one miss": (promises.recovery_needs_evidence, a_pass(says(), None, None)),
    "changed without an answer": (
        promises.unknown_is_never_no_bad_nodes,
        Step(Directory(), Directory({}, {".segment-health/state/all@fake.json": b"{}"}), outdated=True),
    ),
    "not excluded": (promises.a_bad_node_excludes_its_unit, a_pass(None, None, BAD)),
    "excluded though fit": (promises.a_fit_unit_is_not_excluded, a_pass(says(), says(), unit())),
    "excluded though overridden": (
        promises.a_fit_unit_is_not_excluded,
        a_pass(says(), says(), BAD, overridden=frozenset({"8"})),
    ),
    "excluded for a fit node": (promises.nothing_false_is_told, a_pass(None, says(unavailable="n[1-2]"), BAD)),
    "a bad node is not named": (
        promises.nothing_false_is_told,
        a_pass(None, says(), unit(faults={"n1": PRE, "n2": PRE})),
    ),
    "excluded for what is not understood": (
        promises.nothing_false_is_told,
        a_pass(None, says(), unit(unclear=frozenset({"n1"}))),
    ),
    "excluded at another level": (promises.nothing_false_is_told, a_pass(None, says(SEPARATE), BAD)),
    "excluded beyond its scope": (promises.nothing_false_is_told, a_pass(None, says(), BAD, units={})),
    "excluded in another scope's name": (
        promises.nothing_false_is_told,
        a_pass(None, says(scope="user:bob"), BAD),
    ),
    "excluded below the bar": (
        promises.nothing_false_is_told,
        a_pass(None, says(), BAD, publish_at=SEPARATE),
    ),
    "inherited": (promises.a_new_generation_never_inherits, a_pass(says(), says(), unit((1, 6)))),
    "not cleared by hand": (
        promises.what_is_told_is_lifted,
        Step(Directory({"8": says()}), Directory({"8": says()}), told=frozenset({"8"})),
    ),
    "a stranger's word is gone": (
        promises.what_others_wrote_is_left_alone,
        a_pass(b"n1,n2", b"", unit(), strangers={"8": b"n1,n2"}),
    ),
    "an older view lifts": (
        promises.a_newer_word_stands,
        a_pass(says(), b"", unit(), newer=frozenset({"8"})),
    ),
    "half an artifact": (promises.every_artifact_is_whole, a_pass(None, says()[:-1], BAD)),
    "an artifact without its generation": (
        promises.every_artifact_is_whole,
        a_pass(None, json.dumps({"schema": 1, "job_id": "8"}).encode() + b"\n", BAD),
    ),
    "a file of ours beside the artifacts": (
        promises.nothing_else_lies_there,
        Step(Directory(), Directory({}, {"notes": b""})),
    ),
    "a temporary after a clean pass": (
        promises.nothing_else_lies_there,
        Step(Directory(), Directory({}, {".segment-health.tmp.host.1.0": b""}), clean=True),
    ),
}


@pytest.mark.parametrize(("promise", "step"), BROKEN.values(), ids=BROKEN)
def test_a_broken_promise_is_seen(promise: Callable[[Step], None], step: Step) -> None:
    """What must never be is refused by the promise that forbids it."""
    with pytest.raises(AssertionError):
        promise(step)


def test_every_promise_can_be_broken() -> None:
    """No promise is without an example of its breach."""
    assert {promise for promise, _ in BROKEN.values()} == set(PROMISES)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(a_pass(None, says(), BAD), id="excluded"),
        pytest.param(a_pass(says(), b"", unit()), id="cleared"),
        pytest.param(a_pass(says(), b"", unit((1, 6))), id="requeued"),
        pytest.param(a_pass(says(), says(), unit(unclear=frozenset({"n1"}))), id="kept"),
        pytest.param(a_pass(says(), None, None, gone=frozenset({"8"})), id="retired"),
        pytest.param(a_pass(says(scope="user:bob"), b"", unit(), dead=frozenset({"user:bob"})), id="of-the-dead"),
    ],
)
def test_what_may_be_breaks_nothing(step: Step) -> None:
    """The usual course of things keeps every promise."""
    for promise in PROMISES:
        promise(step)

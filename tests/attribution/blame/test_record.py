"""What stands in a file of a blame, how it is named, and what is refused of either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.attribution.blame.record import MAX_BYTES, Blame, Evidence, decode, encode, node_of
from segment_health.level import FaultLevel

BLAME = Blame(
    "gpu-017",
    "xid-hardware",
    "4711",
    1_800_000_000,
    cycle=3,
    log="train_cycle3.log",
    owner=1001,
    evidence=(Evidence(12, "NVRM: Xid 79"),),
)


def test_what_was_written_is_read() -> None:
    """All of it, from one line of JSON."""
    assert encode(BLAME).count(b"\n") == 1
    assert decode(encode(BLAME), BLAME.name) == BLAME


def test_a_name_is_of_the_failure() -> None:
    """A second analysis has the same; another cycle, job, node or category has another. The node stands first."""
    names = {
        one.name
        for one in (
            BLAME,
            Blame("gpu-017", "xid-hardware", "4711", 1_900_000_000, cycle=3, log="elsewhere.log"),
            Blame("gpu-017", "xid-hardware", "4711", 1_800_000_000, cycle=4),
            Blame("gpu-017", "xid-hardware", "4712", 1_800_000_000, cycle=3),
            Blame("gpu-017", "cuda-ecc", "4711", 1_800_000_000, cycle=3),
            Blame("gpu-018", "xid-hardware", "4711", 1_800_000_000, cycle=3),
        )
    }
    assert len(names) == 5
    assert {node_of(name) for name in names} == {"gpu-017", "gpu-018"}


@pytest.mark.parametrize(
    "name",
    [
        "segment-health-blame",
        "n1",
        "n1@0123456789abcdef",
        "n1@0123456789abcdeg.blame",
        ".n1@0123456789abcdef.blame",
        "../n1@0123456789abcdef.blame",
        "n1\n@0123456789abcdef.blame",
        "n1@0123456789abcdef.blame\n",
        ".segment-health.tmp.host.1.1",
    ],
)
def test_a_name_that_is_none_of_ours(name: str) -> None:
    """It is about no node."""
    assert node_of(name) is None


@pytest.mark.parametrize("node", ["", ".", "..", "-n1", "n/1", "n 1", "n1\n", "nodé", "n@1", "x" * 255])
def test_no_name_of_a_node(node: str) -> None:
    """It becomes no file."""
    with pytest.raises(ValueError, match="node"):
        Blame(node, "xid-hardware", "1", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"category": "Fell off\n"}, id="category"),
        pytest.param({"job_id": ""}, id="no-job"),
        pytest.param({"job_id": "１"}, id="digit-of-another-script"),
        pytest.param({"level": FaultLevel.SeparateFault}, id="level"),
    ],
)
def test_what_is_refused_of_a_blame(wrong: dict[str, Any]) -> None:
    """Neither written nor believed."""
    with pytest.raises(ValueError, match=r"^its "):
        Blame(**{"node": "n1", "category": "xid-hardware", "job_id": "1", "time": 0, **wrong})


def changed(**changes: object) -> bytes:
    """Change fields of what was written."""
    return json.dumps(json.loads(encode(BLAME)) | changes).encode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(encode(BLAME)[:-20], id="cut"),
        pytest.param(b"\xff\xfe", id="bytes"),
        pytest.param(b"[" * 5000, id="deep"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"{}", id="nothing"),
        pytest.param(changed(node="gpu-018"), id="another-node"),
        pytest.param(changed(level="SeparateFault"), id="too-bad"),
        pytest.param(changed(level="Broken"), id="no-level"),
        pytest.param(changed(time="soon"), id="no-time"),
        pytest.param(changed(time=1), id="time-is-a-number"),
        pytest.param(changed(job_id=4711), id="job-is-a-number"),
        pytest.param(changed(cycle="3"), id="cycle-is-a-text"),
        pytest.param(changed(owner=True), id="owner-is-true"),
        pytest.param(changed(evidence={}), id="evidence-is-an-object"),
        pytest.param(changed(schema=0), id="schema"),
    ],
)
def test_what_is_no_blame(content: bytes) -> None:
    """It is a ValueError with a sentence, whatever it is."""
    with pytest.raises(ValueError, match=r"."):
        decode(content, BLAME.name)


def test_a_newer_version_is_read() -> None:
    """What it adds is ignored."""
    assert decode(changed(schema=2, mood="bad"), BLAME.name) == BLAME


@given(st.text(), st.text(), st.integers())
def test_a_log_says_what_it_likes(log: str, text: str, number: int) -> None:
    """The line is ASCII, short, and without what a terminal obeys."""
    blame = Blame("n1", "xid-hardware", "1", 0, log=log * 50, evidence=(Evidence(number, text * 500),) * 9)
    written = encode(blame)
    assert len(written) <= MAX_BYTES
    assert written.isascii()
    assert all(32 <= byte < 127 for byte in written.rstrip(b"\n"))
    assert len(decode(written, blame.name).evidence) == 3

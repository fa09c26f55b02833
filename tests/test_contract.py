"""The artifact's name and content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.contract import (
    Artifact,
    Generation,
    NodeFault,
    Publisher,
    UnitId,
    decode,
    encode,
    unit_of_artifact,
)
from segment_health.level import FaultLevel, NodeStatus
from segment_health.memory import Heartbeat, decode_heartbeat, encode_heartbeat
from segment_health.record import printable

_ids = st.integers(0, 2**32).map(str)
_seconds = st.integers(0, 2**33)
_faults = st.builds(
    NodeFault,
    name=st.text(min_size=1),
    state=st.lists(st.text()).map(tuple),
    reason=st.none() | st.text(),
    reason_user=st.none() | st.text(),
    reason_since=st.none() | _seconds,
    level=st.sampled_from(FaultLevel),
    rule=st.text(),
)
_artifacts = st.builds(
    Artifact,
    unit=st.builds(UnitId, _ids, _ids),
    level=st.sampled_from(FaultLevel),
    nodes=st.lists(_faults, max_size=4).map(tuple),
    unavailable=st.text(),
    generation=st.builds(Generation, st.integers(0, 2**31), _seconds),
    nodelist=st.text(),
    first_published=_seconds,
    updated=_seconds,
    publisher=st.builds(Publisher, st.text(), st.integers(1, 2**22), st.text(), st.text(), st.text()),
)


@given(_artifacts)
def test_an_artifact_is_read_back_as_it_was_written(artifact: Artifact) -> None:
    """Writing and reading back are inverse, for any text, and every artifact is one line of printable ASCII."""
    content = encode(artifact)
    assert decode(content, artifact.unit) == artifact
    assert content.endswith(b"\n")
    assert all(32 <= byte < 127 for byte in content[:-1])


@given(_artifacts, st.data())
def test_a_damaged_artifact_is_foreign_or_the_same(artifact: Artifact, data: st.DataObject) -> None:
    """Whatever byte is lost or changed, decode answers; it never raises and never invents another unit."""
    content = bytearray(encode(artifact))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(1, 9))] = data.draw(st.binary(max_size=3))
    found = decode(bytes(content), artifact.unit)
    assert found is None or found.unit == artifact.unit


@given(st.binary())
def test_any_bytes_are_foreign(content: bytes) -> None:
    """What no publisher wrote is nobody's artifact."""
    assert decode(content, UnitId("1", "1")) is None


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_cannot_be_written_again_is_not_ours(time: str) -> None:
    """What is kept of an artifact stands in the next one too; a forged year must not fail that pass."""
    content = encode(
        Artifact(
            UnitId("1", "1"), FaultLevel.SeparateFault, (), "n1", Generation(0, 1), "n1", 5, 5,
            Publisher("h", 1, "v", "c", "all"),
        )
    )  # fmt: skip
    assert decode(content, UnitId("1", "1")) is not None
    assert decode(content.replace(b"1970-01-01T00:00:05+00:00", time.encode()), UnitId("1", "1")) is None


@pytest.mark.parametrize("interval", ["1e999", "-1e999", "NaN", "1" + "0" * 400])
def test_a_heartbeat_without_a_finite_interval_is_nobodys(interval: str) -> None:
    """With an endless one a forged publisher would be alive for ever."""
    publisher = Publisher("h", 1, "v", "c", "all")
    content = encode_heartbeat(Heartbeat(publisher, "policy", 5, 300.25))
    assert decode_heartbeat(content).interval == 300.25
    with pytest.raises(ValueError, match="number"):
        decode_heartbeat(content.replace(b"300.25", interval.encode()))


def test_a_heartbeat_says_what_the_pass_left_undone() -> None:
    """Units, held exclusions and failures are read back; of many long failures a few short lines are kept."""
    publisher = Publisher("h", 1, "v", "c", "all")
    beat = Heartbeat(publisher, "policy", 5, 300, units=7, excluded=2, failures=("no room", "x" * 999), held=3)
    told = decode_heartbeat(encode_heartbeat(beat))
    assert told == beat._replace(failures=("no room", "x" * 300))
    many = beat._replace(failures=tuple(map(str, range(9))))
    assert decode_heartbeat(encode_heartbeat(many)).failures == ("0", "1", "2", "3", "and 5 more")


def test_an_older_publishers_heartbeat_is_read() -> None:
    """One that knew nothing of units, failures and held exclusions is as alive as it was."""
    beat = Heartbeat(Publisher("h", 1, "v", "c", "all"), "policy", 5, 300, units=7, excluded=2, held=3)
    document = json.loads(encode_heartbeat(beat))
    for key in ("units", "excluded", "failures", "held"):
        del document[key]
    assert decode_heartbeat(json.dumps(document).encode()) == beat._replace(units=None, excluded=None, held=0)


def test_a_newer_publishers_artifact_is_ours() -> None:
    """Unknown keys and a higher schema are read: an older publisher must not call a newer one a stranger."""
    artifact = Artifact(
        UnitId("1", "1"),
        FaultLevel.SeparateFault,
        (),
        "n1",
        Generation(0, 1),
        "n1",
        1,
        1,
        Publisher("h", 1, "9", "c", "all"),
    )
    document = json.loads(encode(artifact)) | {"schema": 2, "colour": "red"}
    assert decode(json.dumps(document).encode(), artifact.unit) == artifact


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        pytest.param("segment_health_check.123.7", ("123", "7"), id="array-task"),
        pytest.param("segment_health_check.55.55", ("55", "55"), id="job"),
        pytest.param("segment_health_check.123", None, id="one-id"),
        pytest.param("segment_health_check.123.7.tmp", None, id="three-parts"),
        pytest.param("segment_health_check.123.x", None, id="no-number"),
        pytest.param("segment_health_check.１２.3", None, id="other-digits"),
        pytest.param("segment_health_check..", None, id="empty-ids"),
        pytest.param(".segment_health_check.1.2", None, id="hidden"),
        pytest.param(".segment-health", None, id="the-ledger"),
    ],
)
def test_only_exact_names_are_artifacts(name: str, unit: tuple[str, str] | None) -> None:
    """A file that the consumer would not look for is none of ours."""
    assert unit_of_artifact(name) == unit
    if unit is not None:
        assert UnitId(*unit).artifact_name == name


@pytest.mark.parametrize(("unit", "text"), [(("123", "7"), "123_7"), (("55", "55"), "55"), (("9", "0"), "9_0")])
def test_units_are_written_as_slurms_users_write_them(unit: tuple[str, str], text: str) -> None:
    """People paste these into scontrol."""
    assert str(UnitId(*unit)) == text


@given(st.text())
def test_printable_text_cannot_move_the_cursor(text: str) -> None:
    """Nothing that a terminal acts upon is left, and what is printable stays as it is."""
    shown = printable(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text


def test_a_nodes_status_is_named_by_its_highest_level() -> None:
    """Healthy, PreSeparate and UnHealthy are seed 002's names for the three levels, in their order."""
    assert [NodeStatus(level).name for level in sorted(FaultLevel)] == ["Healthy", "PreSeparate", "UnHealthy"]

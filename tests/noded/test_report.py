"""A node report, both ways: what Go wrote is read, what we write is read as ClusterD reads."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.noded.report import Device, Report, check_code, decode, encode, time_of

DATA = Path(__file__).parents[1] / "data" / "noded"
RECORDED: list[tuple[str, dict[str, Any]]] = [
    (recording["go"], case)
    for recording in (json.loads((DATA / name).read_text()) for name in ("checkcode.json", "checkcode-1.19.json"))
    for case in recording["cases"]
]
NEWEST = RECORDED[0][0]
IDS = [f"{version}-{case['name']}" for version, case in RECORDED]
TWO_READINGS = {"null-device"}
"""Cases that ClusterD takes and we refuse: it would come to grief over the device that is none."""

PUBLISHED = {
    "cpu": (
        Report((Device("CPU", 1, ("0000001D",), "PreSeparateFault"),), "PreSeparate"),
        "230d03dc0e52145f85b908ee146e2c76a7bafc92adde6a30549037a5a743dd45",
    ),
    "psu": (
        Report((Device("PSU", 4, ("0300000D",), "NotHandleFault"),), "Healthy"),
        "ed60d60ad760e1a0022e97ef18cf35299ffd9582a91594d424a27111e4ab93ed",
    ),
    "two-codes": (
        Report((Device("CPU", 1, ("0000001D", "2C000031"), "SeparateFault"),), "UnHealthy"),
        "af937b1a9f5d4d60a24652580f756a04c7fd26b5aefa4c21f4f8c9b33383cbac",
    ),
    "zero": (Report(None, ""), "4c97cddcb947bd707778eb50b0986a69768afc2ef3e4f351db0b92e9d07d1fed"),
}
"""What upstream's reporter, with the shipped configuration, and upstream's own test say."""

CPU = (
    b'{"NodeInfo":{"FaultDevList":[{"DeviceType":"CPU","DeviceId":1,"FaultCode":["0000001D"],'
    b'"FaultLevel":"PreSeparateFault"}],"NodeStatus":"PreSeparate"},'
    b'"CheckCode":"230d03dc0e52145f85b908ee146e2c76a7bafc92adde6a30549037a5a743dd45"}'
)


def is_accepted_as_by_clusterd(text: bytes) -> bool:
    """Read a report into ClusterD's structures, write them once more, and compare: nothing of our own encoder."""
    outer = json.loads(text)
    inner = outer.get("NodeInfo") or {}
    devices = inner.get("FaultDevList")
    again = {
        "FaultDevList": devices
        and [
            {
                "DeviceType": device.get("DeviceType") or "",
                "DeviceId": device.get("DeviceId") or 0,
                "FaultCode": device.get("FaultCode"),
                "FaultLevel": device.get("FaultLevel") or "",
            }
            for device in devices
        ],
        "NodeStatus": inner.get("NodeStatus") or "",
    }
    written = json.dumps(again, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return bool(sha256(written.encode()).hexdigest() == outer.get("CheckCode"))


def as_values(inner: str) -> Report:
    """Read what Go wrote into a report, by Python's own reader."""
    told = json.loads(inner)
    devices = told["FaultDevList"]
    return Report(
        None if devices is None else tuple(device_of(device) for device in devices),
        told["NodeStatus"],
    )


def device_of(told: dict[str, Any]) -> Device:
    """Read one device."""
    codes = told["FaultCode"]
    return Device(
        told["DeviceType"], told["DeviceId"], None if codes is None else tuple(codes), told["FaultLevel"]
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_check_code_is_upstreams(name: str) -> None:
    """The vectors of upstream's reporter and of its test come out as they are known."""
    report, code = PUBLISHED[name]
    assert check_code(report) == code
    assert decode(encode(report)) == report


def test_bytes_are_upstreams() -> None:
    """A report is written as NodeD writes it, to the byte."""
    assert encode(PUBLISHED["cpu"][0]) == CPU


@pytest.mark.parametrize("case", [case for _, case in RECORDED], ids=IDS)
def test_read_as_go_reads(case: dict[str, Any]) -> None:
    """What Go accepts is accepted, and means the same; what it refuses is refused."""
    text = bytes.fromhex(case["text"])
    if not case["accepted"] or case["name"] in TWO_READINGS:
        with pytest.raises(ValueError, match=r"\S"):
            decode(text)
        return
    assert decode(text) == as_values(case["inner"])


@pytest.mark.parametrize(("version", "case"), RECORDED, ids=IDS)
def test_written_as_go_writes(version: str, case: dict[str, Any]) -> None:
    """What the newer Go writes is written by us to the byte."""
    if version == NEWEST and case["written"] and case["name"] not in TWO_READINGS:
        text = bytes.fromhex(case["text"])
        assert encode(decode(text)) == text


def test_recordings_are_of_both_spellings() -> None:
    r"""One recording is of a Go that spells \b short, the other of one that does not."""
    spelt = [b"\\b" in bytes.fromhex(case["text"]) for _, case in RECORDED if case["name"] == "control-08"]
    assert spelt == [True, False]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
devices = st.builds(
    Device,
    texts,
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.lists(texts, max_size=3).map(tuple),
    texts,
)
reports = st.builds(Report, st.none() | st.lists(devices, max_size=3).map(tuple), texts)


@given(reports)
def test_round_trip(report: Report) -> None:
    """Whatever a report says, it is read as it was written."""
    assert decode(encode(report)) == report


@given(reports)
def test_reader_that_checks_as_clusterd_accepts_ours(report: Report) -> None:
    """Whatever we write stands up to ClusterD's check."""
    assert is_accepted_as_by_clusterd(encode(report))


@given(reports, st.data())
def test_damage_is_seen(report: Report, data: st.DataObject) -> None:
    """A report with another status does not fit its CheckCode any more."""
    status = data.draw(texts.filter(lambda text: text != report.status))
    forged = json.loads(encode(report))
    forged["NodeInfo"]["NodeStatus"] = status
    with pytest.raises(ValueError, match="CheckCode is wrong"):
        decode(json.dumps(forged).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_else_is_a_value_error(content: bytes) -> None:
    """Bytes that are no report end in ValueError, never otherwise."""
    with pytest.raises(ValueError, match=r"\S"):
        decode(content)


HOSTILE = {
    "deep": (b"[" * 200_000, "nested too deep|not JSON"),
    "deep-member": (b'{"x":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
    "huge-integer": (b'{"NodeInfo":{"FaultDevList":[{"DeviceId":' + b"9" * 100_000 + b"}]}}", "64 bits"),
    "nan": (b'{"NodeInfo":{},"CheckCode":NaN}', "NaN"),
    "infinity": (b'{"NodeInfo":Infinity}', "Infinity"),
    "too-large": (b" " * (1024 * 1024 + 1), "larger than 1048576 bytes"),
    "nul": (b"\0", "not JSON"),
    "not-text": (b"\xff\xfe{\0}\0", "not JSON"),
    "member-twice": (
        b'{"NodeInfo":{"NodeStatus":"UnHealthy","NodeStatus":"Healthy"}}',
        "NodeStatus is there twice",
    ),
    "member-in-two-cases": (b'{"CheckCode":"a","checkcode":"b"}', "CheckCode is there twice"),
    "null-device": (b'{"NodeInfo":{"FaultDevList":[null]}}', "null for a device"),
    "no-check-code": (b'{"NodeInfo":{"NodeStatus":"Healthy"}}', "CheckCode is missing"),
    "list": (b"[]", "the report is not an object"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_with_its_cause(name: str) -> None:
    """What is no report is refused, and the message says why."""
    content, cause = HOSTILE[name]
    with pytest.raises(ValueError, match=cause):
        decode(content)


def test_huge_number_in_a_member_that_nobody_asks_for() -> None:
    """Members that are not known may hold anything, as in Go."""
    assert decode(CPU[:-1] + b',"Added":' + b"9" * 100_000 + b"}") == PUBLISHED["cpu"][0]


def test_sample_of_the_documentation_is_invalid() -> None:
    """The sample in MindCluster's documentation has the CheckCode of a layout with a heartbeat, long gone."""
    sample = Report((Device("CPU", 1, ("00000011",), "SeparateFault"),), "UnHealthy")
    assert check_code(sample).startswith("215f43b3551a")
    assert check_code(sample).endswith("6f0b")
    text = encode(sample).replace(check_code(sample).encode(), b"3a2934c3cb87" + b"0" * 48 + b"8855")
    with pytest.raises(ValueError, match="begins 3a2934c3, and the content's is 215f43b3"):
        decode(text)


def test_lists_that_are_not_there_and_empty_ones_differ() -> None:
    """Go's nil list is null and its empty one is [], and so are their CheckCodes."""
    assert check_code(Report(None, "Healthy")) != check_code(Report((), "Healthy"))
    nil, empty = (Report((Device("NPU", 0, codes, "SeparateFault"),), "UnHealthy") for codes in (None, ()))
    assert check_code(nil) != check_code(empty)


def test_half_a_surrogate_pair_is_written_as_it_will_be_read() -> None:
    """What is no text becomes U+FFFD before CheckCode is made, so that a reader accepts it."""
    report = Report((Device("\ud83d", 0, ("\ude00",), ""),), "Healthy")
    assert decode(encode(report)) == Report((Device("\ufffd", 0, ("\ufffd",), ""),), "Healthy")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_id_of_more_than_64_bits_is_not_written(number: int) -> None:
    """Go could not read such a report."""
    with pytest.raises(ValueError, match="DeviceId is not an integer of 64 bits"):
        encode(Report((Device("NPU", number, None, ""),), "Healthy"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-29T12:00:00Z", 1_795_953_600),
        ("2026-11-29T20:00:00+08:00", 1_795_953_600),
        ("2026-11-29T12:00:00.999999999Z\n", 1_795_953_600),
    ],
    ids=["utc", "zone", "fraction"],
)
def test_update_time(text: str, seconds: int) -> None:
    """An updateTime is read as Go's RFC 3339 writes it."""
    assert time_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "now", "1795953600", "2026-11-29 12:00:00Z", "2026-13-29T12:00:00Z", "2026-11-29T12:00:00+99:99"]
)
def test_update_time_that_is_none(text: str) -> None:
    """What is no time is a ValueError."""
    with pytest.raises(ValueError, match=r"\S"):
        time_of(text)

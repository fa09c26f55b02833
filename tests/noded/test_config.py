"""NodeD's configuration is understood whole or refused."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_health.level import FaultLevel
from segment_health.noded.config import FILE, ConfigurationError, parse

NOT_HANDLE, PRE, SEPARATE = FaultLevel


def written(**lists: Any) -> bytes:
    """A configuration with these lists."""
    return json.dumps({"FaultTypeCode": lists}).encode()


def test_shipped_configuration_is_upstreams() -> None:
    """The default has 7, 51 and 1 codes, as upstream's, and the levels that upstream's tests know."""
    codes = parse((resources.files("segment_health.noded") / FILE).read_bytes(), FILE)
    assert Counter(codes.values()) == {NOT_HANDLE: 7, PRE: 51, SEPARATE: 1}
    assert codes["0100000D"] is NOT_HANDLE
    assert codes["0000001D"] is PRE
    assert codes["2C000031"] is SEPARATE
    assert not {"00000011", "0100001D", "28000037"} & codes.keys(), "codes of the documentation's samples"


ACCEPTED = {
    "all-three": (
        written(
            NotHandleFaultCodes=["0000000A"], PreSeparateFaultCodes=["0000000B"], SeparateFaultCodes=["0000000C"]
        ),
        {"0000000A": NOT_HANDLE, "0000000B": PRE, "0000000C": SEPARATE},
    ),
    "lower-case-code": (written(PreSeparateFaultCodes=["0000001d"]), {"0000001D": PRE}),
    "twice-in-one-list": (written(SeparateFaultCodes=["0000001D", "0000001d"]), {"0000001D": SEPARATE}),
    "empty-lists": (written(NotHandleFaultCodes=[], PreSeparateFaultCodes=["0000001D"]), {"0000001D": PRE}),
    "null-list": (written(NotHandleFaultCodes=None, PreSeparateFaultCodes=["0000001D"]), {"0000001D": PRE}),
    "lower-case-members": (
        b'{"faulttypecode":{"preseparatefaultcodes":["0000001D"],"SEPARATEFAULTCODES":["2C000031"]}}',
        {"0000001D": PRE, "2C000031": SEPARATE},
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    """What says clearly what it means is accepted."""
    content, codes = ACCEPTED[name]
    assert parse(content, "here") == codes


# name: content, what the message says, and what upstream does with it
REFUSED = {
    "empty": (b"", "not JSON", "refused"),
    "not-json": (b"{FaultTypeCode}", "not JSON", "refused"),
    "byte-order-mark": (b"\xef\xbb\xbf{}", "not JSON", "refused"),
    "null": (b"null", "the configuration is missing", "refused"),
    "list": (b"[]", "the configuration is not an object", "refused"),
    "no-member": (b"{}", "FaultTypeCode is missing", "refused"),
    "null-member": (b'{"FaultTypeCode":null}', "FaultTypeCode is missing", "refused"),
    "no-code": (b'{"FaultTypeCode":{}}', "no code in any list", "every fault is ignored"),
    "empty-lists": (written(NotHandleFaultCodes=[], SeparateFaultCodes=[]), "no code in any list", "as above"),
    "unknown-members": (
        written(PreSeparateFaultCode=["0000001D"]),
        "`PreSeparateFaultCode` of FaultTypeCode; the nearest known one is PreSeparateFaultCodes",
        "every fault is ignored",
    ),
    "unknown-root": (
        b'{"FaultTypeCodes":{}}',
        "`FaultTypeCodes` of the configuration; the nearest known one is FaultTypeCode",
        "refused",
    ),
    "text-for-list": (written(SeparateFaultCodes="2C000031"), "SeparateFaultCodes is not a list", "refused"),
    "not-hexadecimal": (written(SeparateFaultCodes=["ZZZZZZZZ"]), "`ZZZZZZZZ` in SeparateFaultCodes", "accepted"),
    "prefix": (written(SeparateFaultCodes=["0x000001"]), "`0x000001` in SeparateFaultCodes", "accepted"),
    "seven": (written(SeparateFaultCodes=["C000031"]), "`C000031` in SeparateFaultCodes", "refused"),
    "nine": (written(PreSeparateFaultCodes=["02C000031"]), "`02C000031` in PreSeparateFaultCodes", "refused"),
    "blank": (written(SeparateFaultCodes=[""]), "`` in SeparateFaultCodes", "refused"),
    "space": (written(SeparateFaultCodes=["2C00003 "]), "`2C00003 ` in SeparateFaultCodes", "refused"),
    "newline": (written(SeparateFaultCodes=["2C000031\n"]), r"`2C000031\\n` in SeparateFaultCodes", "refused"),
    "other-digits": (written(SeparateFaultCodes=["２C000031"]), "in SeparateFaultCodes", "refused"),
    "number": (b'{"FaultTypeCode":{"SeparateFaultCodes":[10000031]}}', "`10000031` in Separate", "refused"),
    "null-code": (written(SeparateFaultCodes=[None]), "something that is no string in Separate", "refused"),
    "two-lists": (
        written(NotHandleFaultCodes=["0000001D"], SeparateFaultCodes=["0000001d"]),
        "code 0000001D is in NotHandleFaultCodes and in SeparateFaultCodes",
        "refused by the controller only: at first start every fault is ignored",
    ),
    "member-in-two-cases": (
        b'{"FaultTypeCode":{"SeparateFaultCodes":["2C000031"],"separatefaultcodes":[]}}',
        "SeparateFaultCodes is there twice",
        "the last one counts",
    ),
    "member-twice": (
        b'{"FaultTypeCode":{"SeparateFaultCodes":["2C000031"],"SeparateFaultCodes":[]}}',
        "SeparateFaultCodes is there twice",
        "the last one counts",
    ),
    "root-twice": (b'{"FaultTypeCode":{},"FaultTypeCode":{}}', "FaultTypeCode is there twice", "merged"),
    "deep": (b'{"FaultTypeCode":' + b"[" * 100_000, "not JSON", "refused"),
    "too-large": (b" " * (1024 * 1024 + 1), "larger than", "refused"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """What upstream would read as less than it says is refused, and the message names the culprit."""
    content, problem, _ = REFUSED[name]
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse(content, "/somewhere/NodeDConfiguration.json")
    assert caught.value.path == "/somewhere/NodeDConfiguration.json"
    assert str(caught.value) == f"{caught.value.path}: {caught.value.problem}"
    assert str(caught.value).isprintable()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_else_is_refused(content: bytes) -> None:
    """Bytes that are no configuration end in ConfigurationError, never otherwise."""
    with pytest.raises(ConfigurationError):
        parse(content, "here")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["NotHandleFaultCodes", "SeparateFaultCodes", "x"]), json_values))
def test_a_configuration_of_anything_never_fails_otherwise(lists: dict[str, Any]) -> None:
    """Whatever stands in the lists, there is a level for every code of eight digits, or a refusal."""
    try:
        codes = parse(written(**lists), "here")
    except ConfigurationError:
        return
    assert codes
    assert all(len(code) == 8 for code in codes)

"""The messages of nvhcd's protocol, against bytes that protoc's own code wrote."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from segment_health.checks import message

REQUEST = b"\n\n--no-slurm\n\x07--group\n\x00\n\x02\xc3\xa9"
RESPONSE = b'\x08\x01\x10\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x02{}"\x01e'


def test_a_request_both_ways() -> None:
    """Arguments keep their order; empty ones and other scripts are arguments too."""
    made = message.request("--no-slurm", "--group", "", "\xe9")
    assert message.encode(made) == REQUEST
    assert list(message.decode_request(REQUEST).args) == ["--no-slurm", "--group", "", "\xe9"]


def test_an_answer_both_ways() -> None:
    """A negative status, as of a program that a signal ended, takes ten bytes."""
    made = message.response(success=True, exit_code=-3, output="{}", error="e")
    assert message.encode(made) == RESPONSE
    found = message.decode_response(RESPONSE)
    assert (found.success, found.exit_code, found.output, found.error) == (True, -3, "{}", "e")


def test_what_is_no_message() -> None:
    """Bytes that are none are refused."""
    with pytest.raises(DecodeError):
        message.decode_request(b"\n\xff")
    with pytest.raises(ValueError, match=r"(?i)range|int32|value"):
        message.response(success=True, exit_code=1 << 40, output="", error="")

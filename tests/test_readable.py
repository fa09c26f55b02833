"""Waiting until one of several descriptors can be read."""

from __future__ import annotations

import os
import socket
import time

from segment_health.readable import readable


def test_which_can_be_read() -> None:
    """Those with something to read, in the order in which they were named, whatever kind they are."""
    receiving, sending = os.pipe()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert readable([receiving, ours], 0.0) == []
        theirs.send(b"x")
        assert readable([receiving, ours], None) == [ours]
        os.write(sending, b"x")
        assert readable([receiving, ours], None) == [receiving, ours]
    os.close(receiving)
    os.close(sending)


def test_an_end_can_be_read() -> None:
    """Of a pipe and of a socket that the other side has closed."""
    receiving, sending = os.pipe()
    ours, theirs = socket.socketpair()
    os.close(sending)
    theirs.close()
    with ours:
        assert readable([receiving, ours], None) == [receiving, ours]
    os.close(receiving)


def test_how_long() -> None:
    """Not shorter than that; less than no time is none, and a century is not too long to be counted."""
    receiving, sending = os.pipe()
    began = time.monotonic()
    assert readable([receiving], 0.05) == []
    assert time.monotonic() - began >= 0.05
    assert readable([receiving], -1.0) == []
    os.write(sending, b"x")
    assert readable([receiving], 1e300) == [receiving]
    os.close(receiving)
    os.close(sending)

"""Hostile bytes: every parser of targets.py on recorded samples that were spoilt, by bytes or by structure.

What CI runs is a budget: SEGMENT_HEALTH_FUZZ=100 tries a hundred times as many examples. `make fuzz` looks for new
paths by coverage (run_atheris.py).
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .targets import TARGETS

EXAMPLES = dict.fromkeys(TARGETS, 100) | {"rest": 20, "json": 60}
TIMES = float(os.environ.get("SEGMENT_HEALTH_FUZZ", "1"))
SEPARATORS = [b"\n", b" ", b"|", b",", b":", b"{", b"[", b"=", b'"', b".", b"+", b"-"]
TOKENS = [
    b"", b"\0", b"\n", b"\r\n", b" ", b"\t", b"|", b",", b'"', b"'", b"\\", b"[", b"]", b"{", b"}", b"[[",
    b"]]", b"=",
    b":", b"+", b"*", b"-", b".", b"..", b"/", b"../../x", b"#", b"@", b"%", b"~", b"0", b"1", b"007", b"-1",
    b"1e309",
    b"4294967294", b"4294967295", b"18446744073709551615", b"9" * 30, b"9" * 5000, b"0x" + b"f" * 5000, b"1.5",
    b"NaN", b"Infinity", b"-Infinity", b"null", b"true", b"false", b"{}", b"[]", b'""',
    b"[" * 3000, b'{"a":' * 990,
    b"[" * 985 + b"]" * 985, b"(null)", b"N/A", b"None", b"Unknown", b"n[1-3]", b"n[0-65535]", b"n[9-1]", b"n[]",
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\\x", "\u2028".encode(), "１".encode(),
    "\u0660".encode(), b"\xef\xbb\xbf", b"0001-01-01T00:00:00", b"9999-12-31T23:59:59",
    b"0001-01-01T00:00:00+23:59",
    b"9999-12-31T23:59:59-23:59", b"x" * 300, b"x" * 70000, b" State=IDLE", b" Boards=1", b"NodeName=",
    b"JobId=1 ",
    b" Reason=x [root@2026-01-01T00:00:00]", b" Comment=", b'"schema":1,', b'"errors":[{"error":"x"}],',
    b"\x1e", b"\x1b[2J",
]  # fmt: skip
HOW = [
    "overwrite",
    "insert",
    "cut",
    "end",
    "drop",
    "twice",
    "swap",
    "replace",
    "nest",
    "atom",
    "atom",
    "text",
    "text",
]
ATOM = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[\w.:+-]+')
"""A word, a number, a time, a string of JSON or TOML."""
Edit = tuple[str, int, int, bytes, bytes]
EDITS = st.lists(
    st.tuples(
        st.sampled_from([*HOW]),
        st.integers(0, 1 << 20),
        st.integers(0, 1 << 20),
        st.sampled_from(TOKENS) | st.binary(max_size=4),
        st.sampled_from(SEPARATORS),
    ),
    min_size=1,
    max_size=6,
)


def spoilt(data: bytes, edit: Edit) -> bytes:
    """Carry an edit out: at a byte, at a word, or to one of the pieces between separators."""
    how, first, second, token, separator = edit
    if how in {"atom", "text"}:
        atoms = [found.span() for found in ATOM.finditer(data)] or [(0, 0)]
        begin, end = atoms[first % len(atoms)]
        return data[:begin] + (b'"%s"' % token if how == "text" else token) + data[end:]
    if how in {"drop", "twice", "swap", "replace"}:
        return separator.join(pieces_spoilt(data.split(separator), edit))
    at = first % (len(data) + 1)
    inserted = separator * (second % 3000) if how == "nest" else b"" if how in {"cut", "end"} else token
    gone = {"overwrite": len(token), "cut": second % 64, "end": len(data)}.get(how, 0)
    return data[:at] + inserted + data[at + gone :]


def pieces_spoilt(pieces: list[bytes], edit: Edit) -> list[bytes]:
    """Carry an edit out to one of some pieces, or to two."""
    how, first, second, token, _ = edit
    one, other = first % len(pieces), second % len(pieces)
    if how == "drop":
        del pieces[one]
    elif how == "twice":
        pieces.insert(other, pieces[one])
    elif how == "swap":
        pieces[one], pieces[other] = pieces[other], pieces[one]
    else:
        pieces[one] = token
    return pieces


@cache
def seeds(name: str) -> list[bytes]:
    """Return a target's corpus."""
    return TARGETS[name].seeds()


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read(name: str) -> None:
    """Every parser takes its recorded samples as they are."""
    for data in seeds(name):
        TARGETS[name].feed(data)


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt(name: str) -> None:
    """Every parser takes or refuses what is spoilt: no other error, in a time that nobody notices."""

    @settings(
        deadline=timedelta(seconds=5),  # a machine may be slow; a hang is longer
        max_examples=max(1, int(EXAMPLES[name] * TIMES)),
        suppress_health_check=[*HealthCheck],
    )
    @given(st.sampled_from(seeds(name)), EDITS)
    def feed(data: bytes, edits: list[Edit]) -> None:
        for edit in edits:
            data = spoilt(data, edit)
        TARGETS[name].feed(data)

    feed()

"""The streamed JSON: in whatever pieces it comes, it is what json.loads() would have read, or refused whole."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm.commands import printed as _printed
from slurm.errors import SlurmProtocolError
from slurm.json import stream as _stream
from slurm.json.stream import JsonStream

SAMPLES = Path(__file__).parent / "data/samples"
SQUEUE = SAMPLES / "24.11/squeue.v42.json"


def pieces(data: bytes, size: int) -> list[bytes]:
    """Cut `data` into pieces of `size` bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def streamed(*data: bytes) -> tuple[dict[str, Any], dict[str, list[object]]]:
    """Read an object that comes in these pieces: its members, and the elements of `nodes` and `jobs`."""
    rows: dict[str, list[object]] = {"nodes": [], "jobs": []}
    stream = JsonStream("it", {name: elements.append for name, elements in rows.items()})
    for piece in data:
        stream.feed(piece)
    members, counts = stream.close()
    assert counts == {name: len(rows[name]) for name in counts}
    return members, {name: rows[name] for name in counts}


def refused(*data: bytes) -> str:
    """Return what is said against an answer that comes in these pieces."""
    with pytest.raises(SlurmProtocolError) as caught:
        streamed(*data)
    return str(caught.value)


def whole(data: bytes) -> tuple[dict[str, Any], dict[str, list[object]]]:
    """Read the same by json.loads()."""
    members = json.loads(data)
    rows = {name: members.pop(name) for name in ("nodes", "jobs") if name in members}
    return members, rows


# --- whole answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096, 1 << 18, 1 << 30])
def test_pieces_of_a_real_answer(size: int) -> None:
    """A real answer is the same in pieces of any size, from one byte up."""
    data = (SAMPLES / "22.05/sinfo.json").read_bytes()
    assert streamed(*pieces(data, size)) == whole(data)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(['"', "\\", "\\u", "}", "]", "\ud800", "\udfff", "\u2028", "\x7f", "é", "𝄞"]),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=4), values, max_size=4),
    max_leaves=12,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.lists(VALUES, max_size=5),
        "jobs": st.lists(VALUES, max_size=5),
        "errors": VALUES,
        "": VALUES,
        "meta": VALUES,
    },
)


@given(
    OBJECTS,
    st.lists(st.integers(0, 400), max_size=12),
    st.sampled_from([None, 2]),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
@example({"nodes": [1, 10, 100]}, list(range(40)), None, False)
@example({"nodes": ["\ud834\udd1e"], "meta": "\ud800"}, list(range(60)), None, True)
def test_any_pieces_of_any_object(
    value: dict[str, Any], cuts: list[int], indent: int | None, is_ascii: bool
) -> None:
    """Wherever it is cut into pieces, an object is what json.loads() reads in it, lone surrogates included."""
    data = json.dumps(value, indent=indent).encode()
    if not is_ascii:
        with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate stands in no bytes but as an escape
            data = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert streamed(*(data[start:end] for start, end in pairwise(edges))) == whole(data)


def test_nothing_but_space_may_follow() -> None:
    """White space stands wherever JSON lets it, before and behind the object too."""
    assert streamed(b" \r\n\t{ } \n ", b"\t") == ({}, {})
    assert streamed(b' {\n"nodes" : [ ] , "a"\t:\r1 }') == ({"a": 1}, {"nodes": []})


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_json_c_writes_infinity_and_nan(size: int) -> None:
    """`Infinity` and `NaN`, which Slurm's json-c writes and JSON does not have, are numbers."""
    members, rows = streamed(*pieces(b'{"load": -Infinity, "nodes": [Infinity, {"x": NaN}]}', size))
    assert members == {"load": -math.inf}
    first, second = rows["nodes"]
    assert first == math.inf
    assert isinstance(second, dict)
    assert math.isnan(second["x"])


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xff\xfe", id="never-utf-8"),
        pytest.param(b"\xc3", id="half-a-letter"),
        pytest.param(b"\xe2\x82", id="two-thirds-of-a-letter"),
        pytest.param(b"\xed\xa0\x80", id="surrogate"),
        pytest.param(b"\xf0\x9f\x92", id="most-of-an-emoji"),
        pytest.param(b"\xc0\x80", id="overlong-nul"),
        pytest.param("é𝄞\u2028".encode(), id="utf-8"),
        pytest.param(b"a\xffb\xc3\xa9c\xe2", id="mixed"),
    ],
)
def test_bytes_that_are_not_utf_8(raw: bytes, size: int) -> None:
    r"""Inside a string they are the text \xNN, as in what Slurm's commands print, however they were cut."""
    members, rows = streamed(*pieces(b'{"a": "<' + raw + b'>", "nodes": ["' + raw + b'"]}', size))
    assert members == {"a": f"<{_printed.decode(raw)}>"}
    assert rows == {"nodes": [_printed.decode(raw)]}


def test_lone_surrogates() -> None:
    """An escape that is half of a character is kept as it is; a pair is one character, wherever it was cut."""
    assert streamed(*pieces(rb'{"nodes": ["\ud800", "\udc00x", "\ud834\udd1e"]}', 1))[1] == {
        "nodes": ["\ud800", "\udc00x", "𝄞"]
    }


# --- what is refused --------------------------------------------------------------------------------------


def test_cut_at_any_point() -> None:
    """Whatever is missing at its end, an answer is refused as a whole."""
    data = b'{"nodes": [{"name": "n1"}, 12], "errors": [], "number": 12}'
    for end in range(len(data)):
        assert refused(data[:end]).startswith("it: not one whole JSON object: ")
        assert refused(*pieces(data[:end], 1)) == refused(data[:end])


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b" \n", id="only-space"),
        pytest.param(b"[]", id="array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"text"', id="string"),
        pytest.param(b"12", id="number"),
        pytest.param(b"slurm_load_node error: Unable to contact slurm controller\n", id="error"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte-order-mark"),
        pytest.param(b"\xff{}", id="byte-in-front"),
        pytest.param(b"{}x", id="text-behind"),
        pytest.param(b"{}\0", id="nul-behind"),
        pytest.param(b"{}{}", id="two-objects"),
        pytest.param(b"{} \n []", id="array-behind"),
        pytest.param(b'{"nodes": {}}', id="rows-in-an-object"),
        pytest.param(b'{"nodes": null}', id="null-for-rows"),
        pytest.param(b'{"nodes": "n1"}', id="text-for-rows"),
        pytest.param(b'{"nodes": 1}', id="number-for-rows"),
        pytest.param(b'{"nodes": [], "nodes": []}', id="rows-twice"),
        pytest.param(b'{"nodes": [1], "x": 1, "nodes": []}', id="rows-emptied-later"),
        pytest.param(b'{"errors": ["x"], "errors": []}', id="member-twice"),
        pytest.param(b'{"nodes": [1 2]}', id="no-comma-between-rows"),
        pytest.param(b'{"nodes": [1,]}', id="comma-behind-the-last-row"),
        pytest.param(b'{"nodes": [,1]}', id="comma-before-the-first-row"),
        pytest.param(b'{"nodes": [1}', id="wrong-bracket"),
        pytest.param(b'{"a": 1,}', id="comma-behind-the-last-member"),
        pytest.param(b'{"a" 1}', id="no-colon"),
        pytest.param(b'{"a": 1 "b": 2}', id="no-comma-between-members"),
        pytest.param(b"{a: 1}", id="bare-key"),
        pytest.param(b"{1: 1}", id="number-for-a-key"),
        pytest.param(b"{[]: 1}", id="array-for-a-key"),
        pytest.param(b"{\"a\": 'b'}", id="single-quotes"),
        pytest.param(b'{"a": "b\nc"}', id="line-break-in-a-string"),
        pytest.param(b'{"a": "b\0c"}', id="nul-in-a-string"),
        pytest.param(b'{"a": "\\x41"}', id="escape-that-is-none"),
        pytest.param(b'{"a": "\\\xff"}', id="byte-behind-a-backslash"),
        pytest.param(b'{"a": tru}', id="half-a-word"),
        pytest.param(b'{"a": 01}', id="leading-zero"),
        pytest.param(b'{"a": 1.}', id="half-a-number"),
        pytest.param(b'{"nodes": [1' + b"0" * 5000 + b"]}", id="number-of-5000-digits"),
        pytest.param(b'{"a": ' + b"[" * 100_000, id="deep"),
        pytest.param(b'{"nodes": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}", id="deep-row"),
    ],
)
def test_is_not_one_whole_object(data: bytes, size: int) -> None:
    """What is no single JSON object, or gives rows in another form, is refused in a line, however it comes."""
    if size == 1 and len(data) > 10_000:
        size = 977
    message = refused(*pieces(data, size))
    assert message.isprintable()
    assert len(message) < 400


def test_a_null_row_is_handed_on() -> None:
    """Whether an element makes sense is for whoever takes the rows to say."""
    assert streamed(b'{"nodes": [null, [], "x"]}')[1] == {"nodes": [None, [], "x"]}


@pytest.mark.parametrize("where", [b'{"a": ', b'{"nodes": [', b"{"])
def test_a_huge_element_is_given_up(where: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that does not end is refused at the limit, and no more of it is kept than twice that."""
    monkeypatch.setattr(_stream, "MAX_ELEMENT", 10_000)
    stream = JsonStream("it", {"nodes": list[object]().append})
    stream.feed(where + b'"')
    kept = []
    for _ in range(1000):
        stream.feed(b"x" * 500)
        kept.append(len(stream._text))
    with pytest.raises(SlurmProtocolError, match="an element of more than 10000 characters"):
        stream.close()
    assert max(kept) <= 2 * 10_000 + 500


def test_an_element_at_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on one element, however many there are."""
    monkeypatch.setattr(_stream, "MAX_ELEMENT", 10_000)
    data = json.dumps({"nodes": ["x" * 9_998] * 20}).encode()
    assert streamed(*pieces(data, 100)) == whole(data)


def test_what_a_taker_says_comes_out_at_the_end() -> None:
    """A row that is refused is told by close(), after which a command's own complaint would have come first."""

    def take(element: object) -> None:
        raise SlurmProtocolError(f"no {element}")

    stream = JsonStream("it", {"nodes": take})
    stream.feed(b'{"nodes": [1, 2], ')
    stream.feed(b"garbage")
    with pytest.raises(SlurmProtocolError, match=r"^no 1$"):
        stream.close()


# --- size -------------------------------------------------------------------------------------------------

LARGE = """\
import json, resource, sys
from slurm.json.answer import JsonAnswer

rows = json.load(open(sys.argv[1]))["jobs"]
row = json.dumps(next(job for job in rows if job["job_state"] == ["RUNNING"]), indent=2)
before, after = row.split('"job_id": 11,')
growth = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - at_first

def answer(size):
    yield b'{"jobs": ['
    sent, job = 0, 0
    while sent < size:
        text = "".join(f'{before}"job_id": {number},{after},' for number in range(job + 1, job + 26)).encode()
        job, sent = job + 25, sent + len(text)
        yield text
    yield f'{before}"job_id": {job + 1},{after}], "errors": []}}'.encode()

def read(size):
    jobs = JsonAnswer("squeue")
    for piece in answer(size):
        jobs.feed(piece)
    jobs.close("jobs")
    return len(jobs.allocations)

at_first = 0
read(1 << 20)
at_first = growth()
count = read(67 << 20)
print(count, growth())
"""


def test_67_mb_of_jobs_in_bounded_memory() -> None:
    """`squeue --json` of thousands of tasks, made of a real row, grows a process by less than 40 MB."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, SQUEUE], check=True, capture_output=True, text=True, timeout=120
    )
    count, kilobytes = map(int, done.stdout.split())
    assert count > 5_000
    assert kilobytes < 40 * 1024


@pytest.mark.parametrize("number", ["1.5e+16", "1E-7", "12.25", "-0.5e3"])
def test_a_number_may_be_cut_anywhere(number: str) -> None:
    """`1.5` is a number, and so is `1.5e+16`: which one it is shows only when more has come."""
    data = f'{{"nodes": [], "meta": {number}}}'.encode()
    for cut in range(1, len(data)):
        for then in range(cut, len(data)):
            assert streamed(data[:cut], data[cut:then], data[then:]) == whole(data)

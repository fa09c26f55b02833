"""Hostlists: what Slurm writes is read as Slurm reads it, and everything else is refused, at once."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from slurm import hostlist
from slurm.errors import SlurmProtocolError
from slurm.sandbox.cluster import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "cases/hostlists.json").read_text())
BY_SLURM = json.loads((DATA / "samples/22.05-hostile/scontrol_show_hostnames.json").read_text())

# Each took seconds or minutes, or gigabytes, in some version of this module or in ClusterShell.
HOSTILE = {
    "commas": "," * 400_000,
    "opening-brackets": "[" * 100_000,
    "closing-brackets": "n" + "]" * 100_000,
    "brackets-in-a-row": "n" + "[1]" * 100_000,
    "product-of-brackets": "n" + "[0-9]" * 80,
    "megabyte-name": "a" * hostlist.MAX_TEXT,
    "more-than-a-megabyte": "a" * (hostlist.MAX_TEXT + 1),
    "megabyte-number": "1" * hostlist.MAX_TEXT,
    "megabyte-name-times-range": "a" * 1_000_000 + "[0-65535]",
    "megabyte-padding": "n[" + "0" * 300_000 + "1]",
    "dashes": "n[" + "-" * 300_000 + "]",
    "range-in-bits": "n[" + "1," * 300_000 + "1]",
    "unfinished-range": "n[" + "1," * 300_000,
    "unfinished-parts": "n[1-2," * 100_000,
    "late-garbage": "n[1-2]," * 100_000 + "!",
    "name-behind-name": "a.-" * 300_000 + "!",
    "nines": "n[0-999999999999999999]",
    "ranges-of-ranges": ",".join("n[0-65535]" for _ in range(5)),
}

# Legitimate and large: linear in names, where ClusterShell merges each part with all before it.
LARGE = {
    "racks": (",".join(f"r{rack}n[{rack % 7 + 1}-{rack % 7 + 9}]" for rack in range(2_000)), 18_000),
    "scattered": (",".join(f"n{number * 3}" for number in range(20_000)), 20_000),
    "all-of-slurm": ("n[0-65535]", 65_536),
    "repeated": ("a," * 200_000 + "a", 1),
}

# What ClusterShell's plain NodeSet would take for groups, operators or nothing at all.
REFUSED = {
    "group": "@all",
    "range-with-digits-behind-it": "r[1-2]000000000",
    "group-with-source": "@slurm:gpu",
    "group-in-a-list": "n1,@all",
    "wildcard": "*",
    "wildcard-in-a-name": "n*",
    "question-mark": "n?",
    "exclusion": "n[1-9]!n3",
    "intersection": "n[1-9]&n3",
    "difference": "n[1-9]^n3",
    "step": "n[1-9/2]",
    "step-outside": "n1/2",
    "function-of-25.05": "feature{gpu}",
    "braces": "n{1,2}",
    "space": "n1 n2",
    "space-in-brackets": "n[1, 2]",
    "tab": "\tn1",
    "newline": "n1\nn2",
    "newline-at-the-end": "n1\n",
    "nul": "n1\0",
    "escape": "n\x1b[1m",
    "colon": "n1:8",
    "plus": "n[+1]",
    "not-ascii": "nœud[1-2]",
    "wide-digits": "n[１-２]",
    "empty-part": "n1,,n2",
    "comma-at-the-end": "n1,",
    "comma-in-front": ",n1",
    "only-a-comma": ",",
    "empty-brackets": "n[]",
    "empty-item": "n[1,,2]",
    "no-first": "n[-3]",
    "no-last": "n[1-]",
    "three-ends": "n[1-2-3]",
    "backwards": "n[3-1]",
    "nested": "n[1[2]]",
    "letters-in-brackets": "n[a-c]",
    "null-in-a-list": "n1,(null)",
    "nineteen-digits": "n[1,1000000000000000000]",
    "long-name": "a" * 256 + ",b",
    "long-with-its-number": "a" * 254 + "[9-10]",
}


def refused(text: str) -> str:
    """Return what expand() says against `text`."""
    with pytest.raises(SlurmProtocolError) as caught:
        hostlist.expand(text)
    return str(caught.value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, object]) -> None:
    """Every hostlist of the cases names its nodes, or is refused."""
    text = str(case["input"])
    if case.get("error"):
        refused(text)
    else:
        assert list(hostlist.expand(text)) == case["nodes"]


@pytest.mark.parametrize("text", BY_SLURM)
def test_expands_as_slurm_does(text: str) -> None:
    """A hostlist names what `scontrol show hostnames` of a real Slurm named, in its order."""
    assert list(hostlist.expand(text)) == BY_SLURM[text]


@pytest.mark.parametrize("text", ["n[01-101]", "n[1-99,100-101]", "n[001-101]"])
def test_mixed_widths(text: str) -> None:
    """A range that outgrows its padding goes on without it, as Slurm writes it."""
    width = len(text.removeprefix("n[").partition("-")[0])
    assert hostlist.expand(text) == tuple(f"n{number:0{width}}" for number in range(1, 102))


@pytest.mark.parametrize("text", ["", " ", "(null)", "None", "None assigned", "N/A"])
def test_no_nodes(text: str) -> None:
    """Slurm's words for "no nodes" name none."""
    assert hostlist.expand(text) == ()


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_is_no_hostlist(text: str) -> None:
    """Groups, operators and what is cut short or garbled is refused, on one line of printable text."""
    assert refused(text).isprintable()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_at_once(text: str) -> None:
    """A megabyte of garbage costs its length, not its square, and its error is one short line."""
    hostlist._expand.cache_clear()
    start = time.process_time()
    message = refused(text)
    assert time.process_time() - start < 0.8
    assert len(message) < 300


@pytest.mark.parametrize(("text", "count"), LARGE.values(), ids=LARGE.keys())
def test_large_hostlists_are_read_at_once(text: str, count: int) -> None:
    """A job on thousands of nodes of many racks is read in time linear in its nodes."""
    hostlist._expand.cache_clear()
    start = time.process_time()
    assert len(hostlist.expand(text)) == count
    assert time.process_time() - start < 2.5


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(f"n[1-{hostlist.MAX_RANGE}]", hostlist.MAX_RANGE, id="range"),
        pytest.param(",".join(f"{c}[1-{hostlist.MAX_RANGE}]" for c in "abcd"), hostlist.MAX_HOSTS, id="hosts"),
        pytest.param("a[0-511]b[0-511]", hostlist.MAX_HOSTS, id="product"),
        pytest.param("a" * 253 + "[9-10]", 2, id="name"),
        pytest.param(f"n[{10**18 - 2}-{10**18 - 1}]", 2, id="digits"),
    ],
)
def test_the_limits_themselves_are_allowed(text: str, count: int) -> None:
    """What is exactly as large as a limit is read."""
    names = hostlist.expand(text)
    assert len(names) == count
    assert all(map(hostlist.is_node_name, names))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(f"n[0-{hostlist.MAX_RANGE}]", "range of more than", id="range"),
        pytest.param(",".join(f"{c}[1-{hostlist.MAX_RANGE}]" for c in "abcd") + ",e", "more than", id="hosts"),
        pytest.param("a[0-511]b[0-512]", "names more than", id="product"),
        pytest.param("a" * 254 + "[9-10]", "more than 255 characters", id="name"),
        pytest.param(f"n[{10**18 - 1}-{10**18}]", "more than 18 digits", id="digits"),
    ],
)
def test_one_past_a_limit_is_refused(text: str, complaint: str) -> None:
    """What is larger than a limit by one is refused, and the error says which limit."""
    assert complaint in refused(text)


def test_each_node_once() -> None:
    """A node that a hostlist names twice is one node."""
    assert sorted(hostlist.expand("n[3,1-2,2],n1")) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("n1", True), ("dgx-h100.cl1_2", True), ("1", True), ("a" * 255, True), ("a" * 256, False), ("", False),
        ("n[1-2]", False), ("n1,n2", False), ("n1\n", False), ("n 1", False), ("(null)", False), ("ñ", False),
    ],
)  # fmt: skip
def test_node_names(text: str, valid: bool) -> None:
    """A name is letters, digits, dots, underscores and dashes; nothing at its end is overlooked."""
    assert hostlist.is_node_name(text) is valid


NAMES = st.one_of(
    st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True),
    st.builds(
        "{}{:0{}}".format,
        st.sampled_from(["n", "gpu-", "r1c", "a.b", ""]),
        st.integers(0, 1200),
        st.integers(1, 4),
    ),
    st.builds("r{}n{}{}".format, st.integers(0, 12), st.integers(0, 12), st.sampled_from(["", "-ib", "x"])),
    st.builds("x{}".format, st.integers(10**17, 10**21)),
).filter(lambda name: name != "None")


@given(st.sets(NAMES, max_size=40))
@settings(deadline=None, max_examples=300)
@example({"n1", "n01", "n001"})
@example({f"n{10**20}", f"n{10**20 + 1}", "n1"})
@example({f"n{number:02}" for number in range(120)})
def test_fold_and_expand(names: set[str]) -> None:
    """Folding loses and invents no name, whatever the names are."""
    assert set(hostlist.expand(hostlist.fold(names))) == names


@given(st.text(max_size=60) | st.text("n[]-,0123456789", max_size=60))
@settings(deadline=None, max_examples=400)
def test_expand_names_nodes_or_refuses(text: str) -> None:
    """Whatever the text is, the answer is valid node names or SlurmProtocolError."""
    try:
        names = hostlist.expand(text)
    except SlurmProtocolError:
        return
    assert len(set(names)) == len(names)
    assert all(map(hostlist.is_node_name, names))


def test_fold_as_slurm_prefers() -> None:
    """The last number is folded, so that the text is one that Slurm would write."""
    assert hostlist.fold(["r1n3", "r1n1", "r1n2", "r2n1"]) == "r1n[1-3],r2n1"
    assert hostlist.fold([]) == ""
    assert hostlist.fold(["n7"]) == "n7"


# --- the real scontrol ------------------------------------------------------------------------------------

NEXT = "here-begins-the-next-list"
"""What stands between lists that one command is given; longer than any of NAMES that it could be."""
LISTS = st.lists(st.sets(NAMES, min_size=1, max_size=40), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def scontrol() -> Iterator[Callable[[str, list[str]], list[str]]]:
    """Give `scontrol show hostnames` and `scontrol show hostlist` for several lists at once."""
    with Sandbox(nodes=1) as cluster:

        def show(what: str, lists: list[str]) -> list[str]:
            asked = f"{NEXT}," + f",{NEXT},".join(lists)  # in front too: a list may begin with a dash
            said = cluster.run("scontrol", "show", what, asked).stdout.strip("\n").replace("\n", ",")
            return said.removeprefix(f"{NEXT},").split(f",{NEXT},")

        yield show


def within_limits(lists: list[set[str]], *, suffixes: bool) -> list[set[str]]:
    """Leave out names beyond Slurm's own limits.

    A number of 20 digits overflows there, and until 23.11 nothing may follow a bracket.
    """
    beyond = re.compile(r"[0-9]{19}" if suffixes else r"[0-9]{19}|[0-9][^0-9]+$")
    return [kept for names in lists if (kept := {name for name in names if not beyond.search(name)})]


@pytest.mark.slurm
@given(LISTS)
@settings(deadline=None, max_examples=60)
@example([{"n1", "n01", "n001"}, {f"n{number:02}" for number in range(120)}, {"r1n1", "r1n2", "r2n1"}])
def test_scontrol_names_the_same(scontrol: Callable[[str, list[str]], list[str]], lists: list[set[str]]) -> None:
    """What we fold, `scontrol show hostnames` expands to the same names, in the order in which we do."""
    suffixes = scontrol("hostnames", ["n[1-2]x"]) == ["n1x,n2x"]
    folded = [hostlist.fold(names) for names in within_limits(lists, suffixes=suffixes)]
    assume(folded)
    assert [tuple(text.split(",")) for text in scontrol("hostnames", folded)] == [
        hostlist.expand(text) for text in folded
    ]


@pytest.mark.slurm
@given(LISTS)
@settings(deadline=None, max_examples=60)
def test_what_scontrol_folds_is_read(
    scontrol: Callable[[str, list[str]], list[str]], lists: list[set[str]]
) -> None:
    """What `scontrol show hostlist` folds, we expand to the names that it was given."""
    names = [sorted(kept) for kept in within_limits(lists, suffixes=True)]
    assume(names)
    folded = scontrol("hostlist", [",".join(some) for some in names])
    assert [sorted(hostlist.expand(text)) for text in folded] == names

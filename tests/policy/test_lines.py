"""On which line of a TOML text something stands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_health import toml
from segment_health.policy.lines import lines_of

PLACES: list[Any] = [
    pytest.param("a = 1\n\n# a comment\nb = 2", {("a",): 1, ("b",): 4}, id="keys"),
    pytest.param(
        "[[rule]]\nx = 1\n[[rule]]\nx = 2", {("rule", 0): 1, ("rule", 1): 3, ("rule", 1, "x"): 4}, id="rules"
    ),
    pytest.param("\n [[ rule ]] # one\n\t x = 1", {("rule", 0): 2, ("rule", 0, "x"): 3}, id="spaces"),
    pytest.param("a = 1\r\n[[rule]]\r\nx = 1\r\n", {("rule", 0): 2, ("rule", 0, "x"): 3}, id="crlf"),
    pytest.param('a = """\n[[rule]]\n"""\n[[rule]]', {("rule", 0): 4}, id="header-in-a-string"),
    pytest.param(
        "a = '''\n[[rule]]\nb = 1\n'''\nc = 1", {("c",): 5, ("b",): None}, id="header-in-a-literal-string"
    ),
    pytest.param('a = """x\\"""\n[[rule]]\n""""\nb = 1', {("b",): 4, ("rule",): None}, id="escaped-quotes"),
    pytest.param("a = ''''''\nb = ''''x'''''\nc = 1", {("b",): 2, ("c",): 3}, id="quotes-beside-quotes"),
    pytest.param('a = """\\\r\n  x"""\r\nb = 1', {("b",): 3}, id="a-line-that-goes-on"),
    pytest.param("# [[rule]]\n[[rule]] # [[rule]]\n", {("rule", 0): 2, ("rule", 1): 2}, id="header-in-a-comment"),
    pytest.param('a = "# no comment" # one\nb = "[["\nc = 1', {("b",): 2, ("c",): 3}, id="marks-in-strings"),
    pytest.param('a = [\n 1, # ]\n "]",\n]\nb = 1', {("a", 1): 3, ("b",): 5}, id="array-over-lines"),
    pytest.param("a = [[1, 2],\n[3,\n4]]\nb = 1", {("a", 1): 2, ("a", 1, 1): 3, ("b",): 4}, id="array-of-arrays"),
    pytest.param("rule = [\n{x = 1},\n{x = 2, y = 3}]", {("rule", 1): 3, ("rule", 1, "y"): 3}, id="inline-tables"),
    pytest.param(
        "a = {}\nb = []\nc = {d = []}\ne = 1", {("b",): 2, ("c", "d"): 3, ("e",): 4}, id="empty-brackets"
    ),
    pytest.param("a.b = 1\na . c = 2", {("a",): 1, ("a", "b"): 1, ("a", "c"): 2}, id="dotted-keys"),
    pytest.param('"a.b" = 1\n\'c d\' = 2\n"" = 3', {("a.b",): 1, ("c d",): 2, ("",): 3}, id="quoted-keys"),
    pytest.param(
        '"a\\u0062\\"\\t" = 1\n"\\U0001F600" = 2', {('ab"\t',): 1, ("\U0001f600",): 2}, id="escapes-in-keys"
    ),
    pytest.param('[["rule"]]\n[["a]b"]]\nx = 1', {("rule", 0): 1, ("a]b", 0, "x"): 3}, id="quoted-headers"),
    pytest.param(
        "[[rule]]\n[rule.sub]\nx = 1\n[[rule]]\ny = 1",
        {("rule", 0, "sub"): 2, ("rule", 0, "sub", "x"): 3, ("rule", 1): 4, ("rule", 1, "y"): 5},
        id="table-below-a-rule",
    ),
    pytest.param(
        "[[a]]\n[[a.b]]\n[[a.b]]\n[[a]]\n[[a.b]]\nx = 1",
        {("a", 0, "b", 1): 3, ("a", 1, "b", 0): 5, ("a", 1, "b", 0, "x"): 6},
        id="arrays-of-tables-below-each-other",
    ),
    pytest.param("a = 1979-05-27 07:32:00.5\nb = -1.5e3\nc = true", {("b",): 2, ("c",): 3}, id="scalars"),
    pytest.param("", {("a",): None, ("a", 0): None}, id="nothing"),
]


@pytest.mark.parametrize(("text", "expected"), PLACES)
def test_where_it_stands(text: str, expected: dict[tuple[str | int, ...], int | None]) -> None:
    """Each location has the line on which it begins; one that is not there that of what holds it, or none."""
    toml.read(text.encode())
    found = lines_of(text)
    assert {location: found.of(*location) for location in expected} == expected


def test_what_is_missing_is_looked_for_where_it_would_be() -> None:
    """A key that a rule lacks is at the rule's header, an element of a list at the list's key."""
    found = lines_of('[[rule]]\nname = "x"\n\n[[rule]]\nstate = "A"')
    assert found.of("rule", 1, "name") == 4
    assert found.of("rule", 1, "state", 0) == 5
    assert found.of("rule", 7) == 1
    assert found.of() is None


def test_absurd_depth_costs_nothing() -> None:
    """Of thousands of brackets and dots only the first few parts are told apart."""
    text = (
        "a = "
        + "[" * 100_000
        + "]" * 100_000
        + "\n"
        + ".".join("b" * 100_000)
        + " = 1\n["
        + ".".join("c" * 100_000)
    )
    found = lines_of(text + "]\nd = 1")
    assert (found.of("a"), found.of("b"), found.of("c")) == (1, 2, 3)
    assert len(found.where) < 50


@pytest.mark.parametrize("text", ["a = ", "[[rule", "= 1", '"a', "a = ]", "]", "a = [1 2", "\x00"])
def test_what_is_no_toml_ends_it(text: str) -> None:
    """It is never asked about such a text, and would not hang on one."""
    lines_of(text)


# ── any text ───────────────────────────────────────────────────────────────────────────────────────────────────

_KEYS = st.sampled_from(["a", "b-1", '"a b"', "'c.d'", '"\\u0065"', "rule", '"#["', "x . y", "1.2"])
_SPACES = st.sampled_from(["", " ", "\t", ' # [[rule]] \' " """\n', "\n", "\r\n\n"])
_SCALARS = st.sampled_from(
    [
        "1",
        "-1.5",
        "true",
        "1979-05-27T07:32:00Z",
        '"x # ["',
        "'\\'",
        '"""\nb = 1\n[[rule]]\n\\""" """',
        "'''\n]}\n''''",
    ]
)


def _brackets(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.lists(st.tuples(_SPACES, values, _SPACES).map("".join), max_size=3).map(
        lambda v: f"[{','.join(v)}]"
    )
    pairs = st.lists(st.tuples(st.integers(0, 9), values), max_size=3, unique_by=lambda pair: pair[0])
    tables = pairs.map(lambda found: "{" + ", ".join(f"k{n} = {value}" for n, value in found) + "}")
    return arrays | tables


_VALUES = st.recursive(_SCALARS, _brackets, max_leaves=6)
_STATEMENTS = st.one_of(
    st.tuples(_KEYS, _VALUES).map(" = ".join),
    _KEYS.map("[[{}]]".format),
    _KEYS.map("[ {} ]".format),
    st.just("# a = 1"),
    st.just(""),
)


def _locations(value: object, location: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every location of a document, the document itself left out."""
    pairs: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    return [found for key, below in pairs for found in ((*location, key), *_locations(below, (*location, key)))]


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(_STATEMENTS, st.booleans()), max_size=12))
def test_every_location_of_every_text_has_its_line(statements: list[tuple[str, bool]]) -> None:
    """Of whatever tomllib accepts each location is found, on a line of the statement that said so."""
    text, line = "", 1
    began: dict[tuple[str | int, ...], range] = {}
    for statement, is_crlf in statements:
        longer = f"{text}{statement}" + ("\r\n" if is_crlf else "\n")
        try:
            document = toml.read(longer.encode())
        except toml.NotToml:
            continue  # defined twice, or no inline table: such a statement is left out
        for location in _locations(document):
            began.setdefault(location, range(line, line + statement.count("\n") + 1))
        text, line = longer, line + longer.count("\n", len(text))
    found = lines_of(text).where
    for location, lines in began.items():
        if len(location) <= 6:
            assert found[location] in lines, (location, text)
